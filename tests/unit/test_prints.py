"""Prints of records: alike for what is alike, whatever the batch; different for every part that differs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import WireError
from isthmus.wire.batch import NO_STAMP, find_batches, recompressed, seal
from isthmus.wire.prints import KEY, OFFSET, PRINT, TOMBSTONE, prints_of
from isthmus.wire.records import Record, encode_stamped

SOME = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=5), SOME), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(Record, offset=st.just(0), timestamp=st.integers(0, 2**42), key=SOME, value=SOME, headers=HEADERS),
    min_size=1,
    max_size=12,
)


def _batch(records: list[Record], codec: int = 0) -> memoryview:
    body = recompressed(encode_stamped(records), codec)
    return memoryview(seal(body, NO_STAMP, transactional=False) + body.payload)


def _rows(buffer: memoryview) -> list[list[int]]:
    (batch,) = find_batches(buffer)
    rows: list[list[int]] = prints_of(buffer, batch).tolist()
    return rows


@given(RECORDS, st.sampled_from([0, 1, 2, 3, 4]))
@settings(max_examples=60, deadline=None)
def test_records_are_alike_if_and_only_if_their_prints_are(records: list[Record], codec: int) -> None:
    rows = _rows(_batch(records, codec))
    alone = [_rows(_batch([record]))[0] for record in records]
    assert [row[OFFSET] for row in rows] == list(range(len(records)))
    assert [row[PRINT] for row in rows] == [row[PRINT] for row in alone], "the batch and its codec are no part of it"
    for one, left in zip(records, rows, strict=True):
        assert left[TOMBSTONE] == (one.value is None)
        for other, right in zip(records, rows, strict=True):
            assert (left[PRINT] == right[PRINT]) == (one == other)
            assert (left[KEY] == right[KEY]) == (one.key == other.key)


@given(RECORDS, st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_bytes_are_refused_and_never_crash(records: list[Record], data: st.DataObject) -> None:
    whole = bytearray(_batch(records))
    place = data.draw(st.integers(61, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    try:
        _rows(memoryview(bytes(whole)))
    except WireError as error:
        assert error.code == "CORRUPT_BATCH"
    else:
        raise AssertionError("a wrong checksum was accepted")


def test_a_payload_that_is_no_list_of_records_is_refused_whatever_its_checksum() -> None:
    body = encode_stamped([Record(0, 1, b"k", b"v")])
    for payload in (b"\xff" * 20, body.payload[:-1] + b"", b"\x02" + body.payload, b""):
        lying = body._replace(payload=payload)
        buffer = memoryview(seal(lying, NO_STAMP) + payload)
        try:
            _rows(buffer)
        except WireError as error:
            assert error.code == "CORRUPT_BATCH"
        else:
            raise AssertionError(payload)
