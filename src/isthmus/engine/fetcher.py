"""Fetching for a lane: one request in flight per source broker, as long as there is room to queue.

Owns what an answer means for a partition: data goes to `intake`, a refusal to `refusals`, an offset that is
gone becomes a gap on record before anything after it is copied (I6). Partitions are asked for in turn, so
that one with large batches cannot starve the others.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.engine import control
from isthmus.engine.intake import take_in
from isthmus.engine.marks import ASK, Likeness, likeness
from isthmus.engine.orders import Stop
from isthmus.engine.refusals import above_end, another_log, diverged, foreign_history, judge_fetch, overtaken
from isthmus.engine.resolve.record import POLICY, Gap, gap_pair
from isthmus.engine.sieve import Sieve
from isthmus.engine.throttle import Throttle
from isthmus.engine.track import Track
from isthmus.errors import BrokerUnreachable, WireError
from isthmus.model import NO_ID, TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import find_batches
from isthmus.wire.fetch import EARLIEST, LATEST, Fetched, Limits, Want, fetch, list_offsets

if TYPE_CHECKING:
    from isthmus.engine.lane import Lane

_PAUSE_S = 0.2
_FULL_PAUSE_S = 0.003
_STARTS_WITHIN_S = 60.0
_NEAR_FOR_S = 300.0  # then the leader is asked again, which may know better by then
_EPOCH_STRIKES = 25  # five seconds: a fresh leader may need a moment to know its own history
# A request names every partition, and costs both sides for each. Where many trickle, asking again for every single
# record would keep a core busy; a short rest gathers more for the same price.
_LONGEST_REST_S = 0.05
_MANY, _LITTLE_BYTES, _WANT_COST_S = 32, 64 << 10, 50e-6


class Fetcher:
    """Keeps the tracks of a lane fed until it is cancelled."""

    def __init__(self, lane: Lane) -> None:
        tuning = lane.order.flow.tuning
        self._lane = lane
        self._client = lane.source
        self._throttle = Throttle(lane.order.flow.throttle / lane.order.flow.lanes)
        self._topics = {topic: Throttle(rate) for topic, rate in lane.order.topic_rates.items()}
        self._counts = collections.Counter(tp.topic for tp in lane.tracks)
        self._limits = Limits(
            max_bytes=self._throttle.fetch_bytes(tuning.fetch_bytes),
            partition_bytes=self._throttle.fetch_bytes(tuning.fetch_partition_bytes),
            wait_ms=tuning.fetch_wait_ms,
            rack=lane.order.flow.source.settings.get("client.rack", ""),
        )
        self._near: dict[TopicPartition, tuple[int, float]] = {}  # a replica in our rack, and until when to ask it
        self._queue_bytes = tuning.queue_bytes
        self._rotation: dict[int, int] = {}
        self._stale = asyncio.Event()
        self._paused_until: dict[TopicPartition, float] = {}

    async def run(self) -> None:
        starting = asyncio.ensure_future(self._find_starts())
        loops: dict[int, asyncio.Task[None]] = {}
        try:
            while True:
                if starting.done():
                    starting.result()
                for node in {self._node(tp) for tp in self._lane.tracks} - {-1}:
                    if node not in loops or loops[node].done():
                        if node in loops:
                            loops[node].result()
                        loops[node] = asyncio.ensure_future(self._feed(node))
                await self._refresh_when_stale()
        finally:
            for task in (starting, *loops.values()):
                task.cancel()
            await asyncio.gather(starting, *loops.values(), return_exceptions=True)

    async def _find_starts(self) -> None:
        """Partitions that were never copied begin at the start of their log, wherever that is. Others are fetched
        meanwhile: whose leader does not answer holds up nobody else (I7)."""
        until = time.monotonic() + _STARTS_WITHIN_S
        while unknown := [t for t in self._lane.tracks.values() if t.committed < 0 and t.stop is None]:
            missing = [track for track in unknown if not track.aside]
            if not missing:
                await asyncio.sleep(_PAUSE_S)
                until = time.monotonic() + _STARTS_WITHIN_S
                continue
            by_leader: dict[int, list[Track]] = {}
            for track in missing:
                by_leader.setdefault(self._client.leader(track.assignment.source), []).append(track)
            asked = [self._start_those_of(tracks, until) for tracks in by_leader.values()]
            if not all(await asyncio.gather(*asked)):
                await asyncio.sleep(_PAUSE_S)
                await self._refresh()

    async def _start_those_of(self, tracks: list[Track], until: float) -> bool:
        """Of one leader; whether each of them has begun, or has stopped."""
        try:
            found = await list_offsets(self._client, [track.assignment.source for track in tracks], EARLIEST)
        except BrokerUnreachable:
            found = {}
        for track in tracks:
            offset, error = found.get(track.assignment.source, (-1, codes.NETWORK_EXCEPTION))
            if error == codes.NONE:
                track.committed = track.sent = track.position = offset
            elif error not in codes.ASKED_AGAIN or time.monotonic() > until:
                stop = _no_start(track, error)
                track.halt(stop)
                self._lane.follower.note(f"{stop.source}: {stop.code}: {stop.message}")
        self._lane.ready.set()
        return all(track.committed >= 0 or track.stop is not None for track in tracks)

    async def _refresh_when_stale(self) -> None:
        leaderless = any(self._client.leader(tp) < 0 for tp, t in self._lane.tracks.items() if not t.is_left)
        try:
            # Not wait_for: in Python 3.11 it swallows a cancellation that meets the event.
            async with asyncio.timeout(_PAUSE_S if leaderless else 5.0):
                await self._stale.wait()
        except TimeoutError:
            if not leaderless:
                return
        self._stale.clear()
        await self._refresh()
        await asyncio.sleep(_PAUSE_S / 2)

    async def _refresh(self) -> None:
        try:
            await self._client.refresh({tp.topic for tp in self._lane.tracks})
        except WireError:
            await asyncio.sleep(_PAUSE_S)

    async def _feed(self, node: int) -> None:
        """Fetch from one broker while it leads something of ours."""
        while wants := await self._next_wants(node):
            try:
                if doubted := [want for want in wants if self._lane.tracks[want.tp].doubted]:
                    await self._prove(node, doubted)
                    continue
                answers = await fetch(self._client, node, wants, self._limits_now(wants))
            except BrokerUnreachable:
                for want in wants:
                    self._lane.tracks[want.tp].doubt()
                # Asked for a refresh only when this loop ends: it is what starts the loop anew.
                self._near = {tp: near for tp, near in self._near.items() if near[0] != node}
                await asyncio.sleep(_PAUSE_S)
                self._stale.set()
                return
            for answer in answers:
                await self._take(answer)
            self._lane.ready.set()
            size = sum(len(answer.records) for answer in answers)
            self._throttle.took(size)
            for answer in answers if self._topics else ():
                if answer.tp.topic in self._topics:
                    self._topics[answer.tp.topic].took(len(answer.records))
            await self._throttle.wait()
            if size < _LITTLE_BYTES:
                await self._rest(len(wants))

    async def _prove(self, node: int, wants: list[Want]) -> None:
        """Ask for the last batch copied of each, where a topic cannot be told by its id (I5)."""
        marks = {want.tp: mark for want in wants if (mark := self._lane.tracks[want.tp].newest_mark)}
        asked = [want._replace(offset=marks[want.tp].last, last_epoch=-1) for want in wants]
        for answer in await fetch(self._client, node, asked, ASK):
            track, like = self._lane.tracks[answer.tp], Likeness.unanswered
            if answer.error in (codes.NONE, codes.OFFSET_OUT_OF_RANGE):
                like = likeness(marks[answer.tp], answer)
                track.doubted = like is Likeness.unanswered
            else:
                self._trouble(track, judge_fetch(track, answer, still_there=self._is_there(track)))
            if like is Likeness.other:
                self._trouble(track, another_log(track, marks[answer.tp].last))

    def _limits_now(self, wants: Sequence[Want]) -> Limits:
        """A broker that has nothing to send must not hold the request for longer than a throttled topic has to wait;
        nor at all, where we wait for its word that nothing has changed."""
        if not all(self._lane.tracks[want.tp].heard for want in wants):
            return self._limits._replace(wait_ms=0)
        soonest = min((debt for each in self._topics.values() if (debt := each.debt_s) > 0), default=None)
        if soonest is None:
            return self._limits
        return self._limits._replace(wait_ms=min(self._limits.wait_ms, int(soonest * 1000) + 1))

    async def _rest(self, wants: int) -> None:
        """Where little comes, ask again when it can be written: not before the open transaction ends.

        A fetch that returns one record while a transaction is under way gains nothing, and costs both sides; the next
        one, sent together with EndTxn, brings all that came meanwhile.
        """
        if wants > _MANY:
            await asyncio.sleep(wants * _WANT_COST_S)
        try:
            async with asyncio.timeout(_LONGEST_REST_S):
                await self._lane.writer.hungry.wait()
        except TimeoutError:
            return

    def _is_full(self) -> bool:
        return sum(track.queued_bytes for track in self._lane.tracks.values()) > self._queue_bytes

    async def _next_wants(self, node: int) -> list[Want]:
        """What to ask this broker for, when there is room for it; waits while all that it leads is paused.

        Empty: it leads nothing of ours. Room is waited for first: the list is long where partitions are many.
        """
        while self._is_full():
            await asyncio.sleep(_FULL_PAUSE_S)
        while not (wants := self._wants(node)) and self._leads(node):
            await asyncio.sleep(_PAUSE_S / 4)
        return wants

    def _leads(self, node: int) -> bool:
        return any(track.stop is None and self._node(tp) == node for tp, track in self._lane.tracks.items())

    def _node(self, tp: TopicPartition) -> int:
        """Whom to ask: the leader, or a replica that it told us is nearer."""
        near, until = self._near.get(tp, (-1, 0.0))
        return near if near in self._client.nodes and until > time.monotonic() else self._client.leader(tp)

    def _is_from_afar(self, answer: Fetched) -> bool:
        """Whether the next question goes to another broker: a nearer one, or back to the leader, whose word alone
        counts where something is wrong: a replica may lag behind."""
        if answer.preferred >= 0 and self._node(answer.tp) != answer.preferred:
            self._near[answer.tp] = (answer.preferred, time.monotonic() + _NEAR_FOR_S)
        elif answer.tp in self._near and (answer.error != codes.NONE or answer.diverging is not None):
            del self._near[answer.tp]
        else:
            return False
        self._stale.set()
        return True

    def _wants(self, node: int) -> list[Want]:
        now = time.monotonic()
        wants = []
        for tp, track in self._lane.tracks.items():
            if track.is_wanted and self._node(tp) == node and self._paused_until.get(tp, 0) < now:
                track.pass_given_up()
                throttle = self._topics.get(tp.topic)
                if throttle is not None and throttle.debt_s > 0:
                    continue
                most = throttle.fetch_bytes(self._limits.partition_bytes, self._counts[tp.topic]) if throttle else 0
                epoch = self._client.topics[tp.topic].partitions[tp.partition].leader_epoch
                source_id = track.assignment.source_id
                wants.append(Want(tp, source_id, track.position, epoch, track.reigns.newest.epoch, most))
        turn = self._rotation[node] = (self._rotation.get(node, -1) + 1) % max(1, len(wants))
        return wants[turn:] + wants[:turn]

    async def _take(self, answer: Fetched) -> None:
        track = self._lane.tracks[answer.tp]
        if not track.is_wanted or answer.offset != track.position:
            return  # the track was set back meanwhile: this answer belongs to a past that was given up
        if self._is_from_afar(answer):
            return
        if answer.error != codes.NONE:
            track.doubt()
        if answer.error == codes.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(track)
        elif answer.error != codes.NONE:
            self._trouble(track, judge_fetch(track, answer, still_there=self._is_there(track)))
        elif answer.diverging is not None:
            self._parted(track, *answer.diverging)
        else:
            await self._data(track, answer)

    def _is_there(self, track: Track) -> bool:
        source = track.assignment.source
        return source.topic in self._client.topics and self._client.topic_id(source.topic) in (
            track.assignment.source_id,
            NO_ID,
        )

    def _parted(self, track: Track, epoch: int, end: int) -> None:
        """The source's log lost its end. What was fetched of that, and not sent yet, is as if it had never been."""
        if (stop := diverged(track, epoch, end)) is None:
            source = track.assignment.source
            self._lane.follower.note(f"{source}: the source's log was truncated to {end}; nothing of that was copied")
            track.unfetch()
        self._trouble(track, stop)

    async def _data(self, track: Track, answer: Fetched) -> None:
        track.heard = True
        track.end = answer.last_stable if answer.last_stable >= 0 else answer.high_watermark
        track.high_watermark = answer.high_watermark
        if not answer.records:
            return
        try:
            if self._lane.sieve is None:
                take_in(track, answer)
            else:
                await self._take_sieved(track, answer, self._lane.sieve)
            if track.queue:
                newest = track.queue[-1].made.max_timestamp
                self._lane.writer.tally.read.add(int(time.time() * 1000), newest)
        except WireError as error:
            track.strikes += 1
            if track.strikes > 3:
                self._trouble(track, _corrupt(track, error))
            else:
                self._paused_until[track.assignment.source] = time.monotonic() + _PAUSE_S

    async def _take_sieved(self, track: Track, answer: Fetched, sieve: Sieve) -> None:
        batches = find_batches(answer.records)
        if unknown := sieve.unknown(batches):
            try:
                await sieve.learn(unknown)
            except WireError as error:
                # Nothing is taken in before it is known whose it is; the next fetch begins here again.
                self._lane.follower.note(f"whose records these are cannot be looked up: {error}")
                self._paused_until[track.assignment.source] = time.monotonic() + _PAUSE_S
                return
            if not track.is_wanted or answer.offset != track.position:
                return  # set back meanwhile, as above
        take_in(track, answer, sieve.dropped[answer.tp.topic], batches)

    def _trouble(self, track: Track, stop: Stop | None) -> None:
        self._stale.set()
        self._paused_until[track.assignment.source] = time.monotonic() + _PAUSE_S
        if stop is not None:
            track.cease(stop)
            self._lane.follower.note(f"{stop.source}: {stop.code}: {stop.message}")

    async def _out_of_range(self, track: Track) -> None:
        """Below the log's start: a gap. Above its end: truncation. In between: a leader that lags, try again."""
        source = track.assignment.source
        low, low_error = (await list_offsets(self._client, [source], EARLIEST))[source]
        high, high_error = (await list_offsets(self._client, [source], LATEST))[source]
        if low_error or high_error:
            self._trouble(track, None)
        elif track.position < low:
            await self._gap(track, low)
        elif track.position > high and track.strikes >= 3:
            self._trouble(track, above_end(track, high))
        else:
            track.strikes += 1
            self._trouble(track, await self._refused_epoch(track))

    async def _refused_epoch(self, track: Track) -> Stop | None:
        """The offset is there, but the leader refuses it: it does not know the leader epoch of what we read last.

        Brokers forget the epochs of a log when messages of an old format are appended; where there are such messages,
        the epoch is left out. Anywhere else it means that another history took our place: truncation.
        """
        if track.strikes >= 3 and (track.has_old_format or await self._is_old_format(track)):
            track.reigns.note(-1, track.position - 1)
        elif track.strikes >= _EPOCH_STRIKES and track.reigns.newest.epoch >= 0:
            return foreign_history(track)
        return None

    async def _is_old_format(self, track: Track) -> bool:
        """Whether what comes next is a message of an old format; they may have come since the last order."""
        source = track.assignment.source
        want = Want(source, track.assignment.source_id, track.position)
        (answer,) = await fetch(self._client, self._client.leader(source), [want], ASK)
        batches = find_batches(answer.records) if answer.error == codes.NONE else []
        return bool(batches) and batches[0].magic < 2

    async def _gap(self, track: Track, log_start: int) -> None:
        if track.queue or track.sent != track.committed:
            return  # what was fetched before the gap is written first; the next fetch comes back here
        stop = await pass_gap(self._lane, track, log_start)
        if stop is not None:
            self._trouble(track, stop)


async def pass_gap(lane: Lane, track: Track, log_start: int) -> Stop | None:
    """Put on record what retention took (I6), then go on behind it or say why not, as the flow wants it."""
    stop = overtaken(track, log_start)
    skips = lane.order.flow.on_gap == "skip"
    key, value = gap_pair(_lost_gap(track, log_start, accepted=POLICY if skips else ""))
    await control.write(lane.journal, {key: value})
    if not skips:
        return stop
    lane.follower.note(f"{track.assignment.source}: {stop.message}; going on behind the gap")
    track.skip_to(log_start)
    return None


def _lost_gap(track: Track, past: int, *, accepted: str) -> Gap:
    given = track.assignment
    return Gap(
        topic=given.source.topic,
        partition=given.source.partition,
        code="GAP",
        at=time.time(),
        first=track.position,
        past=past,
        source_id=str(given.source_id),
        target_id=str(given.target_id),
        accepted=accepted,
    )


def _no_start(track: Track, error: int) -> Stop:
    return Stop(
        source=track.assignment.source,
        code="SOURCE_REFUSED",
        message=f"the start of the log could not be found: ListOffsets answered {codes.name(error)}",
        hint=codes.advice(error),
    )


def _corrupt(track: Track, error: WireError) -> Stop:
    return Stop(
        source=track.assignment.source,
        code="CORRUPT_BATCH",
        message=f"the source serves a damaged batch at or after offset {track.position}: {error.message}",
        hint="compare the replicas of this partition; nothing after it was copied. "
        f"See `isthmus resolve FILE --topic {track.assignment.source.topic}`",
        lost=(track.position, -1),
    )
