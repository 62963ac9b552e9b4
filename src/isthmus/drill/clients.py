"""The clients of a drill: three writers and two consumer groups, which work, stop and move together.

What must stay true: they know clusters by their bootstrap address only, and of each other nothing.
"""

from __future__ import annotations

import time

from isthmus.drill.ledger import Marks, Written, joined, minus
from isthmus.drill.readers import Reader
from isthmus.drill.stage import TOPICS, patiently
from isthmus.drill.timeline import Timeline
from isthmus.drill.writers import Place, TransactionalWriter, Writer

_ORDERS, _PAYMENTS = TOPICS


class Clients:
    """`audit` reads more slowly than is written: it has a backlog whenever it moves."""

    def __init__(self, per_second: int, timeline: Timeline) -> None:
        each = max(10, per_second // 5)
        self.writers: list[Writer] = [
            Writer("shop", _ORDERS, TOPICS[_ORDERS], 2 * each, timeline),
            Writer("web", _ORDERS, TOPICS[_ORDERS], 2 * each, timeline),
            TransactionalWriter("bank", _PAYMENTS, TOPICS[_PAYMENTS], each, timeline),
        ]
        self.readers = [
            Reader("billing", list(TOPICS), timeline),
            Reader("audit", list(TOPICS), timeline, per_second=4 * each),
        ]

    @property
    def everybody(self) -> tuple[Writer | Reader, ...]:
        return (*self.writers, *self.readers)

    @property
    def written(self) -> list[Written]:
        return [writer.written for writer in self.writers]

    def seat(self, place: Place) -> None:
        for reader in self.readers:
            reader.seat(place, TOPICS)

    def are_known(self, place: Place) -> bool:
        """Whether every group has a place in all partitions there."""
        return all(reader.has_places(place, TOPICS) for reader in self.readers)

    def begin(self, place: Place) -> None:
        for client in self.everybody:
            client.begin(place)

    def stop(self, *, gone: bool = False) -> None:
        """All at once, and wait until they have stopped."""
        for client in self.everybody:
            client.stop(gone=gone)
        for client in self.everybody:
            client.join()

    def halt_writers(self) -> None:
        """Writers end; groups read on."""
        for writer in self.writers:
            writer.stop()
        for writer in self.writers:
            writer.join()

    def until_at_work(self) -> float:
        """Wait until each writer was acknowledged something and each group has read something; returns when."""
        everybody = self.everybody
        patiently(lambda: self._fit() and all(each.first_at is not None for each in everybody), "clients are at work")
        return max(each.first_at or 0.0 for each in everybody)

    def work(self, seconds: float) -> None:
        """Let them work for some time."""
        until = time.monotonic() + seconds
        patiently(lambda: self._fit() and time.monotonic() > until, "clients work")

    def until_all_is_read(self, excused: Marks) -> None:
        """No writer may be at work. Groups read on, as fast as they can, until nothing is left but what is excused."""
        for reader in self.readers:
            reader.hurry()
        wanted = minus(self.acknowledged(), excused)
        patiently(lambda: self._fit() and not any(self._unread(each, wanted) for each in self.readers), "all is read")

    def acknowledged(self) -> Marks:
        return joined(marks for written in self.written for marks in written.acknowledged)

    def _unread(self, reader: Reader, wanted: Marks) -> Marks:
        return minus(wanted, reader.trail().all())

    def _fit(self) -> bool:
        for client in self.everybody:
            client.refuse_failed()
        return True
