"""Runs: which records of the source became which of the target, and their bytes in the index topic.

A run says that `length` records from source offset `source` on stand at `target` on, both without a hole. Offsets
never change under compaction, so a run is true for ever. A span is what one record of the index topic holds: the
source offsets [start, end) are dealt with, and these runs are all that landed of them; the rest was nothing to copy
(markers, aborted transactions, holes left by compaction).

    key     topic (16 bit length, UTF-8), partition (32 bit), start (64 bit)
    value   version, then zig-zag varints: end - start, number of runs, and for each run its distance from the end of
            the last one in the source, the same in the target, its length

Must stay true: bytes that are read are a span whose runs rise and lie inside of it, or none at all. Others may write to
the topic, and what a reader concludes from a run moves consumer groups.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isthmus.model import TopicPartition
from isthmus.wire import kernels

Runs = npt.NDArray[np.int64]  # rows of (source, target, length), rising in both offsets

_VERSION = 1
_LENGTH = struct.Struct(">h")
_PLACE = struct.Struct(">iq")
_LONGS = range(1 << 63)


class Span(NamedTuple):
    """Everything that is known about the source offsets [start, end) of a partition."""

    tp: TopicPartition
    start: int
    end: int
    runs: Runs


def table(runs: Sequence[Sequence[int]]) -> Runs:
    return np.array(runs, np.int64).reshape(-1, 3)


def encode_key(tp: TopicPartition, start: int) -> bytes:
    name = tp.topic.encode()
    return _LENGTH.pack(len(name)) + name + _PLACE.pack(tp.partition, start)


def decode_key(key: bytes) -> tuple[TopicPartition, int] | None:
    """None for bytes that are no key of ours."""
    try:
        (length,) = _LENGTH.unpack_from(key)
        name = key[2 : 2 + length].decode()
        partition, start = _PLACE.unpack(key[2 + length :])
    except (struct.error, UnicodeDecodeError):
        return None
    return (TopicPartition(name, partition), start) if min(length, partition, start) >= 0 else None


def encode_value(span: Span) -> bytes:
    runs = span.runs
    numbers = np.empty(2 + runs.size, np.int64)
    numbers[0], numbers[1] = span.end - span.start, len(runs)
    deltas = numbers[2:].reshape(-1, 3)
    if len(runs):
        ends = runs[:, :2] + runs[:, 2:]
        deltas[0, :2] = runs[0, 0] - span.start, runs[0, 1]
        deltas[1:, :2] = runs[1:, :2] - ends[:-1]
        deltas[:, 2] = runs[:, 2]
    out = np.empty(10 * len(numbers), np.uint8)
    size = kernels.write_varints(numbers, out)
    return bytes([_VERSION]) + out[:size].tobytes()


def decode_end(start: int, value: bytes) -> int | None:
    """Where a span ends, without reading its runs; None for bytes that are no span."""
    numbers = np.zeros(1, np.int64)
    if not value or value[0] != _VERSION or kernels.read_varints(np.frombuffer(value, np.uint8)[1:], numbers) < 0:
        return None
    end = start + int(numbers[0])
    return end if numbers[0] >= 0 and end in _LONGS else None


def decode_value(tp: TopicPartition, start: int, value: bytes) -> Span | None:
    """None for bytes that are no span, or a damaged one."""
    data = np.frombuffer(value, np.uint8)[1:]
    head = np.zeros(2, np.int64)
    at = kernels.read_varints(data, head) if value and value[0] == _VERSION else -1
    end = start + int(head[0])
    if at < 0 or head[0] < 0 or end not in _LONGS or not 0 <= head[1] <= len(data) // 3:
        return None
    numbers = np.zeros(3 * int(head[1]), np.int64)
    if kernels.read_varints(data[at:], numbers) != len(data) - at:
        return None
    deltas = numbers.reshape(-1, 3)
    if not _is_bounded(deltas, end - start):
        return None
    span = Span(tp, start, end, _from_deltas(start, deltas))
    return span if _is_inside(span) else None


def _is_bounded(deltas: Runs, size: int) -> bool:
    """Whether sums of these stay within 64 bits; as floats, which do not wrap."""
    ahead = deltas[:, ::2].astype(np.float64)
    targets = np.abs(deltas[:, 1].astype(np.float64)).sum() + ahead[:, 1].sum()
    return bool((deltas[:, 0] >= 0).all() and (deltas[:, 2] > 0).all()) and bool(
        ahead.sum() <= size + 1024 and targets < 2.0**62
    )


def _is_inside(span: Span) -> bool:
    runs = span.runs
    return not len(runs) or bool(runs[-1, 0] + runs[-1, 2] <= span.end and (runs[:, 1] >= 0).all())


def _from_deltas(start: int, deltas: Runs) -> Runs:
    """Each run begins where the one before ended, and its distance further on."""
    lengths = deltas[:, 2]
    before = np.cumsum(lengths) - lengths
    sources = start + np.cumsum(deltas[:, 0]) + before
    targets = np.cumsum(deltas[:, 1]) + before
    return np.column_stack((sources, targets, lengths)).astype(np.int64)
