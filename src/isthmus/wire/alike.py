"""The records of two opened batches side by side, as far as they are the same byte for byte.

Batches may be cut differently, so each side is a `Reading` that stops inside of its batch and goes on there. A record
is alike if its time is, and the bytes of key, value and headers are; offsets may differ. What must stay true: whatever
bytes come in, the kernels stay inside their arrays (see `kernels`), and nothing is passed that was not compared.
What a difference is called is left to others.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from isthmus.wire.batch import corrupt
from isthmus.wire.kernels import NO_FIXED_TIME, Bytes, Table, read_varint
from isthmus.wire.prints import OFFSET, Opened, printed

# What `state` holds: where the next record begins, which one it is, and what was said when it was made.
_AT, _ROW, _COUNT, _BASE_OFFSET, _BASE_TIME, _FIXED_TIME, _LOW, _END = range(8)
_ENDED, _MALFORMED = -1, -2
_LEFT, _RIGHT = -1, -2

_I8 = types.int64
_READ = types.Array(types.uint8, 1, "C", readonly=True)
_STATE = types.Array(types.int64, 1, "C")


class Reading:
    """The records of one batch that have an offset of [low, end) and were not passed yet."""

    def __init__(self, records: Opened, low: int, end: int) -> None:
        self.records = records
        self.state = np.array((0, 0, *records[2:6], low, end), np.int64)
        self.is_done = not records.count

    def rows(self) -> Table:
        """The prints of what is left."""
        rows = printed(self.records)[self.state[_ROW] :]
        wanted: Table = rows[(rows[:, OFFSET] >= self.state[_LOW]) & (rows[:, OFFSET] < self.state[_END])]
        return wanted


def pass_alike(here: Reading, there: Reading) -> int:
    """Pass what is the same, and say how many records; then one of them is done, or the next records differ."""
    left, right = here.records, there.records
    passed = int(_pass_alike(left.data, left.offsets, here.state, right.data, right.offsets, there.state))
    if passed < 0:
        raise corrupt((left if passed == _LEFT else right).batch, "a malformed record")
    here.is_done = bool(here.state[_ROW] == left.count)
    there.is_done = bool(there.state[_ROW] == right.count)
    return passed


@njit(types.UniTuple(_I8, 3)(_READ, _STATE, _STATE), cache=True, nogil=True, boundscheck=False)
def _next(data: Bytes, offsets: Table, state: Table) -> tuple[int, int, int]:
    """Time, beginning of the key and end of the next wanted record, or why there is none in place of its end."""
    end = len(data)
    while state[_ROW] < state[_COUNT]:
        size, at = read_varint(data, state[_AT], end)
        if at < 0 or size < 6 or size > end - at:
            return 0, 0, _MALFORMED
        past = at + size
        time, at = read_varint(data, at + 1, past)  # after the attributes, which say nothing
        if at < 0:
            return 0, 0, _MALFORMED
        delta, at = read_varint(data, at, past)
        if at < 0:
            return 0, 0, _MALFORMED
        offset = offsets[state[_ROW]] if len(offsets) else state[_BASE_OFFSET] + delta
        if offset >= state[_LOW] and offset < state[_END]:
            fixed = state[_FIXED_TIME]
            return (state[_BASE_TIME] + time if fixed == NO_FIXED_TIME else fixed), at, past
        state[_AT] = past
        state[_ROW] += 1
    return 0, 0, _ENDED if state[_AT] == end else _MALFORMED


@njit(types.boolean(_READ, _I8, _READ, _I8, _I8), cache=True, nogil=True, boundscheck=False)
def _are_same(one: Bytes, at: int, other: Bytes, other_at: int, size: int) -> bool:
    """No early end, so that the processor compares many bytes at a time; unsigned for the same reason."""
    here, there = np.uint64(at), np.uint64(other_at)
    unlike = np.uint8(0)
    for i in range(np.uint64(size)):
        unlike |= one[here + i] ^ other[there + i]
    return bool(unlike == 0)


@njit(_I8(_READ, _STATE, _STATE, _READ, _STATE, _STATE), cache=True, nogil=True, boundscheck=False)
def _pass_alike(one: Bytes, offsets: Table, here: Table, other: Bytes, other_offsets: Table, there: Table) -> int:
    """How many were passed, or which side is malformed."""
    passed = 0
    while True:
        time, at, past = _next(one, offsets, here)
        other_time, other_at, other_past = _next(other, other_offsets, there)
        if past == _MALFORMED:
            return _LEFT
        if other_past == _MALFORMED:
            return _RIGHT
        size = past - at
        if past < 0 or other_past < 0 or time != other_time or size != other_past - other_at:
            return passed
        if not _are_same(one, at, other, other_at, size):
            return passed
        here[_AT], there[_AT] = past, other_past
        here[_ROW] += 1
        there[_ROW] += 1
        passed += 1
