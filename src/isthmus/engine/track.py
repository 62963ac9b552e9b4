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
from collections.abc import Iterable
from typing import NamedTuple

from isthmus.engine.orders import Assignment, Stop
from isthmus.wire.batch import Batch, Body


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
        self.last_epoch = -1  # leader epoch of the last batch fetched
        self.has_old_format = False  # message formats 0 or 1 were seen in this log
        self.end = -1  # last stable offset, as last heard
        self.high_watermark = -1
        self.stop: Stop | None = None
        # Off after the target refused a merged batch, or found batches too large.
        self.merging = not assignment.strikes and not assignment.most_records
        self.most_records = (
            assignment.most_records
        )  # in one batch, after the target found one too large; 0: as many as there are
        self.largest = 0  # records in the largest batch of the open transaction
        self.strikes = assignment.strikes  # refusals in a row that may heal
        self.next_base = -1  # lowest base offset that the target may return next (I9)
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

    def settle(self) -> None:
        """When nothing waits and nothing is in the open transaction, what was skipped is done."""
        if not self.queue and self.sent == self.committed:
            self.sent = self.committed = self.position

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

    def keep(self) -> None:
        """What landed is committed."""
        self.runs += self._landing
        self._landing = []

    def rewind(self) -> None:
        """Forget everything that is not committed; it will be fetched again."""
        self._underway.clear()
        self._landing = []
        self.queue.clear()
        self.queued_bytes = 0
        self.sent = self.position = self.committed
        self.last_epoch = -1
        self.next_base = -1
        self.largest = 0

    def halt(self, stop: Stop) -> None:
        self.rewind()
        self.stop = stop

    @property
    def caught_up(self) -> bool:
        return self.stop is not None or (0 <= self.assignment.until <= self.committed)
