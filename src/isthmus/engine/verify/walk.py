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
from isthmus.wire.batch import Batch, find_batches, payload_of
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import READ_COMMITTED, Fetched, Limits, Want, committed_batches, fetch
from isthmus.wire.kernels import Table
from isthmus.wire.prints import COLUMNS, OFFSET, prints_of

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
    """Records of [low, end) of one partition: whole batches at first, rows of prints where one was opened."""

    def __init__(self, client: Client, tp: TopicPartition, low: int, end: int, without: Sequence[Range] = ()) -> None:
        self.rows = _NONE  # of records in opened batches that were not passed yet
        self.opened = self.bytes = 0
        self._client, self._tp = client, tp
        self._low, self._end = low, end
        self._without = without  # offsets that are passed over as if they were not there
        self._at = low
        self._pieces: deque[Piece] = deque()
        self._asked: asyncio.Task[Fetched] | None = None

    async def fill(self) -> bool:
        """Have something to look at; False at the end."""
        while not self.is_filled:
            if not await self._read_on():
                return False
        return True

    @property
    def is_filled(self) -> bool:
        return bool(len(self.rows) or self._pieces)

    def whole(self) -> Piece | None:
        """The next batch, if none is open and all of it is wanted."""
        if len(self.rows) or not self._pieces:
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

    def open(self) -> None:
        """Look into the next batch, unless there are rows left."""
        if len(self.rows):
            return
        piece = self.take()
        self.opened += 1
        rows = prints_of(piece.buffer, piece.batch)
        wanted = (rows[:, OFFSET] >= self._low) & (rows[:, OFFSET] < self._end)
        for first, past in self._without:
            wanted &= (rows[:, OFFSET] < first) | (rows[:, OFFSET] >= past)
        self.rows = rows[wanted]

    def pass_rows(self, count: int) -> None:
        self.rows = self.rows[count:]

    async def ahead(self, most: int) -> Table:
        """Rows of the records to come, at most so many; nothing is passed."""
        tables, found = [self.rows], len(self.rows)
        self.rows = _NONE
        while found < most and await self.fill():
            self.open()
            tables.append(self.rows)
            found += len(self.rows)
            self.rows = _NONE
        self.rows = np.concatenate(tables)
        return self.rows[:most]

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
