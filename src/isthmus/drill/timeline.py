"""What happened when: events, phases, and how many records were written and read in each quarter of a second.

Times are seconds since the drill began. Writers and readers count from threads of their own. What must stay true:
memory grows with the length of the drill, not with its records. Showing it is left to `picture` and the command line.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

BUCKET_S = 0.25
WRITES, READS = "writes", "reads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the story."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the story: clients at work, or on their way to the other cluster."""

    name: str
    kind: str  # "work" | "move"
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Series:
    """Who does what where: one line of the picture."""

    kind: str  # WRITES | READS
    cluster: str
    who: str


class Timeline:
    """Filled while the drill runs; read when it is over."""

    def __init__(self, tell: Callable[[Event], None] = lambda _: None) -> None:
        self.events: list[Event] = []
        self.phases: list[Phase] = []
        self._began, self._began_wall = time.monotonic(), time.time()
        self._tell = tell
        self._counts: Counter[tuple[Series, int]] = Counter()
        self._lock = threading.Lock()

    def now(self) -> float:
        return time.monotonic() - self._began

    def wall_ms(self, at: float) -> int:
        """A time of the drill as clusters know it."""
        return int((self._began_wall + at) * 1000)

    def say(self, text: str) -> Event:
        event = Event(at=self.now(), text=text)
        self.events.append(event)
        self._tell(event)
        return event

    @contextmanager
    def phase(self, name: str, kind: str) -> Iterator[None]:
        """A phase that failed is not one: its end would be made up."""
        began = self.now()
        yield
        self.phases.append(Phase(name=name, kind=kind, began=began, ended=self.now()))

    def count(self, series: Series, records: int) -> None:
        with self._lock:
            self._counts[series, int(self.now() / BUCKET_S)] += records

    def rates(self) -> dict[Series, list[tuple[float, float]]]:
        """Of each series: (time, records per second), for every bucket between its first and its last."""
        with self._lock:
            counts = dict(self._counts)
        spans: dict[Series, list[int]] = {}
        for series, bucket in counts:
            spans.setdefault(series, []).append(bucket)
        return {
            series: [
                (bucket * BUCKET_S, counts.get((series, bucket), 0) / BUCKET_S)
                for bucket in range(min(buckets), max(buckets) + 1)
            ]
            for series, buckets in spans.items()
        }
