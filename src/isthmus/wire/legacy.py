"""Message formats 0 and 1, which brokers give out as they were stored years ago.

A message stands alone, or is a wrapper: its value is a compressed set of messages, and its offset
that of the last of them. Inner offsets are absolute in format 0 and relative in format 1.
Format 0 has no timestamps (-1 here, as consumers see it) and its lz4 frames have a wrong header
checksum. A format 1 wrapper with the log-append-time bit gives its time to all inside.

Must stay true: every message's CRC-32 is checked before its content is given a new one; offsets
rise; one wrapper never ends up in two bodies, so no body needs more room than was allowed before.

Plain Python, some microseconds a record: old logs are copied once. What comes out is for `batch`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from isthmus.errors import WireError
from isthmus.wire import compression
from isthmus.wire.batch import Batch, Body, corrupt
from isthmus.wire.records import Record, encode_record

BODY_BYTES = 256 << 10  # plain bytes gathered into one body, well below what any topic allows

_START = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes
_CODEC_BITS, _LOG_APPEND_TIME = 0x07, 0x08
_NO_TIME = -1


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & _CODEC_BITS


def convert(buffer: memoryview, batches: Sequence[Batch], *, from_offset: int) -> list[tuple[Body, int]]:
    """These messages as v2 bodies, each with the last source offset in it.

    Neighbours of one codec are gathered; that codec is kept. Records below `from_offset` are
    dropped.
    """
    bodies = []
    for codec, records in _gathered(buffer, batches, from_offset):
        bodies.append((body_of(records, codec), records[-1].offset))
    return bodies


def _gathered(buffer: memoryview, batches: Sequence[Batch], from_offset: int) -> Iterator[tuple[int, list[Record]]]:
    gathered: list[Record] = []
    gathered_codec = gathered_bytes = 0
    previous = -1
    for batch in batches:
        codec, records = unwrapped(buffer, batch)
        previous = _last_of_rising(records, previous, batch)
        records = [record for record in records if record.offset >= from_offset]
        size = sum(map(_size_of, records))
        if gathered and (codec != gathered_codec or gathered_bytes + size > BODY_BYTES):
            yield gathered_codec, gathered
            gathered, gathered_bytes = [], 0
        gathered_codec = codec
        gathered += records
        gathered_bytes += size
    if gathered:
        yield gathered_codec, gathered


def _last_of_rising(records: list[Record], previous: int, batch: Batch) -> int:
    for record in records:
        if record.offset <= previous:
            raise corrupt(batch, "offsets that do not rise")
        previous = record.offset
    return previous


def _size_of(record: Record) -> int:
    return 16 + len(record.key or b"") + len(record.value or b"")


# --- reading ---------------------------------------------------------------------------------


def unwrapped(buffer: memoryview, batch: Batch) -> tuple[int, list[Record]]:
    """The codec of a message of the log, and the record or records in it."""
    view = buffer[batch.position : batch.position + batch.size]
    try:
        (outer,) = _messages_in(view)
        inner = list(_inner_messages(outer)) if outer.codec else [outer]
    except (ValueError, struct.error, WireError) as error:
        raise corrupt(batch, str(error)) from error
    return outer.codec, [Record(m.offset, m.timestamp, m.key, m.value) for m in inner]


def _inner_messages(outer: _Message) -> Iterator[_Message]:
    messages = list(_messages_in(_plain_value_of(outer)))
    if not messages:
        raise ValueError("a wrapper with nothing in it")
    base = outer.offset - messages[-1].offset if outer.magic else 0
    fixed_time = outer.magic == 1 and outer.attributes & _LOG_APPEND_TIME
    for message in messages:
        if message.codec or message.magic != outer.magic:
            raise ValueError("a wrapper in a wrapper, or one with messages of another format")
        timestamp = outer.timestamp if fixed_time else message.timestamp
        yield message._replace(offset=base + message.offset, timestamp=timestamp)


def _plain_value_of(outer: _Message) -> memoryview:
    if outer.value is None:
        raise ValueError("a wrapper without a value")
    if outer.codec == compression.LZ4 and outer.magic == 0:
        return memoryview(compression.decompress_old_lz4(outer.value))
    return memoryview(compression.decompress(outer.codec, outer.value))


def _messages_in(view: memoryview) -> Iterator[_Message]:
    """All messages of a set; nothing may be left over."""
    while view:
        offset, size, crc, magic, attributes = _START.unpack_from(view)
        if size < 14 or size > len(view) - 12 or magic not in (0, 1):
            raise ValueError("a malformed message")
        if zlib.crc32(view[16 : 12 + size]) != crc:
            raise ValueError("a message's checksum does not match")
        yield _message(offset, magic, attributes, view[_START.size : 12 + size])
        view = view[12 + size :]


def _message(offset: int, magic: int, attributes: int, rest: memoryview) -> _Message:
    timestamp = _NO_TIME
    if magic == 1:
        (timestamp,) = struct.unpack_from(">q", rest)
        rest = rest[8:]
    key, rest = _sized(rest)
    value, rest = _sized(rest)
    if rest:
        raise ValueError("bytes left over after a message's value")
    return _Message(offset, magic, attributes, timestamp, key, value)


def _sized(rest: memoryview) -> tuple[bytes | None, memoryview]:
    (size,) = struct.unpack_from(">i", rest)
    if size == -1:
        return None, rest[4:]
    if size < 0 or size > len(rest) - 4:
        raise ValueError("a length that leads out of the message")
    return bytes(rest[4 : 4 + size]), rest[4 + size :]


# --- writing ---------------------------------------------------------------------------------


def body_of(records: list[Record], codec: int) -> Body:
    """These records as one dense body."""
    base = records[0].timestamp
    plain = b"".join(
        encode_record(delta, record.timestamp - base, record.key, record.value, record.headers)
        for delta, record in enumerate(records)
    )
    highest = max(record.timestamp for record in records)
    payload = compression.compress(codec, plain)
    return Body(payload, codec, len(records), base, highest, _runs_of(records))


def _runs_of(records: list[Record]) -> tuple[tuple[int, int], ...]:
    runs: list[tuple[int, int]] = []
    for record in records:
        if runs and sum(runs[-1]) == record.offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((record.offset, 1))
    return tuple(runs)
