"""Somebody else writes into a copy: noticed by the offsets that the target returns, proven by reading its log.

A partition of a copy grows by our records, and by a marker for each transaction of ours that ended. `Tide` adds that
up. Base offsets that rise by more are a *suspicion*, no more: a coordinator that lost an answer or moved writes a
marker twice, and nobody tells us. So what lies in the unexplained offsets is read, and only a batch of a producer id
that is not ours (nor of another flow that is on record in the target's register) is *proof*. Hence no false alarm: ids
are handed out once by a cluster, all of ours within an order are known, and what was written before the order is
never looked at, because the sum begins at its first answer. What a suspicion that was none costs is one Fetch.

What must stay true: after an abort or any error the sum is forgotten and begins anew, and what is read lies above what
we saw acknowledged in this order. Missed: what a stranger writes where we never write again, and between orders.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from isthmus.engine.orders import Range, Stop
from isthmus.engine.resolve.record import spans_told
from isthmus.errors import BrokerUnreachable, WireError
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import Batch, find_batches
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import READ_UNCOMMITTED, Fetched, Limits, Want, fetch

if TYPE_CHECKING:
    from isthmus.engine.track import Track

FOREIGN_WRITE = "FOREIGN_WRITE"
_SPANS = 32  # unexplained stretches that are remembered
_LATE = 2  # markers that may still come after an abort: each of both ids has at most one transaction behind it
_LIMITS = Limits(max_bytes=1 << 20, partition_bytes=256 << 10, wait_ms=0, isolation=READ_UNCOMMITTED)


class Tide:
    """Offsets of one target partition, as answers to our Produce requests tell them."""

    def __init__(self) -> None:
        self.next = -1  # the offset after our last batch; -1: nothing to compare with yet
        self.spans: collections.deque[Range] = collections.deque(maxlen=_SPANS)
        self._markers = 0  # of ours that may have been written since, and were not counted yet

    @property
    def is_high(self) -> bool:
        """Whether there is more than we and our markers explain."""
        return self._markers < 0

    def landed(self, base: int, count: int) -> None:
        """A batch of ours stands there."""
        if 0 <= self.next < base:
            self.spans.append((self.next, base))
            self._markers -= base - self.next
        self.next = base + count

    def ended(self) -> None:
        """A transaction of ours that touched the partition has ended: its marker comes now, or in a while."""
        self._markers += 1

    def explained(self) -> None:
        """What was there is ours: only what comes from now on is asked about."""
        self.spans.clear()
        self._markers = max(0, self._markers)

    def forget(self) -> None:
        """Nothing is known of the offsets any more."""
        self.next, self._markers = -1, _LATE
        self.spans.clear()


async def strange_batches(
    client: Client, target: TopicPartition, spans: Sequence[Range], own: Collection[int]
) -> tuple[Range, ...] | None:
    """Offsets in these spans that producers other than these wrote; None: it cannot be told now.

    What was deleted meanwhile proves nothing.
    """
    found: list[Range] = []
    for first, past in spans:
        at = first
        while at < past:
            answer = await _read(client, target, at)
            if answer is None:
                return None
            if answer.error == codes.OFFSET_OUT_OF_RANGE and answer.log_start > at:
                at = answer.log_start
                continue
            batches = find_batches(answer.records)
            if not batches:
                return None
            found += strange_among(batches, (first, past), own)
            at = batches[-1].last_offset + 1
    return tuple(_joined(found))


def strange_among(batches: Iterable[Batch], span: Range, own: Collection[int]) -> list[Range]:
    """Offsets of this span that these batches take up, and none of ours wrote."""
    first, past = span
    return [
        (max(batch.base_offset, first), min(batch.last_offset + 1, past))
        for batch in batches
        if batch.producer_id not in own and batch.base_offset < past and first <= batch.last_offset
    ]


async def _read(client: Client, target: TopicPartition, at: int) -> Fetched | None:
    node = client.leader(target)
    if node < 0:
        return None
    want = Want(target, client.topic_id(target.topic), at)
    try:
        (answer,) = await fetch(client, node, [want], _LIMITS, "strangers")
    except (BrokerUnreachable, WireError):
        return None
    return answer if answer.error in (codes.NONE, codes.OFFSET_OUT_OF_RANGE) else None


def _joined(ranges: list[Range]) -> list[Range]:
    joined: list[Range] = []
    for first, past in ranges:
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], past)
        else:
            joined.append((first, past))
    return joined


def written_by_others(track: Track, found: tuple[Range, ...], tail: int) -> Stop:
    """`tail`: the offset after our last batch; from there on nothing is ours while the partition stands still."""
    source, target = track.assignment.source, track.assignment.target
    return Stop(
        source=source,
        code=FOREIGN_WRITE,
        message=f"somebody else writes into {target.topic}-{target.partition} on the target: {spans_told(found)}",
        hint=f"find out who it is; then `isthmus resolve FILE --topic {source.topic}` (on_foreign_write: allow in the "
        "file lets everybody write there)",
        foreign=(*found, (tail, -1)),
    )
