"""A lane: copies its partitions for one epoch, on an executor, and returns a receipt.

    fetchers (one per source broker) --> tracks --> writer (one transaction after another)
    follower: hears from the driver through the control topic, reports back about once a second

Everything runs in one event loop in one thread; the only shared state is the tracks. The lane ends by
itself: when its epoch is over, when the driver wants something else or is silent for too long, when its
order is void. It commits what is whole before it leaves, and never writes before its claim won (I3).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from isthmus.engine import control
from isthmus.engine.fetcher import Fetcher
from isthmus.engine.follower import Follower
from isthmus.engine.hanging import Hanging
from isthmus.engine.offsets.runlog import RunLog
from isthmus.engine.orders import Order, Receipt, Stop
from isthmus.engine.outbox import Refused, Unreached
from isthmus.engine.refusals import TOO_LARGE, judge_produce, may_be_taken
from isthmus.engine.register import Register
from isthmus.engine.resolve.record import stop_key, stop_value
from isthmus.engine.resting import Rests
from isthmus.engine.sides import refuse_transformed, unconnected
from isthmus.engine.sieve import Sieve
from isthmus.engine.strangers import strange_batches, written_by_others
from isthmus.engine.track import Track
from isthmus.engine.writer import Writer
from isthmus.errors import BrokerUnreachable, OrderVoid, WireError
from isthmus.wire import codes
from isthmus.wire.fetch import FETCHING, fetches_by_id
from isthmus.wire.journal import Journal
from isthmus.wire.produce import Landed
from isthmus.wire.transaction import reach_coordinator

_IDLE_PROGRESS_S = 5.0
_LONGEST_PAUSE_S = 2.0
_SUSPECT_EVERY_S = 1.0
_MARKER_COST_S = 0.0005  # a commit writes two markers per partition touched: spread them when there are many
_MOST_SPREAD_S = 0.1
_MANY = 16
_LEAST_CALM_S, _MOST_CALM_S = 0.005, 0.04
_CALM = 1.2  # of what a transaction takes
_PLENTY_BYTES = 1 << 20


class Lane:
    """One attempt at one order."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.source, self.target = unconnected(order.flow)
        self.tracks = {a.source: Track(a) for a in order.assignments}
        if order.dead_letters_id is None:
            for track in self.tracks.values():
                track.letters.clear()  # judged under a policy that is over
        self.ready = asyncio.Event()
        self.reason = ""
        self.journal = Journal(self.target, order.flow.control_topic)
        self.writer = Writer(self.target, order, self.tracks)
        self.sieve: Sieve | None = None
        self.follower = Follower(self)
        self._rows = list(self.tracks.values())
        self._last_commit = self._last_saved = self._last_begin = time.monotonic()
        self._typical_s = 0.0  # how long a transaction takes, smoothed
        self._ask_again_at = 0.0  # a suspicion that could not be proven is not followed at every transaction
        self._troubles = 0  # transactions in a row that had to be given up
        self._has_end = any(a.until >= 0 for a in order.assignments)
        self._ends_at = time.monotonic() + order.flow.tuning.epoch_seconds
        self._dialling: list[asyncio.Future[Any]] = []

    async def run(self, attempt: str) -> Receipt:
        # Reading needs no claim, so both clusters are reached at the same time.
        reaching = asyncio.ensure_future(self._reach_source())
        try:
            if not await self._claim(attempt):
                return self._receipt("claimed by another")
            await reaching
            self._open()
            await self._copy()
        except OrderVoid as void:
            return self._receipt("fenced", str(void))
        finally:
            for task in (reaching, *self._dialling):
                task.cancel()
            await asyncio.gather(reaching, *self._dialling, return_exceptions=True)
            self.source.close()
            self.target.close()
        return self._receipt(self.reason)

    async def _claim(self, attempt: str) -> bool:
        """Whether this attempt may write (I3)."""
        await self._until_reached(self.target.start)
        targets = {track.assignment.target.topic for track in self._rows}
        await self.target.refresh(targets | self._own_topics() | {self.order.flow.control_topic})
        leaders = {self.target.leader(track.assignment.target) for track in self._rows} - {-1}
        names = [who.transactional_id for who in self.order.identities]
        self._dial_ahead(
            *(self.target.link(node, "produce") for node in leaders),
            *(reach_coordinator(self.target, name) for name in names),
        )
        return await control.claim(self.journal, self.order.order_id, attempt, self.order.control_from)

    async def _reach_source(self) -> None:
        await self._until_reached(self.source.start)
        await self.source.refresh({tp.topic for tp in self.tracks})
        leaders = {self.source.leader(tp) for tp in self.tracks} - {-1}
        self._dial_ahead(*(self.source.link(node, FETCHING) for node in leaders))

    async def _until_reached(self, start: Callable[[], Awaitable[None]]) -> None:
        """A cluster that is away for a moment is no reason to fail: the driver's silence is the limit."""
        until = time.monotonic() + control.DRIVER_GONE_AFTER_S
        while True:
            try:
                await start()
            except BrokerUnreachable:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.3)
            else:
                return

    def _open(self) -> None:
        if self.order.flow.all_cuts:
            register = Register(self.source, self.order.register_id)
            self.sieve = Sieve(self.order.flow, register, self.target, {tp.topic for tp in self.tracks})
        if not fetches_by_id(self.source):
            for track in self._rows:
                track.keep_marks()

    def _dial_ahead(self, *connections: Awaitable[Any]) -> None:
        """What the first fetch and transaction need, all at once while the order is claimed; nobody waits for them
        here, and a failure is told to their users."""
        self._dialling.append(asyncio.gather(*connections, return_exceptions=True))

    async def _copy(self) -> None:
        fetcher = Fetcher(self)
        runlog = RunLog(Journal(self.target, self.order.flow.index_topic), self._rows, self.follower.note)
        rests = Rests(self.target, self._rows, self.follower.note)
        hanging = Hanging(self.source, self._rows, self.follower.note)
        tasks = [asyncio.ensure_future(each.run()) for each in (fetcher, self.follower, rests, hanging)]
        if self.order.flow.keeps_index:
            tasks.append(asyncio.ensure_future(runlog.run()))
        writing = asyncio.ensure_future(self._write_until_end())
        try:
            done, _ = await asyncio.wait([writing, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a task that failed ends the lane with its reason
            await writing
        finally:
            for task in [writing, *tasks]:
                task.cancel()
            await asyncio.gather(writing, *tasks, return_exceptions=True)
            if self.order.flow.keeps_index:
                await runlog.flush()
            await self.follower.report(final=True)

    def wanted_end(self, reason: str) -> None:
        """Ask the lane to end after the transaction that is open."""
        self.reason = self.reason or reason
        self.ready.set()

    @property
    def stops(self) -> tuple[Stop, ...]:
        """Not of what was laid aside: the driver may know better by now."""
        return tuple(track.stop for track in self._rows if track.stop is not None and not track.aside)

    @property
    def ending(self) -> bool:
        return bool(self.reason)

    async def _write_until_end(self) -> None:
        while not self.ending:
            await self._wait_for_work()
            if any(track.queue for track in self._rows) or self._skips_to_save():
                await self._write_once()
            if self._has_end and all(track.caught_up for track in self._rows):
                self.wanted_end("caught up")
            elif time.monotonic() > self._ends_at:
                self.wanted_end("epoch")
        if self._skips_to_save(now=True):
            await self._write_once()

    async def _wait_for_work(self) -> None:
        if not any(track.queue for track in self._rows):
            self.ready.clear()
            try:
                async with asyncio.timeout(0.25):
                    await self.ready.wait()
            except TimeoutError:
                return
        if (early := self._early_s()) > 0:
            await asyncio.sleep(early)

    def _early_s(self) -> float:
        """How much too early the next transaction is. One that holds little costs the brokers nearly as much as a
        large one: back to back they fill the target's cores, and every record waits for the markers of others."""
        now = time.monotonic()
        if sum(track.queued_bytes for track in self._rows) > _PLENTY_BYTES:
            calm = 0.0
        else:
            calm = min(_MOST_CALM_S, max(_LEAST_CALM_S, _CALM * self._typical_s)) - (now - self._last_begin)
        waiting = sum(1 for track in self._rows if track.queue)
        spread = min(_MOST_SPREAD_S, waiting * _MARKER_COST_S) - (now - self._last_commit) if waiting > _MANY else 0.0
        return max(calm, spread)

    def _skips_to_save(self, *, now: bool = False) -> bool:
        """Offsets that held nothing to copy count as progress too, or retention would look like loss."""
        if not now and time.monotonic() - self._last_saved < _IDLE_PROGRESS_S:
            return False
        return any(t.stop is None and t.sent > max(t.persisted, 0) for t in self._rows)

    async def _write_once(self) -> None:
        self._last_begin = time.monotonic()
        try:
            await self.writer.write(self._rows, lambda: self.ending)
            self._troubles = 0
        except Refused as refused:
            await self._recover(refused)
        except Unreached as lost:
            await self._recover(lost.as_refused())
        except BrokerUnreachable:
            await self._recover(None)
        self._last_commit = self._last_saved = time.monotonic()
        self._typical_s += 0.2 * (self._last_commit - self._last_begin - self._typical_s)
        high = self.order.flow.guards_copies and any(track.tide.is_high for track in self._rows)
        if high and self._last_commit > self._ask_again_at:
            self._ask_again_at = self._last_commit + _SUSPECT_EVERY_S
            try:
                await self._look_for_strangers()
            except WireError:
                return  # the suspicion stays, and is looked at again

    async def _recover(self, refused: Refused | None) -> None:
        """Abort, set everything back to what is committed, learn where leaders are, go on.

        Judged first: under the first protocol the abort ends the order, and its receipt must say what was refused.
        """
        if refused is not None:
            self._judge(refused)
            self.follower.note(f"transaction aborted: {refused}")
        await self.writer.abort(self._rows)
        if refused is None or self._is_trouble_of_all(refused):
            self._troubles += 1
            await asyncio.sleep(min(_LONGEST_PAUSE_S, 0.05 * 2 ** min(self._troubles, 10)))
        await self._refresh_target()

    def _is_trouble_of_all(self, refused: Refused) -> bool:
        """Whether the lane has to wait: not if all that was refused is laid aside, or is made smaller."""
        by_target = {track.assignment.target: track for track in self._rows}
        tracks = [by_target.get(result.tp) for result in refused.results if result.error not in TOO_LARGE]
        return any(track is None or (track.stop is None and not track.rests_until) for track in tracks)

    async def _look_for_strangers(self) -> None:
        """Stop what somebody else writes into; on record at once, because nothing will show it again."""
        for track in self._rows:
            if not track.tide.is_high or track.stop is not None:
                continue
            own = self.writer.own_ids | await self._ids_on_record()
            found = await strange_batches(self.target, track.assignment.target, list(track.tide.spans), own)
            if found:
                stop = written_by_others(track, found, track.tide.next)
                await control.write(self.journal, {stop_key(stop.source): stop_value(stop, time.time())})
                track.cease(stop)
                self.follower.note(f"{stop.source}: {stop.code}: {stop.message}")
            if found is None:
                text = f"{track.assignment.target}: more was written than our records; it cannot be read to see by whom"
                self.follower.note(text)
            else:
                track.tide.explained()

    async def _ids_on_record(self) -> set[int]:
        """Other flows may lead into the same topic, where names are kept."""
        if not self.order.flow.keeps_register:
            return set()
        register = Register(self.target)
        await register.catch_up()
        return set(register.origins)

    def _judge(self, refused: Refused) -> None:
        by_target = {track.assignment.target: track for track in self._rows}
        for result in refused.results:
            piece = refused.pieces.get(result.tp)
            track = by_target.get(result.tp) if piece is None else piece.track
            if track is None:
                self._judge_own(result)
                continue
            known = len(track.letters)
            stop = judge_produce(track, result, piece, dead_letters=self.order.dead_letters_id is not None)
            if stop is not None:
                track.halt(stop)
                self.follower.note(f"{stop.source}: {stop.code}: {stop.message}")
            elif piece is not None and len(track.letters) > known:
                where = f"{track.assignment.source}: offset {piece.first}"
                self.follower.note(f"{where} is too large for {result.tp.topic}: goes to {self._letter_topic}")

    def _judge_own(self, result: Landed) -> None:
        """Progress cannot be written: nothing can, so only the driver can know better."""
        if result.error not in may_be_taken():
            what = f"progress cannot be written: Produce answered {codes.name(result.error)}"
            raise OrderVoid(what, where=str(result.tp))

    @property
    def _letter_topic(self) -> str:
        return self.order.flow.dead_letter_topic

    def _own_topics(self) -> set[str]:
        """Where lanes write beside the copies."""
        letters = set() if self.order.dead_letters_id is None else {self._letter_topic}
        return {self.order.flow.progress_topic} | letters

    async def _refresh_target(self) -> None:
        topics = {track.assignment.target.topic for track in self._rows} | self._own_topics()
        try:
            await self.target.refresh(topics)
        except WireError:
            return  # the next transaction finds out whether the cluster is back

    def _receipt(self, reason: str, detail: str = "") -> Receipt:
        tally = self.writer.tally
        return Receipt(
            order_id=self.order.order_id,
            lane=self.order.lane,
            reason=reason,
            detail=detail,
            positions={tp: track.committed for tp, track in self.tracks.items()},
            stops=self.stops,
            strikes={tp: track.strikes for tp, track in self.tracks.items() if track.strikes},
            refusals={tp: track.refusals for tp, track in self.tracks.items() if track.refusals},
            # Also those that were lifted or done with, for the driver to forget.
            most_records={
                tp: track.most_records
                for tp, track in self.tracks.items()
                if track.most_records or track.assignment.most_records
            },
            letters={
                tp: tuple(track.letters.items())
                for tp, track in self.tracks.items()
                if track.letters or track.assignment.letters
            },
            learned=any(track.has_learned for track in self._rows),
            records=tally.records,
            dead_letters=tally.dead_letters,
            bytes=tally.bytes,
            transactions=tally.transactions,
            aborts=tally.aborts,
        )


def run_order(order: Order, attempt: str) -> Receipt:
    """Run one order to its end in this process; the body of a Spark task."""
    refuse_transformed(order.flow, "copied batch by batch")  # or what was to be masked would go over as it is
    return asyncio.run(_run(order, attempt))


async def _run(order: Order, attempt: str) -> Receipt:
    return await Lane(order).run(attempt)
