"""The driver's half of the index: where every stretch of source offsets is on record, and what it says.

Only a directory is held in memory, with the bytes of spans that were read lately; the others are read again from the
topic when a group needs them (an offset in a topic never changes). Small spans are joined into larger ones now and
then, so that the topic and the directory stay small; spans below the start of the source's log are taken out.

What must stay true: of two spans that overlap, the younger one counts (an operator has set positions back); a stretch
without a span is a hole, and a hole is never taken for "nothing was there".
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from isthmus.engine.offsets.runs import Runs, Span, decode_end, decode_key, decode_value, encode_key, encode_value
from isthmus.model import TopicPartition
from isthmus.wire.journal import Journal
from isthmus.wire.records import Record

_CACHE_BYTES = 32 << 20
_JOIN_FROM = 64  # spans of a partition that are small
_SMALL_BYTES = 16 << 10
_PAIRS_AT_ONCE = 500


class Entry(NamedTuple):
    """A span in the directory: the part of it that counts, and where it is stored."""

    start: int
    end: int
    first: int  # the start that it is stored under
    at: int  # its offset in the topic
    size: int


class Where(NamedTuple):
    """What the index says about a source offset: `target`, or why it has no answer."""

    target: int = -1
    why: str = ""  # "" | "ahead" | "hole" | "before"


class _Shelf:
    """The entries of one partition, in order, without overlap."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def put(self, new: Entry) -> None:
        """A younger entry takes the place of what it overlaps."""
        if not self.entries or self.entries[-1].end <= new.start:
            self.entries.append(new)
            return
        kept = [e._replace(end=min(e.end, new.start)) for e in self.entries if e.start < new.start]
        after = [e._replace(start=max(e.start, new.end)) for e in self.entries if e.end > new.end]
        self.entries = [*kept, new, *after]

    def remove(self, first: int, at: int) -> None:
        """The record under this key was taken out of the topic, by a tombstone at this offset."""
        self.entries = [e for e in self.entries if e.first != first or e.at > at]

    def find(self, offset: int) -> int:
        """The number of the last entry that begins at or below the offset; -1: none."""
        return bisect.bisect_right(self.entries, offset, key=lambda entry: entry.start) - 1


class Index:
    """Follows the index topic of one flow and answers from it."""

    def __init__(self, journal: Journal) -> None:
        self.skipped = 0  # records that are none of ours, or damaged
        self.changed: set[TopicPartition] = set()  # since somebody last emptied it
        self._journal = journal
        self._shelves: dict[TopicPartition, _Shelf] = {}
        self._cache: collections.OrderedDict[int, bytes] = collections.OrderedDict()
        self._cached = 0
        self._cursor = -1

    async def catch_up(self) -> None:
        """Read what was appended since the last time."""
        if self._cursor < 0:
            self._cursor = await self._journal.beginning()
        end = await self._journal.end()
        while self._cursor < end:
            records, self._cursor = await self._journal.poll(self._cursor, 100, "index")
            for record in records:
                self._take(record)

    def _take(self, record: Record) -> None:
        place = decode_key(record.key or b"")
        if place is None:
            self.skipped += 1
            return
        tp, start = place
        shelf = self._shelves.setdefault(tp, _Shelf())
        if record.value is None:
            shelf.remove(start, record.offset)
            return
        end = decode_end(start, record.value)
        if end is None:
            self.skipped += 1
            return
        shelf.put(Entry(start, end, start, record.offset, len(record.value)))
        self.changed.add(tp)
        self._remember(record.offset, record.value)

    # -- answers -------------------------------------------------------------------------------

    def partitions(self) -> Iterable[TopicPartition]:
        return self._shelves

    def end(self, tp: TopicPartition) -> int:
        """The source offset up to which the index reaches; -1 without any."""
        shelf = self._shelves.get(tp)
        return shelf.entries[-1].end if shelf and shelf.entries else -1

    def holes(self, tp: TopicPartition, start: int, end: int) -> list[tuple[int, int]]:
        """Stretches of [start, end) that no span covers."""
        found, at = [], start
        for entry in self._shelves[tp].entries if tp in self._shelves else ():
            if entry.start > at and at < end:
                found.append((at, min(entry.start, end)))
            at = max(at, entry.end)
        return found + ([(at, end)] if at < end else [])

    async def translate(self, tp: TopicPartition, offset: int) -> Where:
        """The offset of the target at which a reader meets the record that it would meet next on the source."""
        shelf = self._shelves.get(tp)
        if shelf is None or not shelf.entries or offset > shelf.entries[-1].end:
            return Where(why="ahead" if shelf and shelf.entries else "hole")
        number = shelf.find(offset)
        if number < 0:
            return Where(why="before")
        if offset > shelf.entries[number].end:
            return Where(why="hole")
        found = await self._forward(tp, shelf.entries, number, offset)
        if found.target < 0 and not found.why:
            found = await self._backward(tp, shelf.entries, number, offset)
        return found

    async def _forward(self, tp: TopicPartition, entries: list[Entry], number: int, offset: int) -> Where:
        """Where the next record that landed is; nothing when none has yet."""
        reached = offset
        for entry in entries[number:]:
            if entry.start > reached:
                return Where(why="hole")
            runs = await self._runs(tp, entry)
            row = int(np.searchsorted(runs[:, 0] + runs[:, 2], offset, side="right"))
            if row < len(runs):
                source, target, _ = runs[row].tolist()
                return Where(target + max(0, offset - source))
            reached = entry.end
        return Where()

    async def _backward(self, tp: TopicPartition, entries: list[Entry], number: int, offset: int) -> Where:
        """Nothing has landed after it: the end of what landed last before it."""
        reached = entries[number].start
        for entry in reversed(entries[: number + 1]):
            if entry.end < reached:
                return Where(why="hole")
            runs = await self._runs(tp, entry)
            if len(runs):
                return Where(int(runs[-1, 1] + runs[-1, 2]))
            reached = entry.start
        return Where(why="before")

    async def at_or_below(self, tp: TopicPartition, offset: int) -> tuple[int, int] | None:
        """The end of the last run that lies at or below a source offset, in both logs: nothing after it is known."""
        shelf = self._shelves.get(tp)
        number = shelf.find(offset) if shelf else -1
        for entry in reversed(shelf.entries[: number + 1] if shelf else []):
            runs = await self._runs(tp, entry)
            row = int(np.searchsorted(runs[:, 0], offset, side="right")) - 1
            if row >= 0:
                source, target, length = runs[row].tolist()
                passed = min(length, offset - source)
                return source + passed, target + passed
        return None

    async def last(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Source and target offset of the last record that landed."""
        found = await self.at_or_below(tp, self.end(tp))
        return None if found is None else (found[0] - 1, found[1] - 1)

    async def first_after(self, tp: TopicPartition, offset: int) -> tuple[int, int] | None:
        """Source and target offset of the first record on record at or after a source offset."""
        for entry in self._shelves[tp].entries if tp in self._shelves else ():
            if entry.end > offset:
                runs = await self._runs(tp, entry)
                rows = runs[runs[:, 0] >= offset]
                if len(rows):
                    return int(rows[0, 0]), int(rows[0, 1])
        return None

    async def stretches(self, tp: TopicPartition) -> list[Span]:
        """All that is on record of a partition, in as few spans as there are stretches without a hole."""
        found: list[Span] = []
        for entry in self._shelves[tp].entries if tp in self._shelves else ():
            runs = await self._runs(tp, entry)
            if found and found[-1].end == entry.start:
                before = found.pop()
                found.append(Span(tp, before.start, entry.end, _glue([before.runs, runs])))
            else:
                found.append(Span(tp, entry.start, entry.end, runs))
        return found

    async def _runs(self, tp: TopicPartition, entry: Entry) -> Runs:
        """The runs of an entry, cut to the part of it that counts."""
        span = decode_value(tp, entry.first, await self._value(entry))
        if span is None:
            self.skipped += 1
            return np.empty((0, 3), np.int64)
        if entry.start == span.start and entry.end == span.end:
            return span.runs
        return _cut(span.runs, entry.start, entry.end)

    async def _value(self, entry: Entry) -> bytes:
        value = self._cache.get(entry.at)
        if value is not None:
            self._cache.move_to_end(entry.at)
            return value
        found = await self._journal.read(entry.at, entry.at + 1)
        value = (found[0].value or b"") if found else b""
        self._remember(entry.at, value)
        return value

    def _remember(self, at: int, value: bytes) -> None:
        self._cache[at] = value
        self._cached += len(value)
        while self._cached > _CACHE_BYTES and len(self._cache) > 1:
            self._cached -= len(self._cache.popitem(last=False)[1])

    # -- upkeep of the topic -------------------------------------------------------------------

    async def write(self, spans: Iterable[Span]) -> None:
        """Put spans on record, as a lane does."""
        pairs = [(encode_key(span.tp, span.start), encode_value(span)) for span in spans]
        for at in range(0, len(pairs), _PAIRS_AT_ONCE):
            await self._journal.append(pairs[at : at + _PAIRS_AT_ONCE])
        await self.catch_up()

    async def erase(self, topics: Collection[str]) -> None:
        """Forget topics that will be copied anew: what landed of them before may be gone, or be another topic's."""
        await self.catch_up()
        pairs = [
            (encode_key(tp, entry.first), None)
            for tp, shelf in self._shelves.items()
            if tp.topic in topics
            for entry in shelf.entries
        ]
        for at in range(0, len(pairs), _PAIRS_AT_ONCE):
            await self._journal.append(pairs[at : at + _PAIRS_AT_ONCE])
        await self.catch_up()

    async def tidy(self, log_starts: Mapping[TopicPartition, int]) -> None:
        """Join small spans that follow each other; take out what lies below the start of the source's log."""
        for tp, shelf in self._shelves.items():
            old = await self._outlived(tp, shelf, log_starts.get(tp, -1))
            pairs: list[tuple[bytes, bytes | None]] = [(encode_key(tp, entry.first), None) for entry in old]
            pairs += await self._joined(tp, shelf)
            if pairs:
                await self._journal.append(pairs)
        await self.catch_up()

    async def _outlived(self, tp: TopicPartition, shelf: _Shelf, log_start: int) -> list[Entry]:
        """Not the last run, however old: a group that has read everything stands behind it."""
        old = [entry for entry in shelf.entries if entry.end <= log_start]
        if len(old) == len(shelf.entries):
            while old and not len(await self._runs(tp, old.pop())):
                pass
        return old

    async def _joined(self, tp: TopicPartition, shelf: _Shelf) -> list[tuple[bytes, bytes | None]]:
        group: list[Entry] = []
        for entry in reversed(shelf.entries):
            whole = entry.start == entry.first and entry.size < _SMALL_BYTES
            if not whole or (group and entry.end != group[0].start):
                break
            group.insert(0, entry)
        if len(group) < _JOIN_FROM:
            return []
        joined = Span(tp, group[0].start, group[-1].end, _glue([await self._runs(tp, entry) for entry in group]))
        # The joined span first: a start that reads only one of both finds everything.
        return [
            (encode_key(tp, joined.start), encode_value(joined)),
            *((encode_key(tp, entry.first), None) for entry in group[1:]),
        ]


def _cut(runs: Runs, start: int, end: int) -> Runs:
    """The parts of runs within [start, end) of the source."""
    first = np.maximum(runs[:, 0], start)
    past = np.minimum(runs[:, 0] + runs[:, 2], end)
    cut = np.column_stack((first, runs[:, 1] + first - runs[:, 0], past - first))
    return np.ascontiguousarray(cut[cut[:, 2] > 0])


def _glue(parts: list[Runs]) -> Runs:
    """One table, with runs joined that follow each other in both logs."""
    runs = np.concatenate(parts)
    if len(runs) < 2:
        return runs
    ends = runs[:, :2] + runs[:, 2:]
    begins = np.append(True, (runs[1:, :2] != ends[:-1]).any(axis=1))
    firsts = np.flatnonzero(begins)
    return np.column_stack((runs[firsts, :2], np.add.reduceat(runs[:, 2], firsts)))
