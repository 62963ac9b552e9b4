"""Clocks around parts of a busy flow, whose lanes run in this process: what each of them costs of all CPU-seconds.

A start and an end cost the same however long a flow runs: only the stretch between the first tenth of a copy and its
last transaction counts. What must stay true: what the clocks cost themselves is found out first and left out.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from isthmus.engine.writer import Writer

_WARM = 0.1  # of the bytes of a copy
_READINGS = 10_001


class Mark(NamedTuple):
    """What was done and used when a transaction was committed, or between two of them."""

    bytes: int
    wall_s: float
    cpu_s: float
    spent_s: dict[str, float]  # by part


@dataclass(slots=True)
class Meter:
    """CPU-seconds of some work so far, by part, and a mark for each transaction."""

    parts: tuple[str, ...]
    spent: dict[str, float] = field(init=False)
    marks: list[Mark] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spent = dict.fromkeys(self.parts, 0.0)

    def mark(self, total_bytes: int) -> None:
        self.marks.append(Mark(total_bytes, time.monotonic(), time.process_time(), dict(self.spent)))

    @property
    def window(self) -> Mark:
        """What the steady part of the copy did and used."""
        last = self.marks[-1]
        first = next(mark for mark in self.marks if mark.bytes >= _WARM * last.bytes)
        parts = {part: last.spent_s[part] - first.spent_s[part] for part in self.parts}
        return Mark(last.bytes - first.bytes, last.wall_s - first.wall_s, last.cpu_s - first.cpu_s, parts)


@contextlib.contextmanager
def replaced(owner: type, name: str, instead: object) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, instead)
    try:
        yield
    finally:
        setattr(owner, name, before)


def timed(meter: Meter, part: str, function: Any) -> Callable[..., Any]:
    unread = _clock_s()

    def clocked(*words: Any, **more: Any) -> Any:
        began = time.thread_time()
        try:
            return function(*words, **more)
        finally:
            meter.spent[part] += time.thread_time() - began - unread

    return clocked


@functools.cache
def _clock_s() -> float:
    """What a clock shows around nothing."""
    shown = []
    for _ in range(_READINGS):
        began = time.thread_time()
        shown.append(time.thread_time() - began)
    return statistics.median(shown)


def stepped(meter: Meter, part: str, function: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    async def walked(*words: Any, **more: Any) -> Any:
        return await _Steps(meter, part, function(*words, **more))

    return walked


class _Steps:
    """Awaits something, with the clock on while it computes and off while it waits."""

    def __init__(self, meter: Meter, part: str, work: Awaitable[Any]) -> None:
        self._meter = meter
        self._part = part
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._work.__await__()
        step = steps.__next__
        while True:
            try:
                waiting = timed(self._meter, self._part, step)()
            except StopIteration as end:
                return end.value
            try:
                yield waiting
                step = steps.__next__
            except BaseException as error:  # noqa: BLE001 - a cancellation is handed on to the work
                step = functools.partial(steps.throw, error)


def marking(meter: Meter) -> Callable[..., Any]:
    write = Writer.write

    async def marked(self: Writer, *words: Any) -> None:
        await write(self, *words)
        meter.mark(self.tally.bytes)

    return marked
