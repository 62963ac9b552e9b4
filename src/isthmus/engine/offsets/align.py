"""Closing a hole in the index: read the same stretch of both logs, and put the records side by side.

Needed for what a lane had committed and not yet put on record when it was killed, for what MirrorMaker 2 copied
before us, and when the index was lost. What must stay true: a span is made only if every record of the one side is
the record of the other (time, key, value, headers) and at least one end of the stretch is known in both logs. After
compaction, or with other writers on the target, the two differ: then there is no span, and the answer stays the
conservative one. A long hole is closed in steps, from an end that is known.
"""

from __future__ import annotations

import asyncio
from array import array
from typing import NamedTuple

import numpy as np

from isthmus.engine.offsets.runs import Runs, Span, table
from isthmus.errors import BrokerRefused, BrokerUnreachable
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import find_batches
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import READ_COMMITTED, Fetched, Limits, Want, committed_batches, fetch
from isthmus.wire.kernels import Table
from isthmus.wire.prints import OFFSET, PRINT, prints_of

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


class Seen:
    """Records in order: offsets, and a print of each one's time, key, value and headers."""

    def __init__(self) -> None:
        self.offsets, self.prints = array("q"), array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, rows: Table) -> None:
        """Rows of prints."""
        self.offsets.frombytes(rows[:, OFFSET].tobytes())
        self.prints.frombytes(rows[:, PRINT].tobytes())

    def first(self, count: int) -> None:
        """Keep only so many."""
        del self.offsets[count:], self.prints[count:]

    def last(self, count: int) -> None:
        del self.offsets[: len(self) - count], self.prints[: len(self.prints) - count]


class TooLong(Exception):
    """The stretch has more records than may be read at once."""


async def close(source: Client, target: Client, stretch: Stretch, most: int) -> Span | None:
    """A span that fills the hole, or begins to; None where the logs do not hold the same. Raises TooLong, WireError."""
    low, high = stretch.low, stretch.high
    if high.target < 0 and low.target < 0:
        return None
    here = await read(source, stretch.source, low.source, high.source, most + 1)
    there = await read(target, stretch.target, max(low.target, 0), high.target, most + 1)
    if max(len(here), len(there)) > most:
        return await _step(source, target, stretch, most, here, there)
    if low.target < 0 and stretch.high_is_certain:
        return _ends_equal(stretch, low.source, here, there)
    return Span(stretch.source, low.source, high.source, _runs(here, there)) if here.prints == there.prints else None


async def _step(source: Client, target: Client, stretch: Stretch, most: int, here: Seen, there: Seen) -> Span | None:
    """A part of a long hole, from the end that is known."""
    if stretch.low.target >= 0:
        shared = min(len(here), len(there))
        here.first(shared)
        there.first(shared)
        if not shared or here.prints != there.prints:
            return None
        return Span(stretch.source, stretch.low.source, here.offsets[-1] + 1, _runs(here, there))
    if not stretch.high_is_certain:
        raise TooLong
    high, start = stretch.high, max(stretch.low.source, stretch.high.source - most)
    here = await read(source, stretch.source, start, high.source, most)
    there = await read(target, stretch.target, max(0, high.target - most), high.target, most)
    return _ends_equal(stretch, start, here, there)


def _ends_equal(stretch: Stretch, start: int, here: Seen, there: Seen) -> Span | None:
    """What both have before the end that they share; what is older has left the one log, or the other."""
    count, shared = len(here), min(len(here), len(there))
    if count and not shared:
        return None  # never copied, or not there any more: that is no place to go on at
    here.last(shared)
    there.last(shared)
    if here.prints != there.prints:
        return None
    begin = here.offsets[0] if shared < count else start
    return Span(stretch.source, begin, stretch.high.source, _runs(here, there))


def _runs(here: Seen, there: Seen) -> Runs:
    if not len(here):
        return table([])
    pairs = np.column_stack((np.array(here.offsets, np.int64), np.array(there.offsets, np.int64)))
    begins = np.flatnonzero(np.append(True, (np.diff(pairs, axis=0) != 1).any(axis=1)))
    lengths = np.diff(np.append(begins, len(pairs)))
    return np.column_stack((pairs[begins], lengths))


async def read(client: Client, tp: TopicPartition, start: int, end: int, most: int) -> Seen:
    """Committed records in [start, end): at most the first so many."""
    seen = Seen()
    await client.refresh([tp.topic])
    while start < end and len(seen) < most:
        answer = await _fetch(client, tp, start)
        past = _take(seen, answer, start, end)
        if past == start and start >= min(end, answer.last_stable):
            break
        start = past
        await asyncio.sleep(0)  # a driver has a lease to keep
    seen.first(most)
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


def _take(seen: Seen, answer: Fetched, start: int, end: int) -> int:
    """Add what was fetched; the offset to go on at."""
    batches = find_batches(answer.records)
    for batch in committed_batches(answer, batches):
        if batch.is_control or (batch.magic == 2 and batch.count == 0):
            continue
        rows = prints_of(answer.records, batch)
        seen.add(rows[(rows[:, OFFSET] >= start) & (rows[:, OFFSET] < end)])
    return max([start, *(batch.last_offset + 1 for batch in batches)])
