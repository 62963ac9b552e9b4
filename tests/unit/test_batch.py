"""Batches as bytes: finding, judging, restamping, sealing; cases with a name."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from isthmus.errors import WireError
from isthmus.wire import batch as batches
from isthmus.wire import kernels
from isthmus.wire.batch import (
    MAX_SEQUENCE,
    NO_STAMP,
    Batch,
    Stamp,
    crc_is_right,
    find_batches,
    marker_of,
    next_sequence,
    payload_of,
    reencode,
    restamp,
    seal,
)
from isthmus.wire.records import decode_records, encode_records

STAMP = Stamp(1234567, 7, 99)


def plain_batch(count: int = 3, base_offset: int = 0, attributes: int = 0, time: int = 1000) -> bytes:
    body = encode_records([(b"k%d" % i, b"v%d" % i) for i in range(count)], time)
    raw = bytearray(seal(body, NO_STAMP, transactional=False) + body.payload)
    struct.pack_into(">q", raw, 0, base_offset)
    struct.pack_into(">h", raw, 21, attributes)
    return with_right_crc(raw)


def with_right_crc(raw: bytearray) -> bytes:
    struct.pack_into(">I", raw, 17, crc32c(memoryview(raw)[21:]))
    return bytes(raw)


def only(raw: bytes) -> tuple[memoryview, Batch]:
    buffer = memoryview(raw)
    (batch,) = find_batches(buffer)
    return buffer, batch


# --- finding ---------------------------------------------------------------------------------


def test_finds_every_field_where_it_is() -> None:
    header = struct.pack(">qiibIhiqqqhii", 1 << 40, 51, 5, 2, 0xFEDCBA98, 0x33, 7, -1, 1 << 42, 1 << 62, 9, 8, 6)
    _, batch = only(header + b"xy")
    assert batch == Batch(0, 63, 1 << 40, 5, 2, 0xFEDCBA98, 0x33, 7, -1, 1 << 42, 1 << 62, 9, 8, 6)
    assert batch.last_offset == (1 << 40) + 7
    assert (batch.codec, batch.is_control, batch.is_transactional) == (3, True, True)
    assert not batch.is_log_append_time
    assert not batch.is_dense


def test_finds_more_batches_than_it_guessed() -> None:
    one = plain_batch()
    found = find_batches(memoryview(one * 500))
    assert [batch.position for batch in found] == [i * len(one) for i in range(500)]


def test_an_empty_buffer_holds_nothing() -> None:
    assert find_batches(memoryview(b"")) == []


def test_a_cut_off_batch_is_left_out() -> None:
    one = plain_batch()
    for cut in range(len(one)):
        assert len(find_batches(memoryview(one + one[:cut]))) == 1


def test_reads_writable_and_sliced_buffers() -> None:
    raw = bytearray(b"junk" + plain_batch())
    assert len(find_batches(memoryview(raw)[4:])) == 1


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 13, 48])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    raw = bytearray(plain_batch(base_offset=10) + plain_batch(base_offset=13))
    second = len(raw) // 2
    struct.pack_into(">i", raw, second + 8, length)
    with pytest.raises(WireError, match=f"byte {second}, offset 13") as caught:
        find_batches(memoryview(raw))
    assert caught.value.code == "CORRUPT_BATCH"


@pytest.mark.parametrize("magic", [-1, 3, 127])
def test_an_unknown_format_is_corrupt(magic: int) -> None:
    raw = bytearray(plain_batch())
    struct.pack_into(">b", raw, 16, magic)
    with pytest.raises(WireError):
        find_batches(memoryview(raw))


@pytest.mark.parametrize("place", [0, 23, 57])
def test_a_negative_offset_delta_or_count_is_corrupt(place: int) -> None:
    raw = bytearray(plain_batch())
    raw[place] = 0x80
    with pytest.raises(WireError):
        find_batches(memoryview(raw))


def test_old_formats_are_found_among_new_ones() -> None:
    old = struct.pack(">qiIbbii", 41, 14, 0, 0, 0, -1, -1)
    new = plain_batch(base_offset=42)
    found = find_batches(memoryview(old + new + old))
    assert [(b.magic, b.base_offset, b.position) for b in found] == [
        (0, 41, 0),
        (2, 42, 26),
        (0, 41, 26 + len(new)),
    ]
    assert found[0] == Batch(0, 26, 41, -1, 0, 0, 0, 0, 0, 0, -1, -1, -1, 0)


# --- CRC -------------------------------------------------------------------------------------


def test_the_crc_is_castagnoli() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert kernels.shift_crc(crc32c(b"12345"), 4) ^ crc32c(b"6789") == 0xE3069283


@pytest.mark.parametrize("distance", [0, 1, 255, 4096, (1 << 20) + 7])
def test_a_crc_is_shifted_over_any_distance(distance: int) -> None:
    zeros = bytes(distance)
    assert kernels.shift_crc(crc32c(b"head"), distance) ^ crc32c(zeros) == crc32c(b"head" + zeros)


def test_a_wrong_crc_shows() -> None:
    raw = bytearray(plain_batch())
    assert crc_is_right(*only(bytes(raw)))
    raw[-1] ^= 1
    assert not crc_is_right(*only(bytes(raw)))


# --- restamping ------------------------------------------------------------------------------


def test_a_restamped_batch_is_as_a_client_would_send_it() -> None:
    buffer, batch = only(plain_batch(base_offset=500))
    new_buffer, new = only(restamp(buffer, batch, STAMP) + bytes(payload_of(buffer, batch)))
    assert crc_is_right(new_buffer, new)
    assert (new.base_offset, new.leader_epoch, new.attributes) == (0, -1, 0x10)
    assert (new.producer_id, new.producer_epoch, new.base_sequence) == STAMP
    assert new[7:10] == batch[7:10]
    assert new.count == 3


@pytest.mark.parametrize("bits", [0x08, 0x10, 0x40, 0x50, 0x80, 0x4000])
def test_bits_that_are_not_ours_to_set_are_cleared(bits: int) -> None:
    buffer, batch = only(plain_batch(attributes=bits))
    new_buffer, new = only(restamp(buffer, batch, STAMP) + bytes(payload_of(buffer, batch)))
    assert new.attributes == 0x10
    assert crc_is_right(new_buffer, new)


def test_the_codec_survives_restamping() -> None:
    buffer, batch = only(plain_batch(attributes=4))
    assert restamp(buffer, batch, STAMP)[22] == 0x14


def test_damage_before_restamping_still_shows_after_it() -> None:
    raw = bytearray(plain_batch())
    raw[70] ^= 4
    buffer, batch = only(bytes(raw))
    assert not crc_is_right(*only(restamp(buffer, batch, STAMP) + bytes(payload_of(buffer, batch))))


@pytest.mark.parametrize(("place", "value"), [(23, 9), (57, 0), (57, 2)])
def test_a_batch_with_holes_is_not_restamped(place: int, value: int) -> None:
    raw = bytearray(plain_batch())
    struct.pack_into(">i", raw, place, value)
    with pytest.raises(ValueError, match="cannot be passed on"):
        restamp(*only(bytes(raw)), STAMP)


def test_a_control_batch_is_not_restamped() -> None:
    with pytest.raises(ValueError, match="cannot be passed on"):
        restamp(*only(plain_batch(attributes=0x20)), STAMP)


@pytest.mark.parametrize(
    ("sequence", "count", "after"),
    [
        (0, 1, 1),
        (5, 0, 5),
        (MAX_SEQUENCE - 1, 1, MAX_SEQUENCE),
        (MAX_SEQUENCE, 1, 0),
        (MAX_SEQUENCE - 1, 3, 1),
    ],
)
def test_sequences_wrap_after_the_largest(sequence: int, count: int, after: int) -> None:
    assert next_sequence(sequence, count) == after


# --- sealing ---------------------------------------------------------------------------------


def test_a_body_can_be_sealed_without_a_transaction() -> None:
    body = encode_records([(None, b"x")], 5)
    buffer, batch = only(seal(body, NO_STAMP, transactional=False) + body.payload)
    assert (batch.attributes, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (
        0,
        -1,
        -1,
        -1,
    )
    assert crc_is_right(buffer, batch)


# --- markers ---------------------------------------------------------------------------------


def control_batch(kind: int, timestamp_delta: bytes = b"\x00", count: int = 1, bits: int = 0x30) -> bytes:
    key = struct.pack(">hh", 0, kind)
    record = b"\x00" + timestamp_delta + b"\x00" + b"\x08" + key + b"\x0c" + bytes(6) + b"\x00"
    payload = bytes([2 * len(record)]) + record if count else b""
    tail = struct.pack(">hiqqqhii", bits, 0, 1000, 1000, 5, 0, -1, count) + payload
    return struct.pack(">qiibI", 77, len(tail) + 9, 0, 2, crc32c(tail)) + tail


@pytest.mark.parametrize(("kind", "marker"), [(0, 0), (1, 1), (2, None), (-1, None)])
def test_markers_by_their_type(kind: int, marker: int | None) -> None:
    assert marker_of(*only(control_batch(kind))) == marker


def test_a_marker_rewritten_by_the_cleaner_has_a_longer_timestamp() -> None:
    raw = control_batch(1, timestamp_delta=b"\xff\xff\xff\xff\x0f", bits=0x70)
    assert marker_of(*only(raw)) == 1


def test_a_control_batch_without_records_marks_nothing() -> None:
    assert marker_of(*only(control_batch(1, count=0))) is None


def test_a_cut_off_control_record_is_corrupt() -> None:
    raw = bytearray(control_batch(1)[:66])
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    with pytest.raises(WireError) as caught:
        marker_of(*only(bytes(raw)))
    assert caught.value.code == "CORRUPT_BATCH"


# --- re-encoding: the cases with a name; the rest is in tests/property/test_codec.py ------------


def test_nothing_reencodes_to_nothing() -> None:
    assert reencode([], from_offset=0) is None
    assert reencode([only(plain_batch(base_offset=5))], from_offset=8) is None


def test_a_batch_emptied_by_the_cleaner_reencodes_to_nothing() -> None:
    raw = bytearray(plain_batch()[:61])
    struct.pack_into(">i", raw, 8, 49)
    struct.pack_into(">i", raw, 57, 0)
    assert reencode([only(with_right_crc(raw))], from_offset=0) is None


def test_runs_follow_the_source_offsets() -> None:
    pieces = [only(plain_batch(base_offset=offset)) for offset in (10, 13, 20)]
    body = reencode(pieces, from_offset=12)
    assert body is not None
    assert body.runs == ((12, 4), (20, 3))
    assert body.count == 7


def test_log_append_time_becomes_the_records_own() -> None:
    body = reencode([only(plain_batch(attributes=0x08)), only(plain_batch(base_offset=3, time=7))], from_offset=0)
    assert body is not None
    records = decode_records(*only(seal(body, STAMP) + body.payload))
    assert [record.timestamp for record in records] == [1000, 1000, 1000, 7, 7, 7]
    assert body.max_timestamp == 1000


def test_a_damaged_batch_is_not_given_a_new_crc() -> None:
    raw = bytearray(plain_batch())
    raw[-3] ^= 1
    with pytest.raises(WireError, match="checksum") as caught:
        reencode([only(bytes(raw))], from_offset=0)
    assert caught.value.code == "CORRUPT_BATCH"


def test_offsets_must_rise_from_piece_to_piece() -> None:
    pieces = [only(plain_batch(base_offset=offset)) for offset in (10, 12)]
    with pytest.raises(WireError, match="offset 12"):
        reencode(pieces, from_offset=0)


@pytest.mark.parametrize("count", [2, 4, 2**31 - 1])
def test_a_count_that_does_not_match_is_corrupt(count: int) -> None:
    raw = bytearray(plain_batch())
    struct.pack_into(">i", raw, 57, count)
    with pytest.raises(WireError):
        reencode([only(with_right_crc(raw))], from_offset=0)


MALFORMED = {
    "key too long": b"\x0e\x00\x00\x00\x7e\x01\x00\x00",
    "key length below null": b"\x0e\x00\x00\x00\x03\x01\x00\x00",
    "value too long": b"\x0e\x00\x00\x00\x01\x7e\x00\x00",
    "negative header count": b"\x0c\x00\x00\x00\x01\x01\x01",
    "fewer headers than counted": b"\x10\x00\x00\x00\x01\x01\x04\x00\x00",
    "header without a name": b"\x10\x00\x00\x00\x01\x01\x02\x01\x00",
    "bytes left over in the record": b"\x0e\x00\x00\x00\x01\x01\x00\x00",
    "bytes left over in the batch": b"\x0c\x00\x00\x00\x01\x01\x00\x00",
    "record too long": b"\x0e\x00\x00\x00\x01\x01\x00",
    "endless number": b"\x18\x00" + b"\xff" * 11,
    "offset beyond the batch's last": b"\x0c\x00\x00\x02\x01\x01\x00",
    "negative offset": b"\x0c\x00\x00\x01\x01\x01\x00",
}


def one_record(record: bytes) -> tuple[memoryview, Batch]:
    tail = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + record
    return only(struct.pack(">qiibI", 4, len(tail) + 9, 0, 2, crc32c(tail)) + tail)


@pytest.mark.parametrize("record", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_records_are_not_passed_on(record: bytes) -> None:
    sound = one_record(b"\x0c\x00\x00\x00\x01\x01\x00")
    assert reencode([sound], from_offset=0) is not None
    with pytest.raises(WireError, match="offset 4: malformed"):
        reencode([one_record(record)], from_offset=0)


def test_control_batches_are_not_records() -> None:
    with pytest.raises(ValueError, match="cannot be passed on"):
        reencode([only(control_batch(1))], from_offset=0)
    with pytest.raises(ValueError, match="holds no v2 records"):
        decode_records(*only(control_batch(1)))


def test_numbers_that_are_known_without_the_compiled_loops_are_theirs() -> None:
    here = batches.HEADER_SIZE, batches._MIN_RECORD, batches._NO_FIXED_TIME
    assert here == (kernels.HEADER_SIZE, kernels.MIN_RECORD, kernels.NO_FIXED_TIME)
