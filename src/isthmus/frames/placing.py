"""Rows of Arrow as rows to be written, and the partition that each goes to. No Python object per row.

Owns the columns that a sink takes. Must stay true: a row goes to the partition that it names; without one to the one
that Kafka's Java producer picks for its key; without a key it is spread by its offset, so the same row always goes to
the same place. A row that can go nowhere is an error that says which, never left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from isthmus.errors import BadRecord
from isthmus.frames.tickets import Place
from isthmus.model import TopicPartition
from isthmus.wire.columns import Blobs, Headers, Ints, Longs
from isthmus.wire.rows import Rows, partitions_of

COLUMNS = {  # what a sink writes, and the types that columns are cast to before they come here
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
MAKER = "maker"
PLACED = f"{SCHEMA}, {MAKER} bigint"  # of rows that are yet to be brought together
_MANY = 1 << 32  # more than any topic has partitions
_ATTEMPTS = 1 << 40  # more than a Spark context has attempts at tasks


class UnknownTopics(Exception):
    """Rows name topics that there is no place for yet."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


class Share(NamedTuple):
    """Rows of one batch that go to one partition, in their order."""

    tp: TopicPartition
    place: Place
    chosen: Longs


def rows_of(batch: pa.RecordBatch) -> Rows:
    """The columns to be written, as they lie in Arrow's buffers."""
    times = batch.column("timestamp")
    if times.null_count:
        raise _bad(batch, int(np.flatnonzero(times.is_null().to_numpy(False))[0]), "it has no timestamp")
    micros = _whole(times).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return Rows(
        time=np.floor_divide(micros, 1000),
        key=_blobs(batch.column("key")),
        value=_blobs(batch.column("value")),
        headers=_headers(batch.column("headers")),
    )


def shares(batch: pa.RecordBatch, places: Mapping[str, Place]) -> Iterator[Share]:
    """The rows of each target partition."""
    topics = pc.dictionary_encode(batch.column("topic"))
    if topics.null_count:
        raise _bad(batch, int(np.flatnonzero(topics.is_null().to_numpy(False))[0]), "it has no topic")
    names = topics.dictionary.to_pylist()
    if unknown := [name for name in names if name not in places]:
        raise UnknownTopics(unknown)
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    numbers = _partitions(batch, codes, [places[name] for name in names])
    goals = codes * _MANY + numbers
    order = np.argsort(goals, kind="stable")
    for chosen in np.split(order, np.flatnonzero(np.diff(goals[order])) + 1):
        if len(chosen):
            place = places[names[codes[chosen[0]]]]
            yield Share(TopicPartition(place.topic, int(numbers[chosen[0]])), place, chosen)


def placed(batch: pa.RecordBatch, places: Mapping[str, Place], task: int, attempt: int) -> pa.RecordBatch:
    """The same rows with every partition filled in, and the task that made them: for rows that are yet to be brought
    together. Partitions stay as they are where a row can go nowhere: whoever writes it will tell."""
    made = batch.append_column(MAKER, pa.array(np.full(batch.num_rows, task * _ATTEMPTS + attempt), pa.int64()))
    numbers = np.empty(batch.num_rows, np.int32)
    try:
        for share in shares(batch, places):
            numbers[share.chosen] = share.tp.partition
    except (UnknownTopics, BadRecord):
        return made
    at = batch.schema.get_field_index("partition")
    return made.set_column(at, batch.schema.field(at), pa.array(numbers, pa.int32()))


def makers(batch: pa.RecordBatch) -> set[tuple[int, int]]:
    """Tasks that made these rows, each with its attempt; none where rows were not brought together."""
    if MAKER not in batch.schema.names:
        return set()
    found = np.unique(batch.column(MAKER).to_numpy(zero_copy_only=False))
    return {divmod(each, _ATTEMPTS) for each in found.tolist()}


def _partitions(batch: pa.RecordBatch, codes: npt.NDArray[np.int64], places: list[Place]) -> Longs:
    """As named, or by key, or by offset."""
    column = batch.column("partition")
    numbers: Longs = pc.fill_null(column, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    free = column.is_null().to_numpy(zero_copy_only=False)
    counts = np.array([place.partitions for place in places], np.int64)[codes]
    if free.any():
        offsets = pc.fill_null(batch.column("offset"), 0).to_numpy(zero_copy_only=False)
        numbers = np.where(free, np.abs(offsets) % counts, numbers)
        keys = _blobs(batch.column("key"))
        for code, place in enumerate(places):
            by_key = partitions_of(keys, place.partitions)
            numbers = np.where(free & (codes == code) & (by_key >= 0), by_key, numbers)
    if (wrong := np.flatnonzero((numbers < 0) | (numbers >= counts))).size:
        row = int(wrong[0])
        what = f"partition {numbers[row]} is none of topic {places[codes[row]].topic}, which has {counts[row]}"
        raise _bad(batch, row, what)
    return numbers


def _bad(batch: pa.RecordBatch, row: int, what: str) -> BadRecord:
    offset = batch.column("offset")[row].as_py()
    return BadRecord(
        f"a row cannot be written: {what}",
        where=f"made of source offset {offset}" if offset is not None else "",
        hint="the transform must give each row a topic, a timestamp, and a partition that is there or NULL",
    )


def _whole(array: Any) -> Any:
    """Without an offset into its buffers; what comes from Spark has none."""
    return array if array.offset == 0 else pc.take(array, pa.array(np.arange(len(array))))


def _blobs(column: Any) -> Blobs:
    column = _whole(column)
    valid, offsets, data = column.buffers()
    return Blobs(
        offsets=_ints(offsets, len(column) + 1),
        data=np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8),
        valid=None if valid is None else np.frombuffer(valid, np.uint8),
    )


def _ints(buffer: Any, count: int) -> Ints:
    if buffer is None or buffer.size < 4 * count:
        return np.zeros(count, np.int32)  # Arrow leaves the buffer out where there is no row
    return np.frombuffer(buffer, np.int32, count)


def _headers(column: Any) -> Headers:
    column = _whole(column)
    pairs = column.values
    valid, offsets = column.buffers()[:2]
    names = pairs.field(0)
    if names.null_count:
        names = pc.fill_null(names, "")  # Kafka has no header without a name
    return Headers(
        offsets=_ints(offsets, len(column) + 1),
        valid=None if valid is None else np.frombuffer(valid, np.uint8),
        names=_blobs(names),
        contents=_blobs(pairs.field(1)),
    )
