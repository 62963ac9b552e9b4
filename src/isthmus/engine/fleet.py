"""The lanes of one flow: each goes from order to order in a task of its own.

Per lane and epoch: fence both ids, read progress, make an order (`dispatch`), run it, take the receipt (I2). A lane
that fails is planned anew after a short pause while the others never notice (I7); nothing is ever retried blindly.

What must stay true: while a lane is held, no order of it is made or runs; only then may its partitions change hands
(`shifting`) or their progress change (`steering`). How many lanes there are is the flow's `lanes`, as it is in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Collection
from typing import TYPE_CHECKING, Any

from isthmus.engine import control
from isthmus.engine.orders import LaneRunner, Order, Receipt
from isthmus.errors import IsthmusError, LoopError, RivalError, WireError
from isthmus.model import TopicPartition

if TYPE_CHECKING:
    from isthmus.engine.driver import Driver

_Ids = tuple[uuid.UUID, uuid.UUID]  # of a topic and of its copy

_LONGEST_PAUSE_S = 10.0
_IDLE_WITHIN_S = 30.0
_WORKED_S = 3.0  # an order that lasted so long did work: its end is a first failure, not one more in a row


class Fleet:
    """Starts, holds, wakes and ends the lanes of a driver."""

    def __init__(self, driver: Driver, runner: LaneRunner, *, until_caught_up: bool) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.stopping = asyncio.Event()
        self._driver = driver
        self._runner = runner
        self._until_caught_up = until_caught_up
        self._wakes: list[asyncio.Event] = []
        self._gates: list[asyncio.Event] = []  # shut while a lane is held
        # Lanes whose order is made or runs, with the ids of its topics; None while it is made.
        self._carried: dict[int, dict[TopicPartition, _Ids | None]] = {}
        self._saying = asyncio.Lock()  # what was said last must be what holds now
        self._wanted = self._said = 0  # changes of what is wanted; those that lanes were told of

    def start(self) -> None:
        """A task for each lane that has none."""
        lanes = self._driver.flow.lanes
        self._wakes += [asyncio.Event() for _ in range(lanes - len(self._wakes))]
        self._gates += [_open_gate() for _ in range(lanes - len(self._gates))]
        self.tasks = [task for task in self.tasks if not task.done()]
        running = {task.get_name() for task in self.tasks}
        for lane in range(lanes):
            if str(lane) not in running:
                self.tasks.append(asyncio.create_task(self._drive(lane), name=str(lane)))

    async def stop(self) -> None:
        """End all lanes after their open transaction."""
        self.stopping.set()
        self._wake_all()
        wants = {f"want/{lane}": self._want(lane, "stop") for lane in range(self._driver.flow.lanes)}
        try:
            await control.write(self._driver.journal, wants)
        except WireError as error:
            self._driver.scene.note(f"the lanes could not be told to stop ({error}); they end with the lease")

    async def until_done(self, standing: list[asyncio.Task[None]]) -> None:
        """Until all lanes ended; raises what a lane, or standing work, failed of."""
        try:
            while pending := [lane for lane in self.tasks if not lane.done()]:
                # Not for ever: lanes may be added meanwhile.
                done, _ = await asyncio.wait([*pending, *standing], timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        except IsthmusError:
            await self.stop()
            _, late = await asyncio.wait(self.tasks, timeout=control.DRIVER_GONE_AFTER_S)
            for lane in late:
                lane.cancel()
            # They have failed of the same cause, or of this end: asyncio must not tell it again at exit.
            await asyncio.gather(*self.tasks, return_exceptions=True)
            raise

    # -- what lanes are told ---------------------------------------------------------------------

    async def publish_wants(self) -> None:
        """Lanes whose revision has risen end their order early, and get another; so do those with nothing left to do.
        The others leave alone what is paused or gone, and go on (I7)."""
        self._wanted += 1
        async with self._saying:
            news = self._wanted
            self._driver.roster.revise({lane for lane, has in self._carried.items() if has and not self._kept(lane)})
            lanes = range(self._driver.flow.lanes)
            await control.write(self._driver.journal, {f"want/{lane}": self._want(lane, "run") for lane in lanes})
            self._said = news
        self._wake_all()

    async def say_again(self) -> None:
        """What could not be said, or is not so any more."""
        if self._said < self._wanted:
            await self.publish_wants()

    def take_back(self, lanes: set[int]) -> None:
        """What these lanes were told is not to be: they get new orders, as soon as they can be told."""
        self._driver.roster.revise(lanes)
        self._wanted += 1

    def carries(self, tp: TopicPartition) -> bool:
        """Whether the order that runs has this partition as it is to be copied: then a word is enough to go on."""
        roster, has = self._driver.roster, self._carried.get(self._driver.roster.lanes[tp], {})
        route = roster.routes[tp.topic]
        return has.get(tp) == (route.source_id, route.target_id) and tp not in self._driver.scene.all_stopped

    def _kept(self, lane: int) -> set[str]:
        """Topics of its order that it is to go on with."""
        routes, held = self._driver.roster.routes, self._driver.steering.paused
        return {tp.topic for tp in self._carried[lane] if tp.topic in routes and not held.holds(tp.topic)}

    def _aside(self, lane: int) -> list[str]:
        """Topics of its order that are paused, or not carried any more."""
        has = self._carried.get(lane)
        return sorted({tp.topic for tp in has} - self._kept(lane)) if has else []

    def _wake_all(self) -> None:
        for event in self._wakes:
            event.set()

    def _want(self, lane: int, state: str) -> dict[str, Any]:
        revision = self._driver.roster.revisions[lane]
        return {
            "driver": self._driver.lease.driver,
            "revision": revision,
            "state": state,
            "aside": self._aside(lane),
        }

    @property
    def is_held(self) -> bool:
        return any(not gate.is_set() for gate in self._gates)

    @contextlib.asynccontextmanager
    async def held(self, lanes: Collection[int]) -> AsyncIterator[None]:
        """No order of these lanes is made or runs meanwhile; the others never notice."""
        gates = [self._gates[lane] for lane in lanes]
        for gate in gates:
            gate.clear()
        try:
            self._driver.roster.revise(set(lanes))
            await self.publish_wants()
            until = time.monotonic() + _IDLE_WITHIN_S
            while self._carried.keys() & set(lanes):
                if time.monotonic() > until:
                    raise IsthmusError(f"lanes did not end within {_IDLE_WITHIN_S:.0f} s; everything is as before")
                await asyncio.sleep(0.02)
            yield
        finally:
            for gate in gates:
                gate.set()

    # -- one lane --------------------------------------------------------------------------------

    async def _drive(self, lane: int) -> None:
        """One epoch after another, until stopped, caught up, or not wanted any more."""
        driver, failures = self._driver, 0
        while not self.stopping.is_set() and lane < driver.flow.lanes:
            self._wakes[lane].clear()
            await self._gates[lane].wait()
            self._carried[lane] = {}
            began = time.monotonic()
            try:
                order = await self._make_order(lane)
                receipt = None if order is None else await self._run_order(order)
            except (TimeoutError, IsthmusError) as error:
                if error_ends_flow(error):
                    raise
                if self.stopping.is_set():
                    return  # cancelled by an impatient operator; the fence at the end aborts what it had open
                failures = _counted(failures, began)
                pause = _pause_after(failures)
                driver.scene.lane_failed(lane, f"{_told(error)}; planning it again in {pause:.1f} s")
                await self._wait(lane, pause)
                continue
            finally:
                del self._carried[lane]
            if receipt is None:
                if self._until_caught_up:
                    return
                await self._wait(lane, 1.0)
                continue
            failures = _counted(failures, began) if receipt.reason == "fenced" and not receipt.learned else 0
            driver.scene.lane_ended(receipt)
            driver.dispatch.learn(receipt)
            if receipt.reason == "caught up":
                return
            if failures:
                await self._wait(lane, min(_LONGEST_PAUSE_S, 0.1 * 2**failures))

    async def _wait(self, lane: int, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wakes[lane].wait()
        except TimeoutError:
            return

    async def _make_order(self, lane: int) -> Order | None:
        """None when the lane has nothing to do."""
        driver = self._driver
        since = await driver.journal.end()
        held, resting = driver.steering.paused, driver.dispatch.resting
        sources = [tp for tp in driver.roster.of_lane(lane) if tp not in resting and not held.holds(tp.topic)]
        if not sources or lane >= driver.flow.lanes:
            return None
        self._carried[lane] = dict.fromkeys(sources)
        order = await driver.dispatch.make_order(lane, sources, driver.view, driver.steering.topic_rates, since)
        return None if self.stopping.is_set() else order

    async def _run_order(self, order: Order) -> Receipt:
        self._driver.scene.lane_started(order)
        self._carried[order.lane] = {a.source: (a.source_id, a.target_id) for a in order.assignments}
        try:
            return await self._runner.run(order)
        finally:
            await self._driver.hear()


def _pause_after(failures: int) -> float:
    """Hardly any after the first: a process that died says nothing of the next one."""
    return min(_LONGEST_PAUSE_S, 0.05 if failures == 1 else 0.2 * 2 ** min(failures, 8))


def error_ends_flow(error: BaseException) -> bool:
    """What no other order would fare better with."""
    lost = isinstance(error, IsthmusError) and error.code == "PROGRESS_LOST"
    return lost or isinstance(error, RivalError | LoopError)


def _told(error: BaseException) -> str:
    hint = error.hint if isinstance(error, IsthmusError) else ""
    return f"{error}: {hint}" if hint else str(error)


def _counted(failures: int, began: float) -> int:
    """Failures in a row, with the one of an order that began then."""
    return 1 if time.monotonic() - began > _WORKED_S else failures + 1


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate
