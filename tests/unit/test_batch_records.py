"""Small batches in plain Python: what kafka-python reads in them, and what they refuse."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from isthmus.errors import WireError
from isthmus.wire.batch import Stamp, find_batches, seal
from isthmus.wire.records import Record, decode_records, encode_records, varint


def test_kafka_python_reads_what_was_encoded() -> None:
    body = encode_records([(b"k", b"v"), (None, b""), (b"", None), (b"long", b"x" * 300)], 1_700_000_000_000)
    raw = seal(body, Stamp(5, 0, 0)) + body.payload
    batch = DefaultRecordBatch(raw)
    assert batch.validate_crc()
    assert batch.is_transactional
    seen = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch]
    assert seen == [
        (0, 1_700_000_000_000, b"k", b"v", []),
        (1, 1_700_000_000_000, None, b"", []),
        (2, 1_700_000_000_000, b"", None, []),
        (3, 1_700_000_000_000, b"long", b"x" * 300, []),
    ]


def test_headers_are_decoded() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    builder.append(0, 12, b"k", b"v", [("é", b"1"), ("none", None), ("é", b"")])
    buffer = memoryview(bytes(builder.build()))
    (batch,) = find_batches(buffer)
    headers = (("é", b"1"), ("none", None), ("é", b""))
    assert decode_records(buffer, batch) == [Record(0, 12, b"k", b"v", headers)]


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_records([], 0)


def test_damage_is_noticed() -> None:
    body = encode_records([(b"k", b"v")], 0)
    raw = bytearray(seal(body, Stamp(5, 0, 0)) + body.payload)
    raw[-2] ^= 1
    buffer = memoryview(raw)
    with pytest.raises(WireError, match="checksum"):
        decode_records(buffer, find_batches(buffer)[0])


@pytest.mark.parametrize("payload", [b"", b"\x02\x00", b"\xff" * 12, b"\x0e\x00\x00\x00\x01\x01\x00\x00"])
def test_malformed_records_with_a_right_checksum_are_corrupt(payload: bytes) -> None:
    tail = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + payload
    buffer = memoryview(struct.pack(">qiibI", 0, len(tail) + 9, 0, 2, crc32c(tail)) + tail)
    with pytest.raises(WireError) as caught:
        decode_records(buffer, find_batches(buffer)[0])
    assert caught.value.code == "CORRUPT_BATCH"


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, b"\0"), (-1, b"\1"), (1, b"\2"), (63, b"\x7e"), (64, b"\x80\1"), (-(2**63), b"\xff" * 9 + b"\1")],
)
def test_varints(value: int, encoded: bytes) -> None:
    assert varint(value) == encoded
