"""Where consumer groups of the source stand on the target: for each partition an offset, and how sure it is.

    exact      the next record is the same on both sides
    at least   conservative, as MirrorMaker 2 answers: some records are read again, none is left out
    ahead      what the group wants next is not copied yet: no offset, never a guess
    expired    below the start of the source's log: the group has lost its place there, too
    beyond     past the end of the source's log (a topic that was made anew?)
    skipped    before the first record that this flow has copied
    unknown    copied, but nobody put on record where it landed, and the two logs do not tell it either

What must stay true: an offset is never beyond the record that the group would read next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from isthmus.engine.offsets import align
from isthmus.engine.offsets.align import Edge, Stretch
from isthmus.engine.offsets.anchors import Anchors
from isthmus.engine.offsets.index import Index, Where
from isthmus.engine.offsets.runs import Span
from isthmus.errors import BrokerUnreachable, WireError
from isthmus.mm2.filters import GroupFilter
from isthmus.model import Flow, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, READ_COMMITTED, settled_offsets
from isthmus.wire.groups import Committed, committed_offsets, list_groups

EXACT, AT_LEAST, AHEAD = "exact", "at least", "ahead"
EXPIRED, BEYOND, SKIPPED, UNKNOWN = "expired", "beyond", "skipped", "unknown"
_MOST_AT_ONCE = 2_000_000  # records that are compared in one step to close a hole
_STEPS = 4  # of one round: a longer hole is closed over several
_AGAIN_AFTER_S, _AGAIN_AT_MOST_S = 10.0, 3600.0  # a hole that cannot be closed may be, when both logs have settled


class Standing(NamedTuple):
    """One group in one partition."""

    group: str
    source: TopicPartition
    target: TopicPartition
    committed: Committed  # on the source
    end: int  # of the source's log
    translated: int  # -1: no offset
    state: str


class Translator:
    """Translates all groups of a flow, and closes holes of the index that they stand in."""

    def __init__(
        self,
        source: Client,
        target: Client,
        index: Index,
        remotes: Callable[[], Mapping[str, str]],
        positions: Callable[[], Mapping[TopicPartition, int]],
        *,
        repairs: bool = True,
    ) -> None:
        self.log_starts: dict[TopicPartition, int] = {}
        self.elsewhere: dict[str, list[str]] = {}  # topics that a group reads and the flow does not carry
        self.unread: dict[str, int] = {}  # groups whose offsets the source did not tell in the last round, and why
        self._repairs = repairs
        self._source = source
        self._target = target
        self._index = index
        self._remotes = remotes
        self._positions = positions
        self._anchors = Anchors(source, target)
        self._rests: dict[tuple[TopicPartition, int, int], tuple[float, float]] = {}  # until when, how long next time

    async def round(self, flow: Flow) -> list[Standing]:
        """Where every group that the flow takes along stands, by topics that it carries."""
        wanted = GroupFilter(flow.groups.include, flow.groups.exclude)
        names = [name for name in await list_groups(self._source) if wanted.matches(name)]
        remotes = self._remotes()
        self.unread = {}
        stored = await committed_offsets(self._source, names, self.unread)
        self.elsewhere = {
            group: topics
            for group, offsets in stored.items()
            if (topics := sorted({tp.topic for tp in offsets if tp.topic not in remotes}))
        }
        places = [
            (group, tp, committed)
            for group, offsets in stored.items()
            for tp, committed in offsets.items()
            if tp.topic in remotes
        ]
        partitions = sorted({tp for _, tp, _ in places})
        await self._source.refresh({tp.topic for tp in partitions})
        starts = await settled_offsets(self._source, partitions, EARLIEST)
        ends = await settled_offsets(self._source, partitions, LATEST)  # a group may read what is not committed
        self.log_starts = starts
        self._anchors.renew(flow)
        return [
            await self._standing(group, tp, committed, remotes[tp.topic], starts.get(tp, 0), ends.get(tp, -1))
            for group, tp, committed in places
        ]

    async def again(self, one: Standing) -> Standing:
        """The same place, by what is known now."""
        start = self.log_starts.get(one.source, 0)
        return await self._standing(one.group, one.source, one.committed, one.target.topic, start, one.end)

    async def _standing(
        self, group: str, tp: TopicPartition, committed: Committed, remote: str, start: int, end: int
    ) -> Standing:
        target = TopicPartition(remote, tp.partition)
        if committed.offset < start:
            translated, state = -1, EXPIRED
        elif committed.offset > end:
            translated, state = -1, BEYOND
        else:
            translated, state = await self._translate(tp, target, committed.offset, start)
        return Standing(group, tp, target, committed, end, translated, state)

    async def _translate(self, tp: TopicPartition, target: TopicPartition, offset: int, start: int) -> tuple[int, str]:
        found = await self._index.translate(tp, offset)
        copied = offset <= self._replicated(tp)
        for _ in range(_STEPS if copied and self._repairs else 0):
            if found.target >= 0 or not await self._close_hole(tp, target, offset, start):
                break
            found = await self._index.translate(tp, offset)
        if found.target >= 0:
            return found.target, EXACT
        return await self._conservative(tp, target, offset, found)

    async def _conservative(
        self, tp: TopicPartition, target: TopicPartition, offset: int, found: Where
    ) -> tuple[int, str]:
        if offset > self._replicated(tp):
            return -1, AHEAD
        known = await self._index.at_or_below(tp, offset)
        below, _ = await self._anchors.around(tp, target, offset)
        if below is not None and (known is None or below.source > known[0]):
            known = below
        if known is not None:
            return known[1], AT_LEAST
        return -1, SKIPPED if found.why == "before" else UNKNOWN

    def _replicated(self, tp: TopicPartition) -> int:
        return max(self._index.end(tp), self._positions().get(tp, -1))

    async def _close_hole(self, tp: TopicPartition, target: TopicPartition, offset: int, start: int) -> bool:
        """Compare both logs around the offset; False when that gives nothing new."""
        hole = self._hole(tp, offset, start)
        if hole is None:
            return False
        stretch = await self._stretch(tp, target, *hole)
        fits = hole[1] - hole[0] <= _MOST_AT_ONCE
        span = await self._close(stretch) if fits else None
        if span is None:
            between = await self._between_anchors(stretch, offset)
            span = await self._close(between) if between != stretch or not fits else None
        if span is None:
            return False
        await self._index.write([span])
        return True

    async def _close(self, stretch: Stretch) -> Span | None:
        """Compare, unless that was in vain a moment ago; tried again at once when more is known of its end."""
        key = stretch.source, stretch.low.source, stretch.high.source if stretch.high_is_certain else -1
        until, pause = self._rests.get(key, (0.0, _AGAIN_AFTER_S))
        if time.monotonic() < until:
            return None
        try:
            span = await align.close(self._source, self._target, stretch, _MOST_AT_ONCE)
        except BrokerUnreachable:
            raise
        except (WireError, align.TooLong):
            span = None
        if span is None:
            self._rests[key] = time.monotonic() + pause, min(4 * pause, _AGAIN_AT_MOST_S)
        return span

    async def _between_anchors(self, stretch: Stretch, offset: int) -> Stretch:
        """Less of a hole that is too long, or whose logs differ somewhere: what lies between two offset syncs."""
        below, above = await self._anchors.around(stretch.source, stretch.target, offset)
        if below is not None and below.source > stretch.low.source:
            stretch = stretch._replace(low=below)
        if above is not None and above.source < stretch.high.source:
            stretch = stretch._replace(high=above, high_is_certain=True)
        return stretch

    def _hole(self, tp: TopicPartition, offset: int, start: int) -> tuple[int, int] | None:
        holes = self._index.holes(tp, start, self._replicated(tp))
        return next(((low, high) for low, high in holes if low <= offset <= high), None)

    async def _stretch(self, tp: TopicPartition, target: TopicPartition, low: int, high: int) -> Stretch:
        """What is known of the hole's edges: the last run before it, the first after it, or the end of the target."""
        before, after = await self._index.at_or_below(tp, low), await self._index.first_after(tp, high)
        if after is not None:
            end = after[1]
        else:  # nothing has landed since: the target ends where the hole does
            await self._target.refresh([target.topic])
            end = (await settled_offsets(self._target, [target], LATEST, READ_COMMITTED)).get(target, -1)
        return Stretch(tp, target, Edge(low, before[1] if before else -1), Edge(high, end), after is not None)
