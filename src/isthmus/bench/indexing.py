"""What the index of offsets costs a busy flow: its share of the CPU while records pass at full speed, and of the bytes.

Lanes run in this process, without Spark, so that CPU can be counted to the percent. A start and an end cost the same
however long a flow runs: only the stretch between the first tenth of a copy and its last transaction counts. Two ways:

    share        CPU-seconds within the index's own work, by the clock of its thread, of all that the process used
    difference   CPU-seconds per GB with the index and without it, in turn: side effects are in it, and all the noise of
                 the machine, so every try is told

The index works once a second and its followers every other second, however little passes: of a flow that gets a small
part of a core, as on a machine that others use, they are a larger share. So the seconds that passed are told, too.

What must stay true: with and without the index the same topic is copied by the same code; what the clocks cost
themselves is found out first and left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import statistics
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from isthmus.bench.crossing import InThread
from isthmus.engine.driver import Driver
from isthmus.engine.offsets.keeper import GroupKeeper
from isthmus.engine.offsets.runlog import RunLog
from isthmus.engine.packing import Packed
from isthmus.engine.track import Track
from isthmus.engine.writer import Writer
from isthmus.model import Flow, Mm2Topics

TRIES = 6
_WARM = 0.1  # of the bytes of a copy
_GB = 1e9
_READINGS = 10_001

PARTS = NOTING, KEEPING, FOLLOWING = "noting runs", "putting them on record", "following them in the driver"

Say = Callable[[str], None]


class Mark(NamedTuple):
    """What was done and used when a transaction was committed, or between two of them."""

    bytes: int
    wall_s: float
    cpu_s: float
    index_cpu_s: dict[str, float]  # by part


@dataclass(slots=True)
class Meter:
    """CPU-seconds of the index's work so far, by part, and a mark for each transaction."""

    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    marks: list[Mark] = field(default_factory=list)

    def mark(self, total_bytes: int) -> None:
        self.marks.append(Mark(total_bytes, time.monotonic(), time.process_time(), dict(self.spent)))

    @property
    def window(self) -> Mark:
        """What the steady part of the copy did and used."""
        last = self.marks[-1]
        first = next(mark for mark in self.marks if mark.bytes >= _WARM * last.bytes)
        parts = {part: last.index_cpu_s[part] - first.index_cpu_s[part] for part in PARTS}
        return Mark(last.bytes - first.bytes, last.wall_s - first.wall_s, last.cpu_s - first.cpu_s, parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCost:
    """Of all tries together, but for the lists."""

    busy_s: float
    busy_cpu_s: float
    index_cpu_s: dict[str, float]  # by part
    cpu_s_per_gb_with: list[float]
    cpu_s_per_gb_without: list[float]

    @property
    def share(self) -> float:
        return sum(self.index_cpu_s.values()) / self.busy_cpu_s

    @property
    def difference(self) -> float:
        """By the medians."""
        return statistics.median(self.cpu_s_per_gb_with) / statistics.median(self.cpu_s_per_gb_without) - 1

    def as_json(self) -> dict[str, Any]:
        return {
            "busy_s": round(self.busy_s, 2),
            "busy_cpu_s": round(self.busy_cpu_s, 2),
            "share": round(self.share, 5),
            "cpu_s": {name: round(spent, 4) for name, spent in self.index_cpu_s.items()},
            "cpu_s_per_gb_with": [round(each, 3) for each in self.cpu_s_per_gb_with],
            "cpu_s_per_gb_without": [round(each, 3) for each in self.cpu_s_per_gb_without],
            "difference_of_medians": round(self.difference, 4),
        }


def index_cost(flow: Flow, say: Say) -> IndexCost:
    """Copies the topics of the flow again and again, under other aliases; the first copy is the flow's own."""
    plain = Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=False, checkpoints=False)
    meters: dict[str, list[Meter]] = {"with": [], "without": []}
    for number in range(TRIES):
        # With and without, without and with: neither is always the first.
        for name, kept in (("with", flow.mm2_topics), ("without", plain))[:: -1 if number % 2 else 1]:
            say(f"groups: a copy {name} the index, {number + 1} of {TRIES}")
            alias = flow.source.alias if name == "with" and number == 0 else f"{name}{number}"
            turn = replace(flow, source=replace(flow.source, alias=alias), mm2_topics=kept)
            meters[name].append(_copied(turn))
    return _summed(meters["with"], meters["without"])


def _summed(indexed: list[Meter], plain: list[Meter]) -> IndexCost:
    windows = [meter.window for meter in indexed]
    return IndexCost(
        busy_s=sum(window.wall_s for window in windows),
        busy_cpu_s=sum(window.cpu_s for window in windows),
        index_cpu_s={part: sum(window.index_cpu_s[part] for window in windows) for part in PARTS},
        cpu_s_per_gb_with=[_per_gb(window) for window in windows],
        cpu_s_per_gb_without=[_per_gb(meter.window) for meter in plain],
    )


def _per_gb(window: Mark) -> float:
    return window.cpu_s / window.bytes * _GB


def _copied(flow: Flow) -> Meter:
    meter = Meter()
    with _watched(meter):
        asyncio.run(Driver(flow, InThread(), until_caught_up=True).run())
    return meter


# ---- clocks ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _watched(meter: Meter) -> Iterator[None]:
    """Clocks around all that the index does; what records need without it has none."""
    runs = property(_timed(meter, NOTING, vars(Packed)["runs"].fget))
    with contextlib.ExitStack() as patches:
        for owner, name, instead in (
            (Packed, "runs", runs),
            (Track, "send", _timed(meter, NOTING, Track.send)),
            (Track, "land", _timed(meter, NOTING, Track.land)),
            (RunLog, "flush", _stepped(meter, KEEPING, RunLog.flush)),
            (GroupKeeper, "round", _stepped(meter, FOLLOWING, GroupKeeper.round)),
            (Writer, "write", _marking(meter)),
        ):
            patches.enter_context(_replaced(owner, name, instead))
        yield


@contextlib.contextmanager
def _replaced(owner: type, name: str, instead: object) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, instead)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _timed(meter: Meter, part: str, function: Any) -> Callable[..., Any]:
    unread = _clock_s()

    def timed(*words: Any) -> Any:
        began = time.thread_time()
        try:
            return function(*words)
        finally:
            meter.spent[part] += time.thread_time() - began - unread

    return timed


@functools.cache
def _clock_s() -> float:
    """What a clock shows around nothing."""
    shown = []
    for _ in range(_READINGS):
        began = time.thread_time()
        shown.append(time.thread_time() - began)
    return statistics.median(shown)


def _stepped(meter: Meter, part: str, function: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    async def stepped(*words: Any, **more: Any) -> Any:
        return await _Steps(meter, part, function(*words, **more))

    return stepped


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
                waiting = _timed(self._meter, self._part, step)()
            except StopIteration as end:
                return end.value
            try:
                yield waiting
                step = steps.__next__
            except BaseException as error:  # noqa: BLE001 - a cancellation is handed on to the work
                step = functools.partial(steps.throw, error)


def _marking(meter: Meter) -> Callable[..., Any]:
    write = Writer.write

    async def marking(self: Writer, *words: Any) -> None:
        await write(self, *words)
        meter.mark(self.tally.bytes)

    return marking
