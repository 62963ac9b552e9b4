"""How tests run a flow: the real driver and real lanes on real brokers, without starting Spark each time.

`cross` copies everything that is there and returns; `Crossing` runs a flow in the background until the block
ends. Lanes run in threads of this process; what Spark adds (processes, kills, clusters) has tests of its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import threading
import time
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Protocol

from isthmus.dr.values import Check
from isthmus.engine.driver import Driver
from isthmus.engine.lane import run_order
from isthmus.engine.orders import LaneRunner, Order, Receipt
from isthmus.lab import Lab
from isthmus.model import Cluster, Flow, Mm2Topics, Sync, Topics, Tuning
from isthmus.observe.status import FlowStatus

QUICK = Tuning(refresh_seconds=0.5, fetch_wait_ms=100)
# Clusters are shared by many flows: what a flow keeps beside its records is there only where it is tested.
RECORDS_ONLY = Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=False, checkpoints=False)


class Runner(LaneRunner, Protocol):
    """A LaneRunner that remembers the orders that it was given."""

    orders: list[Order]


class InThread:
    """A LaneRunner whose executor is a thread."""

    def __init__(self) -> None:
        self.orders: list[Order] = []

    async def run(self, order: Order) -> Receipt:
        self.orders.append(order)
        return await asyncio.to_thread(run_order, order, f"attempt-{len(self.orders)}")


def flow_between(lab: Lab, *topics: str, source: str = "east", target: str = "west", **changes: Any) -> Flow:
    """A flow between two lab clusters. The alias is unique per call of a test through `alias=`."""
    alias = changes.pop("alias", source)
    flow = Flow(
        source=Cluster(alias=alias, bootstrap=tuple(lab[source].bootstrap.split(","))),
        target=Cluster(alias=target, bootstrap=tuple(lab[target].bootstrap.split(","))),
        topics=Topics(include=topics),
        lanes=1,
        replication_factor=1,
        internal_replication_factor=1,
        sync=Sync(configs=False),
        mm2_topics=RECORDS_ONLY,
        tuning=QUICK,
    )
    return dataclasses.replace(flow, **changes)


def cross(flow: Flow, **options: Any) -> FlowStatus:
    """Copy what is there now, to the end."""
    return asyncio.run(_cross(flow, options))


async def _cross(flow: Flow, options: dict[str, Any]) -> FlowStatus:
    return await Driver(flow, InThread(), until_caught_up=True, **options).run()


@contextlib.asynccontextmanager
async def carry(flow: Flow) -> AsyncIterator[Check]:
    """For a change of sides: the flow runs as long as this is entered."""
    driver = Driver(flow, InThread())
    task = asyncio.ensure_future(driver.run())

    def check() -> None:
        if task.done():
            task.result()

    try:
        yield check
    finally:
        await driver.stop()
        await task


class Crossing:
    """A flow that runs in the background: `with Crossing(flow) as crossing: ...`."""

    def __init__(self, flow: Flow, runner: Runner | None = None, **options: Any) -> None:
        self.runner = runner or InThread()
        self.statuses: list[FlowStatus] = []
        self.error: BaseException | None = None
        self.final: FlowStatus | None = None
        self._flow = flow
        self._options = options
        self._loop: asyncio.AbstractEventLoop | None = None
        self.driver: Driver | None = None
        self._thread = threading.Thread(target=self._main, daemon=True)

    def __enter__(self) -> Crossing:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def status(self) -> FlowStatus | None:
        return self.statuses[-1] if self.statuses else None

    def until(self, happened: Callable[[FlowStatus], bool], seconds: float = 60.0) -> FlowStatus:
        """Wait for a status of which `happened` is true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.error is not None:
                raise self.error
            if self.status is not None and happened(self.status):
                return self.status
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s; last seen: {self.status}")

    def until_copied(self, records: int, seconds: float = 60.0) -> FlowStatus:
        return self.until(lambda status: status.records >= records, seconds)

    def adopt(self, flow: Flow) -> concurrent.futures.Future[None]:
        """As if the flow's file had been changed to this; done when it is in force."""
        assert self._loop is not None
        assert self.driver is not None
        return asyncio.run_coroutine_threadsafe(self.driver.steering.adopt(flow), self._loop)

    def stop(self) -> None:
        if self._loop is not None and self.driver is not None and self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self.driver.stop(), self._loop)
        self._thread.join(60)
        assert not self._thread.is_alive(), "the driver did not end"

    def _main(self) -> None:
        try:
            self.final = asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 - handed to the test that waits
            self.error = error

    async def _run(self) -> FlowStatus:
        self._loop = asyncio.get_running_loop()
        self.driver = Driver(self._flow, self.runner, watch=self.statuses.append, **self._options)
        return await self.driver.run()
