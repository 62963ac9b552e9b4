"""Small record batches in plain Python: progress and control records, and slow readers.

Readable rather than quick; what a lane moves in bulk goes through `batch` and `kernels`. A decoded
batch has had its CRC checked. Control batches are not records and are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from isthmus.wire import compression
from isthmus.wire.batch import HEADER_SIZE, Batch, Body, corrupt, crc_is_right, malformed, payload_of

_LEAD = struct.Struct(">qiib")  # base offset, length, leader epoch, magic
_REST = struct.Struct(">Ihiqqqhii")  # crc, attributes ... record count
_LEAST = _LEAD.size
Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


# --- writing ---------------------------------------------------------------------------------


def encode_stamped(records: Sequence[Record]) -> Body:
    """Records with their own times and headers as one uncompressed body; offsets are the broker's to give."""
    base = records[0].timestamp
    payload = b"".join(
        encode_record(delta, record.timestamp - base, record.key, record.value, record.headers)
        for delta, record in enumerate(records)
    )
    return Body(payload, 0, len(records), base, max(record.timestamp for record in records), ())


def encode_records(records: Sequence[tuple[bytes | None, bytes | None]], timestamp_ms: int) -> Body:
    """(key, value) pairs as one uncompressed body, all with the same time."""
    if not records:
        raise ValueError("a batch needs at least one record")
    payload = b"".join(encode_record(delta, 0, key, value, ()) for delta, (key, value) in enumerate(records))
    return Body(payload, 0, len(records), timestamp_ms, timestamp_ms, ())


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """One record of a v2 batch, its length first."""
    parts = [b"\0", varint(timestamp_delta), varint(offset_delta), *_sized(key), *_sized(value)]
    parts.append(varint(len(headers)))
    for name, content in headers:
        parts += [*_sized(name.encode()), *_sized(content)]
    body = b"".join(parts)
    return varint(len(body)) + body


def _sized(data: bytes | None) -> tuple[bytes, bytes]:
    return (varint(-1), b"") if data is None else (varint(len(data)), data)


def varint(value: int) -> bytes:
    """Zig-zag, seven bits a byte, lowest first."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


# --- reading ---------------------------------------------------------------------------------


def plain_batches(buffer: memoryview) -> list[Batch]:
    """As `batch.find_batches`, for small buffers: without the compiled loops, which take seconds to load."""
    found, at = [], 0
    while len(buffer) - at >= _LEAST:
        base, length, epoch, magic = _LEAD.unpack_from(buffer, at)
        size = length + 12
        if magic not in (0, 1, 2) or base < 0 or size < (HEADER_SIZE if magic == 2 else 26 + 8 * magic):
            raise malformed(buffer, at)
        if len(buffer) - at < size:
            break
        if magic == 2:
            batch = Batch(at, size, base, epoch, magic, *_REST.unpack_from(buffer, at + _LEAST))
            if batch.last_offset_delta < 0 or batch.count < 0:
                raise malformed(buffer, at)
        else:
            batch = Batch(at, size, base, -1, magic, 0, 0, 0, 0, 0, -1, -1, -1, 0)
        found.append(batch)
        at += size
    return found


def decode_records(buffer: memoryview, batch: Batch) -> list[Record]:
    """All records of a v2 batch, whatever its codec."""
    if batch.magic != 2 or batch.is_control:
        raise ValueError(f"the batch at offset {batch.base_offset} holds no v2 records")
    if not crc_is_right(buffer, batch):
        raise corrupt(batch, "its checksum does not match")
    payload = payload_of(buffer, batch)
    plain = bytes(compression.decompress(batch.codec, payload) if batch.codec else payload)
    try:
        return list(_records_in(plain, batch))
    except (IndexError, ValueError) as error:
        raise corrupt(batch, f"a malformed record ({error})") from error


def _records_in(plain: bytes, batch: Batch) -> Iterator[Record]:
    reader = _Reader(plain)
    for _ in range(batch.count):
        yield _read_record(reader, batch)
    if reader.position != len(plain):
        raise ValueError("bytes left over after the last record")


def _read_record(reader: _Reader, batch: Batch) -> Record:
    size = reader.varint()
    end = reader.position + size
    reader.take(1)  # attributes, unused in v2
    timestamp = batch.base_timestamp + reader.varint()
    if batch.is_log_append_time:
        timestamp = batch.max_timestamp
    offset = batch.base_offset + reader.varint()
    key, value = reader.sized(), reader.sized()
    header_count = reader.varint()
    headers = tuple(reader.header() for _ in range(header_count))
    if header_count < 0 or reader.position != end:
        raise ValueError("a record's length does not match its content")
    return Record(offset, timestamp, key, value, headers)


class _Reader:
    """A position in plain record bytes; leaving them raises IndexError or ValueError."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def varint(self) -> int:
        raw = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than ten bytes")

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise ValueError("a length that leads out of the batch")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def sized(self) -> bytes | None:
        size = self.varint()
        return None if size == -1 else self.take(size)

    def header(self) -> tuple[str, bytes | None]:
        return self.take(self.varint()).decode(), self.sized()
