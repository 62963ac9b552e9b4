"""The driver of one flow: fences, reads progress, hands out orders, and keeps lanes going.

One event loop holds the driver's state; lanes run elsewhere, through a `LaneRunner`. Per lane and epoch:
fence both ids, read progress, make an order, run it, take the receipt (I2). A lane that fails is planned
anew after a short pause while the others never notice (I7); nothing is ever retried blindly.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from isthmus.engine import control
from isthmus.engine.control import ControlView
from isthmus.engine.dispatch import Dispatch
from isthmus.engine.entrance import admit
from isthmus.engine.internal import create_internal_topics
from isthmus.engine.lease import Lease, rival
from isthmus.engine.offsets.keeper import GroupKeeper
from isthmus.engine.orders import LaneRunner, Order, Receipt
from isthmus.engine.registrar import RECORD, Registrar
from isthmus.engine.report import Report
from isthmus.engine.resolve.carry import Ground, forget_stops
from isthmus.engine.resolve.record import Decision
from isthmus.engine.roster import Roster
from isthmus.engine.scene import Scene
from isthmus.engine.sides import reach, unconnected
from isthmus.engine.steering import Steering
from isthmus.engine.switch import SWITCH, halted, unfinished
from isthmus.engine.upkeep import Upkeep
from isthmus.errors import IsthmusError, LoopError, RivalError, SourceError, TargetError, WireError
from isthmus.model import REGISTER, Flow, TopicPartition
from isthmus.observe.status import FlowStatus
from isthmus.wire.journal import Journal

_SNAPSHOT_EVERY_S = 60.0
_RETRY_REFUSED_EVERY_S = 60.0
_LONGEST_PAUSE_S = 10.0
_RETRIED = frozenset({"TARGET_REFUSED", "SOURCE_REFUSED"})  # refusals that an operator may have lifted


class Driver:
    """Drives one flow until it is asked to stop, or until everything seen at the start is copied."""

    def __init__(
        self,
        flow: Flow,
        runner: LaneRunner,
        *,
        until_caught_up: bool = False,
        take_over: bool = False,
        forget: tuple[str, ...] = (),
        watch: Callable[[FlowStatus], None] = lambda _: None,
    ) -> None:
        self.flow = flow
        self.scene = Scene(flow, watch)
        self._runner = runner
        self._until_caught_up = until_caught_up
        self._take_over = take_over
        self._forget = forget
        self._source, self._target = unconnected(flow)
        self.journal = Journal(self._target, flow.control_topic)
        self._lease = Lease(flow, self.journal)
        self.view = ControlView()
        self._cursor = 0
        self._registrar = Registrar(flow, self._source, self._target, self.journal)
        self._roster = Roster(flow, self._source, self._target, self.journal, self.scene, self._registrar)
        self.dispatch = Dispatch(
            self._target, self.journal, self._roster, self._registrar, self._lease, self._note_once
        )
        self._upkeep = Upkeep(flow, self._source, self._target, self.scene, self._roster.remotes)
        self._groups = GroupKeeper(
            flow, self._source, self._target, self._roster.remotes, self._positions, self._upkeep.tell
        )
        self._report = Report(self.scene, self._lease.driver)
        self._work = [asyncio.Event() for _ in range(flow.lanes)]
        self._stopping = asyncio.Event()
        self._standing: list[asyncio.Task[None]] = []
        self._rival: RivalError | None = None
        self._halted: RivalError | None = None  # clients change sides: we end, and the flow is still ours to let go
        self._lanes: list[asyncio.Task[None]] = []
        self.gate = asyncio.Event()  # shut while lanes are dealt anew: no order is made
        self.gate.set()
        self.busy = 0  # orders that are made or run
        self.steering = Steering(self)

    # -- the whole run -------------------------------------------------------------------------

    async def run(self) -> FlowStatus:
        """Drive to the end; returns the last status. Raises on what concerns the whole flow."""
        try:
            await self._start()
            self._standing += [
                asyncio.ensure_future(work) for work in (self._tend(), self._upkeep.run(), self._groups.run())
            ]
            self._start_lanes()
            try:
                await self._until_done(self._standing)
            finally:
                for work in self._standing:
                    work.cancel()
                await asyncio.gather(*self._standing, self.steering.end(), return_exceptions=True)
            await self._finish()
        except IsthmusError as error:
            await self._let_go(error)
            raise
        finally:
            for work in self._standing:  # a start that failed has left some
                work.cancel()
            self._source.close()
            self._target.close()
        return self.scene.show("ended")

    async def stop(self) -> None:
        """End all lanes after their open transaction; `run` returns when they have."""
        self._stopping.set()
        for event in self._work:
            event.set()
        wants = {f"want/{lane}": self._want(lane, "stop") for lane in range(self.flow.lanes)}
        try:
            await control.write(self.journal, wants)
        except WireError as error:
            self.scene.note(f"the lanes could not be told to stop ({error}); they end with the lease")

    def _start_lanes(self) -> None:
        """A task for each lane that has none."""
        self._lanes = [task for task in self._lanes if not task.done()]
        running = {task.get_name() for task in self._lanes}
        for lane in range(self.flow.lanes):
            if str(lane) not in running:
                self._lanes.append(asyncio.create_task(self._drive(lane), name=str(lane)))

    async def _until_done(self, standing: list[asyncio.Task[None]]) -> None:
        try:
            while pending := [lane for lane in self._lanes if not lane.done()]:
                # Not for ever: lanes may be added meanwhile.
                done, _ = await asyncio.wait([*pending, *standing], timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        except IsthmusError:
            await self.stop()
            _, late = await asyncio.wait(self._lanes, timeout=control.DRIVER_GONE_AFTER_S)
            for lane in late:
                lane.cancel()
            # They have failed of the same cause, or of this end: asyncio must not tell it again at exit.
            await asyncio.gather(*self._lanes, return_exceptions=True)
            raise

    async def _finish(self) -> None:
        # EndTxn is answered before its markers are written; a fence waits for them. So "done" means that a
        # read_committed reader can see it.
        fence = self.dispatch.fence()
        names = [self.flow.transactional_id(lane, turn) for lane in range(self.flow.lanes) for turn in (0, 1)]
        await asyncio.gather(*(fence.one(name) for name in names))
        await self._hear_control()
        await self._groups.last_round()
        await self._keep_record()
        await control.write(self.journal, {"snapshot": self.dispatch.ledger.snapshot()})
        await self._lease.release()

    async def _let_go(self, error: IsthmusError) -> None:
        """After a failure whoever starts next need not wait until the lease dies, if no lane of ours is left."""
        for work in self._standing:  # a lease that is renewed after its release would not be free
            work.cancel()
        await asyncio.gather(*self._standing, return_exceptions=True)
        if any(lane.cancelled() or not lane.done() for lane in self._lanes):
            return
        words = self._report.last_words(error, self._groups.latest)
        await self._lease.let_go(self._hear_control, lambda: self._rival is None, self.scene.note, words)

    # -- start ---------------------------------------------------------------------------------

    async def _start(self) -> None:
        self.scene.show("starting")
        await reach(self._source, SourceError)
        await reach(self._target, TargetError)
        await admit(self._source, self._target, self.flow, self.dispatch.fence(), self.scene.note)
        await create_internal_topics(self._source, self._target, self.flow, self.scene.note)
        await self._read_control()
        self._hear_switch()
        self._refuse_halt()
        self.steering.begin(until_caught_up=self._until_caught_up)
        await self._lease.acquire(self.view, take_over=self._take_over)
        self._standing.append(asyncio.ensure_future(self._lease.keep(self.scene.note)))
        for topic in self._forget:
            self.view.values.pop(RECORD if topic == REGISTER else f"topic/{topic}", None)
            await forget_stops(self.journal, self.view, topic)
        await self._registrar.open(self.view)
        await self._registrar.refuse_uncut()
        await self._roster.look(self.view, starts=self.flow.starts)
        await self.dispatch.fence_everyone(self.view, self.flow.lanes)
        await self.dispatch.ledger.open(self.view.values.get("snapshot"))
        await self.dispatch.ledger.advance()
        await self.dispatch.ledger.erase(self._forget)
        if self._forget and self.flow.keeps_index:
            await self._groups.index.erase(self._forget)
        await self._roster.record(self.view, starts=self.flow.starts)
        self._roster.assign()
        self.scene.stand_by(self.view)
        await self._upkeep.first_round()
        if self._until_caught_up:
            self.scene.set_goals(await self.dispatch.see_ends(self._source))
        self.scene.show("running")

    async def _read_control(self) -> None:
        start, self._cursor = await self.journal.beginning(), await self.journal.end()
        for record in await self.journal.read(start, self._cursor):
            self.view.apply(record)

    # -- lanes ---------------------------------------------------------------------------------

    async def _drive(self, lane: int) -> None:
        """One epoch after another, until stopped or caught up."""
        failures = 0
        while not self._stopping.is_set() and lane < self.flow.lanes:
            self._work[lane].clear()
            await self.gate.wait()
            self.busy += 1
            try:
                order = await self._make_order(lane)
                receipt = None if order is None else await self._run_order(order)
            except (RivalError, LoopError):
                raise
            except (TimeoutError, IsthmusError) as error:
                if self._stopping.is_set():
                    return  # cancelled by an impatient operator; the fence at the end aborts what it had open
                failures += 1
                pause = min(_LONGEST_PAUSE_S, 0.2 * 2 ** min(failures, 8))
                self.scene.lane_failed(lane, f"{error}; planning it again in {pause:.1f} s")
                await self._wait(lane, pause)
                continue
            finally:
                self.busy -= 1
            if receipt is None:
                if self._until_caught_up:
                    return
                await self._wait(lane, 1.0)
                continue
            failures = failures + 1 if receipt.reason == "fenced" and not receipt.learned else 0
            self.scene.lane_ended(receipt)
            self.dispatch.learn(receipt)
            if receipt.reason == "caught up":
                return
            if failures:
                await self._wait(lane, min(_LONGEST_PAUSE_S, 0.1 * 2**failures))

    async def _wait(self, lane: int, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._work[lane].wait()
        except TimeoutError:
            return

    async def _run_order(self, order: Order) -> Receipt:
        self.scene.lane_started(order)
        try:
            return await self._runner.run(order)
        finally:
            await self._hear_control()
            self._refuse_halt()

    def _hear_switch(self) -> None:
        self._halted = halted(self.flow, self.view)
        if told := unfinished(self.flow, self.view):
            self.scene.note(told, once=True)

    def _refuse_halt(self) -> None:
        if (reason := self._rival or self._halted) is not None:
            raise reason

    async def _make_order(self, lane: int) -> Order | None:
        """None when the lane has nothing to do."""
        since = await self.journal.end()
        held, resting = self.steering.paused, self.dispatch.resting
        sources = [tp for tp in self._roster.of_lane(lane) if tp not in resting and not held.holds(tp.topic)]
        if not sources or lane >= self.flow.lanes:
            return None
        order = await self.dispatch.make_order(lane, sources, self.view, self.steering.topic_rates, since)
        return None if self._stopping.is_set() else order

    def _note_once(self, text: str) -> None:
        self.scene.note(text, once=True)

    def _positions(self) -> dict[TopicPartition, int]:
        return self.dispatch.ledger.positions

    # -- standing work -------------------------------------------------------------------------

    async def _tend(self) -> None:
        """Hear the lanes, look for new topics, keep a snapshot of progress."""
        refresh_at = time.monotonic() + self.flow.tuning.refresh_seconds
        snapshot_at = time.monotonic() + _SNAPSHOT_EVERY_S
        retry_at = time.monotonic() + _RETRY_REFUSED_EVERY_S
        while True:
            try:
                await self._hear_control()
                await self._keep_record()
                if not self._stopping.is_set():
                    self.steering.obey_soon()
                if time.monotonic() >= refresh_at and not self._until_caught_up and not self._stopping.is_set():
                    if await self._roster.renew(self.view):
                        self._upkeep.wake()
                        await self.publish_wants()
                    refresh_at = time.monotonic() + self.flow.tuning.refresh_seconds
                if time.monotonic() >= snapshot_at:
                    await control.write(self.journal, {"snapshot": self.dispatch.ledger.snapshot()})
                    snapshot_at = time.monotonic() + _SNAPSHOT_EVERY_S
                if time.monotonic() >= retry_at:
                    await self._retry_refused()
                    retry_at = time.monotonic() + _RETRY_REFUSED_EVERY_S
            except WireError as error:
                self.scene.note(f"a cluster does not answer: {error}", once=True)
            self._refuse_halt()
            self.scene.show("stopping" if self._stopping.is_set() else "running")
            await asyncio.sleep(0.3)

    async def _keep_record(self) -> None:
        """Stops are on record for those who look from outside, and for the next start; so is how the run fares."""
        if news := self.scene.news(self.view) | self._report.news(self._groups.latest):
            await control.write(self.journal, news)

    # -- changes while it runs -----------------------------------------------------------------

    def use(self, flow: Flow) -> None:
        self.flow = flow
        self._roster.flow = flow
        self._registrar.flow = flow
        self._upkeep.use(flow)
        self._groups.flow = flow

    async def replan(self) -> None:
        """Every lane gets a new order, under the settings that are in force now."""
        await self._roster.renew(self.view)
        self._roster.revise(set(range(self.flow.lanes)))
        await self.publish_wants()

    async def end_orders(self) -> None:
        self._roster.revise(set(range(self.flow.lanes)))
        await self.publish_wants()

    async def deal_anew(self, flow: Flow) -> None:
        """Another number of lanes; only while no order runs.

        Fenced as at a start, before anything changes: a partition may change lanes, and a lost attempt of its old lane
        must not be able to commit any more. If the fence fails, everything is as before.
        """
        await self.dispatch.fence_everyone(self.view, max(flow.lanes, self.flow.lanes))
        self.use(flow)
        self._work += [asyncio.Event() for _ in range(flow.lanes - len(self._work))]
        self.scene.set_lanes(flow.lanes)
        self._roster.forget_lanes(flow.lanes)
        await self._roster.renew(self.view)
        self._start_lanes()

    def ground(self) -> Ground:
        return Ground(self.flow, self._source, self._target, self.journal, self.view, self.dispatch.ledger)

    async def resolved(self, decided: Sequence[Decision]) -> None:
        """Decisions were carried out: these partitions are planned anew; only while no order runs."""
        self.scene.lift(TopicPartition(each.topic, each.partition) for each in decided)
        self.dispatch.forget(decided[0].topic)
        self._roster.look_anew()
        await self.replan()
        if self._until_caught_up:
            self.scene.set_goals(await self.dispatch.see_ends(self._source))
        self._start_lanes()

    async def publish_wants(self) -> None:
        await control.write(self.journal, {f"want/{lane}": self._want(lane, "run") for lane in range(self.flow.lanes)})
        for event in self._work:
            event.set()

    def _want(self, lane: int, state: str) -> dict[str, Any]:
        return {"driver": self._lease.driver, "revision": self._roster.revisions[lane], "state": state}

    async def _retry_refused(self) -> None:
        self.dispatch.resting.clear()
        lanes = {self._roster.lanes[tp] for tp in self.scene.stopped(_RETRIED) if tp in self._roster.lanes}
        if lanes:
            self._roster.revise(lanes)
            await self.publish_wants()

    async def _hear_control(self) -> None:
        end = await self.journal.end()
        for record in await self.journal.read(self._cursor, end):
            key = self.view.apply(record)
            value = self.view.values.get(key, {})
            if key == "lease" and not self._lease.is_mine(value) and not value.get("released"):
                self._rival = rival(self.flow, value)
            elif key == SWITCH:
                self._hear_switch()
            elif key.startswith("wish/"):
                self.steering.seen(key, record.offset)
            elif key.startswith("status/") and value.get("driver") == self._lease.driver:
                self.scene.lane_reported(int(key.partition("/")[2]), value)
        self._cursor = max(self._cursor, end)
