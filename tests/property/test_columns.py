"""Columns hold what kafka-python and our slow decoder read: every codec, shape, hole and old format.

Arrow's layout is read here by its specification, not by our own code: offsets, bytes, and bits from the lowest.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_codec import Shape, each, libraries_for_kafka_python, log_of, quick, shapes
from tests.unit.test_legacy import message

from isthmus.errors import WireError
from isthmus.model import TopicPartition
from isthmus.wire import columns, compression
from isthmus.wire.batch import NO_STAMP, find_batches, seal
from isthmus.wire.columns import Blobs, Columns, columns_of
from isthmus.wire.fetch import Fetched
from isthmus.wire.records import Record, decode_records, encode_stamped

__all__ = ["libraries_for_kafka_python"]  # a fixture that every test here needs

ALL = (0, 2**63 - 1)
Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


# --- reading Arrow's layout ----------------------------------------------------------------------


def is_valid(bitmap: Any, row: int) -> bool:
    return bitmap is None or bool(bitmap[row // 8] >> row % 8 & 1)


def blobs(column: Blobs) -> list[bytes | None]:
    assert column.offsets[0] == 0
    assert column.offsets[-1] == len(column.data), "no byte more than the rows have"
    raw, ends = column.data.tobytes(), column.offsets.tolist()
    return [raw[ends[n] : ends[n + 1]] if is_valid(column.valid, n) else None for n in range(len(ends) - 1)]


def rows(part: Columns) -> list[Row]:
    headers = part.headers
    assert headers is not None
    names, contents = blobs(headers.names), blobs(headers.contents)
    pairs = [((name or b"").decode(), content) for name, content in zip(names, contents, strict=True)]
    assert None not in names
    lists = []
    for n in range(part.count):
        mine = pairs[headers.offsets[n] : headers.offsets[n + 1]]
        assert is_valid(headers.valid, n) == bool(mine), "a record without headers has null, not an empty list"
        lists.append(mine)
    times = part.time.tolist()
    assert all(time % 1000 == 0 for time in times)
    offsets = part.offset.tolist()
    found = zip(offsets, [time // 1000 for time in times], blobs(part.key), blobs(part.value), lists, strict=True)
    return list(found)


def answer(buffer: memoryview, aborted: tuple[tuple[int, int], ...] = ()) -> Fetched:
    return Fetched(TopicPartition("t", 0), 0, 0, 0, 0, 0, aborted, buffer, None)


def all_rows(buffer: memoryview, low: int = 0, end: int = 2**63 - 1) -> list[Row]:
    return [row for part in columns_of(answer(buffer), low, end) for row in rows(part)]


# --- batches -------------------------------------------------------------------------------------


@quick
@given(shapes=st.lists(shapes, min_size=1, max_size=4), base=st.integers(0, 2**60), data=st.data())
def test_columns_hold_what_others_read_between_any_two_offsets(shapes: list[Shape], base: int, data: Any) -> None:
    buffer = log_of(shapes, base)
    records = [record for _, seen in each(buffer) for record in seen]
    low = data.draw(st.just(0) | st.integers(base, records[-1][0] + 1))
    end = data.draw(st.just(2**63 - 1) | st.integers(low, records[-1][0] + 2))
    assert all_rows(buffer, low, end) == [record for record in records if low <= record[0] < end]


@quick
@given(shapes=st.lists(shapes, min_size=1, max_size=4), base=st.integers(0, 2**60))
def test_columns_agree_with_our_slow_decoder_and_tell_the_type_of_times(shapes: list[Shape], base: int) -> None:
    buffer = log_of(shapes, base)
    parts = list(columns_of(answer(buffer), *ALL))
    slow = [(batch, record) for batch in find_batches(buffer) for record in decode_records(buffer, batch)]
    assert [row for part in parts for row in rows(part)] == [(*r[:4], list(r.headers)) for _, r in slow]
    assert [kind for part in parts for kind in part.time_type] == [int(batch.is_log_append_time) for batch, _ in slow]


@quick
@given(
    shapes=st.lists(shapes, min_size=2, max_size=6),
    limit=st.integers(1, 2000),
    most=st.integers(1, 40),
    more=st.sampled_from((0, 100, 1 << 20)),
)
def test_parts_are_bounded_and_together_they_are_everything(
    shapes: list[Shape], limit: int, most: int, more: int
) -> None:
    """Also where the desk is so small that batches do not fit, and where it was used before."""
    buffer = log_of(shapes, 0)
    whole = all_rows(buffer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "PART_BYTES", limit)
        patch.setattr(columns, "PART_ROWS", most)
        patch.setattr(columns, "_DESK_BYTES", limit + more)
        desk = columns.Desk()
        assert [row for part in columns_of(answer(buffer), *ALL, desk=desk) for row in rows(part)] == whole
        parts = list(columns_of(answer(buffer), *ALL, desk=desk))
    assert [row for part in parts for row in rows(part)] == whole
    sizes = [(len(_plain(buffer, batch)), batch.count) for batch in find_batches(buffer)]
    assert len(parts) == _fewest(sizes, limit, most)


def _plain(buffer: memoryview, batch: Any) -> compression.Buffer:
    payload = buffer[batch.position + 61 : batch.position + batch.size]
    return compression.decompress(batch.codec, payload) if batch.codec else payload


def _fewest(sizes: list[tuple[int, int]], limit: int, most: int) -> int:
    """How many parts there are when each takes batches as long as they fit, by bytes and by rows."""
    parts, filled, rows = 0, limit, most
    for size, count in sizes:
        if filled + size > limit or rows + count > most:
            parts, filled, rows = parts + 1, 0, 0
        filled, rows = filled + size, rows + count
    return parts


def test_headers_that_are_not_wanted_are_not_made() -> None:
    body = encode_stamped([Record(0, 1, b"k", None, (("a", b"b"),)), Record(0, 2, None, b"v")])
    buffer = memoryview(seal(body, NO_STAMP) + body.payload)
    (part,) = columns_of(answer(buffer), *ALL, with_headers=False)
    assert part.headers is None
    assert (blobs(part.key), blobs(part.value)) == ([b"k", None], [None, b"v"])


def test_a_name_of_a_header_that_is_no_text_becomes_what_javas_clients_show() -> None:
    body = encode_stamped([Record(0, 1, b"k", b"v", (("abcde", b"1"), ("plain", None)))])
    payload = body.payload.replace(b"abcde", b"a\xffb\xc3\xa4")
    buffer = memoryview(seal(body._replace(payload=payload), NO_STAMP) + payload)
    (row,) = all_rows(buffer)
    assert row[4] == [("a\ufffdb\u00e4", b"1"), ("plain", None)]


@pytest.mark.parametrize("ms", [2**63 - 1, 2**62, -(2**62)])
def test_a_time_that_microseconds_cannot_hold_becomes_the_nearest(ms: int) -> None:
    body = encode_stamped([Record(0, ms, b"k", b"v")])
    buffer = memoryview(seal(body, NO_STAMP) + body.payload)
    (part,) = columns_of(answer(buffer), *ALL)
    highest = (2**63 - 1) // 1000 * 1000
    assert part.time.tolist() == [highest if ms > 0 else -highest]


# --- read_committed ------------------------------------------------------------------------------


def test_records_of_aborted_transactions_and_markers_are_not_there() -> None:
    log = _stamped(0, b"gone", 7) + _stamped(1, b"kept", 8) + _marker(2, 7, 0) + _stamped(3, b"later", 7)
    parts = columns_of(answer(memoryview(log), aborted=((7, 0),)), *ALL)
    assert [row[3] for part in parts for row in rows(part)] == [b"kept", b"later"]


def _stamped(offset: int, value: bytes, producer: int) -> bytes:
    return _transactional(offset, producer, 0x10, encode_stamped([Record(0, 5, None, value)]).payload)


def _marker(offset: int, producer: int, kind: int) -> bytes:
    key = struct.pack(">hh", 0, kind)
    return _transactional(offset, producer, 0x30, encode_stamped([Record(0, 5, key, b"\0" * 6)]).payload)


def _transactional(offset: int, producer: int, attributes: int, payload: bytes) -> bytes:
    covered = struct.pack(">hiqqqhii", attributes, 0, 5, 5, producer, 0, -1, 1) + payload
    return struct.pack(">qiibI", offset, len(covered) + 9, 0, 2, crc32c(covered)) + covered


# --- older formats -------------------------------------------------------------------------------


def test_messages_of_formats_0_and_1_are_records_with_their_own_offsets_and_types_of_time() -> None:
    inner = message(0, b"c", time=3) + message(4, b"d", time=4)
    stamped = message(30, compression.compress(1, inner), attributes=9, time=77)
    zero = message(8, b"z", magic=0, key=b"k")
    parts = list(columns_of(answer(memoryview(zero + message(9, None, time=6) + stamped)), *ALL))
    assert [row for part in parts for row in rows(part)] == [
        (8, -1, b"k", b"z", []),
        (9, 6, None, None, []),
        (26, 77, None, b"c", []),
        (30, 77, None, b"d", []),
    ]
    assert [kind for part in parts for kind in part.time_type] == [-1, 0, 1, 1]


def test_a_start_inside_a_wrapper_leaves_out_what_is_before() -> None:
    inner = message(0, b"a") + message(1, b"b") + message(2, b"c")
    log = memoryview(message(12, compression.compress(1, inner), attributes=1))
    assert [row[3] for row in all_rows(log, 11, 12)] == [b"b"]


# --- damage --------------------------------------------------------------------------------------


@quick
@given(shape=shapes, place=st.integers(0, 2**31), bit=st.integers(0, 7))
def test_a_flipped_bit_is_an_error_that_names_the_batch(shape: Shape, place: int, bit: int) -> None:
    raw = bytearray(log_of([shape], 40))
    raw[21 + place % (len(raw) - 21)] ^= 1 << bit
    with pytest.raises(WireError) as error:
        all_rows(memoryview(bytes(raw)))
    assert error.value.code == "CORRUPT_BATCH"


@quick
@given(payload=st.binary(max_size=60), records=st.integers(0, 3), more=st.integers(0, 4))
def test_whatever_a_right_checksum_covers_is_read_as_by_the_slow_decoder_or_refused(
    payload: bytes, records: int, more: int
) -> None:
    """A kernel that leaves its arrays would crash here, or read what is not there."""
    start = encode_stamped([Record(0, 5, b"k", b"v", (("h", None),))] * records).payload if records else b""
    payload = start + payload
    covered = struct.pack(">hiqqqhii", 0, records + more, 5, 5, -1, -1, -1, records + more) + payload
    buffer = memoryview(struct.pack(">qiibI", 3, len(covered) + 9, 0, 2, crc32c(covered)) + covered)
    (batch,) = find_batches(buffer)
    try:
        found = all_rows(buffer)
    except WireError as error:
        assert error.code == "CORRUPT_BATCH"
        return
    if batch.count:
        assert found == [(*r[:4], list(r.headers)) for r in decode_records(buffer, batch)]
