"""Who carries flows during a drill: drivers in threads of this process, lanes on one Spark for the whole drill.

Starting Spark takes seconds; a drill needs it from its first act to its last, so it is started once. What must stay
true: a flow that is frozen by a failover ends its carrier by itself; any other end is told to whoever looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from isthmus.dr.carrying import refuse_ended
from isthmus.dr.values import Check
from isthmus.engine.driver import Driver
from isthmus.engine.masters import refuse_unfit
from isthmus.engine.orders import Order, Receipt
from isthmus.engine.spark import Spark, open_spark
from isthmus.errors import IsthmusError, MachineError
from isthmus.model import Flow
from isthmus.observe.status import FlowStatus

_FROZEN = ("FAILED_OVER", "RIVAL")  # how a carrier ends when clients change sides: it was told, or came too late to be
_ENDS_S = 120.0


class Ferry:
    """One Spark, from the beginning of the block to its end; it comes up beside whatever else begins."""

    def __init__(self, master: str, lanes: int) -> None:
        self._master, self._lanes = master, lanes
        self._unwanted = threading.Event()
        self._opening: Future[Spark] | None = None

    def __enter__(self) -> Ferry:
        refuse_unfit(self._master)
        pool = ThreadPoolExecutor(max_workers=1)
        self._opening = pool.submit(open_spark, self._master, self._lanes, "isthmus drill", {}, self._unwanted)
        pool.shutdown(wait=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unwanted.set()
        if self._opening is None or (error is not None and self._opening.exception() is not None):
            return
        self._opening.result().close()

    def refuse_lost(self) -> None:
        """Spark must be there, or be coming: without it a driver would try for ever."""
        if self._opening is not None and self._opening.done() and not self._opening.result().alive():
            raise MachineError(f"Spark ended. {self._opening.result().last_words()}".strip(), code="SPARK_LOST")

    async def run(self, order: Order) -> Receipt:
        """Run an order of a driver, as soon as Spark is there."""
        if self._opening is None:
            raise MachineError("Spark was not started", code="DRILL")
        spark = await asyncio.wrap_future(self._opening)
        return await spark.run(order)

    @contextlib.asynccontextmanager
    async def carry(self, flow: Flow) -> AsyncIterator[Check]:
        """A flow runs as long as this is entered."""
        seen: list[FlowStatus] = []

        def watch(status: FlowStatus) -> None:
            seen[:] = [status]

        driver = Driver(flow, self, watch=watch)
        task = asyncio.ensure_future(driver.run())
        try:
            yield lambda: refuse_ended(flow, task, seen[0] if seen else None)
        finally:
            await driver.stop()
            await asyncio.gather(task, return_exceptions=True)


class Carrier:
    """`isthmus run` of one flow, in a thread."""

    def __init__(self, flow: Flow, ferry: Ferry) -> None:
        self._flow, self._ferry = flow, ferry
        self._error: BaseException | None = None
        self._driver: Driver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name=f"carrier of {flow.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def refuse_ended(self) -> None:
        """It must be at work now."""
        if self._error is not None:
            raise self._error
        if not self._thread.is_alive():
            raise MachineError(f"flow {self._flow.name} ended, and nobody had asked it to", code="DRILL")

    def until_frozen(self) -> None:
        """Wait until it has ended by itself, because clients have changed sides."""
        self._join("by itself")
        if not (isinstance(self._error, IsthmusError) and self._error.code in _FROZEN):
            raise self._error or MachineError(f"flow {self._flow.name} ended without a freeze", code="DRILL")

    def stop(self) -> None:
        """Ask it to end, as Ctrl-C does."""
        if self._loop is not None and self._driver is not None and self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._driver.stop(), self._loop)
        self._join("when asked to")
        if self._error is not None:
            raise self._error

    def _join(self, how: str) -> None:
        self._thread.join(_ENDS_S)
        if self._thread.is_alive():
            raise MachineError(f"flow {self._flow.name} does not end {how}", code="DRILL")

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 - handed to whoever looks
            self._error = error

    async def _run(self) -> FlowStatus:
        self._loop = asyncio.get_running_loop()
        self._driver = Driver(self._flow, self._ferry)
        return await self._driver.run()
