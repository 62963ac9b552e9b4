"""Rows in Arrow's layout as batches of records, with no Python object per row: what a sink sends.

Owns how rows are cut into batches, and which partition a key belongs to. Must stay true: rows of one partition stay in
order; no body has more than `most` plain bytes, unless one record alone does; offsets that lead out of their column are
refused before a kernel sees them. Who may send is left to others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from isthmus.wire import compression
from isthmus.wire import row_kernels as rk
from isthmus.wire.batch import Body
from isthmus.wire.columns import Blobs, Headers, Ints, Longs
from isthmus.wire.kernels import Bytes

BATCH_BYTES = 512 << 10  # plain; topics take 1 MB at most unless told otherwise
_FRAME = 5 + 1 + 10 + 5  # of a record: length, attributes, time delta, offset delta, each at its longest
_ALL: Bytes = np.zeros(0, np.uint8)
_NO_OFFSETS: Ints = np.zeros(0, np.int32)
_NO_ROWS = Blobs(offsets=np.zeros(1, np.int32), data=np.zeros(0, np.uint8), valid=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Columns of records to be written; times in milliseconds."""

    time: Longs
    key: Blobs
    value: Blobs
    headers: Headers | None = None

    def __post_init__(self) -> None:
        count = len(self.time)
        columns = [(self.key, count), (self.value, count)]
        if self.headers is not None:
            _check(self.headers.offsets, self.headers.names.count, self.headers.valid, count)
            columns += [(each, self.headers.names.count) for each in (self.headers.names, self.headers.contents)]
        for column, rows in columns:
            _check(column.offsets, len(column.data), column.valid, rows)


def _check(offsets: Ints, end: int, valid: Bytes | None, rows: int) -> None:
    rises = len(offsets) == rows + 1 and offsets[0] >= 0 and bool((np.diff(offsets) >= 0).all())
    if not rises or offsets[-1] > end or (valid is not None and len(valid) * 8 < rows):
        raise ValueError("a column whose offsets lead out of it")  # a mistake of ours: Arrow's own are sound


def partitions_of(keys: Blobs, partitions: int) -> Ints:
    """The partition that Kafka's Java producer picks for each key; -1 for rows without one."""
    out = np.empty(keys.count, np.int32)
    rk.choose(keys.offsets, keys.data, _bits(keys.valid), partitions, out)
    return out


def bodies(rows: Rows, chosen: Longs, codec: int, most: int = BATCH_BYTES) -> Iterator[Body]:
    """The chosen rows, in that order, in as few batches as they fit."""
    if len(chosen) and not (chosen.min() >= 0 and chosen.max() < len(rows.time)):
        raise ValueError("a row that is not there")
    sizes = _sizes(rows, chosen)
    ends = np.cumsum(sizes + _FRAME)
    first = 0
    while first < len(chosen):
        before = ends[first - 1] if first else 0
        past = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield _body(rows, chosen[first:past], sizes[first:past], codec)
        first = past


def _body(rows: Rows, chosen: Longs, sizes: Longs, codec: int) -> Body:
    out = np.empty(int(sizes.sum()) + _FRAME * len(chosen), np.uint8)
    key, value, headers = rows.key, rows.value, rows.headers
    names, contents = (headers.names, headers.contents) if headers else (_NO_ROWS, _NO_ROWS)
    written = rk.write(
        chosen,
        sizes,
        rows.time,
        key.offsets,
        key.data,
        _bits(key.valid),
        value.offsets,
        value.data,
        _bits(value.valid),
        headers.offsets if headers else _NO_OFFSETS,
        _bits(headers.valid) if headers else _ALL,
        names.offsets,
        names.data,
        _ALL,
        contents.offsets,
        contents.data,
        _bits(contents.valid),
        out,
    )
    times = rows.time[chosen]
    payload = compression.compress(codec, out.data[:written])
    return Body(payload, codec, len(chosen), int(times[0]), int(times.max()), ())


def _sizes(rows: Rows, chosen: Longs) -> Longs:
    out = np.empty(len(chosen), np.int64)
    key, value, headers = rows.key, rows.value, rows.headers
    names, contents = (headers.names, headers.contents) if headers else (_NO_ROWS, _NO_ROWS)
    rk.sizes(
        chosen,
        key.offsets,
        _bits(key.valid),
        value.offsets,
        _bits(value.valid),
        headers.offsets if headers else _NO_OFFSETS,
        _bits(headers.valid) if headers else _ALL,
        names.offsets,
        contents.offsets,
        _bits(contents.valid),
        out,
    )
    return out


def _bits(valid: Bytes | None) -> Bytes:
    return _ALL if valid is None else valid
