"""Reading one log from an offset to another: committed batches of records, in order, the next answer already asked for.

What must stay true: what is given out is what a read_committed consumer would see, and offsets never go back. An error
of a broker that heals is asked again for a while; all others are raised.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from isthmus.engine.orders import Range
from isthmus.errors import BrokerRefused, BrokerUnreachable
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.alike import Reading, all_but
from isthmus.wire.batch import Batch, find_batches, payload_of
from isthmus.wire.cluster import Client
from isthmus.wire.compression import Room
from isthmus.wire.fetch import READ_COMMITTED, Fetched, Limits, Want, committed_batches, fetch
from isthmus.wire.kernels import Table
from isthmus.wire.prints import COLUMNS, OFFSET, opened

_LIMITS = Limits(max_bytes=16 << 20, partition_bytes=8 << 20, wait_ms=100, isolation=READ_COMMITTED)
_PURPOSE = "verify"
_PATIENCE_S = 60.0
_HEALS = codes.MOVING | {codes.NETWORK_EXCEPTION}
_NONE: Table = np.empty((0, COLUMNS), np.int64)


class Piece(NamedTuple):
    """A batch in the buffer that it came in."""

    buffer: memoryview
    batch: Batch


class Walk:
    """Records of [low, end) of one partition: whole batches at first, single records where one was opened."""

    def __init__(self, client: Client, tp: TopicPartition, low: int, end: int, without: Sequence[Range] = ()) -> None:
        self.opened = self.bytes = 0
        self._client, self._tp = client, tp
        self._low, self._end = low, end
        self._without = without  # offsets that are passed over as if they were not there
        self._unwanted = all_but(low, end, without)
        self._at = low
        self._pieces: deque[Piece] = deque()
        self._reading: Reading | None = None  # the batch that is open, as long as there is something left of it
        self._room = Room()
        self._seen = _NONE  # by `ahead`
        self._asked: asyncio.Task[Fetched] | None = None

    async def fill(self) -> bool:
        """Have something to look at; False at the end."""
        while not self.is_filled:
            if not await self._read_on():
                return False
        return True

    @property
    def is_filled(self) -> bool:
        return self._is_open or bool(self._pieces)

    @property
    def _is_open(self) -> bool:
        return self._reading is not None and not self._reading.is_done

    def whole(self) -> Piece | None:
        """The next batch, if none is open and all of it is wanted."""
        if self._is_open or not self._pieces:
            return None
        piece = self._pieces[0]
        inside = piece.batch.base_offset >= self._low and piece.batch.last_offset < self._end
        return piece if inside and not self._is_holed(piece.batch) else None

    def _is_holed(self, batch: Batch) -> bool:
        return any(first <= batch.last_offset and batch.base_offset < past for first, past in self._without)

    def _is_passed(self, batch: Batch) -> bool:
        """All of it: not even looked into, because it may be damaged."""
        return any(first <= batch.base_offset and batch.last_offset < past for first, past in self._without)

    def take(self) -> Piece:
        """The next batch, which is passed; only while none is open."""
        piece = self._pieces.popleft()
        self.bytes += piece.batch.size
        return piece

    def open(self) -> Reading:
        """What is left of the batch that is open, else the next one opened; to be passed by the caller."""
        if self._reading is None or self._reading.is_done:
            piece = self.take()
            self.opened += 1
            self._reading = Reading(opened(piece.buffer, piece.batch, self._room), self._unwanted)
        return self._reading

    def rows(self) -> Table:
        """Prints of what is open or opened next, all of which is passed."""
        rows = self.open().rows()
        self._reading = None
        return rows

    async def next_offset(self) -> int | None:
        """Of the record to come, which is in the batch that is open then; None at the end."""
        while await self.fill():
            rows = self.open().rows()
            if len(rows):
                return int(rows[0, OFFSET])
            self._reading = None
        return None

    async def ahead(self, most: int) -> Table:
        """Rows of the records to come, at most so many; these are seen again by the next such call, but by no other."""
        tables, found = [self._seen], len(self._seen)
        while found < most and await self.fill():
            tables.append(self.rows())
            found += len(tables[-1])
        self._seen = np.concatenate(tables)
        return self._seen[:most]

    async def close(self) -> None:
        if self._asked is not None:
            self._asked.cancel()
            await asyncio.gather(self._asked, return_exceptions=True)

    async def _read_on(self) -> bool:
        if self._at >= self._end:
            return False
        answer = await (self._asked or asyncio.ensure_future(self._fetch(self._at)))
        self._asked = None
        batches = find_batches(answer.records)
        past = max([self._at, *(batch.last_offset + 1 for batch in batches)])
        if past == self._at and self._at >= min(self._end, answer.last_stable):
            return False
        self._at = past
        if past < self._end:
            self._asked = asyncio.ensure_future(self._fetch(past))
        self._pieces.extend(
            Piece(answer.records, batch)
            for batch in committed_batches(answer, batches)
            if not batch.is_control and (batch.count or batch.magic < 2) and not self._is_passed(batch)
        )
        return True

    async def _fetch(self, at: int) -> Fetched:
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                answer = await self._ask(at)
                if answer.error == codes.NONE:
                    return answer
                error: Exception = BrokerRefused(
                    f"{self._tp} at offset {at}: {codes.name(answer.error)}",
                    answer.error,
                    where=f"cluster {self._client.cluster.alias}",
                )
                heals = answer.error in _HEALS
            except BrokerUnreachable as lost:
                error, heals = lost, True
            if not heals or time.monotonic() > until:
                raise error
            await asyncio.sleep(0.3)
            await self._client.refresh([self._tp.topic])

    async def _ask(self, at: int) -> Fetched:
        node = self._client.leader(self._tp)
        if node < 0:
            raise BrokerUnreachable(f"{self._tp} has no leader", where=f"cluster {self._client.cluster.alias}")
        want = Want(self._tp, self._client.topic_id(self._tp.topic), at)
        return (await fetch(self._client, node, [want], _LIMITS, _PURPOSE))[0]


def same_bytes(here: Piece, there: Piece) -> bool:
    """Whether two batches hold the same records, by their bytes alone; False says nothing."""
    one, other = here.batch, there.batch
    if one.magic < 2 or other.magic < 2 or one.is_log_append_time or other.is_log_append_time:
        return False
    if (one.size, one.count, one.codec, one.base_timestamp) != (
        other.size,
        other.count,
        other.codec,
        other.base_timestamp,
    ):
        return False
    left, right = (np.frombuffer(payload_of(*piece), np.uint8) for piece in (here, there))
    return bool(np.array_equal(left, right))
