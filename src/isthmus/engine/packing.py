"""Choosing the next batch of a partition: pass one through, or merge small ones that wait together.

A Produce request takes one batch per partition, and a broker pays per batch. So small batches that have
queued up are decoded and written as one, with the same codec; a single batch, or a large one, passes
untouched, its CRC patched and its payload not even copied. Merging never waits: it only uses what is
there already.
"""

from __future__ import annotations

from typing import NamedTuple

from isthmus.engine.track import Track, Unit
from isthmus.errors import WireError
from isthmus.model import Tuning
from isthmus.wire.batch import Batch, Body, Stamp, payload_of, reencode, restamp, seal

MERGED_BYTES = 256 << 10  # as they were stored: the result must stay below max.message.bytes (1 MB)
MERGED_RECORDS = 20_000


class Packed(NamedTuple):
    """The next batch of one track, ready but for its stamp."""

    track: Track
    past: int
    records: int
    payload: bytes | memoryview
    buffer: memoryview
    made: Batch | Body

    def header(self, stamp: Stamp) -> bytes:
        return restamp(self.buffer, self.made, stamp) if isinstance(self.made, Batch) else seal(self.made, stamp)


def pack(track: Track, tuning: Tuning) -> Packed:
    """Take the next batch off the queue, merged with its small neighbours where that pays."""
    first = track.pop()
    mergeable = _neighbours(track, first, tuning) if track.merging else []
    if mergeable:
        return _merge(track, [first, *mergeable])
    return _single(track, first)


def _neighbours(track: Track, first: Unit, tuning: Tuning) -> list[Unit]:
    limit = tuning.merge_below_bytes
    if not isinstance(first.made, Batch) or first.size >= limit or not track.queue:
        return []
    taken: list[Unit] = []
    size, count, codec = first.size, first.records, first.made.codec
    while track.queue:
        unit = track.queue[0]
        size, count = size + unit.size, count + unit.records
        if not isinstance(unit.made, Batch) or unit.size >= limit or unit.made.codec != codec:
            break
        if size > MERGED_BYTES or count > MERGED_RECORDS:
            break
        taken.append(track.pop())
    return taken


def _single(track: Track, unit: Unit) -> Packed:
    made = unit.made
    payload = payload_of(unit.buffer, made) if isinstance(made, Batch) else made.payload
    return Packed(track, unit.past, unit.records, payload, unit.buffer, made)


def _merge(track: Track, units: list[Unit]) -> Packed:
    pieces = [(unit.buffer, unit.made) for unit in units if isinstance(unit.made, Batch)]
    body = reencode(pieces, from_offset=pieces[0][1].base_offset)
    if body is None:
        raise WireError("a merged batch came out empty", where=str(track.assignment.source), code="CORRUPT_BATCH")
    return Packed(track, units[-1].past, body.count, body.payload, units[0].buffer, body)
