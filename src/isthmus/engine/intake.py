"""From a Fetch answer to units: drop what must not cross, mend what cannot pass as it is.

Dropped: batches that came from where they would go (`sieve`), control batches, batches of aborted transactions
(isolation 1 still delivers them: the answer's list says which), empty batches that compaction left, records below the
position. Re-encoded: batches with holes (the broker refuses them), LogAppendTime batches (each record gets the time
that a reader of the source saw), a batch that begins below the position, one of which some records were given up by a
decision, message formats 0 and 1. Everything else passes untouched.

Pure: bytes in, units out; nothing here asks a broker.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from isthmus.engine.packing import first_of, piece_of, records_of
from isthmus.engine.track import Track, Unit
from isthmus.wire.batch import Batch, Body, find_batches, reencode
from isthmus.wire.fetch import Fetched, committed_batches
from isthmus.wire.legacy import body_of, convert

_NO_BUFFER = memoryview(b"")
_NOBODY: frozenset[int] = frozenset()


def take_in(
    track: Track, fetched: Fetched, dropped: Set[int] = _NOBODY, batches: Sequence[Batch] | None = None
) -> None:
    """Queue what the answer holds beyond the track's position, but for batches of the producers to be dropped.

    `batches`: those of the answer, where they were looked up before.
    """
    if batches is None:
        batches = find_batches(fetched.records)
    if batches and batches[0].magic < 2:
        _take_legacy(track, fetched.records, batches)
        return
    wanted = committed_batches(fetched, batches) if fetched.aborted else iter(batches)
    for batch in wanted:
        if batch.magic < 2:
            return  # a log may change its format: the next fetch begins here
        past = batch.base_offset + batch.last_offset_delta + 1
        if past <= track.position:
            continue
        if not batch.attributes & 0x20 and batch.count and batch.producer_id not in dropped:
            for unit in _units(track, fetched.records, batch, past):
                track.push(unit)
        track.reigns.note(batch.leader_epoch, batch.base_offset)
        track.add_mark(fetched.records, batch)
        track.skip_to(past)
    if batches and batches[-1].magic == 2:
        # Aborted batches at the end were not yielded, but their offsets are done with.
        track.reigns.note(batches[-1].leader_epoch, batches[-1].base_offset)
        track.skip_to(batches[-1].last_offset + 1)


def _units(track: Track, buffer: memoryview, batch: Batch, past: int) -> list[Unit]:
    if track.given_up:
        if track.gives_up(max(batch.base_offset, track.position), past):
            return []  # not looked into: it may be damaged
        return [kept for unit in _plain_units(track, buffer, batch, past) for kept in _without(track, unit)]
    return _plain_units(track, buffer, batch, past)


def _without(track: Track, unit: Unit) -> list[Unit]:
    """The unit, less the records that are passed over by a decision."""
    low = first_of(unit.made)
    if not any(first < unit.past and low < past for first, past in track.given_up):
        return [unit]
    records, codec = records_of(unit)
    kept = [record for record in records if not track.gives_up(record.offset, record.offset + 1)]
    return [piece_of(unit.past, body_of(kept, codec))] if kept else []


def _plain_units(track: Track, buffer: memoryview, batch: Batch, past: int) -> list[Unit]:
    if batch.is_dense and not batch.attributes & 0x08 and batch.base_offset >= track.position:
        return [Unit(past, batch.size, batch.count, buffer, batch)]
    body = reencode([(buffer, batch)], from_offset=track.position)
    if body is None:
        return []
    return [_own(past, body)]


def _own(past: int, body: Body) -> Unit:
    return Unit(past, len(body.payload) + 61, body.count, _NO_BUFFER, body)


def _take_legacy(track: Track, buffer: memoryview, batches: Sequence[Batch]) -> None:
    track.has_old_format = True
    old = []
    for batch in batches:
        if batch.magic == 2:
            break
        old.append(batch)
    for body, last_offset in convert(buffer, old, from_offset=track.position):
        track.reigns.note(-1, track.position)
        for unit in _without(track, _own(last_offset + 1, body)):
            track.push(unit)
        track.skip_to(last_offset + 1)
    track.add_mark(buffer, old[-1])
