"""Which stretches of both logs are to be the same: from where on, and how far.

Looked at in this order, because a flow may be running: progress first, then the end of the target (which holds all of
it by then), then the end of the source (which holds all that the target has). Where a stretch begins: at the start of
both logs; where one of them has lost its first records to retention, at the record that the offset index knows in
both; from a moment on (`since`), at the first record of that time or later. What must stay true: a stretch whose
beginning is not known in both logs is not compared, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from isthmus.engine.offsets.index import Index, Where
from isthmus.engine.verify.values import Compared, Stretch
from isthmus.engine.verify.walk import Walk
from isthmus.model import TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, READ_COMMITTED, settled_offsets
from isthmus.wire.prints import PRINT

_Offsets = dict[TopicPartition, int]
_FIRST = 1_000_000  # offsets in which a log's first record is looked for


class Bounds(NamedTuple):
    """Offsets of both logs, by source partition."""

    starts: _Offsets
    ends: _Offsets
    target_starts: _Offsets
    target_ends: _Offsets


class Surveyor:
    """Finds the stretches of one flow."""

    def __init__(self, source: Client, target: Client, index: Index, begins: _Offsets) -> None:
        self._begins = begins  # where the flow was told to start, for partitions that did not start at their beginning
        self._source = source
        self._target = target
        self._index = index

    async def stretches(
        self,
        remotes: Mapping[TopicPartition, TopicPartition],
        progress: _Offsets,
        compacted: frozenset[str],
        since_ms: int | None,
    ) -> tuple[list[Stretch], list[Compared]]:
        """What to compare, and what cannot be. `remotes` and `progress` are by source partition."""
        bounds = await self._bounds(remotes)
        found: list[Stretch] = []
        left_out: list[Compared] = []
        since = None if since_ms is None else await self._since(remotes, bounds, since_ms)
        for tp, remote in remotes.items():
            until = progress.get(tp, -1)
            lows = await self._beginning(tp, remote, bounds) if since is None else since.get(tp)
            if lows is None:
                left_out += [_unknown(tp, remote, until)] if since is None else []  # else: nothing of that time
                continue
            found.append(
                Stretch(
                    source=tp,
                    target=remote,
                    low=lows[0],
                    until=until,
                    source_end=bounds.ends[tp],
                    target_low=lows[1],
                    target_end=bounds.target_ends[tp],
                    by_key=tp.topic in compacted,
                )
            )
        return found, left_out

    async def _bounds(self, remotes: Mapping[TopicPartition, TopicPartition]) -> Bounds:
        there = list(remotes.values())
        target_ends = await settled_offsets(self._target, there, LATEST, READ_COMMITTED)
        ends = await settled_offsets(self._source, remotes, LATEST, READ_COMMITTED)
        starts = await settled_offsets(self._source, remotes, EARLIEST)
        target_starts = await settled_offsets(self._target, there, EARLIEST)
        return Bounds(
            starts,
            ends,
            {tp: target_starts[remote] for tp, remote in remotes.items()},
            {tp: target_ends[remote] for tp, remote in remotes.items()},
        )

    async def _beginning(self, tp: TopicPartition, remote: TopicPartition, bounds: Bounds) -> tuple[int, int] | None:
        begin = self._begins.get(tp, 0)
        start, target_start = max(begin, bounds.starts[tp]), bounds.target_starts[tp]
        known = await self._index.translate(tp, start)
        if start > begin and known.target >= target_start:
            # The source has lost its first records: what the target has before that cannot be compared any more.
            return start, known.target
        if target_start > 0:
            return await self._first_left(tp, start, target_start)
        return (start, 0) if start == begin or await self._same(tp, start, remote) else None

    async def _first_left(self, tp: TopicPartition, low: int, target_start: int) -> tuple[int, int] | None:
        """The first source offset whose record is still on the target, by halving."""
        high = max(low, self._index.end(tp))
        while low < high:
            middle = (low + high) // 2
            if (await self._index.translate(tp, middle)).target >= target_start:
                high = middle
            else:
                low = middle + 1
        where = await self._index.translate(tp, high)
        return (high, where.target) if where.target >= target_start else None

    async def _same(self, tp: TopicPartition, start: int, remote: TopicPartition) -> bool:
        """Whether both logs begin with the same record: then the source had lost what was before when it was copied."""
        first = [
            await _first(client, at, low) for client, at, low in ((self._source, tp, start), (self._target, remote, 0))
        ]
        return first[0] == first[1]

    async def _since(
        self, remotes: Mapping[TopicPartition, TopicPartition], bounds: Bounds, since_ms: int
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The first record of that time or later, on both sides; partitions that have none are left out."""
        here = await settled_offsets(self._source, remotes, since_ms)
        there = await settled_offsets(self._target, remotes.values(), since_ms)
        found: dict[TopicPartition, tuple[int, int]] = {}
        for tp, remote in remotes.items():
            if here[tp] < 0 and there[remote] < 0:
                continue
            known = await self._index.translate(tp, here[tp]) if here[tp] >= 0 else Where()
            on_target = known.target if known.target >= 0 else there[remote]
            found[tp] = (
                here[tp] if here[tp] >= 0 else bounds.ends[tp],
                on_target if on_target >= 0 else bounds.target_ends[tp],
            )
        return found


async def _first(client: Client, tp: TopicPartition, low: int) -> int | None:
    walk = Walk(client, tp, low, low + _FIRST)
    try:
        rows = await walk.ahead(1)
    finally:
        await walk.close()
    return int(rows[0, PRINT]) if len(rows) else None


def _unknown(tp: TopicPartition, remote: TopicPartition, until: int) -> Compared:
    reason = (
        "the target has lost its first records to retention, and the offset index does not say which record it begins "
        "with; compare from a moment on (--since, --last)"
    )
    return Compared(source=tp, target=remote, low=-1, until=until, reason=reason)
