"""What the index of offsets costs a busy flow: its share of the CPU while records pass at full speed, and of the bytes.

Lanes run in this process, without Spark, so that CPU can be counted to the percent (`clocks`). Two ways:

    share        CPU-seconds within the index's own work, by the clock of its thread, of all that the process used
    difference   CPU-seconds per GB with the index and without it, in turn: side effects are in it, and all the noise of
                 the machine, so every try is told

The index works once a second and its followers every other second, however little passes: of a flow that gets a small
part of a core, as on a machine that others use, they are a larger share. So the seconds that passed are told, too.

What must stay true: with and without the index the same topic is copied by the same code.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from isthmus.bench.clocks import Mark, Meter, marking, replaced, stepped, timed
from isthmus.bench.crossing import InThread
from isthmus.engine.driver import Driver
from isthmus.engine.offsets.keeper import GroupKeeper
from isthmus.engine.offsets.runlog import RunLog
from isthmus.engine.packing import Packed
from isthmus.engine.track import Track
from isthmus.engine.writer import Writer
from isthmus.model import Flow, Mm2Topics

TRIES = 6
_GB = 1e9

PARTS = NOTING, KEEPING, FOLLOWING = "noting runs", "putting them on record", "following them in the driver"

Say = Callable[[str], None]


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
        index_cpu_s={part: sum(window.spent_s[part] for window in windows) for part in PARTS},
        cpu_s_per_gb_with=[_per_gb(window) for window in windows],
        cpu_s_per_gb_without=[_per_gb(meter.window) for meter in plain],
    )


def _per_gb(window: Mark) -> float:
    return window.cpu_s / window.bytes * _GB


def _copied(flow: Flow) -> Meter:
    meter = Meter(PARTS)
    with _watched(meter):
        asyncio.run(Driver(flow, InThread(), until_caught_up=True).run())
    return meter


# ---- clocks ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _watched(meter: Meter) -> Iterator[None]:
    """Clocks around all that the index does; what records need without it has none."""
    runs = property(timed(meter, NOTING, vars(Packed)["runs"].fget))
    with contextlib.ExitStack() as patches:
        for owner, name, instead in (
            (Packed, "runs", runs),
            (Track, "send", timed(meter, NOTING, Track.send)),
            (Track, "land", timed(meter, NOTING, Track.land)),
            (RunLog, "flush", stepped(meter, KEEPING, RunLog.flush)),
            (GroupKeeper, "round", stepped(meter, FOLLOWING, GroupKeeper.round)),
            (Writer, "write", marking(meter)),
        ):
            patches.enter_context(replaced(owner, name, instead))
        yield
