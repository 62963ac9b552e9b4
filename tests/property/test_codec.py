"""What kafka-python reads in our batches is what it reads in the source's: every codec and shape.

kafka-python builds the source batches and reads both sides; our own decoder is only a third
witness. Its snappy and zstd libraries are optional and absent here, so cramjam lends it theirs.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import cramjam
import kafka.codec
import kafka.record.default_records as default_records
import kafka.record.legacy_records as legacy_records
import lz4.frame
import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from isthmus.errors import WireError
from isthmus.wire import compression, kernels
from isthmus.wire.batch import (
    Batch,
    Body,
    Stamp,
    crc_is_right,
    find_batches,
    payload_of,
    reencode,
    restamp,
    seal,
)
from isthmus.wire.legacy import convert
from isthmus.wire.records import decode_records

STAMP = Stamp(4711, 3, 2**31 - 2)

quick = settings(
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def libraries_for_kafka_python(monkeypatch: pytest.MonkeyPatch) -> None:
    class Snappy:
        compress = staticmethod(lambda data: bytes(cramjam.snappy.compress_raw(data)))
        decompress = staticmethod(lambda data: bytes(cramjam.snappy.decompress_raw(data)))

    class Xxhash:
        def __init__(self, data: bytes) -> None:
            self.hash = compression.xxh32_of_few(data)

        def digest(self) -> bytes:
            return self.hash.to_bytes(4, "big")

    monkeypatch.setattr(kafka.codec, "snappy", Snappy)
    monkeypatch.setattr(kafka.codec, "xxhash", type("xxhash", (), {"xxh32": Xxhash}))
    monkeypatch.setattr(kafka.codec, "zstd", object())
    monkeypatch.setattr(default_records, "zstd_decode", lambda data: bytes(cramjam.zstd.decompress(data)))


# --- sources ---------------------------------------------------------------------------------


class Item(NamedTuple):
    gap: int  # offsets missing before it, as compaction leaves them
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Shape(NamedTuple):
    items: list[Item]
    codec: int
    trailing_gap: int
    log_append_time: int | None
    extra_bits: int


data = st.none() | st.binary(max_size=40) | st.integers(1, 400).map(lambda n: b"ab" * n)
times = st.integers(0, 2**41) | st.just(-1) | st.integers(1_700_000_000_000, 1_700_000_000_100)
items = st.builds(
    Item,
    gap=st.sampled_from([0, 0, 0, 1, 5, 200]),
    timestamp=times,
    key=data,
    value=data,
    headers=st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=9)), max_size=3),
)
shapes = st.builds(
    Shape,
    items=st.lists(items, min_size=1, max_size=20),
    codec=st.integers(0, 4),
    trailing_gap=st.sampled_from([0, 0, 3]),
    log_append_time=st.none() | st.integers(0, 2**41),
    extra_bits=st.sampled_from([0, 0x10, 0x40, 0x50]),
)

ENCODE = {
    1: lambda d: kafka.codec.gzip_encode(d),
    2: lambda d: kafka.codec.snappy_encode(d),
    3: lambda d: lz4.frame.compress(d, block_linked=True, content_checksum=True),
    4: lambda d: bytes(cramjam.zstd.compress(d, level=1)),
}


def source_batch(shape: Shape, base_offset: int) -> bytes:
    """Built by kafka-python, then given holes, a codec and bits as only a broker would."""
    builder = default_records.DefaultRecordBatchBuilder(2, 0, False, 9, 1, 5, 1 << 30)
    offset = -1
    for item in shape.items:
        offset += 1 + item.gap
        builder.append(offset, item.timestamp, item.key, item.value, item.headers)
    raw = bytes(builder.build())
    payload = ENCODE[shape.codec](raw[61:]) if shape.codec else raw[61:]
    tail = bytearray(raw[21:61])
    attributes = shape.codec | shape.extra_bits | (8 if shape.log_append_time is not None else 0)
    struct.pack_into(">hi", tail, 0, attributes, offset + shape.trailing_gap)
    if shape.log_append_time is not None:
        struct.pack_into(">q", tail, 14, shape.log_append_time)
    covered = bytes(tail) + payload
    return struct.pack(">qiibI", base_offset, len(covered) + 9, 77, 2, crc32c(covered)) + covered


def log_of(shapes: list[Shape], base_offset: int) -> memoryview:
    raw = b""
    for shape in shapes:
        raw += source_batch(shape, base_offset)
        base_offset += sum(1 + item.gap for item in shape.items) + shape.trailing_gap
    return memoryview(raw)


def read_by_kafka_python(raw: bytes) -> list[Any]:
    batch = default_records.DefaultRecordBatch(raw)
    assert batch.validate_crc()
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]


def each(buffer: memoryview) -> list[tuple[Batch, list[Any]]]:
    found = find_batches(buffer)
    return [(b, read_by_kafka_python(bytes(buffer[b.position : b.position + b.size]))) for b in found]


def sealed(body: Body) -> bytes:
    return seal(body, STAMP) + body.payload


def offsets_in(body: Body) -> list[int]:
    return [offset for first, length in body.runs for offset in range(first, first + length)]


def check_body(body: Body, wanted: list[Any], codec: int) -> None:
    """The body holds exactly these records, dense, with honest header and runs."""
    raw = sealed(body)
    (batch,) = find_batches(memoryview(raw))
    seen = read_by_kafka_python(raw)
    assert [r[0] for r in seen] == list(range(len(wanted)))
    assert [r[1:] for r in seen] == [r[1:] for r in wanted]
    assert offsets_in(body) == [r[0] for r in wanted]
    assert batch.is_dense
    assert batch.count == len(wanted)
    assert batch.attributes == codec | 0x10
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == STAMP
    assert batch.max_timestamp == max(r[1] for r in wanted)
    assert (batch.base_offset, batch.leader_epoch) == (0, -1)


# --- re-encoding -----------------------------------------------------------------------------


@quick
@given(shapes=st.lists(shapes, min_size=1, max_size=4), base=st.integers(0, 2**60), data=st.data())
def test_a_reencoded_batch_reads_as_its_sources_do(shapes: list[Shape], base: int, data: Any) -> None:
    buffer = log_of(shapes, base)
    sources = each(buffer)
    records = [record for _, seen in sources for record in seen]
    from_offset = data.draw(st.just(0) | st.integers(base, records[-1][0] + 1))
    wanted = [record for record in records if record[0] >= from_offset]

    body = reencode([(buffer, batch) for batch, _ in sources], from_offset=from_offset)

    if not wanted:
        assert body is None
        return
    assert body is not None
    check_body(body, wanted, shapes[0].codec)


@quick
@given(shape=shapes, base=st.integers(0, 2**60))
def test_our_slow_decoder_agrees_with_kafka_python(shape: Shape, base: int) -> None:
    buffer = log_of([shape], base)
    ((batch, seen),) = each(buffer)
    ours = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in decode_records(buffer, batch)]
    assert ours == seen


# --- restamping ------------------------------------------------------------------------------


@quick
@given(
    shape=shapes,
    base=st.integers(0, 2**60),
    stamp=st.builds(Stamp, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
    flip=st.integers(0, 2**20),
)
def test_a_restamped_batch_is_whole_and_its_damage_shows(shape: Shape, base: int, stamp: Stamp, flip: int) -> None:
    dense = shape._replace(items=[i._replace(gap=0) for i in shape.items], trailing_gap=0, log_append_time=None)
    buffer = log_of([dense], base)
    ((batch, seen),) = each(buffer)

    raw = restamp(buffer, batch, stamp) + bytes(payload_of(buffer, batch))

    (new,) = find_batches(memoryview(raw))
    assert [r[1:] for r in read_by_kafka_python(raw)] == [r[1:] for r in seen]
    assert (new.producer_id, new.producer_epoch, new.base_sequence) == stamp
    assert new.attributes == dense.codec | 0x10
    damaged = bytearray(buffer)
    bit = flip % (8 * (batch.size - 61))
    damaged[61 + bit // 8] ^= 1 << bit % 8
    view = memoryview(damaged)
    raw = restamp(view, batch, stamp) + bytes(payload_of(view, batch))
    assert not crc_is_right(memoryview(raw), find_batches(memoryview(raw))[0])


@quick
@given(first=st.binary(max_size=60), second=st.binary(max_size=5000))
def test_shifting_a_crc_equals_running_on(first: bytes, second: bytes) -> None:
    assert kernels.shift_crc(crc32c(first), len(second)) ^ crc32c(second) == crc32c(first + second)


# --- old formats -----------------------------------------------------------------------------


class OldSet(NamedTuple):
    items: list[Item]
    codec: int
    log_append_time: int | None


old_sets = st.builds(
    OldSet,
    items=st.lists(items, min_size=1, max_size=8),
    codec=st.integers(0, 3),
    log_append_time=st.none() | st.integers(0, 2**41),
)


def old_log(magic: int, sets: list[OldSet], base: int) -> tuple[bytes, int]:
    """As a broker stores it: a wrapper has the last offset, inner ones are relative in format 1."""
    raw = b""
    for one in sets:
        builder = legacy_records.LegacyRecordBatchBuilder(magic, one.codec, 1 << 30)
        offset = base - 1
        for item in one.items:
            offset += 1 + item.gap
            stored = offset - base if magic == 1 and one.codec else offset
            builder.append(stored, item.timestamp, item.key, item.value)
        built = bytearray(builder.build())
        raw += as_broker_stores(built, magic, one, offset) if one.codec else bytes(built)
        base = offset + 1
    return raw, base


def as_broker_stores(built: bytearray, magic: int, one: OldSet, last_offset: int) -> bytes:
    struct.pack_into(">q", built, 0, last_offset)
    if magic == 1 and one.log_append_time is not None:
        built[17] |= 0x08
        struct.pack_into(">q", built, 18, one.log_append_time)
        struct.pack_into(">I", built, 12, legacy_records.calc_crc32(memoryview(built)[16:]))
    return bytes(built)


def read_old(raw: bytes, magic: int) -> list[Any]:
    batch = legacy_records.LegacyRecordBatch(raw, magic)
    assert batch.validate_crc()
    return [(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value, []) for r in batch]


@quick
@given(
    sets=st.lists(old_sets, min_size=1, max_size=4),
    magic=st.integers(0, 1),
    base=st.integers(0, 2**50),
    data=st.data(),
)
def test_old_messages_become_v2_records(sets: list[OldSet], magic: int, base: int, data: Any) -> None:
    raw, end = old_log(magic, sets, base)
    buffer = memoryview(raw)
    found = find_batches(buffer)
    assert {batch.magic for batch in found} == {magic}
    records = [r for b in found for r in read_old(raw[b.position : b.position + b.size], magic)]
    from_offset = data.draw(st.just(0) | st.integers(base, end))
    wanted = [record for record in records if record[0] >= from_offset]

    for body, last_offset in convert(buffer, found, from_offset=from_offset):
        check_body(body, wanted[: body.count], body.codec)
        assert wanted[body.count - 1][0] == last_offset
        wanted = wanted[body.count :]
    assert not wanted


@quick
@given(sets=st.lists(old_sets, min_size=1, max_size=2), magic=st.integers(0, 1), flip=st.integers(0, 2**20))
def test_a_flipped_bit_in_an_old_message_is_noticed(sets: list[OldSet], magic: int, flip: int) -> None:
    raw, _ = old_log(magic, sets, 10)
    found = find_batches(memoryview(raw))
    at = flip // 8 % len(raw)
    holder = next(b for b in found if b.position <= at < b.position + b.size)
    assume(at - holder.position >= 17)  # offset, length, crc and magic are another matter
    damaged = bytearray(raw)
    damaged[at] ^= 1 << flip % 8
    with pytest.raises(WireError) as caught:
        convert(memoryview(damaged), found, from_offset=0)
    assert caught.value.code == "CORRUPT_BATCH"
