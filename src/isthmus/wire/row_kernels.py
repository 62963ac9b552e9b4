"""The loops that turn Arrow's buffers into record bytes, compiled: the way back from `column_kernels`.

`sizes` tells how long each record will be, so that batches can be cut and room allotted; `write` fills that room. What
must stay true: offsets were checked before (`rows`), so both stay inside their arrays. All release the GIL.

A bitmap of no bytes stands for "no row is null". Times are milliseconds.
"""

from __future__ import annotations

import numpy as np
from numba import types

from isthmus.wire.column_kernels import Offsets
from isthmus.wire.kernels import Bytes, Table, kernel, varint_size, write_varint

_I8 = types.int64
_READ = types.Array(types.uint8, 1, "C", readonly=True)
_WRITE = types.Array(types.uint8, 1, "C")
_LONGS = types.Array(types.int64, 1, "C", readonly=True)
_LONGS_OUT = types.Array(types.int64, 1, "C")
_INTS = types.Array(types.int32, 1, "C", readonly=True)
_INTS_OUT = types.Array(types.int32, 1, "C")
_COLUMN = (_INTS, _READ, _READ)  # offsets, data, valid

_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)


# --- partitions ------------------------------------------------------------------------------


@kernel(types.uint32(_READ, _I8, _I8))
def _murmur2(data: Bytes, at: int, size: int) -> np.uint32:
    """Kafka's variant of 32-bit MurmurHash2."""
    h = _SEED ^ np.uint32(size)
    end = at + (size & ~3)
    while at < end:
        k = np.uint32(data[at]) | np.uint32(data[at + 1]) << np.uint32(8)
        k |= np.uint32(data[at + 2]) << np.uint32(16) | np.uint32(data[at + 3]) << np.uint32(24)
        k = np.uint32(k * _M)
        k = np.uint32((k ^ (k >> np.uint32(24))) * _M)
        h = np.uint32(h * _M) ^ k
        at += 4
    left = size & 3
    if left:
        tail = np.uint32(0)
        for i in range(left):
            tail |= np.uint32(data[at + i]) << np.uint32(8 * i)
        h = np.uint32((h ^ tail) * _M)
    h = np.uint32((h ^ (h >> np.uint32(13))) * _M)
    return np.uint32(h ^ (h >> np.uint32(15)))


@kernel(types.boolean(_READ, _I8))
def _is_valid(valid: Bytes, row: int) -> bool:
    return bool(len(valid) == 0 or (valid[row >> 3] >> np.uint8(row & 7)) & np.uint8(1) != 0)


@kernel(types.void(*_COLUMN, _I8, _INTS_OUT))
def choose(offsets: Offsets, data: Bytes, valid: Bytes, partitions: int, out: Offsets) -> None:
    """The partition that Kafka's Java producer picks for each key; -1 for rows without one."""
    for row in range(len(out)):
        out[row] = -1
        if _is_valid(valid, row):
            number = _murmur2(data, offsets[row], offsets[row + 1] - offsets[row]) & np.uint32(0x7FFFFFFF)
            out[row] = np.int64(number) % partitions


# --- records ---------------------------------------------------------------------------------


@kernel(_I8(_INTS, _READ, _I8))
def _field_size(offsets: Offsets, valid: Bytes, row: int) -> int:
    if not _is_valid(valid, row):
        return 1
    size = int(offsets[row + 1] - offsets[row])
    return varint_size(size) + size


@kernel(_I8(*_COLUMN, _I8, _WRITE, _I8))
def _write_field(offsets: Offsets, data: Bytes, valid: Bytes, row: int, out: Bytes, at: int) -> int:
    if not _is_valid(valid, row):
        return write_varint(out, at, -1)
    size = int(offsets[row + 1] - offsets[row])
    at = write_varint(out, at, size)
    # Unsigned, or else numba's check for indices counted from the end makes it four times slower.
    here, there = np.uint64(at), np.uint64(offsets[row])
    for i in range(np.uint64(size)):
        out[here + i] = data[there + i]
    return at + size


@kernel(types.void(_LONGS, _INTS, _READ, _INTS, _READ, _INTS, _READ, _INTS, _INTS, _READ, _LONGS_OUT))
def sizes(
    chosen: Table,
    key_offsets: Offsets,
    key_valid: Bytes,
    value_offsets: Offsets,
    value_valid: Bytes,
    list_offsets: Offsets,
    list_valid: Bytes,
    name_offsets: Offsets,
    content_offsets: Offsets,
    content_valid: Bytes,
    out: Table,
) -> None:
    """Bytes of key, value and headers of each chosen row, as a record holds them. No list offsets: no headers."""
    none = np.zeros(0, np.uint8)
    for n in range(len(chosen)):
        row = chosen[n]
        size = _field_size(key_offsets, key_valid, row) + _field_size(value_offsets, value_valid, row)
        first = last = 0
        if len(list_offsets) and _is_valid(list_valid, row):
            first, last = int(list_offsets[row]), int(list_offsets[row + 1])
        size += varint_size(last - first)
        for header in range(first, last):
            size += _field_size(name_offsets, none, header) + _field_size(content_offsets, content_valid, header)
        out[n] = size


@kernel(_I8(_LONGS, _LONGS, _LONGS, *_COLUMN, *_COLUMN, _INTS, _READ, *_COLUMN, *_COLUMN, _WRITE))
def write(
    chosen: Table,
    size: Table,
    time: Table,
    key_offsets: Offsets,
    key_data: Bytes,
    key_valid: Bytes,
    value_offsets: Offsets,
    value_data: Bytes,
    value_valid: Bytes,
    list_offsets: Offsets,
    list_valid: Bytes,
    name_offsets: Offsets,
    name_data: Bytes,
    name_valid: Bytes,
    content_offsets: Offsets,
    content_data: Bytes,
    content_valid: Bytes,
    out: Bytes,
) -> int:
    """The chosen rows as the records of one batch, times relative to the first; the bytes written."""
    at = 0
    for n in range(len(chosen)):
        row = chosen[n]
        delta = time[row] - time[chosen[0]]
        at = write_varint(out, at, 1 + varint_size(delta) + varint_size(n) + size[n])
        out[at] = 0  # attributes of a record: none are defined
        at = write_varint(out, at + 1, delta)
        at = write_varint(out, at, n)
        at = _write_field(key_offsets, key_data, key_valid, row, out, at)
        at = _write_field(value_offsets, value_data, value_valid, row, out, at)
        first = last = 0
        if len(list_offsets) and _is_valid(list_valid, row):
            first, last = int(list_offsets[row]), int(list_offsets[row + 1])
        at = write_varint(out, at, last - first)
        for header in range(first, last):
            at = _write_field(name_offsets, name_data, name_valid, header, out, at)
            at = _write_field(content_offsets, content_data, content_valid, header, out, at)
    return at
