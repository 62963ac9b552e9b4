"""Writing batches: a Produce request encoded by hand around bytes that are not copied.

One request holds at most one batch for each partition (the broker refuses more). A parcel is a 61-byte
header made by us and a payload that may be a view into the buffer of a Fetch answer. acks is always -1.
Versions are pinned by the transaction protocol (rule R3): 13 or 12 under TV2, at most 11 under TV1.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from isthmus.errors import WireError
from isthmus.model import NO_ID, TopicPartition
from isthmus.wire.link import Answer, Link

PRODUCE = 0
BY_ID = 13
FIRST_FLEXIBLE = 9
_TV1_CEILING, _TV2_FLOOR = 11, 12
_INT32 = struct.Struct(">i")


class Parcel(NamedTuple):
    """One batch on its way to one target partition."""

    tp: TopicPartition
    topic_id: uuid.UUID
    header: bytes
    payload: bytes | memoryview
    records: int
    mark: object = None  # what the sender knows it by

    @property
    def size(self) -> int:
        return len(self.header) + len(self.payload)


class Landed(NamedTuple):
    """What the broker said about one parcel."""

    tp: TopicPartition
    error: int
    base_offset: int
    append_time_ms: int
    message: str


def produce_version(link: Link, parcels: Sequence[Parcel], *, second_protocol: bool) -> int:
    """The exact version for this transaction protocol; by topic id when every topic has one."""
    if not second_protocol:
        version = link.offer.best(PRODUCE, _TV1_CEILING, 3)
    else:
        known = all(parcel.topic_id != NO_ID for parcel in parcels)
        version = link.offer.best(PRODUCE, BY_ID if known else _TV2_FLOOR, _TV2_FLOOR)
    if version < 0:
        raise WireError("the broker offers no Produce version for its own transaction protocol", where=link.name)
    return version


def send_parcels(
    link: Link, version: int, transactional_id: str | None, parcels: Sequence[Parcel], timeout_ms: int
) -> asyncio.Future[Answer]:
    """Queue one Produce request; `landed` reads its answer."""
    flexible = version >= FIRST_FLEXIBLE
    parts = (
        _flexible_body(version, transactional_id, parcels, timeout_ms)
        if flexible
        else _old_body(transactional_id, parcels, timeout_ms)
    )
    return link.send_raw(PRODUCE, version, flexible, parts)


def landed(answer: Answer, parcels: Sequence[Parcel]) -> list[Landed]:
    """The broker's word on each parcel; a parcel that it does not mention is a protocol error."""
    names = {parcel.topic_id: parcel.tp.topic for parcel in parcels}
    by_id = answer.API_VERSION >= BY_ID
    results: list[Landed] = []
    for topic in answer.responses:
        name = names.get(topic.topic_id, "") if by_id else topic.name
        results.extend(_landed_one(name, entry) for entry in topic.partition_responses)
    if {r.tp for r in results} != {p.tp for p in parcels}:
        raise WireError("a Produce answer does not name the partitions of its request")
    return results


def _landed_one(topic: str, entry: Answer) -> Landed:
    detail = getattr(entry, "error_message", None) or ""
    records = getattr(entry, "record_errors", None) or ()
    for error in records[:1]:
        detail += f" [record {error.batch_index}: {error.batch_index_error_message}]"
    return Landed(
        TopicPartition(topic, entry.index),
        entry.error_code,
        entry.base_offset,
        entry.log_append_time_ms,
        detail,
    )


def _by_topic(parcels: Sequence[Parcel]) -> dict[tuple[str, uuid.UUID], list[Parcel]]:
    grouped: dict[tuple[str, uuid.UUID], list[Parcel]] = {}
    for parcel in parcels:
        grouped.setdefault((parcel.tp.topic, parcel.topic_id), []).append(parcel)
    return grouped


def _flexible_body(version: int, transactional_id: str | None, parcels: Sequence[Parcel], timeout_ms: int) -> list[Any]:
    topics = _by_topic(parcels)
    lead = bytearray(_compact(transactional_id))
    lead += struct.pack(">hi", -1, timeout_ms) + _uvarint(len(topics) + 1)
    parts: list[Any] = []
    for (name, topic_id), members in topics.items():
        lead += topic_id.bytes if version >= BY_ID else _compact(name)
        lead += _uvarint(len(members) + 1)
        for parcel in members:
            lead += _INT32.pack(parcel.tp.partition) + _uvarint(parcel.size + 1) + parcel.header
            parts += [bytes(lead), parcel.payload]
            lead = bytearray(b"\0")  # no tagged fields after this partition
        lead += b"\0"  # nor after this topic
    parts.append(bytes(lead) + b"\0")
    return parts


def _old_body(transactional_id: str | None, parcels: Sequence[Parcel], timeout_ms: int) -> list[Any]:
    topics = _by_topic(parcels)
    lead = bytearray(_string(transactional_id))
    lead += struct.pack(">hii", -1, timeout_ms, len(topics))
    parts: list[Any] = []
    for (name, _), members in topics.items():
        lead += _string(name) + _INT32.pack(len(members))
        for parcel in members:
            lead += struct.pack(">ii", parcel.tp.partition, parcel.size) + parcel.header
            parts += [bytes(lead), parcel.payload]
            lead = bytearray()
    return parts


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _compact(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return _uvarint(len(data) + 1) + data


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return struct.pack(">h", len(data)) + data
