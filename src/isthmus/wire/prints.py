"""Batches opened, and a print of every record: 64 bits over its time, key, value and headers, not over its offset.

Two records that are alike have the same print whatever batch, codec or offset they are in. Two that differ have
different ones but for a chance of 2^-64: good against damage and mistakes, no defence against somebody who wants two
prints to be equal. What must stay true: whatever bytes come in, the kernel stays inside its arrays (see `kernels`), and
a batch is opened only after its CRC was checked. Two opened batches are compared without prints by `alike`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from isthmus.wire import compression
from isthmus.wire.batch import Batch, corrupt, crc_is_right, payload_of
from isthmus.wire.compiled import njit
from isthmus.wire.kernels import MIN_RECORD, NO_FIXED_TIME, Bytes, Table, read_varint
from isthmus.wire.legacy import body_of, unwrapped

OFFSET, PRINT, KEY, TOMBSTONE, COLUMNS = 0, 1, 2, 3, 4
_NONE = np.empty(0, np.int64)
_SEED = np.uint64(0x1571C0DE15701C0D)
_WORD = np.uint64(8)  # bytes of a word, and bits of a byte
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

_I8 = types.int64
_U8 = types.uint64
_READ = types.Array(types.uint8, 1, "C", readonly=True)
_TABLE = types.Array(types.int64, 2, "C")


class Opened(NamedTuple):
    """The records of a batch, decompressed. `offsets`: of each record, where they do not follow from their deltas."""

    batch: Batch
    data: Bytes
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants here
    base_offset: int
    base_time: int
    fixed_time: int
    offsets: Table = _NONE


def opened(buffer: memoryview, batch: Batch, room: compression.Room | None = None) -> Opened:
    """Look into a batch; with a `room`, what was opened in it before is gone."""
    if batch.magic < 2:
        return _opened_old(buffer, batch)
    if not crc_is_right(buffer, batch):
        raise corrupt(batch, "its checksum does not match")
    plain: compression.Buffer = payload_of(buffer, batch)
    if batch.codec:
        plain = compression.decompress(batch.codec, plain, room=room)
    fixed = batch.max_timestamp if batch.is_log_append_time else NO_FIXED_TIME
    data = np.frombuffer(plain, np.uint8)
    # Room is allotted by the count, so it must be believable.
    if batch.count * MIN_RECORD > len(data):
        raise corrupt(batch, f"{batch.count} records in {len(data)} bytes")
    return Opened(batch, data, batch.count, batch.base_offset, batch.base_timestamp, fixed)


def _opened_old(buffer: memoryview, batch: Batch) -> Opened:
    """Messages of formats 0 and 1 are taken as the records that they become when they are copied."""
    _, records = unwrapped(buffer, batch)
    body = body_of(records, 0)
    data = np.frombuffer(body.payload, np.uint8)
    offsets = np.array([record.offset for record in records], np.int64)
    return Opened(batch, data, body.count, 0, body.base_timestamp, NO_FIXED_TIME, offsets)


def prints_of(buffer: memoryview, batch: Batch) -> Table:
    """A row for each record: its offset, its print, the print of its key, and whether its value is null."""
    return printed(opened(buffer, batch))


def printed(records: Opened) -> Table:
    """As `prints_of`."""
    table = np.empty((records.count, COLUMNS), np.int64)
    if _print_records(records.data, records.base_offset, records.base_time, records.fixed_time, table) < 0:
        raise corrupt(records.batch, "a malformed record")
    if len(records.offsets):
        table[:, OFFSET] = records.offsets
    return table


@njit(_U8(_U8, _READ, _I8, _I8), cache=True, nogil=True, boundscheck=False)
def _stir(state: np.uint64, data: Bytes, at: int, end: int) -> np.uint64:
    """Every step can be undone, so one word that differs always makes a difference."""
    # Unsigned, or else numba's check for indices counted from the end makes it twice as slow.
    here, left = np.uint64(at), np.uint64(end - at)
    while left >= _WORD:
        word = np.uint64(0)
        for i in range(_WORD):
            word |= np.uint64(data[here + i]) << (_WORD * i)
        state = (state ^ word) * _SPREAD
        state ^= state >> np.uint64(32)
        here += _WORD
        left -= _WORD
    word = left << np.uint64(56)
    for i in range(left):
        word |= np.uint64(data[here + i]) << (_WORD * i)
    state = (state ^ word) * _SPREAD
    return state ^ (state >> np.uint64(29))


@njit(_I8(_READ, _I8, _I8, _I8, _TABLE), cache=True, nogil=True, boundscheck=False)
def _print_records(data: Bytes, base_offset: int, base_time: int, fixed: int, table: Table) -> int:
    """Fill the table; 0, or -1 where the bytes are not records."""
    at, end = 0, len(data)
    for row in range(len(table)):
        size, at = read_varint(data, at, end)
        if at < 0 or size < 6 or size > end - at:
            return -1
        past = at + size
        time, at = read_varint(data, at + 1, past)  # after the attributes, which say nothing
        if at < 0:
            return -1
        delta, at = read_varint(data, at, past)
        if at < 0:
            return -1
        body = at
        length, at = read_varint(data, at, past)
        if at < 0 or length > past - at:
            return -1
        key_end = at + max(length, 0)
        table[row, KEY] = np.int64(_stir(_SEED + np.uint64(1 if length < 0 else 0), data, at, key_end))
        length, at = read_varint(data, key_end, past)
        if at < 0 or length > past - at:
            return -1
        moment = base_time + time if fixed == NO_FIXED_TIME else fixed
        state = (_SEED ^ np.uint64(moment)) * _SPREAD
        table[row, OFFSET] = base_offset + delta
        table[row, PRINT] = np.int64(_stir(state ^ (state >> np.uint64(32)), data, body, past))
        table[row, TOMBSTONE] = 1 if length < 0 else 0
        at = past
    return 0 if at == end else -1
