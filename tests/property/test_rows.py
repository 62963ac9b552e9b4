"""Rows become batches that our slow decoder and kafka-python read as the same records; keys find Java's partitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_codec import libraries_for_kafka_python, quick, read_by_kafka_python
from tests.property.test_columns import answer

from isthmus.mm2.progress import java_partition
from isthmus.wire.batch import NO_STAMP, Body, find_batches, seal
from isthmus.wire.columns import Blobs, columns_of
from isthmus.wire.records import Record, decode_records, encode_stamped
from isthmus.wire.rows import Rows, bodies, partitions_of

__all__ = ["libraries_for_kafka_python"]  # a fixture that every test here needs

SOME = st.none() | st.binary(max_size=40) | st.integers(1, 300).map(lambda n: b"ab" * n)
HEADERS = st.lists(st.tuples(st.text(max_size=5), SOME), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(Record, offset=st.just(0), timestamp=st.integers(-1, 2**42), key=SOME, value=SOME, headers=HEADERS),
    min_size=1,
    max_size=30,
)


def rows_of(records: list[Record], headers: bool = True) -> Rows:
    """Through the decoder, which other tests hold against others."""
    body = encode_stamped(records)
    (part,) = columns_of(answer(memoryview(seal(body, NO_STAMP) + body.payload)), 0, 2**62, headers)
    return Rows(time=part.time // 1000, key=part.key, value=part.value, headers=part.headers)


def read(body: Body) -> list[Record]:
    raw = seal(body, NO_STAMP, transactional=False) + body.payload
    (batch,) = find_batches(memoryview(raw))
    found = decode_records(memoryview(raw), batch)
    assert [tuple(record[:4]) for record in found] == [record[:4] for record in read_by_kafka_python(raw)]
    assert [record.offset for record in found] == list(range(batch.count)), "dense"
    assert batch.max_timestamp == max(record.timestamp for record in found)
    return found


@quick
@given(records=RECORDS, codec=st.integers(0, 4), most=st.integers(1, 3000), data=st.data())
def test_chosen_rows_are_the_records_of_batches_in_their_order(
    records: list[Record], codec: int, most: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(records) - 1), unique=True, max_size=len(records)))
    found = list(bodies(rows_of(records), np.array(chosen, np.int64), codec, most))
    seen = [record[1:] for body in found for record in read(body)]
    assert seen == [records[n][1:] for n in chosen]
    plain = list(bodies(rows_of(records), np.array(chosen, np.int64), 0, most))
    assert all(len(body.payload) <= most or body.count == 1 for body in plain)


def test_rows_without_a_column_of_headers_have_none() -> None:
    records = [Record(0, 5, b"k", b"v", (("h", b"1"),)), Record(0, 6, None, None)]
    (body,) = bodies(rows_of(records, headers=False), np.arange(2), 0)
    assert read(body) == [Record(0, 5, b"k", b"v"), Record(1, 6, None, None)]


@given(st.lists(st.none() | st.binary(max_size=30), min_size=1), st.integers(1, 500))
def test_keys_find_the_partitions_of_javas_producer(keys: list[bytes | None], partitions: int) -> None:
    rows = rows_of([Record(0, 1, key, None) for key in keys])
    expected = [-1 if key is None else java_partition(key, partitions) for key in keys]
    assert partitions_of(rows.key, partitions).tolist() == expected


def test_offsets_that_lead_out_of_a_column_are_refused() -> None:
    sound = Blobs(offsets=np.array([0, 2, 3], np.int32), data=np.zeros(3, np.uint8), valid=None)
    time = np.zeros(2, np.int64)
    Rows(time=time, key=sound, value=sound)
    for offsets in ([0, 2, 4], [0, 3, 2], [-1, 2, 3], [0, 3]):
        wrong = Blobs(offsets=np.array(offsets, np.int32), data=sound.data, valid=None)
        with pytest.raises(ValueError, match="lead out of it"):
            Rows(time=time, key=sound, value=wrong)
    with pytest.raises(ValueError, match="a row that is not there"):
        list(bodies(Rows(time=time, key=sound, value=sound), np.array([2]), 0))
