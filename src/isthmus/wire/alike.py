"""The records of two opened batches side by side, as far as they are the same byte for byte.

Batches may be cut differently, so each side is a `Reading` that stops inside of its batch and goes on there. A record
is alike if its time is, and the bytes of key, value and headers are; offsets may differ. What must stay true: whatever
bytes come in, the kernels stay inside their arrays (see `kernels`), and nothing is passed that was not compared.
What a difference is called is left to others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import types

from isthmus.wire.batch import corrupt
from isthmus.wire.compiled import njit
from isthmus.wire.kernels import NO_FIXED_TIME, Bytes, Table, read_varint
from isthmus.wire.prints import OFFSET, Opened, printed

# What `state` holds: where the next record begins, which one it is, and what was said when it was made.
_AT, _ROW, _COUNT, _BASE_OFFSET, _BASE_TIME, _FIXED_TIME = range(6)
_ENDED, _MALFORMED = -1, -2
_LEFT, _RIGHT = -1, -2
_LEAST, _MOST = -(2**63), 2**63 - 1

_I8 = types.int64
_READ = types.Array(types.uint8, 1, "C", readonly=True)
_STATE = types.Array(types.int64, 1, "C")
_RANGES = types.Array(types.int64, 2, "C")


def all_but(low: int, end: int, without: Sequence[tuple[int, int]] = ()) -> Table:
    """Ranges of offsets that are passed over: what is outside of [low, end), and these."""
    return np.array([(_LEAST, low), (end, _MOST), *without], np.int64)


class Reading:
    """The records of one batch that were not passed yet; `unwanted`: ranges of offsets as `all_but` gives them."""

    def __init__(self, records: Opened, unwanted: Table) -> None:
        self.records = records
        self.unwanted = unwanted
        self.state = np.array((0, 0, *records[2:6]), np.int64)
        self.is_done = not records.count

    def pass_over(self, offset: int) -> None:
        self.unwanted = np.concatenate((self.unwanted, [[offset, offset + 1]]))

    def rows(self) -> Table:
        """The prints of what is left."""
        rows = printed(self.records)[self.state[_ROW] :]
        for first, past in self.unwanted:
            rows = rows[(rows[:, OFFSET] < first) | (rows[:, OFFSET] >= past)]
        return rows


def pass_alike(here: Reading, there: Reading) -> int:
    """Pass what is the same, and say how many records; then one of them is done, or the next records differ."""
    left, right = here.records, there.records
    passed = int(
        _pass_alike(
            *(left.data, left.offsets, here.unwanted, here.state),
            *(right.data, right.offsets, there.unwanted, there.state),
        )
    )
    if passed < 0:
        raise corrupt((left if passed == _LEFT else right).batch, "a malformed record")
    here.is_done = bool(here.state[_ROW] == left.count)
    there.is_done = bool(there.state[_ROW] == right.count)
    return passed


@njit(types.boolean(_I8, _RANGES), cache=True, nogil=True, boundscheck=False)
def _is_wanted(offset: int, unwanted: Table) -> bool:
    wanted = True
    for i in range(len(unwanted)):
        wanted &= offset < unwanted[i, 0] or offset >= unwanted[i, 1]
    return wanted


@njit(types.UniTuple(_I8, 3)(_READ, _STATE, _RANGES, _STATE), cache=True, nogil=True, boundscheck=False)
def _next(data: Bytes, offsets: Table, unwanted: Table, state: Table) -> tuple[int, int, int]:
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
        if _is_wanted(offset, unwanted):
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


_SIDE = (_READ, _STATE, _RANGES, _STATE)


@njit(_I8(*_SIDE, *_SIDE), cache=True, nogil=True, boundscheck=False)
def _pass_alike(
    one: Bytes,
    offsets: Table,
    unwanted: Table,
    here: Table,
    other: Bytes,
    others: Table,
    unwanted_there: Table,
    there: Table,
) -> int:
    """How many were passed, or which side is malformed."""
    passed = 0
    while True:
        time, at, past = _next(one, offsets, unwanted, here)
        other_time, other_at, other_past = _next(other, others, unwanted_there, there)
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
