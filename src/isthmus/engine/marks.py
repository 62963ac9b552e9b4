"""Fingerprints of copied batches: how a log is known again where topics cannot be fetched by id (I5).

A mark names one batch that was copied: where it lies and its checksum. It rides with the progress, and the batch is
fetched again and compared at the start of an order and after every unusual answer. Another batch in its place means
that the topic was deleted and made anew, or that its log was truncated and written again.

What must stay true: what compaction or retention may do to a log is never taken for another log. Compaction keeps
the first and last offset of a batch and takes records out of it; a message of the old formats stays as it is or goes.
Who asks, and what follows from the answer, is left to the fetcher.
"""

from __future__ import annotations

import struct
import zlib
from enum import Enum
from typing import NamedTuple

from isthmus.wire import codes
from isthmus.wire.batch import Batch, find_batches
from isthmus.wire.fetch import READ_UNCOMMITTED, Fetched, Limits
from isthmus.wire.legacy import unwrapped

ASK = Limits(wait_ms=0, isolation=READ_UNCOMMITTED)
_MESSAGE = -1


class Likeness(Enum):
    same = "same"
    other = "other"
    unknown = "unknown"  # compaction or retention took it away: nothing can be said
    unanswered = "unanswered"


class Mark(NamedTuple):
    """One batch; of the formats before batches, one message, with `records` -1."""

    last: int
    base: int
    records: int
    crc: int

    def __str__(self) -> str:
        return f"{self.last}:{self.base}:{self.records}:{self.crc:08x}"


def parse_mark(text: str) -> Mark | None:
    """A mark as progress holds it; None if there is none, or if it is damaged."""
    match text.split(":"):
        case [last, base, records, crc]:
            try:
                return Mark(int(last), int(base), int(records), int(crc, 16))
            except ValueError:
                return None
    return None


def mark_of(buffer: memoryview, batch: Batch) -> Mark:
    if batch.magic == 2:
        return Mark(batch.last_offset, batch.base_offset, batch.count, batch.crc & 0xFFFFFFFF)
    # The last message inside: a wrapper is written anew when compaction takes something out of it.
    record = unwrapped(buffer, batch)[1][-1]
    return Mark(record.offset, record.offset, _MESSAGE, _checksum(record.timestamp, record.key, record.value))


def likeness(mark: Mark, answer: Fetched) -> Likeness:
    """What a fetch at the mark's last offset says about it."""
    if answer.error == codes.OFFSET_OUT_OF_RANGE:
        return Likeness.unknown  # whether that is retention or a shorter log is told by the next fetch
    batches = find_batches(answer.records) if answer.records else []
    if not batches:
        # Nothing below the end: the broker had no room for it beside others.
        return Likeness.unanswered if answer.high_watermark > mark.last else Likeness.unknown
    return _compare(mark, answer.records, batches[0])


def _compare(mark: Mark, buffer: memoryview, batch: Batch) -> Likeness:
    if (batch.magic < 2) != (mark.records == _MESSAGE):
        return Likeness.unknown if batch.base_offset > mark.last else Likeness.other
    if batch.magic < 2:
        return _compare_message(mark, buffer, batch)
    if batch.base_offset > mark.last:
        return Likeness.unknown
    found = mark_of(buffer, batch)
    if found == mark:
        return Likeness.same
    compacted = found[:2] == mark[:2] and found.records < mark.records
    return Likeness.unknown if compacted else Likeness.other


def _compare_message(mark: Mark, buffer: memoryview, batch: Batch) -> Likeness:
    for record in unwrapped(buffer, batch)[1]:
        if record.offset == mark.last:
            same = _checksum(record.timestamp, record.key, record.value) == mark.crc
            return Likeness.same if same else Likeness.other
    return Likeness.unknown


def _checksum(timestamp: int, key: bytes | None, value: bytes | None) -> int:
    fields = struct.pack(">qii", timestamp, _length(key), _length(value))
    return zlib.crc32(b"".join((fields, key or b"", value or b"")))


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)
