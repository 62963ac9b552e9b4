"""A print of every record of a batch: 64 bits over its time, key, value and headers; the offset is no part of it.

Two records that are alike have the same print whatever batch, codec or offset they are in. Two that differ have
different ones but for a chance of 2^-64: good against damage and mistakes, no defence against somebody who wants two
prints to be equal. What must stay true: whatever bytes come in, the kernel stays inside its arrays (see `kernels`), and
a batch is printed only after its CRC was checked.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from isthmus.wire import compression
from isthmus.wire.batch import Batch, corrupt, crc_is_right, payload_of
from isthmus.wire.kernels import MIN_RECORD, NO_FIXED_TIME, Bytes, Table, read_varint
from isthmus.wire.legacy import body_of, unwrapped

OFFSET, PRINT, KEY, TOMBSTONE, COLUMNS = 0, 1, 2, 3, 4
_SEED = np.uint64(0x1571C0DE15701C0D)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

_I8 = types.int64
_U8 = types.uint64
_READ = types.Array(types.uint8, 1, "C", readonly=True)
_TABLE = types.Array(types.int64, 2, "C")


def prints_of(buffer: memoryview, batch: Batch) -> Table:
    """A row for each record: its offset, its print, the print of its key, and whether its value is null."""
    if batch.magic < 2:
        return _prints_of_old(buffer, batch)
    if not crc_is_right(buffer, batch):
        raise corrupt(batch, "its checksum does not match")
    plain: compression.Buffer = payload_of(buffer, batch)
    if batch.codec:
        plain = compression.decompress(batch.codec, plain)
    fixed = batch.max_timestamp if batch.is_log_append_time else NO_FIXED_TIME
    return _printed(plain, batch, batch.count, batch.base_offset, batch.base_timestamp, fixed)


def _prints_of_old(buffer: memoryview, batch: Batch) -> Table:
    """Messages of formats 0 and 1 are printed as the records that they become when they are copied."""
    _, records = unwrapped(buffer, batch)
    body = body_of(records, 0)
    table = _printed(body.payload, batch, body.count, 0, body.base_timestamp, NO_FIXED_TIME)
    table[:, OFFSET] = [record.offset for record in records]
    return table


def _printed(
    plain: compression.Buffer, batch: Batch, count: int, base_offset: int, base_time: int, fixed: int
) -> Table:
    data = np.frombuffer(plain, np.uint8)
    # Room is allotted by the count, so it must be believable.
    if count * MIN_RECORD > len(data):
        raise corrupt(batch, f"{count} records in {len(data)} bytes")
    table = np.empty((count, COLUMNS), np.int64)
    if _print_records(data, base_offset, base_time, fixed, table) < 0:
        raise corrupt(batch, "a malformed record")
    return table


@njit(_U8(_U8, _READ, _I8, _I8), cache=True, nogil=True, boundscheck=False)
def _stir(state: np.uint64, data: Bytes, at: int, end: int) -> np.uint64:
    """Every step can be undone, so one word that differs always makes a difference."""
    while end - at >= 8:
        word = np.uint64(0)
        for i in range(8):
            word |= np.uint64(data[at + i]) << np.uint64(8 * i)
        state = (state ^ word) * _SPREAD
        state ^= state >> np.uint64(32)
        at += 8
    word = np.uint64(end - at) << np.uint64(56)
    for i in range(end - at):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
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
