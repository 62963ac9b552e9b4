"""Choosing the next batch of a partition: pass one through, or merge small ones that wait together.

What the target found too large is cut into batches of fewer records, and a record that is too large alone is made a
dead letter; `compression` of the flow recompresses.

A Produce request takes one batch per partition, and a broker pays per batch. So small batches that have
queued up are decoded and written as one, with the same codec; a single batch, or a large one, passes
untouched, its CRC patched and its payload not even copied. Merging never waits: it only uses what is
there already.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from isthmus.engine.letters import letter
from isthmus.engine.track import Track, Unit
from isthmus.errors import WireError
from isthmus.model import Tuning
from isthmus.wire.batch import (
    HEADER_SIZE,
    Batch,
    Body,
    Stamp,
    find_batches,
    payload_of,
    recompressed,
    reencode,
    restamp,
    seal,
)
from isthmus.wire.legacy import body_of
from isthmus.wire.records import Record, decode_records

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
    is_letter: bool = False

    @property
    def first(self) -> int:
        """Source offset of its first record."""
        return first_of(self.made)

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Source offsets of its records, as (first, length)."""
        return ((self.made.base_offset, self.records),) if isinstance(self.made, Batch) else self.made.runs

    def header(self, stamp: Stamp) -> bytes:
        return restamp(self.buffer, self.made, stamp) if isinstance(self.made, Batch) else seal(self.made, stamp)


def pack(track: Track, tuning: Tuning, codec: int | None = None) -> Packed:
    """Take the next batch off the queue, merged with its small neighbours where that pays, in this codec if given."""
    if next_is_letter(track):
        return _letter(track, track.pop(), codec)
    if track.most_records:
        _cut(track)
    first = track.pop()
    mergeable = _neighbours(track, first, tuning) if track.merging else []
    if mergeable or (codec is not None and isinstance(first.made, Batch) and first.made.codec != codec):
        return _merge(track, [first, *mergeable], codec)
    return _single(track, first, codec)


def next_is_letter(track: Track) -> bool:
    """Whether the next record is a dead letter; sets it apart from those that it came with."""
    if not track.letters:
        return False
    unit = track.queue[0]
    if unit.records > 1 and any(first_of(unit.made) <= offset < unit.past for offset in track.letters):
        records, codec = records_of(track.pop())
        groups = itertools.groupby(records, lambda record: record.offset if record.offset in track.letters else -1)
        _put_back(track, unit, [list(group) for _, group in groups], codec)
    unit = track.queue[0]
    return unit.records == 1 and first_of(unit.made) in track.letters


def _letter(track: Track, unit: Unit, codec: int | None) -> Packed:
    (record,), own = records_of(unit)
    dead = letter(track.assignment.source, record, track.letters[record.offset])
    body = body_of([dead], own if codec is None else codec)
    return Packed(track, unit.past, 1, body.payload, memoryview(b""), body, is_letter=True)


def _cut(track: Track) -> None:
    """Replace the next unit by smaller ones, if it has more records than the target takes at once."""
    unit = track.queue[0]
    if unit.records <= track.most_records:
        return
    records, codec = records_of(track.pop())
    parts = [records[at : at + track.most_records] for at in range(0, len(records), track.most_records)]
    _put_back(track, unit, parts, codec)


def _put_back(track: Track, unit: Unit, parts: list[list[Record]], codec: int) -> None:
    pieces = [piece_of(part[-1].offset + 1, body_of(part, codec)) for part in parts]
    track.put_back([*pieces[:-1], pieces[-1]._replace(past=unit.past)])


def first_of(made: Batch | Body) -> int:
    return made.base_offset if isinstance(made, Batch) else made.runs[0][0]


def records_of(unit: Unit) -> tuple[list[Record], int]:
    """The records of a unit with their source offsets, and their codec."""
    if isinstance(unit.made, Batch):
        return decode_records(unit.buffer, unit.made), unit.made.codec
    sealed = memoryview(seal(unit.made, Stamp(-1, -1, -1)) + bytes(unit.made.payload))
    offsets = [first + step for first, length in unit.made.runs for step in range(length)]
    found = decode_records(sealed, find_batches(sealed)[0])
    return [record._replace(offset=offset) for record, offset in zip(found, offsets, strict=True)], unit.made.codec


def piece_of(past: int, body: Body) -> Unit:
    return Unit(past, len(body.payload) + HEADER_SIZE, body.count, memoryview(b""), body)


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


def _single(track: Track, unit: Unit, codec: int | None) -> Packed:
    made = unit.made
    if codec is not None and not isinstance(made, Batch) and made.codec != codec:
        made = recompressed(made, codec)
    payload = payload_of(unit.buffer, made) if isinstance(made, Batch) else made.payload
    return Packed(track, unit.past, unit.records, payload, unit.buffer, made)


def _merge(track: Track, units: list[Unit], codec: int | None) -> Packed:
    pieces = [(unit.buffer, unit.made) for unit in units if isinstance(unit.made, Batch)]
    body = reencode(pieces, from_offset=pieces[0][1].base_offset, codec=codec)
    if body is None:
        raise WireError("a merged batch came out empty", where=str(track.assignment.source), code="CORRUPT_BATCH")
    return Packed(track, units[-1].past, body.count, body.payload, units[0].buffer, body)
