"""Closing a hole in the index: read the same stretch of both logs, and put the records side by side.

Needed for what a lane had committed and not yet put on record when it was killed, for what MirrorMaker 2 copied
before us, and when the index was lost. What must stay true: a span is made only if every record of the one side is
the record of the other (time, key, value, headers) and at least one end of the stretch is known in both logs. After
compaction, or with other writers on the target, the two differ: then there is no span, and the answer stays the
conservative one.
"""

from __future__ import annotations

import asyncio
from array import array
from typing import NamedTuple

import numpy as np

from isthmus.engine.offsets.runs import Runs, Span, table
from isthmus.errors import BrokerRefused, BrokerUnreachable, WireError
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import find_batches
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import READ_COMMITTED, Fetched, Limits, Want, committed_batches, fetch
from isthmus.wire.records import Record, decode_records

_LIMITS = Limits(wait_ms=100, isolation=READ_COMMITTED)
_PURPOSE = "align"


class Edge(NamedTuple):
    """An offset of the source and the offset of the target that means the same; -1: not known on the target."""

    source: int
    target: int = -1


class Stretch(NamedTuple):
    """A hole [low, high) of the source, and what is known of its edges on the target."""

    source: TopicPartition
    target: TopicPartition
    low: Edge
    high: Edge
    high_is_certain: bool = True  # False: it is just where the target ends


class _Seen:
    """Records in order: offsets, and a print of each one's time, key, value and headers."""

    def __init__(self) -> None:
        self.offsets, self.prints = array("q"), array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, record: Record) -> None:
        self.offsets.append(record.offset)
        self.prints.append(hash((record.timestamp, record.key, record.value, record.headers)))

    def last(self, count: int) -> None:
        """Keep only so many."""
        del self.offsets[: len(self) - count], self.prints[: len(self.prints) - count]


class TooLong(Exception):
    """The stretch has more records than may be read at once."""


async def close(source: Client, target: Client, stretch: Stretch, most: int) -> Span | None:
    """The span that fills the hole; None where both logs do not hold the same. Raises TooLong, WireError."""
    low, high = stretch.low, stretch.high
    if high.target < 0 and low.target < 0:
        return None
    here = await _read(source, stretch.source, low.source, high.source, most)
    there = await _read(target, stretch.target, max(low.target, 0), high.target, most)
    if low.target < 0 and stretch.high_is_certain:
        # What is older has left the one log, or the other.
        shared = min(len(here), len(there))
        here.last(shared)
        there.last(shared)
    if here.prints != there.prints:
        return None
    start = low.source if low.target >= 0 or not here else here.offsets[0]
    return Span(stretch.source, start, high.source, _runs(here, there))


def _runs(here: _Seen, there: _Seen) -> Runs:
    if not len(here):
        return table([])
    pairs = np.column_stack((np.array(here.offsets, np.int64), np.array(there.offsets, np.int64)))
    begins = np.flatnonzero(np.append(True, (np.diff(pairs, axis=0) != 1).any(axis=1)))
    lengths = np.diff(np.append(begins, len(pairs)))
    return np.column_stack((pairs[begins], lengths))


async def _read(client: Client, tp: TopicPartition, start: int, end: int, most: int) -> _Seen:
    """Committed records in [start, end)."""
    seen = _Seen()
    await client.refresh([tp.topic])
    while start < end:
        answer = await _fetch(client, tp, start)
        past = _take(seen, answer, start, end)
        if len(seen) > most:
            raise TooLong
        if past == start and start >= min(end, answer.last_stable):
            break
        start = past
        await asyncio.sleep(0)  # a driver has a lease to keep
    return seen


async def _fetch(client: Client, tp: TopicPartition, start: int) -> Fetched:
    node = client.leader(tp)
    if node < 0:
        raise BrokerUnreachable(f"{tp} has no leader", where=client.cluster.alias)
    want = Want(tp, client.topic_id(tp.topic), start)
    answer = (await fetch(client, node, [want], _LIMITS, _PURPOSE))[0]
    if answer.error == codes.OFFSET_OUT_OF_RANGE and answer.log_start > start:
        return (await fetch(client, node, [want._replace(offset=answer.log_start)], _LIMITS, _PURPOSE))[0]
    if answer.error != codes.NONE:
        raise BrokerRefused(f"{tp}: {codes.name(answer.error)}", answer.error, where=client.cluster.alias)
    return answer


def _take(seen: _Seen, answer: Fetched, start: int, end: int) -> int:
    """Add what was fetched; the offset to go on at."""
    batches = find_batches(answer.records)
    for batch in committed_batches(answer, batches):
        if batch.magic < 2:
            raise WireError("records of an old format are not compared", code="VERSION")
        if batch.is_control or batch.count == 0:
            continue
        for record in decode_records(answer.records, batch):
            if start <= record.offset < end:
                seen.add(record)
    return max([start, *(batch.last_offset + 1 for batch in batches)])
