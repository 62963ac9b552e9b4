"""Which offsets one batch reads, and how they are shared among tasks. Pure: nothing here asks a broker.

Must stay true: ranges never overlap, together they are exactly what lies between two sets of offsets, and one range
belongs to one task, so records of a partition stay in order where a partition is not split.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from isthmus.frames.jsons import Offsets
from isthmus.model import NO_ID, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets [low, end) of a partition of the very topic that has this id."""

    tp: TopicPartition
    low: int
    end: int
    topic_id: uuid.UUID = NO_ID

    @property
    def size(self) -> int:
        return self.end - self.low


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that were to be read and are not there any more, or may not be: where, and what is known."""

    tp: TopicPartition
    what: str


def admitted(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], most: int) -> Offsets:
    """How far a batch may go that takes at most so many offsets: every partition by its share of what waits.

    A partition with little waiting gets at least one, so that none starves; with more partitions than `most` that is
    more than asked for, as with Spark's own source.
    """
    waiting = {tp: latest[tp] - start.get(tp, 0) for tp in latest}
    total = sum(size for size in waiting.values() if size > 0)
    if not most or total <= most:
        return dict(latest)
    return {tp: _share(start.get(tp, 0), latest[tp], most * size / total) for tp, size in waiting.items()}


def _share(begin: int, end: int, share: float) -> int:
    if end <= begin:
        return end
    return min(end, begin + (math.ceil(share) if share < 1 else math.floor(share)))


def between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], ids: Mapping[str, uuid.UUID]
) -> tuple[list[Range], list[Loss]]:
    """The ranges of a batch, and what seems lost. Partitions in `end` only must have been added to `start` before."""
    losses = [Loss(tp, "the partition is gone") for tp in sorted(start) if tp not in end]
    ranges = []
    for tp in sorted(end):
        low = start[tp]
        if end[tp] < low:
            losses.append(Loss(tp, f"the log ends at offset {end[tp]}, and {low} was reached before"))
        elif end[tp] > low:
            ranges.append(Range(tp=tp, low=low, end=end[tp], topic_id=ids.get(tp.topic, NO_ID)))
    return ranges, losses


def shared(ranges: Iterable[Range], least: int) -> list[Range]:
    """The ranges cut so that there are at least so many, the largest into the most pieces; as they are if there are."""
    whole = list(ranges)
    total = sum(each.size for each in whole)
    if len(whole) >= least or not total:
        return whole
    counts = [min(each.size, max(1, round(least * each.size / total))) for each in whole]
    while sum(counts) < min(least, total):
        # Rounding left some over: they go where pieces are largest.
        at = max(range(len(whole)), key=lambda n: whole[n].size / counts[n])
        counts[at] += 1
    return [piece for each, count in zip(whole, counts, strict=True) for piece in _cut(each, count)]


def _cut(whole: Range, count: int) -> list[Range]:
    ends = [whole.low + whole.size * n // count for n in range(count + 1)]
    return [replace(whole, low=ends[n], end=ends[n + 1]) for n in range(count)]
