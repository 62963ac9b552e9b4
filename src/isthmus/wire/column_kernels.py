"""The loops that turn plain record bytes into Arrow's buffers, compiled.

`measure` reads everything and proves that it is records; only then is room allotted, and `fill` and `fill_headers`
copy. What must stay true: `measure` stays inside its arrays whatever bytes come in; the other two are called with the
very bytes that it found to be sound, and with arrays of the sizes that it counted, so they need no checks of their own.
All release the GIL and have explicit signatures (see `kernels`).

Arrow's layout: n + 1 offsets of four bytes into the bytes of all rows, and a bitmap, lowest bit first, of those that
are not null. What the columns mean belongs to `columns`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from isthmus.wire.kernels import MIN_RECORD, NO_FIXED_TIME, Bytes, Table, inlined, kernel, read_varint

Offsets = npt.NDArray[np.int32]

# One row of `spans` per batch.
SIZE, RECORDS, BASE_OFFSET, LAST_DELTA, BASE_TIME, FIXED_TIME, TIME_TYPE, SPAN_COLUMNS = range(8)
# What `measure` counts.
ROWS, KEYS, VALUES, NULL_KEYS, NULL_VALUES = 0, 1, 2, 3, 4
HEADERS, NAMES, CONTENTS, NULL_CONTENTS, BARE, ODD_NAMES, COUNTS = 5, 6, 7, 8, 9, 10, 11

_HIGHEST_MS = (2**63 - 1) // 1000

_I8 = types.int64
_READ = types.Array(types.uint8, 1, "C", readonly=True)
_WRITE = types.Array(types.uint8, 1, "C")
_SPANS = types.Array(types.int64, 2, "C", readonly=True)
_LONGS = types.Array(types.int64, 1, "C")
_INTS = types.Array(types.int32, 1, "C")
_FIELD = types.UniTuple(_I8, 2)
_RECORD = types.UniTuple(_I8, 4)


# --- reading ---------------------------------------------------------------------------------


@inlined(_RECORD(_READ, _I8, _I8))
def _begin(data: Bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Time delta, offset delta, where the key's length stands, where the record ends (-1: malformed)."""
    size, at = read_varint(data, at, end)
    if at < 0 or size < MIN_RECORD - 1 or size > end - at:
        return 0, 0, 0, -1
    past = at + size
    time, at = read_varint(data, at + 1, past)  # after the attributes, which say nothing
    if at < 0:
        return 0, 0, 0, -1
    delta, at = read_varint(data, at, past)
    if at < 0:
        return 0, 0, 0, -1
    return time, delta, at, past


@inlined(_FIELD(_READ, _I8, _I8))
def _field(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The size of a field (-1: null) and where its bytes begin (-1: malformed)."""
    size, at = read_varint(data, at, end)
    if at < 0 or size < -1 or size > end - at:
        return 0, -1
    return size, at


@inlined(_I8(_READ, _I8, _I8, _LONGS, _I8, _I8))
def _count_field(data: Bytes, at: int, end: int, counts: Table, total: int, nulls: int) -> int:
    """The position after a field, or -1."""
    size, at = _field(data, at, end)
    if at < 0:
        return -1
    if size < 0:
        counts[nulls] += 1
        return at
    counts[total] += size
    return at + size


@kernel(types.boolean(_READ, _I8, _I8))
def _is_ascii(data: Bytes, at: int, end: int) -> bool:
    high = np.uint8(0)
    for i in range(np.uint64(at), np.uint64(end)):
        high |= data[i]
    return bool(high < 0x80)


@inlined(types.boolean(_READ, _I8, _I8, _LONGS))
def _count_headers(data: Bytes, at: int, end: int, counts: Table) -> bool:
    """Whether headers fill these bytes exactly."""
    left, at = read_varint(data, at, end)
    if left < 0 or at < 0:
        return False
    if left == 0:
        counts[BARE] += 1
    while left > 0:
        size, at = _field(data, at, end)
        if at < 0 or size < 0:
            return False
        if not _is_ascii(data, at, at + size):
            counts[ODD_NAMES] += 1
        counts[NAMES] += size
        at = _count_field(data, at + size, end, counts, CONTENTS, NULL_CONTENTS)
        if at < 0:
            return False
        counts[HEADERS] += 1
        left -= 1
    return at == end


@inlined(types.boolean(_READ, _I8, _I8, _LONGS))
def _count_record(data: Bytes, at: int, end: int, counts: Table) -> bool:
    at = _count_field(data, at, end, counts, KEYS, NULL_KEYS)
    if at < 0:
        return False
    at = _count_field(data, at, end, counts, VALUES, NULL_VALUES)
    if at < 0:
        return False
    counts[ROWS] += 1
    return _count_headers(data, at, end, counts)


@kernel(_I8(_READ, _SPANS, _I8, _I8, _LONGS, _LONGS))
def measure(data: Bytes, spans: Table, low: int, end_offset: int, counts: Table, unwanted: Table) -> int:
    """Count what the records with offsets in [low, end_offset) need; the first malformed span, or -1.

    Offsets must rise throughout. Both counts begin with zeros; those of records out of range go to `unwanted`.
    """
    at = 0
    previous = np.int64(-1)
    for span in range(len(spans)):
        row = spans[span]
        end = at + row[SIZE]
        if row[SIZE] < 0 or end > len(data):
            return span
        for _ in range(row[RECORDS]):
            _, delta, key_at, at = _begin(data, at, end)
            offset = row[BASE_OFFSET] + delta
            if at < 0 or delta < 0 or delta > row[LAST_DELTA] or offset <= previous:
                return span
            previous = offset
            if not _count_record(data, key_at, at, counts if low <= offset < end_offset else unwanted):
                return span
        if at != end:
            return span
    return -1


# --- writing ---------------------------------------------------------------------------------


@inlined(types.void(_READ, _I8, _I8, _WRITE, _I8))
def _copy(data: Bytes, at: int, size: int, out: Bytes, to: int) -> None:
    # Unsigned, or else numba's check for indices counted from the end makes it four times slower.
    here, there = np.uint64(to), np.uint64(at)
    for i in range(np.uint64(size)):
        out[here + i] = data[there + i]


@inlined(_I8(_READ, _I8, _I8, _I8, _INTS, _WRITE, _WRITE))
def _put(data: Bytes, at: int, end: int, row: int, offsets: Offsets, out: Bytes, valid: Bytes) -> int:
    """Copy the field that begins here to its row; the position after it."""
    size, at = read_varint(data, at, end)
    to = offsets[row]
    if size < 0:
        offsets[row + 1] = to
        return at
    _copy(data, at, size, out, to)
    offsets[row + 1] = to + size
    valid[row >> 3] |= np.uint8(1 << (row & 7))
    return at + size


@inlined(types.int64(_I8))
def _micros(ms: int) -> int:
    """Times that microseconds cannot hold become the nearest that they can."""
    return max(-_HIGHEST_MS, min(_HIGHEST_MS, ms)) * 1000


@kernel(types.void(_READ, _SPANS, _I8, _I8, _LONGS, _LONGS, _INTS, _INTS, _WRITE, _WRITE, _INTS, _WRITE, _WRITE))
def fill(
    data: Bytes,
    spans: Table,
    low: int,
    end_offset: int,
    offset: Table,
    time: Table,
    time_type: Offsets,
    key_offsets: Offsets,
    key_data: Bytes,
    key_valid: Bytes,
    value_offsets: Offsets,
    value_data: Bytes,
    value_valid: Bytes,
) -> None:
    """Everything but headers. Bitmaps and the first of the offsets begin with zeros."""
    at = row = 0
    for span in spans:
        end = at + span[SIZE]
        for _ in range(span[RECORDS]):
            time_delta, delta, key_at, at = _begin(data, at, end)
            place = span[BASE_OFFSET] + delta
            if place < low or place >= end_offset:
                continue
            offset[row] = place
            fixed = span[FIXED_TIME]
            time[row] = _micros(span[BASE_TIME] + time_delta if fixed == NO_FIXED_TIME else fixed)
            time_type[row] = span[TIME_TYPE]
            value_at = _put(data, key_at, at, row, key_offsets, key_data, key_valid)
            _put(data, value_at, at, row, value_offsets, value_data, value_valid)
            row += 1


@kernel(types.void(_READ, _SPANS, _I8, _I8, _INTS, _WRITE, _INTS, _WRITE, _WRITE, _INTS, _WRITE, _WRITE))
def fill_headers(
    data: Bytes,
    spans: Table,
    low: int,
    end_offset: int,
    list_offsets: Offsets,
    list_valid: Bytes,
    name_offsets: Offsets,
    name_data: Bytes,
    name_valid: Bytes,
    content_offsets: Offsets,
    content_data: Bytes,
    content_valid: Bytes,
) -> None:
    """The headers; a record without any has none, not an empty list. Bitmaps and first offsets begin with zeros."""
    at = row = header = 0
    for span in spans:
        end = at + span[SIZE]
        for _ in range(span[RECORDS]):
            _, delta, here, at = _begin(data, at, end)
            place = span[BASE_OFFSET] + delta
            if place < low or place >= end_offset:
                continue
            for _ in range(2):  # key, value
                size, here = read_varint(data, here, at)
                here += max(size, 0)
            count, here = read_varint(data, here, at)
            for _ in range(count):
                here = _put(data, here, at, header, name_offsets, name_data, name_valid)
                here = _put(data, here, at, header, content_offsets, content_data, content_valid)
                header += 1
            if count:
                list_valid[row >> 3] |= np.uint8(1 << (row & 7))
            list_offsets[row + 1] = header
            row += 1
