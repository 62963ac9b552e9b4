"""Columns as Arrow's record batches, the buffers as they are: nothing is copied but the topic's name.

Must stay true: types are those that Spark takes from a Python source (binary and string with offsets of four bytes,
times in microseconds of UTC), under the names and in the order of Spark's own Kafka source.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from isthmus.model import TopicPartition
from isthmus.wire.columns import Blobs, Columns, Headers

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))


def record_batch(part: Columns, tp: TopicPartition) -> pa.RecordBatch:
    """One row for each record; headers are a column if the part has them."""
    count = part.count
    columns = {
        "key": _blobs(pa.binary(), part.key),
        "value": _blobs(pa.binary(), part.value),
        "topic": _repeated(tp.topic, count),
        "partition": _numbers(pa.int32(), np.full(count, tp.partition, np.int32)),
        "offset": _numbers(pa.int64(), part.offset),
        "timestamp": _numbers(pa.timestamp("us", tz="UTC"), part.time),
        "timestampType": _numbers(pa.int32(), part.time_type),
    }
    if part.headers is not None:
        columns["headers"] = _lists(part.headers, count)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _buffer(array: Any) -> pa.Buffer | None:
    return None if array is None else pa.py_buffer(array)


def _numbers(kind: pa.DataType, values: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, _buffer(values)])


def _blobs(kind: pa.DataType, column: Blobs) -> pa.Array:
    buffers = [_buffer(column.valid), _buffer(column.offsets), _buffer(column.data)]
    return pa.Array.from_buffers(kind, column.count, buffers)


def _lists(headers: Headers, count: int) -> pa.Array:
    names, contents = _blobs(pa.string(), headers.names), _blobs(pa.binary(), headers.contents)
    pairs = pa.Array.from_buffers(_HEADER, headers.names.count, [None], children=[names, contents])
    buffers = [_buffer(headers.valid), _buffer(headers.offsets)]
    return pa.Array.from_buffers(_HEADERS, count, buffers, children=[pairs])


def _repeated(text: str, count: int) -> pa.Array:
    data = np.frombuffer(text.encode() * count, np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * (len(data) // max(count, 1))
    return _blobs(pa.string(), Blobs(offsets=offsets.astype(np.int32), data=data, valid=None))
