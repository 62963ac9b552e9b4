"""Formats 0 and 1, by hand: wrappers, relative offsets, times, and what is refused."""

from __future__ import annotations

import gzip
import struct
import zlib

import pytest

from isthmus.errors import WireError
from isthmus.wire import legacy
from isthmus.wire.batch import NO_STAMP, Body, find_batches, seal
from isthmus.wire.legacy import convert
from isthmus.wire.records import Record, decode_records


def message(
    offset: int,
    value: bytes | None,
    *,
    magic: int = 1,
    time: int = 100,
    attributes: int = 0,
    key: bytes | None = None,
) -> bytes:
    rest = struct.pack(">bb", magic, attributes)
    rest += struct.pack(">q", time) if magic else b""
    for part in (key, value):
        rest += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(rest) + 4, zlib.crc32(rest)) + rest


def converted(raw: bytes, from_offset: int = 0) -> list[tuple[Body, int]]:
    buffer = memoryview(raw)
    return convert(buffer, find_batches(buffer), from_offset=from_offset)


def records_of(body: Body) -> list[Record]:
    buffer = memoryview(seal(body, NO_STAMP, transactional=False) + body.payload)
    return decode_records(buffer, find_batches(buffer)[0])


def test_plain_messages_are_gathered_and_keep_their_times() -> None:
    ((body, last),) = converted(message(5, b"a", time=7) + message(6, None, key=b"k", time=3) + message(9, b""))
    assert records_of(body) == [
        Record(0, 7, None, b"a"),
        Record(1, 3, b"k", None),
        Record(2, 100, None, b""),
    ]
    assert body.runs == ((5, 2), (9, 1))
    assert (last, body.max_timestamp) == (9, 100)


def test_format_0_has_no_time() -> None:
    ((body, _),) = converted(message(5, b"a", magic=0))
    assert [record.timestamp for record in records_of(body)] == [-1]


def test_a_format_1_wrapper_has_relative_offsets_after_compaction_too() -> None:
    inner = message(0, b"a", time=1) + message(3, b"b", time=2)
    ((body, last),) = converted(message(103, gzip.compress(inner), attributes=1))
    assert body.runs == ((100, 1), (103, 1))
    assert (body.codec, last) == (1, 103)
    assert [record.timestamp for record in records_of(body)] == [1, 2]


def test_a_format_0_wrapper_has_absolute_offsets() -> None:
    inner = message(100, b"a", magic=0) + message(103, b"b", magic=0)
    ((body, _),) = converted(message(103, gzip.compress(inner), attributes=1, magic=0))
    assert body.runs == ((100, 1), (103, 1))


def test_a_wrappers_log_append_time_is_everyones() -> None:
    inner = message(0, b"a", time=1) + message(1, b"b", time=2)
    ((body, _),) = converted(message(1, gzip.compress(inner), attributes=9, time=55))
    assert [record.timestamp for record in records_of(body)] == [55, 55]


def test_a_start_inside_a_wrapper_drops_what_is_before() -> None:
    inner = b"".join(message(i, b"%d" % i) for i in range(4))
    wrapper = message(13, gzip.compress(inner), attributes=1)
    ((body, last),) = converted(wrapper, from_offset=12)
    assert (body.runs, last) == (((12, 2),), 13)
    assert converted(wrapper, from_offset=14) == []


def test_another_codec_begins_another_body() -> None:
    wrapper = message(2, gzip.compress(message(0, b"b")), attributes=1)
    bodies = converted(message(1, b"a") + wrapper + message(3, b"c"))
    assert [(body.codec, last) for body, last in bodies] == [(0, 1), (1, 2), (0, 3)]


def test_bodies_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "BODY_BYTES", 1000)
    bodies = converted(b"".join(message(i, b"x" * 300) for i in range(10)) + message(10, b"y" * 5000))
    assert [body.count for body, _ in bodies] == [3, 3, 3, 1, 1]
    assert bodies[-1][1] == 10


REFUSED = {
    "nothing inside": message(1, gzip.compress(b""), attributes=1),
    "no value": message(1, None, attributes=1),
    "not gzip": message(1, b"plain", attributes=1),
    "a wrapper inside": message(
        1, gzip.compress(message(0, gzip.compress(message(0, b"x")), attributes=1)), attributes=1
    ),
    "another format inside": message(1, gzip.compress(message(0, b"x", magic=0)), attributes=1),
    "cut off inside": message(1, gzip.compress(message(0, b"abc")[:-1]), attributes=1),
    "a damaged one inside": message(1, gzip.compress(message(0, b"abc")[:-1] + b"x"), attributes=1),
    "falling offsets": message(2, b"a") + message(1, b"b"),
    "damaged": message(1, b"abc")[:-1] + b"x",
}


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_wrong_is_refused(raw: bytes) -> None:
    with pytest.raises(WireError) as caught:
        converted(raw)
    assert caught.value.code == "CORRUPT_BATCH"
