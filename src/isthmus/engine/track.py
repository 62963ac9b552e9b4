"""One source partition inside a lane: where it stands, what waits to be written, why it stopped.

Three offsets, always committed <= sent <= position:
    committed   everything below is on the target, in a committed transaction (or needed no writing)
    sent        everything below is in the open transaction
    position    everything below was fetched and waits in the queue
An abort puts all three back to `committed`. Batches that are dropped on purpose (markers, aborted
transactions) move `position` without queueing anything.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Iterable
from typing import NamedTuple

from isthmus.engine.marks import Mark, mark_of, parse_mark
from isthmus.engine.orders import Assignment, Stop
from isthmus.engine.reigns import Reigns, parse_reign
from isthmus.engine.resting import rest_s
from isthmus.engine.strangers import Tide
from isthmus.wire.batch import Batch, Body

_STRIKE_S = 0.2


class Unit(NamedTuple):
    """One batch to write: passed through as it lies in a fetched buffer, or re-encoded by us."""

    past: int  # the source offset after its last record
    size: int
    records: int
    buffer: memoryview  # where a batch lies; empty for a body of our own
    made: Batch | Body


class Track:
    """Mutable state of one partition; belongs to one lane and one order."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.committed = assignment.offset
        self.sent = assignment.offset
        self.position = assignment.offset
        self.persisted = assignment.offset  # what the progress topic says, to know when to say more
        self.queue: collections.deque[Unit] = collections.deque()
        self.queued_bytes = 0
        self.reigns = Reigns(parse_reign(assignment.epoch))  # leader epochs of what was read
        self.heard = False  # the leader has answered in this order, and its log goes on where we are
        self.has_old_format = False  # message formats 0 or 1 were seen in this log
        self.end = -1  # last stable offset, as last heard
        self.high_watermark = -1
        self.carried = self._carrying = 0  # bytes committed in this order; and in the open transaction
        self.newest_ms = -1  # the time of the newest record in the open transaction
        self.stop: Stop | None = None
        self.aside = False  # left alone because the driver says so, until it says otherwise
        # Off after the target refused a merged batch, or found batches too large.
        self.merging = not assignment.strikes and not assignment.most_records and not assignment.letters
        self.most_records = (
            assignment.most_records
        )  # in one batch, after the target found one too large; 0: as many as there are
        self.fits = 0  # the limit under which batches were committed last
        self.letters = dict(assignment.letters)  # source offsets that go to the dead letters, and why
        self.given_up = assignment.given_up  # source offsets that are passed over by a decision
        self.strikes = assignment.strikes  # refusals in a row that may heal
        self.refusals = assignment.refusals  # in a row, by a target that is moving
        self.rests_until = 0.0  # neither fetched nor written before (`resting`); 0: it does not rest
        if self.refusals:
            self.rest()
        self.next_base = -1  # lowest base offset that the target may return next (I9)
        self.tide = Tide()  # whether somebody else writes there
        # Where the source is fetched by name: a batch below `committed`, and those fetched since.
        self.marking = False
        self.mark: Mark | None = None
        self.marks: collections.deque[Mark] = collections.deque()
        self.doubted = False  # the log must be known again by its mark before anything more is fetched
        self.indexed = max(assignment.offset, 0)  # what landed of source offsets below is in the index topic
        self.runs: list[list[int]] = []  # committed, and not in the index yet: [source, target, length]
        self._landing: list[list[int]] = []  # of the open transaction
        self._underway: collections.deque[tuple[tuple[int, int], ...]] = collections.deque()

    def push(self, unit: Unit) -> None:
        self.queue.append(unit)
        self.queued_bytes += unit.size
        self.position = unit.past

    def pop(self) -> Unit:
        unit = self.queue.popleft()
        self.queued_bytes -= unit.size
        return unit

    def put_back(self, units: Iterable[Unit]) -> None:
        """Undo a `pop`, with the unit in pieces."""
        for unit in reversed(list(units)):
            self.queue.appendleft(unit)
            self.queued_bytes += unit.size

    def skip_to(self, offset: int) -> None:
        """Move over offsets that hold nothing to write."""
        self.position = max(self.position, offset)
        self.settle()

    def pass_given_up(self) -> None:
        """Offsets that may not even be readable are not asked for."""
        for first, past in self.given_up:
            if first <= self.position < past:
                self.reigns.note(-1, self.position)
                self.skip_to(past)

    def gives_up(self, first: int, past: int) -> bool:
        """Whether all of [first, past) is passed over."""
        return any(begin <= first and past <= end for begin, end in self.given_up)

    def settle(self) -> None:
        """When nothing waits and nothing is in the open transaction, what was skipped is done."""
        if not self.queue and self.sent == self.committed:
            self.sent = self.committed = self.position
            self.reigns.forget_below(self.committed)
            self.drop_marks()

    def load(self, size: int) -> None:
        """So many bytes of it are in the open transaction."""
        self._carrying += size

    def send(self, runs: tuple[tuple[int, int], ...]) -> None:
        """A batch with records of these source offsets is on its way; answers come in order."""
        self._underway.append(runs)

    def land(self, base: int) -> None:
        """The next batch underway begins at this offset of the target."""
        for first, length in self._underway.popleft():
            last = self._landing[-1] if self._landing else None
            if last is not None and last[0] + last[2] == first and last[1] + last[2] == base:
                last[2] += length
            else:
                self._landing.append([first, base, length])
            base += length

    def commit(self) -> None:
        """What was sent is committed."""
        self.carried += self._carrying
        self._carrying = 0
        self.committed = self.sent
        self.reigns.forget_below(self.committed)
        self.drop_marks()
        self.runs += self._landing
        self._landing = []
        self.strikes, self.refusals, self.fits = 0, 0, self.most_records
        if self.letters:
            self.letters = {offset: why for offset, why in self.letters.items() if offset >= self.committed}

    def rewind(self) -> None:
        """Forget everything that is not committed; it will be fetched again."""
        self._underway.clear()
        self._landing = []
        self._carrying = 0
        self.queue.clear()
        self.queued_bytes = 0
        self.sent = self.position = self.committed
        self.reigns.forget_from(self.committed)
        self.next_base = -1
        self.tide.forget()
        self.marks.clear()

    def refuse(self) -> None:
        """The target cannot take it now; the open transaction is given up."""
        self.refusals += 1
        self.rest()

    def strike(self) -> None:
        """Refused, perhaps not for good: tried again in a moment and by itself, so that others have theirs committed
        meanwhile (I7)."""
        self.strikes += 1
        self.merging = False
        self.rests_until = time.monotonic() + _STRIKE_S * self.strikes

    def rest(self) -> None:
        pause_s = rest_s(self.refusals)
        self.rests_until = time.monotonic() + pause_s if pause_s else 0.0

    def halt(self, stop: Stop) -> None:
        """Stop, and forget everything that is not committed: the open transaction is given up."""
        self.rewind()
        self.stop = stop

    def cease(self, stop: Stop) -> None:
        """Stop fetching. What the open transaction holds of it stays there, and its progress with it (I1)."""
        self.unfetch()
        self.stop = stop

    def lay_aside(self, aside: bool) -> None:
        """Leave it alone, or go on with it where it was. What the open transaction holds of it stays there."""
        if aside == self.aside:
            return
        self.aside = aside
        if aside:
            self.unfetch()
        else:
            self.doubt()

    def unfetch(self) -> None:
        """Forget what waits to be written; it will be fetched again."""
        self.queue.clear()
        self.queued_bytes = 0
        self.position = self.sent
        self.reigns.forget_from(self.sent)
        self.marks = collections.deque(mark for mark in self.marks if mark.last < self.sent)

    # -- marks (I5, where topics cannot be fetched by id) ----------------------------------------

    def keep_marks(self) -> None:
        self.marking, self.mark = True, parse_mark(self.assignment.mark)
        self.doubt()

    def add_mark(self, buffer: memoryview, batch: Batch) -> None:
        if self.marking:
            self.marks.append(mark_of(buffer, batch))

    @property
    def newest_mark(self) -> Mark | None:
        return self.marks[-1] if self.marks else self.mark

    def mark_below(self, offset: int) -> Mark | None:
        """Of the last batch that lies below this offset as a whole."""
        return next((mark for mark in reversed(self.marks) if mark.last < offset), self.mark)

    def drop_marks(self) -> None:
        """Only the last one below what is committed is needed, and those above."""
        self.mark = self.mark_below(self.committed)
        while self.marks and self.marks[0].last < self.committed:
            self.marks.popleft()

    def doubt(self) -> None:
        """Something unusual happened: the topic may be another one by now."""
        self.doubted = self.marking and self.newest_mark is not None

    @property
    def has_learned(self) -> bool:
        """Whether the next order will try something else than this one."""
        given = self.assignment
        return self.most_records != given.most_records or any(
            offset not in dict(given.letters) for offset in self.letters
        )

    @property
    def is_wanted(self) -> bool:
        """Whether it is fetched now. One whose beginning is not known yet has no position."""
        return not self.is_left and not self.rests_until and self.position >= 0

    @property
    def is_left(self) -> bool:
        """Whether this order does nothing more about it, as things are."""
        return self.stop is not None or self.aside

    @property
    def is_told(self) -> bool:
        """Of one that was laid aside nothing is said, when nothing of it is in a transaction any more."""
        return not self.aside or self.sent != self.committed

    @property
    def caught_up(self) -> bool:
        """A position says nothing about a log that was cut and written again: its leader must have answered."""
        return self.is_left or (self.heard and 0 <= self.assignment.until <= self.committed)
