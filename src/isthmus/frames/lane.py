"""A lane whose records pass through Spark SQL: one micro-batch after another, each one transaction.

    look at the source's ends -> ranges -> one job on Spark -> slips -> dead letters, progress, EndTxn

It is an ordinary lane to the driver: the same orders, fences, claims, progress and receipts (I1 to I8); only that its
body is a loop in the driver's process and its work is done by tasks. What must stay true: progress covers exactly the
ranges whose rows are in the same transaction. A record that the transform fails on stops its partition at that very
offset, or goes to the dead letters in the transaction whose progress passes it; no other record is left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from isthmus.engine import control
from isthmus.engine.fetcher import pass_gap
from isthmus.engine.lane import Lane
from isthmus.engine.letters import DEAD_LETTER
from isthmus.engine.orders import Order, Stop
from isthmus.engine.refusals import above_end
from isthmus.engine.track import Track
from isthmus.errors import BadRecord, BrokerUnreachable
from isthmus.frames.carriage import Carriage
from isthmus.frames.deeds import Overlap
from isthmus.frames.edges import Edges
from isthmus.frames.flow_deeds import FlowDeeds, Letter
from isthmus.frames.poison import bad_records, record_at
from isthmus.frames.ranges import Range, admitted
from isthmus.frames.routes import Routes
from isthmus.frames.tickets import Slip, Ticket
from isthmus.frames.writing import LARGE
from isthmus.model import TopicPartition, Transform
from isthmus.wire.rows import BATCH_BYTES

_PAUSE_S = 0.1
_FIRST_BATCH = 50_000
_SHORT_S, _LONG_S = 2.0, 8.0  # batches grow while they are quicker, and shrink when they are slower
_STRIKES = 3
_SMALLER = 16
_LETTERS_AT_ONCE = 100

Ends = dict[TopicPartition, int]


@dataclass(slots=True)
class Memory:
    """What outlives an order: records that the transform fails on, sizes that were found, claims to be taken away."""

    most: int = _FIRST_BATCH
    batch_bytes: int = BATCH_BYTES
    poison: dict[TopicPartition, dict[int, str]] = field(default_factory=dict)
    claims: list[str] = field(default_factory=list)


class RecordsLane(Lane):
    """One attempt at one order of a flow with a transform."""

    def __init__(self, order: Order, carriage: Carriage, memory: Memory) -> None:
        super().__init__(order)
        self._carriage = carriage
        self._memory = memory
        self._transform = order.flow.transform or Transform()
        self._lettering = self._transform.on_error == DEAD_LETTER and order.dead_letters_id is not None
        self._deeds = FlowDeeds(self.target, order, self.writer.tally)
        self._routes = Routes(self.target, order)
        self._edges = Edges(self.source, self.tracks)

    async def _copy(self) -> None:
        hearing = asyncio.ensure_future(self.follower.run())
        working = asyncio.ensure_future(self._work())
        try:
            done, _ = await asyncio.wait([working, hearing], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            await working
        finally:
            for task in (working, hearing):
                task.cancel()
            await asyncio.gather(working, hearing, return_exceptions=True)
            await self.follower.report(final=True)

    async def _work(self) -> None:
        await self._take_claims_away()
        while not self.ending:
            ends = await self._look()
            if ends:
                await self._cross(ends)
            if self._has_end and all(track.caught_up for track in self._rows):
                self.wanted_end("caught up")
            elif time.monotonic() > self._ends_at:
                self.wanted_end("epoch")
            elif not ends:
                await asyncio.sleep(_PAUSE_S)

    async def _take_claims_away(self) -> None:
        """Those of earlier orders: their identities are fenced, so nobody can win by them any more."""
        if self._memory.claims:
            await control.write(self.journal, dict.fromkeys(self._memory.claims))
            self._memory.claims.clear()

    # -- what there is to do ---------------------------------------------------------------------

    async def _look(self) -> Ends:
        """How far the next batch goes, of partitions that have something."""
        running = [tp for tp, track in self.tracks.items() if track.stop is None]
        spans, stops = await self._edges.look(running)
        if len(spans) + len(stops) < len(running):
            await self._look_for_leaders()
        for tp, stop in stops.items():
            self._stop(self.tracks[tp], stop)
        for tp, span in spans.items():
            await self._place(self.tracks[tp], span.start, span.end)
        waiting = {tp: self.tracks[tp] for tp in spans if self.tracks[tp].stop is None}
        latest = {tp: self._limit(track) for tp, track in waiting.items() if track.end > track.position}
        begins = {tp: waiting[tp].position for tp in latest}
        allowed = admitted(begins, latest, min(self._memory.most, self._transform.most_records))
        return {tp: end for tp, end in allowed.items() if end > begins[tp]}

    async def _place(self, track: Track, start: int, end: int) -> None:
        """Where a partition stands between the edges of its log; beyond its end it has not caught up, but was cut."""
        if track.position < 0:
            track.skip_to(start)
        track.pass_given_up()
        if track.position < start:
            await self._gap(track, start)
        elif track.position > end:
            track.strikes += 1
            if track.strikes >= _STRIKES:
                self._stop(track, above_end(track, end))
        else:
            track.strikes, track.heard = 0, True
        track.end = end

    async def _gap(self, track: Track, start: int) -> None:
        stop = await pass_gap(self, track, start)
        if stop is not None:
            self._stop(track, stop)

    def _limit(self, track: Track) -> int:
        """Up to the next record that the transform fails on, where that stops its partition."""
        known = self._poisoned(track.assignment.source)
        bad = [at for at in known if at >= track.position]
        if self._lettering or not bad:
            return track.end
        if min(bad) == track.position:
            # Forgotten at once: whoever wants it tried again, has it tried again.
            self._stop(track, _poison_stop(track, known.pop(track.position)))
        return min(track.end, *bad)

    def _poisoned(self, source: TopicPartition) -> dict[int, str]:
        return self._memory.poison.get(source, {})

    def _stop(self, track: Track, stop: Stop) -> None:
        track.cease(stop)
        self.follower.note(f"{stop.source}: {stop.code}: {stop.message}")

    async def _look_for_leaders(self) -> None:
        try:
            await self.source.refresh({tp.topic for tp in self.tracks})
        except BrokerUnreachable:
            return  # the next look finds out whether the cluster is back

    # -- one batch -------------------------------------------------------------------------------

    async def _cross(self, ends: Ends) -> None:
        began = time.monotonic()
        ranges = [piece for tp, end in ends.items() for piece in self._pieces(self.tracks[tp], end)]
        letters = await self._letters(ends)
        ticket = await self._deeds.begin(self._routes.places, await self.journal.end(), self._memory.batch_bytes)
        try:
            slips = await asyncio.to_thread(self._carriage.write, ticket, ranges) if ranges else []
            self._memory.claims += [slip.claim for slip in slips if slip.claim]
            unknown = sorted({name for slip in slips for name in slip.unknown})
            if not unknown:
                reached = {tp: (end, self._edges.reached(tp)) for tp, end in ends.items()}
                await self._deeds.commit(slips, reached, letters)
        except BadRecord as bad:
            await self._blame(ticket, ranges, bad)
        except Overlap:
            self._carriage.bring_together()
            await self._deeds.abort()
        else:
            if unknown:
                await self._deeds.abort()
                await self._routes.open(unknown)
            else:
                self._committed(ends)
                self._adapt(time.monotonic() - began, slips)

    def _pieces(self, track: Track, end: int) -> list[Range]:
        """What is to be read of [position, end): all but what was given up and what goes to the dead letters."""
        tp, low = track.assignment.source, track.position
        holes = [*track.given_up, *((at, at + 1) for at in self._poisoned(tp))]
        pieces = []
        for first, past in sorted(holes):
            if low < first < end:
                pieces.append(Range(tp=tp, low=low, end=first, topic_id=track.assignment.source_id))
            if first < end:
                low = max(low, past)
        if low < end:
            pieces.append(Range(tp=tp, low=low, end=end, topic_id=track.assignment.source_id))
        return pieces

    async def _letters(self, ends: Mapping[TopicPartition, int]) -> list[Letter]:
        found = []
        for tp, end in ends.items():
            track = self.tracks[tp]
            for at, reason in sorted(self._poisoned(tp).items()):
                if track.position <= at < end and not track.gives_up(at, at + 1):
                    record = await asyncio.to_thread(record_at, self.order.flow.source, tp, at, track.assignment)
                    found += [(tp, record, reason)] if record is not None else []
        return found

    def _committed(self, ends: Mapping[TopicPartition, int]) -> None:
        for tp, end in ends.items():
            track = self.tracks[tp]
            track.committed = track.sent = track.position = track.persisted = end
            poisoned = self._poisoned(tp)
            for at in [at for at in poisoned if at < end]:
                del poisoned[at]

    def _adapt(self, seconds: float, slips: Sequence[Slip]) -> None:
        if seconds > _LONG_S:
            self._memory.most = max(_FIRST_BATCH // 10, self._memory.most // 2)
        elif seconds < _SHORT_S and slips:
            self._memory.most = min(self._transform.most_records, self._memory.most * 2)

    async def _blame(self, ticket: Ticket, ranges: Sequence[Range], bad: BadRecord) -> None:
        """Give the batch up and learn from it; under the first protocol giving up ends the order, so it comes last."""
        if self.order.second_protocol:
            await self._deeds.abort()
        if not self._is_made_smaller(bad):
            await self._find_poison(ticket, ranges, bad)
        if not self.order.second_protocol:
            await self._deeds.abort()

    def _is_made_smaller(self, bad: BadRecord) -> bool:
        """The target's limit is on batches as it stores them: they are made smaller until each has one record."""
        if bad.code != LARGE or self._memory.batch_bytes <= 1:
            return False
        self._memory.batch_bytes = max(1, self._memory.batch_bytes // _SMALLER)
        return True

    async def _find_poison(self, ticket: Ticket, ranges: Sequence[Range], bad: BadRecord) -> None:
        """Which records it was, by trying halves; nothing of it is sent."""
        most = _LETTERS_AT_ONCE if self._lettering else 1
        found = await asyncio.to_thread(bad_records, lambda part: self._carriage.judge(ticket, part), ranges, most)
        for tp in {each.tp for each in ranges} if not found else ():
            # Together they fail, and none alone: which one it is cannot be told, so all of them stand still.
            self._stop(self.tracks[tp], _poison_stop(self.tracks[tp], f"{bad}, which no record alone explains"))
        for tp, reasons in found.items():
            self._memory.poison.setdefault(tp, {}).update(reasons)
            for at, reason in reasons.items():
                self.follower.note(f"{tp}: the transform fails at offset {at}: {reason}")


def _poison_stop(track: Track, reason: str) -> Stop:
    topic = track.assignment.source.topic
    return Stop(
        source=track.assignment.source,
        code="POISON",
        message=f"the transform fails on offset {track.position}: {reason}",
        hint="mend the transform and start again; or `on_error: dead_letter` in the file; or pass over this record by "
        f"`isthmus resolve FILE --topic {topic} --accept-gap`",
        lost=(track.position, track.position + 1),
    )
