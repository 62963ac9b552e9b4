"""The driver of one flow, from its start to its end: owns the flow, sees to its topics, hears what is said.

One event loop holds the driver's state; lanes run elsewhere, through a `LaneRunner`. What must stay true: nothing is
read of progress before every id was fenced (I2), and no lane starts before that. Lanes and their orders are left to
`fleet`, their number to `shifting`, what operators ask for to `steering`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from isthmus.engine import control
from isthmus.engine.control import ControlView
from isthmus.engine.dispatch import Dispatch
from isthmus.engine.entrance import admit
from isthmus.engine.fleet import Fleet
from isthmus.engine.footing import Footing
from isthmus.engine.forgotten import refuse_forgotten
from isthmus.engine.internal import create_internal_topics
from isthmus.engine.lease import Lease, rival
from isthmus.engine.offsets.keeper import GroupKeeper
from isthmus.engine.orders import LaneRunner
from isthmus.engine.registrar import RECORD, Registrar
from isthmus.engine.report import Report
from isthmus.engine.resolve.carry import Ground, forget_stops
from isthmus.engine.resolve.record import Decision
from isthmus.engine.roster import Roster
from isthmus.engine.scene import Scene
from isthmus.engine.shifting import Room, Shifting, boundless
from isthmus.engine.sides import reach, unconnected
from isthmus.engine.steering import Steering
from isthmus.engine.switch import SWITCH, halted, unfinished
from isthmus.engine.upkeep import Upkeep
from isthmus.errors import IsthmusError, RivalError, SourceError, TargetError, WireError
from isthmus.model import REGISTER, Flow, TopicPartition
from isthmus.observe.status import FlowStatus
from isthmus.wire.journal import Journal

_SNAPSHOT_EVERY_S = 60.0
_RETRY_REFUSED_EVERY_S = 60.0
_FORGOTTEN = (
    "there is progress, and nothing else on record. If not of MirrorMaker 2, the control topic was deleted: stops, "
    "gaps, decisions, pauses and a change of sides are forgotten, and topics are taken for what they are now"
)
_HEARD_WITHIN_S = 5.0  # then it is asked whether there is a control topic at all
SHOWING = 0.05  # of a core, at most: a picture of very many partitions is drawn less often
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
        room: Room = boundless,
    ) -> None:
        file = flow.with_all_lanes() if until_caught_up else flow
        self.flow = flow = replace(file, lanes=file.first_lanes)
        self.scene = Scene(flow, watch)
        self._until_caught_up = until_caught_up
        self._take_over = take_over
        self._forget = forget
        self._source, self._target = unconnected(flow)
        self.journal = Journal(self._target, flow.control_topic)
        self.lease = Lease(flow, self.journal)
        self.view = ControlView()
        self._cursor = 0
        self._registrar = Registrar(flow, self._source, self._target, self.journal)
        self.roster = Roster(flow, self._source, self._target, self.journal, self.scene, self._registrar)
        self.dispatch = Dispatch(self._target, self.journal, self.roster, self._registrar, self.lease, self._note_once)
        self._upkeep = Upkeep(flow, self._source, self._target, self.scene, self.roster.remotes)
        self._groups = GroupKeeper(
            flow, self._source, self._target, self.roster.remotes, self._positions, self._upkeep.tell
        )
        self._report = Report(self.scene, self.lease.driver)
        self._standing: list[asyncio.Task[None]] = []
        self._rival: RivalError | None = None
        self._halted: RivalError | None = None  # clients change sides: we end, and the flow is still ours to let go
        self.fleet = Fleet(self, runner, until_caught_up=until_caught_up)
        self.shifting = Shifting(self, room)
        self.steering = Steering(self, file)
        self._footing = Footing(self, self._target)

    # -- the whole run -------------------------------------------------------------------------

    async def run(self) -> FlowStatus:
        """Drive to the end; returns the last status. Raises on what concerns the whole flow."""
        try:
            await self._start()
            self._standing += [
                asyncio.ensure_future(work)
                for work in (
                    self._tend(),
                    self._upkeep.run(),
                    self._groups.run(),
                    self.shifting.run(),
                    self.dispatch.keep_up(),
                )
            ]
            self.fleet.start()
            try:
                await self.fleet.until_done(self._standing)
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
        await self.fleet.stop()

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
        await self.lease.release()

    async def _let_go(self, error: IsthmusError) -> None:
        """After a failure whoever starts next need not wait until the lease dies, if no lane of ours is left."""
        for work in self._standing:  # a lease that is renewed after its release would not be free
            work.cancel()
        await asyncio.gather(*self._standing, return_exceptions=True)
        if any(lane.cancelled() or not lane.done() for lane in self.fleet.tasks):
            return
        words = self._report.last_words(error, self._groups.latest)
        await self.lease.let_go(self._hear_control, lambda: self._rival is None, self.scene.note, words)

    # -- start ---------------------------------------------------------------------------------

    async def _start(self) -> None:
        self.scene.show("starting")
        await reach(self._source, SourceError)
        await reach(self._target, TargetError)
        await admit(self._source, self._target, self.steering.allowed, self.dispatch.fence(), self.scene.note)
        await create_internal_topics(self._source, self._target, self.flow, self.scene.note)
        await self._read_control()
        is_first = not self.view.values
        self._hear_switch()
        self._refuse_halt()
        self.steering.begin(until_caught_up=self._until_caught_up)
        await self.lease.acquire(self.view, take_over=self._take_over)
        self._standing.append(asyncio.ensure_future(self.lease.keep(self.scene.note)))
        for topic in self._forget:
            self.view.values.pop(RECORD if topic == REGISTER else f"topic/{topic}", None)
            await forget_stops(self.journal, self.view, topic)
        await self._registrar.open(self.view)
        await self._registrar.refuse_uncut()
        await self.roster.look(self.view, starts=self.flow.starts)
        await self.dispatch.fence_everyone(self.view, self.flow.lanes)
        await self.dispatch.ledger.open(self.view.values.get("snapshot"))
        await self.dispatch.ledger.advance()
        if is_first and self.dispatch.ledger.positions:
            self.scene.note(_FORGOTTEN)
        await self.dispatch.ledger.erase(self._forget)
        if self._forget and self.flow.keeps_index:
            await self._groups.index.erase(self._forget)
        await self.roster.record(self.view, starts=self.flow.starts)
        await self._refuse_forgotten()
        self.roster.assign()
        self.scene.stand_by(self.view)
        await self._upkeep.first_round()
        if self._until_caught_up:
            self.scene.set_goals(await self.dispatch.see_ends(self._source))
        self.scene.show("running")

    async def _refuse_forgotten(self) -> None:
        """And put on record which progress topic it is that we go on with."""
        ledger, known = self.dispatch.ledger, self.view.values.get("snapshot")
        copies = {tp: copy for tp, copy in self.roster.copies().items() if tp.topic not in self._forget}
        await refuse_forgotten(self._target, ledger, known, copies)
        await control.write(self.journal, {"snapshot": ledger.snapshot()})

    async def _read_control(self) -> None:
        start, self._cursor = await self.journal.beginning(), await self.journal.end()
        for record in await self.journal.read(start, self._cursor):
            self.view.apply(record)
        control.refuse_damaged(self.flow, self.view)
        self._footing.stand()

    # -- what is heard ---------------------------------------------------------------------------

    async def hear(self) -> None:
        """What the control topic says by now; raises when the flow is not ours any more, or not to run."""
        await self._hear_control()
        self._refuse_halt()

    async def hear_anew(self) -> None:
        """Of a control topic that has been made again: from its beginning."""
        self._cursor = 0
        self.steering.begin_log()
        await self.hear()

    def _hear_switch(self) -> None:
        self._halted = halted(self.flow, self.view)
        if told := unfinished(self.flow, self.view):
            self.scene.note(told, once=True)

    def _refuse_halt(self) -> None:
        if (reason := self._rival or self._halted) is not None:
            raise reason

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
        show_at = 0.0
        while True:
            try:
                await self._hear_control(_HEARD_WITHIN_S)
                await self._keep_record()
                if not self.fleet.stopping.is_set():
                    await self.fleet.say_again()
                    self.steering.obey_soon()
                if time.monotonic() >= refresh_at and not self._until_caught_up and not self.fleet.stopping.is_set():
                    if await self.roster.renew(self.view):
                        self._upkeep.wake()
                        await self.fleet.publish_wants()
                    refresh_at = time.monotonic() + self.flow.tuning.refresh_seconds
                if time.monotonic() >= snapshot_at:
                    await control.write(self.journal, {"snapshot": self.dispatch.ledger.snapshot()})
                    snapshot_at = time.monotonic() + _SNAPSHOT_EVERY_S
                if time.monotonic() >= retry_at:
                    await self._retry_refused()
                    retry_at = time.monotonic() + _RETRY_REFUSED_EVERY_S
            except WireError as error:
                self.scene.note(f"a cluster does not answer: {error}", once=True)
                await self._look_for_ground()
            self._refuse_halt()
            if time.monotonic() >= show_at:
                began = time.thread_time()
                self.scene.show("stopping" if self.fleet.stopping.is_set() else "running")
                show_at = time.monotonic() + (time.thread_time() - began) / SHOWING
            await asyncio.sleep(0.3)

    async def _look_for_ground(self) -> None:
        try:
            await self._footing.regain_if_lost()
        except WireError:
            return  # the cluster does not answer, which is told
        except TargetError as error:
            self.scene.note(f"the control topic is gone, and cannot be made again: {error}", once=True)

    async def _keep_record(self) -> None:
        """Stops are on record for those who look from outside, and for the next start; so is how the run fares."""
        if news := self.scene.news(self.view) | self._report.news(self._groups.latest):
            await control.write(self.journal, news)
            self._report.written()

    # -- changes while it runs -----------------------------------------------------------------

    def use(self, flow: Flow) -> None:
        self.flow = flow
        self.roster.flow = flow
        self._registrar.flow = flow
        self._upkeep.use(flow)
        self._groups.flow = flow

    async def replan(self, lanes: set[int]) -> None:
        """These lanes get new orders, under the settings that are in force now."""
        await self.roster.renew(self.view)
        self.roster.revise(lanes)
        await self.fleet.publish_wants()

    def ground(self) -> Ground:
        return Ground(self.flow, self._source, self._target, self.journal, self.view, self.dispatch.ledger)

    async def resolved(self, decided: Sequence[Decision], lanes: set[int]) -> None:
        """Decisions were carried out: these partitions are planned anew; only while no order of their lanes runs."""
        self.scene.lift(TopicPartition(each.topic, each.partition) for each in decided)
        self.dispatch.forget(decided[0].topic)
        self.roster.look_anew()
        await self.replan(lanes)
        if self._until_caught_up:
            self.scene.set_goals(await self.dispatch.see_ends(self._source))
        self.fleet.start()

    async def _retry_refused(self) -> None:
        self.dispatch.resting.clear()
        lanes = {self.roster.lanes[tp] for tp in self.scene.stopped(_RETRIED) if tp in self.roster.lanes}
        if lanes:
            self.roster.revise(lanes)
            await self.fleet.publish_wants()

    async def _hear_control(self, deadline_s: float = 20.0) -> None:
        end = await self.journal.end(deadline_s)
        if end < self._cursor:
            await self._look_for_ground()
            self._cursor = min(self._cursor, end)
        known = set(self.view.damaged)
        for record in await self.journal.read(self._cursor, end):
            key = self.view.apply(record)
            value = self.view.values.get(key, {})
            if key == "lease" and not self.lease.is_mine(value) and not value.get("released"):
                self._rival = rival(self.flow, value)
            elif key == SWITCH:
                self._hear_switch()
            elif key.startswith("wish/"):
                self.steering.seen(key, record.offset)
            elif key.startswith("status/") and value.get("driver") == self.lease.driver:
                is_sound = self.scene.lane_reported(int(key.partition("/")[2]), value)
                if is_sound and self.steering.allowed.grows:
                    self.shifting.loads.heard(key, value, record.timestamp, self.flow.growth.after_seconds)
        self._cursor = max(self._cursor, end)
        # What we know is in memory, so that most damage can wait; whether clients have changed sides cannot.
        if SWITCH in self.view.damaged:
            control.refuse_damaged(self.flow, self.view)
        if self.view.damaged.keys() - known:
            self._note_once(str(control.damage(self.flow, self.view)))
