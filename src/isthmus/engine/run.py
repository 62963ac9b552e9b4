"""Running flows: Spark and the drivers together, from start to a clean end.

Spark starts in a thread, first of all: its JVM takes seconds, and so does importing what a driver needs (numba, Kafka's
messages), and so do the drivers' first words with the clusters. SIGINT and SIGTERM ask the lanes to end
through the control topic, and wait; a second one cancels.

What must stay true: a machine that can run no Spark at all (no Java, no such master) is told before a cluster is
touched, and a Spark that does not come up, or whose JVM dies, ends the run: lanes are never planned for a Spark
that is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import itertools
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from isthmus.engine.masters import refuse_unfit
from isthmus.engine.spark import Spark, open_spark
from isthmus.errors import IsthmusError, MachineError
from isthmus.model import Flow
from isthmus.observe.status import FlowStatus

if TYPE_CHECKING:
    from isthmus.engine.driver import Driver
    from isthmus.engine.orders import LaneRunner, Order, Receipt

_PATIENCE_S = 30.0
_LOOK_EVERY_S = 0.5
_LOOK_AT_FILE_EVERY_S = 1.0


class Transforming(Protocol):
    """Judges the transforms of these flows, and gives whoever runs their orders on this Spark."""

    def __call__(self, spark: Spark, flows: Sequence[Flow], note: Callable[[str], None]) -> LaneRunner: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run, beside what the file says."""

    master: str = "local[*]"
    until_caught_up: bool = False
    take_over: bool = False
    forget: tuple[str, ...] = ()
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    edited: Callable[[], Sequence[Flow] | None] = lambda: None  # flows of a file that was changed since the last call
    enough: Callable[[FlowStatus], bool] = lambda _: False  # asked with every status; True ends the run
    transforming: Transforming | None = None  # who runs flows with a transform; needed where there are any


class Run:
    """One invocation: several flows on one Spark context."""

    def __init__(self, flows: Sequence[Flow], options: Options, watch: Callable[[FlowStatus], None]) -> None:
        self._flows = flows
        self._options = options
        self._watch = watch
        self._drivers: list[Driver] = []
        self._spark: asyncio.Future[Spark] | None = None  # from the moment that `go` starts it
        self._signals = 0
        self._stops: list[asyncio.Future[None]] = []
        self._notes: list[str] = []  # of transforms, from before there were drivers
        self._unwanted = threading.Event()  # set when the run failed while Spark was still starting

    async def go(self) -> list[FlowStatus]:
        """Run to the end; returns the last status of each flow."""
        with self._heeding_signals():
            return await self._go()

    @contextlib.contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        """Only a main thread hears them; whoever runs flows in another one ends them in another way."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def _go(self) -> list[FlowStatus]:
        await asyncio.to_thread(refuse_unfit, self._options.master, self._flows, self._options.spark_conf)
        if self._signals:
            return []  # asked to end before anything began
        lanes = sum(map(_tasks, self._flows))
        name = "isthmus " + ", ".join(flow.name for flow in self._flows)
        start = functools.partial(open_spark, queries=any(flow.transform for flow in self._flows))
        self._spark = asyncio.ensure_future(
            asyncio.to_thread(start, self._options.master, lanes, name, self._options.spark_conf, self._unwanted)
        )
        try:
            await asyncio.to_thread(importlib.import_module, "isthmus.engine.driver")
            return await self._drive()
        finally:
            await self._close_spark()

    async def _drive(self) -> list[FlowStatus]:
        from isthmus.engine.driver import Driver

        if self._signals:
            return []  # asked to end before anything began
        options = self._options
        runner = _OnSpark(self, await self._transforms())
        self._drivers = [
            Driver(
                flow,
                runner,
                until_caught_up=options.until_caught_up,
                take_over=options.take_over,
                forget=options.forget,
                watch=self._seen,
                room=functools.partial(self._room, flow),
            )
            for flow in self._flows
        ]
        for driver, text in itertools.product(self._drivers, self._notes):
            driver.scene.note(text)
        runs = [asyncio.ensure_future(driver.run()) for driver in self._drivers]
        watching = asyncio.ensure_future(self._until_spark_is_lost())
        following = asyncio.ensure_future(self._follow_file())
        try:
            done = await self._first_failure(runs, watching)
        finally:
            watching.cancel()
            following.cancel()
            # What they have to say is told by whoever failed first; the rest must not be told at exit.
            await asyncio.gather(watching, following, *self._stops, return_exceptions=True)
        for task in done:
            task.result()
        return [task.result() for task in runs]

    async def _room(self, flow: Flow, lanes: int) -> int:
        """How many lanes of this flow can run now, beside the others', if it would like to have so many."""
        others = sum(_tasks(driver.flow) for driver in self._drivers if driver.flow.name != flow.name)
        spark = await self.spark()
        return await asyncio.to_thread(spark.slots, lanes + others) - others

    async def _transforms(self) -> LaneRunner | None:
        """Every transform is judged before anything is touched."""
        if not any(flow.transform for flow in self._flows):
            return None
        if self._options.transforming is None:
            raise RuntimeError("a flow has a transform, and nobody is there to run it")
        return await asyncio.to_thread(self._options.transforming, await self.spark(), self._flows, self._notes.append)

    async def _first_failure(
        self, runs: Sequence[asyncio.Future[FlowStatus]], watching: asyncio.Future[None]
    ) -> list[asyncio.Future[Any]]:
        """Wait until all flows ended, or something failed: then the others are asked to end, too."""
        waiting: set[asyncio.Future[Any]] = {*runs, watching}
        done: list[asyncio.Future[Any]] = []
        while any(not run.done() for run in runs):
            ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done += ended
            if any(task.exception() is not None for task in ended):
                break
        if pending := [run for run in runs if not run.done()]:
            await asyncio.gather(*(driver.stop() for driver in self._drivers), return_exceptions=True)
            _, late = await asyncio.wait(pending, timeout=_PATIENCE_S)
            for run in late:
                run.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        return done

    async def _until_spark_is_lost(self) -> None:
        """Raises when Spark does not start, or its JVM or context is gone while it is needed."""
        spark = await self.spark()
        for driver in self._drivers:
            driver.scene.spark_page = spark.page
        while spark.alive():
            await asyncio.sleep(_LOOK_EVERY_S)
        if self._signals == 0:
            raise MachineError(
                f"Spark ended while flows were running. {spark.last_words()}".strip(),
                where=f"master {self._options.master}",
                hint="start again: it goes on where the last commit was; was the JVM killed for want of memory?",
                code="SPARK_LOST",
            )

    async def _follow_file(self) -> None:
        """Settings of an edited file come into force; a bad edit is told, and the old settings run on."""
        while True:
            await asyncio.sleep(_LOOK_AT_FILE_EVERY_S)
            try:
                flows = await asyncio.to_thread(self._options.edited)
                for driver in self._drivers if flows is not None else ():
                    await self._adopt(driver, {flow.name: flow for flow in flows or ()})
            except IsthmusError as error:
                for driver in self._drivers:
                    driver.scene.note(f"the file was changed, but the old settings run on: {error}")

    @staticmethod
    async def _adopt(driver: Driver, flows: Mapping[str, Flow]) -> None:
        if driver.flow.name in flows:
            await driver.steering.adopt(flows[driver.flow.name])
        else:
            driver.scene.note("the file was changed and does not name this flow any more; it runs on until it is ended")

    def _seen(self, status: FlowStatus) -> None:
        self._watch(status)
        if self._signals == 0 and self._options.enough(status):
            self._signalled()

    async def spark(self) -> Spark:
        if self._spark is None:
            raise RuntimeError("Spark is started before anything that needs it")
        return await asyncio.shield(self._spark)

    def end(self) -> None:
        """As a first SIGINT: lanes end after what they have open."""
        if self._signals == 0:
            self._signalled()

    def _signalled(self) -> None:
        self._signals += 1
        if self._signals == 1:
            for driver in self._drivers:
                self._keep(asyncio.ensure_future(driver.stop()))
            asyncio.get_running_loop().call_later(_PATIENCE_S, self._cancel)
        else:
            self._cancel()

    def _keep(self, task: asyncio.Future[None]) -> None:
        self._stops.append(task)

    def _cancel(self) -> None:
        spark = self._spark
        if spark is not None and spark.done() and spark.exception() is None:
            self._keep(asyncio.ensure_future(asyncio.to_thread(spark.result().cancel)))

    async def _close_spark(self) -> None:
        self._unwanted.set()
        try:
            spark = await self.spark()
        except IsthmusError:
            return  # whoever waited for it has been told
        await asyncio.to_thread(spark.close)


def _tasks(flow: Flow) -> int:
    """What it may run at once."""
    return flow.transform.tasks or flow.lanes if flow.transform else flow.lanes


class _OnSpark:
    """Runs orders on the context of a Run, as soon as it is there."""

    def __init__(self, run: Run, transforming: LaneRunner | None) -> None:
        self._run = run
        self._transforming = transforming

    async def run(self, order: Order) -> Receipt:
        spark = await self._run.spark()
        if order.flow.transform is None or self._transforming is None:
            return await spark.run(order)  # which refuses an order with a transform
        return await self._transforming.run(order)


def replicate(
    flows: Sequence[Flow], options: Options, watch: Callable[[FlowStatus], None] = lambda _: None
) -> list[FlowStatus]:
    """Run flows until they are caught up or the process is asked to end. The one entry for every face."""
    return asyncio.run(Run(flows, options, watch).go())
