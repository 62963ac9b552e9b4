"""The loops that touch every byte or every record, compiled.

Must stay true: whatever bytes come in, a kernel reads and writes only inside the arrays it was
given and answers with a status (bounds checks of numba are off, so the checks here are the only
ones). All kernels release the GIL, and all have explicit signatures: they are compiled (or read
from the disk cache) when this module is imported, never in the middle of a lane's work.

What the statuses mean to a user, and every header field but those of the index, belongs to
`batch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numba import types

from isthmus.wire.compiled import njit

Bytes = npt.NDArray[np.uint8]
Table = npt.NDArray[np.int64]

HEADER_SIZE = 61
COLUMNS = 14

_I8 = types.int64
_READ = types.Array(types.uint8, 1, "C", readonly=True)
_WRITE = types.Array(types.uint8, 1, "C")
_READ_TABLE = types.Array(types.int64, 2, "C", readonly=True)
_WRITE_TABLE = types.Array(types.int64, 2, "C")
_STATE = types.Array(types.int64, 1, "C")
_PAIR = types.Tuple((_I8, _I8))
_FOUR = types.Tuple((_I8, _I8, _I8, _I8))

_F = TypeVar("_F", bound=Callable[..., Any])


def kernel(signature: Any) -> Callable[[_F], _F]:
    compiled: Callable[[_F], _F] = njit(signature, cache=True, nogil=True, boundscheck=False)
    return compiled


def inlined(signature: Any) -> Callable[[_F], _F]:
    """For what is called several times a record: 40 ns instead of 55 in `column_kernels.measure`, less elsewhere."""
    compiled: Callable[[_F], _F] = njit(signature, cache=True, nogil=True, boundscheck=False, forceinline=True)
    return compiled


# --- numbers on the wire ---------------------------------------------------------------------


@kernel(_I8(_READ, _I8, _I8))
def read_int(data: Bytes, position: int, width: int) -> int:
    """A signed big-endian integer; the caller has checked that it lies inside the data."""
    value = np.int64(np.int8(data[position]))
    for i in range(1, width):
        value = (value << 8) | np.int64(data[position + i])
    return int(value)


@inlined(_PAIR(_READ, _I8, _I8))
def read_varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """A zig-zag varint and the position after it, or position -1 if it does not end in time."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < np.uint64(64):
        byte = np.uint64(data[position])
        position += 1
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return int(np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))), position
        shift += np.uint64(7)
    return 0, -1


@kernel(_I8(_STATE, _WRITE))
def write_varints(values: Table, out: Bytes) -> int:
    """All values as zig-zag varints; the size written. `out` needs ten bytes per value."""
    at = 0
    for i in range(len(values)):
        raw = np.uint64((values[i] << 1) ^ (values[i] >> 63))
        while raw >= np.uint64(0x80):
            out[at] = np.uint8(raw | np.uint64(0x80))
            raw >>= np.uint64(7)
            at += 1
        out[at] = np.uint8(raw)
        at += 1
    return at


@kernel(_I8(_READ, _STATE))
def read_varints(data: Bytes, out: Table) -> int:
    """Fill `out`; the number of bytes read, or -1 where the data ends too early."""
    at = 0
    for i in range(len(out)):
        out[i], at = read_varint(data, at, len(data))
        if at < 0:
            return -1
    return at


# --- CRC-32C ---------------------------------------------------------------------------------


def _multiply(a: int, b: int) -> int:
    """a*b modulo the Castagnoli polynomial; bit 31 is the coefficient of x^0 (reflected)."""
    product = 0
    for _ in range(32):
        if a & 0x80000000:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ (0x82F63B78 if b & 1 else 0)
    return product


def _powers_of_a_byte() -> npt.NDArray[np.uint32]:
    """x^(8*2^k) for k = 0..31: a byte of distance, then 2, 4, 8 ... bytes, by squaring."""
    powers = [0x80000000 >> 8]
    while len(powers) < 32:
        powers.append(_multiply(powers[-1], powers[-1]))
    return np.array(powers, np.uint32)


_POWERS = _powers_of_a_byte()


@kernel(_I8(_I8, _I8))
def shift_crc(difference: int, distance: int) -> int:
    """What a difference of two CRCs becomes when both run on over the same `distance` bytes."""
    crc = np.uint32(difference)
    k = 0
    while distance > 0:
        if distance & 1:
            power = _POWERS[k]
            product = np.uint32(0)
            for bit in range(31, -1, -1):
                product ^= power & (np.uint32(0) - ((crc >> np.uint32(bit)) & np.uint32(1)))
                power = (power >> np.uint32(1)) ^ (np.uint32(0x82F63B78) & (np.uint32(0) - (power & np.uint32(1))))
            crc = product
        distance >>= 1
        k += 1
    return int(crc)


# --- finding batches -------------------------------------------------------------------------


@kernel(types.void(_READ, _I8, _WRITE_TABLE, _I8))
def _fill_row(data: Bytes, at: int, table: Table, row: int) -> None:
    table[row, 0] = at
    table[row, 1] = read_int(data, at + 8, 4) + 12
    table[row, 2] = read_int(data, at, 8)
    table[row, 3] = -1
    table[row, 4] = read_int(data, at + 16, 1)
    for column in range(5, COLUMNS):
        table[row, column] = 0
    table[row, 10] = table[row, 11] = table[row, 12] = -1
    if table[row, 4] == 2:
        table[row, 3] = read_int(data, at + 12, 4)
        table[row, 5] = read_int(data, at + 17, 4) & 0xFFFFFFFF
        table[row, 6] = read_int(data, at + 21, 2)
        table[row, 7] = read_int(data, at + 23, 4)
        table[row, 8] = read_int(data, at + 27, 8)
        table[row, 9] = read_int(data, at + 35, 8)
        table[row, 10] = read_int(data, at + 43, 8)
        table[row, 11] = read_int(data, at + 51, 2)
        table[row, 12] = read_int(data, at + 53, 4)
        table[row, 13] = read_int(data, at + 57, 4)


@kernel(_PAIR(_READ, _WRITE_TABLE))
def index_batches(data: Bytes, table: Table) -> tuple[int, int]:
    """One row per whole batch (columns as in `batch.Batch`), as far as the table has rows.

    Answers how many whole batches there are, and the position of a malformed one or -1. The rest
    of a batch that was cut off at the end is not an error: fetches end anywhere.
    """
    at = found = 0
    while len(data) - at >= 17:
        size = read_int(data, at + 8, 4) + 12
        magic = read_int(data, at + 16, 1)
        # Smallest sizes: 61 is the v2 header; 26 is a v0 message with null key and null value.
        if magic < 0 or magic > 2 or size < (HEADER_SIZE if magic == 2 else 26 + 8 * magic):
            return found, at
        if read_int(data, at, 8) < 0:
            return found, at
        if len(data) - at < size:
            break
        # Negative counts would walk a position backwards.
        if magic == 2 and (read_int(data, at + 23, 4) < 0 or read_int(data, at + 57, 4) < 0):
            return found, at
        if found < len(table):
            _fill_row(data, at, table, found)
        found += 1
        at += size
    return found, -1


@kernel(_I8(_READ))
def marker_type(data: Bytes) -> int:
    """The type in the first control record's key, -1 if the record is malformed.

    Varints, not fixed places: a marker rewritten by the cleaner has a longer timestamp.
    """
    end = len(data)
    _, at = read_varint(data, 0, end)
    if at < 0:
        return -1
    at += 1  # attributes
    for _ in range(2):  # timestamp, offset
        _, at = read_varint(data, at, end)
        if at < 0:
            return -1
    key_size, at = read_varint(data, at, end)
    if at < 0 or key_size < 4 or key_size > end - at:
        return -1
    return read_int(data, at + 2, 2) & 0xFFFF


# --- merging records -------------------------------------------------------------------------

# One row of `spans` per source batch, and what `state` counts while they are merged.
SIZE, RECORDS, BASE_OFFSET, LAST_DELTA, BASE_TIME, FIXED_TIME, SPAN_COLUMNS = range(7)
WRITTEN, COUNT, RUNS, FIRST_TIME, HIGHEST_TIME, STATE_SIZE = range(6)

NO_FIXED_TIME = -(2**63)
MIN_RECORD = 7  # length, attributes, two deltas, two null lengths, no headers: a byte each
MAX_GROWTH = 17  # of a record: 1 to 5 bytes of length, 1 to 10 of time delta, 1 to 5 of offset delta


@kernel(_I8(_I8))
def varint_size(value: int) -> int:
    raw = np.uint64((value << 1) ^ (value >> 63)) >> np.uint64(7)
    size = 1
    while raw:
        raw >>= np.uint64(7)
        size += 1
    return size


@kernel(_I8(_WRITE, _I8, _I8))
def write_varint(out: Bytes, position: int, value: int) -> int:
    raw = np.uint64((value << 1) ^ (value >> 63))
    while raw >= np.uint64(0x80):
        out[position] = np.uint8(raw | np.uint64(0x80))
        raw >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(raw)
    return position + 1


@kernel(_I8(_READ, _I8, _I8, _I8))
def _skip_field(data: Bytes, at: int, end: int, least: int) -> int:
    """The position after a sized field, or -1; null has the length -1, where `least` allows it."""
    size, at = read_varint(data, at, end)
    if at < 0 or size < least or size > end - at:
        return -1
    return at + max(size, 0)


@kernel(types.boolean(_READ, _I8, _I8))
def _is_sound(data: Bytes, at: int, end: int) -> bool:
    """Whether key, value and headers fill these bytes exactly."""
    at = _skip_field(data, at, end, -1)
    if at >= 0:
        at = _skip_field(data, at, end, -1)
    if at < 0:
        return False
    headers, at = read_varint(data, at, end)
    if headers < 0:
        return False
    while headers > 0 and at >= 0:
        at = _skip_field(data, at, end, 0)
        if at >= 0:
            at = _skip_field(data, at, end, -1)
        headers -= 1
    return at == end


@kernel(_FOUR(_READ, _I8, _I8))
def _read_record(data: Bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Time delta, offset delta, where the key begins and where the record ends (-1: malformed)."""
    size, at = read_varint(data, at, end)
    if at < 0 or size < MIN_RECORD - 1 or size > end - at:
        return 0, 0, 0, -1
    end = at + size
    time, at = read_varint(data, at + 1, end)
    if at < 0:
        return 0, 0, 0, -1
    delta, at = read_varint(data, at, end)
    if at < 0 or not _is_sound(data, at, end):
        return 0, 0, 0, -1
    return time, delta, at, end


@kernel(types.boolean(_READ, _I8, _I8, _I8, _WRITE, _STATE))
def _write_record(data: Bytes, key_at: int, end: int, time: int, out: Bytes, state: Table) -> bool:
    """Append a record, the key and what follows it as they are; False if there is no room."""
    rest = end - key_at
    at = state[WRITTEN]
    if state[COUNT] == 0:
        state[FIRST_TIME] = state[HIGHEST_TIME] = time
    if rest + 32 > len(out) - at:
        return False
    state[HIGHEST_TIME] = max(state[HIGHEST_TIME], time)
    time -= state[FIRST_TIME]
    at = write_varint(out, at, 1 + varint_size(time) + varint_size(state[COUNT]) + rest)
    out[at] = 0  # attributes of a record: none are defined
    at = write_varint(out, at + 1, time)
    at = write_varint(out, at, state[COUNT])
    # Unsigned, or else numba's check for indices counted from the end makes it four times slower.
    here, there = np.uint64(at), np.uint64(key_at)
    for i in range(np.uint64(rest)):
        out[here + i] = data[there + i]
    state[WRITTEN] = at + rest
    state[COUNT] += 1
    return True


@kernel(types.void(_I8, _WRITE_TABLE, _STATE))
def _note_offset(offset: int, runs: Table, state: Table) -> None:
    run = state[RUNS] - 1
    if run < 0 or runs[run, 0] + runs[run, 1] != offset:
        run = state[RUNS]
        runs[run, 0], runs[run, 1] = offset, 0
        state[RUNS] += 1
    runs[run, 1] += 1


@kernel(_I8(_READ, _READ_TABLE, _I8, _WRITE, _WRITE_TABLE, _STATE))
def merge_records(data: Bytes, spans: Table, from_offset: int, out: Bytes, runs: Table, state: Table) -> int:
    """Write the records of all spans of `data` as one dense batch's records into `out`.

    Records below `from_offset` are left out; source offsets must rise throughout. Answers the
    number of the first malformed span, or -1. `out` needs MAX_GROWTH bytes per record more than
    `data` and 32 of slack, `runs` a row per record; `state` begins with zeros.
    """
    at = 0
    previous = -1
    for span in range(len(spans)):
        row = spans[span]
        end = at + row[SIZE]
        if row[SIZE] < 0 or end > len(data):
            return span
        for _ in range(row[RECORDS]):
            time, delta, key_at, at = _read_record(data, at, end)
            offset = row[BASE_OFFSET] + delta
            if at < 0 or delta < 0 or delta > row[LAST_DELTA] or offset <= previous:
                return span
            previous = offset
            if offset < from_offset:
                continue
            time += row[BASE_TIME]
            if row[FIXED_TIME] != NO_FIXED_TIME:
                time = row[FIXED_TIME]
            if state[COUNT] >= len(runs) or not _write_record(data, key_at, at, time, out, state):
                return span
            _note_offset(offset, runs, state)
        if at != end:
            return span
    return -1


def warm() -> None:
    """Compile or load everything now; importing has done it, calling proves it."""
    nothing = np.zeros(0, np.uint8)
    index_batches(nothing, np.zeros((1, COLUMNS), np.int64))
    shift_crc(1, 1)
    marker_type(nothing)
    spans = np.zeros((0, SPAN_COLUMNS), np.int64)
    runs, state = np.zeros((0, 2), np.int64), np.zeros(STATE_SIZE, np.int64)
    merge_records(nothing, spans, 0, np.zeros(0, np.uint8), runs, state)
