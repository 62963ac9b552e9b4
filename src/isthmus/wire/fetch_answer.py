"""Reads a Fetch answer (version 12 and newer) in place: record bytes stay views into the received frame.

`kafka.protocol` would copy them, which is a pass over everything that crosses. Older versions, which only old
brokers speak, go through it all the same. Layout: Apache Kafka's FetchResponse.json. A frame that ends too early
raises IndexError or struct.error, one that cannot be meant ValueError: the link turns them into a lost connection. Must
stay true: every number has an end, and every round of a loop takes a byte, so work is bounded by the frame.
"""

from __future__ import annotations

import struct
import uuid
from typing import NamedTuple

FIRST_FLEXIBLE = 12
BY_ID = 13
_TOP = struct.Struct(">ihi")  # throttle time, error code, session id
_PARTITION = struct.Struct(">ihqqq")  # index, error code, high watermark, last stable offset, log start offset
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")
_INT32 = struct.Struct(">i")
_LAST_SHIFT = 28  # lengths and counts have 32 bits, in at most five bytes


class PartitionAnswer(NamedTuple):
    topic: str | uuid.UUID
    number: int
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: tuple[tuple[int, int], ...]
    records: memoryview
    diverging: tuple[int, int] | None
    preferred: int  # a replica to ask instead, -1: none


class FetchAnswer(NamedTuple):
    error: int
    partitions: list[PartitionAnswer]


def uvarint(data: memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift, at = byte & 0x7F, 7, at + 1
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        if shift >= _LAST_SHIFT:
            raise ValueError("a number of more than five bytes")
        shift += 7


def skip_tags(data: memoryview, at: int) -> int:
    count, at = uvarint(data, at)
    for _ in range(count):
        _, at = uvarint(data, at)
        size, at = uvarint(data, at)
        at += size
    return at


def read_fetch_answer(data: memoryview, version: int) -> FetchAnswer:
    """The whole answer, from the first byte after the response header."""
    _, error, _ = _TOP.unpack_from(data, 0)
    topics, at = uvarint(data, _TOP.size)
    partitions: list[PartitionAnswer] = []
    for _ in range(topics - 1):
        topic, at = _topic(data, at, version)
        count, at = uvarint(data, at)
        for _ in range(count - 1):
            partition, at = _partition(data, at, topic)
            partitions.append(partition)
        at = skip_tags(data, at)
    if at > len(data):
        raise IndexError("fields end beyond the frame")
    return FetchAnswer(error, partitions)


def _topic(data: memoryview, at: int, version: int) -> tuple[str | uuid.UUID, int]:
    if version >= BY_ID:
        return uuid.UUID(bytes=bytes(data[at : at + 16])), at + 16
    size, at = uvarint(data, at)
    if size == 0:
        raise ValueError("a topic without a name")
    return str(data[at : at + size - 1], "utf-8"), at + size - 1


def _partition(data: memoryview, at: int, topic: str | uuid.UUID) -> tuple[PartitionAnswer, int]:
    index, error, high, stable, start = _PARTITION.unpack_from(data, at)
    aborted, at = _aborted(data, at + _PARTITION.size)
    (preferred,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    size, at = uvarint(data, at)
    past = at + max(0, size - 1)
    if past > len(data):
        raise IndexError("record bytes end beyond the frame")
    records = data[at:past]
    diverging, at = _tags(data, past)
    return PartitionAnswer(topic, index, error, high, stable, start, aborted, records, diverging, preferred), at


def _aborted(data: memoryview, at: int) -> tuple[tuple[tuple[int, int], ...], int]:
    count, at = uvarint(data, at)
    if count <= 1:
        return (), at
    found = []
    for _ in range(count - 1):
        found.append(_ABORTED.unpack_from(data, at))
        at = skip_tags(data, at + _ABORTED.size)
    return tuple(found), at


def _tags(data: memoryview, at: int) -> tuple[tuple[int, int] | None, int]:
    """Tagged fields of a partition; tag 0 is the diverging epoch."""
    diverging: tuple[int, int] | None = None
    count, at = uvarint(data, at)
    for _ in range(count):
        tag, at = uvarint(data, at)
        size, at = uvarint(data, at)
        if tag == 0:
            epoch, end = _EPOCH_END.unpack_from(data, at)
            diverging = (epoch, end) if epoch >= 0 else None
        at += size
    return diverging, at
