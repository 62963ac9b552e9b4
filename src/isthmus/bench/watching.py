"""What it costs that a busy flow can be watched: lanes' reports, the driver's picture, and somebody who looks at it.

Lanes run in this process (`clocks`); who looks is a process of its own, at the pace of the web page, all the while.
What a page or a terminal makes of it is not counted. Also how long `isthmus status` takes, from the command line to its
answer. What must stay true: the flow is as busy as it can be, or its share would say little.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console

from isthmus.bench.cases import CASES, fill
from isthmus.bench.clocks import Mark, Meter, marking, replaced, stepped, timed
from isthmus.bench.crossing import InThread
from isthmus.engine.driver import Driver
from isthmus.engine.exporter import LOOKS_SHARE, Exporter
from isthmus.engine.follower import Follower
from isthmus.engine.report import Report
from isthmus.engine.scene import Scene
from isthmus.engine.writer import Writer
from isthmus.model import Cluster, Flow, Sync, Topics

BAR_SHARE, BAR_STATUS_S = 0.01, 1.5
PARTS = LANES, DRIVER = "reports of lanes", "the driver's picture"
_COPIES = 2
_EVERY_S = 1.0
_ASKED = 5

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Of all copies together. `looks`: how many pictures were taken meanwhile."""

    busy_s: float
    busy_cpu_s: float
    parts_cpu_s: dict[str, float]
    looker_cpu_s: float
    looks: int
    status_s: list[float]

    @property
    def share(self) -> float:
        return (sum(self.parts_cpu_s.values()) + self.looker_cpu_s) / self.busy_cpu_s

    @property
    def within_bars(self) -> bool:
        return self.share < BAR_SHARE and statistics.median(self.status_s) < BAR_STATUS_S

    def as_json(self) -> dict[str, Any]:
        return {
            "bars": {"share": BAR_SHARE, "status_s": BAR_STATUS_S},
            "within_bars": self.within_bars,
            "busy_s": round(self.busy_s, 2),
            "busy_cpu_s": round(self.busy_cpu_s, 2),
            "share": round(self.share, 5),
            "cpu_s": {name: round(spent, 4) for name, spent in self.parts_cpu_s.items()},
            "looker_cpu_s": round(self.looker_cpu_s, 4),
            "looks": self.looks,
            "status_s": [round(each, 2) for each in self.status_s],
        }


def measure_watching(source: str, target: str, scale: float, say: Say) -> Watched:
    case = CASES["json"]
    say("status: filling the topic")
    fill(source, case, scale)
    flow = Flow(
        source=Cluster(alias="warm", bootstrap=tuple(source.split(","))),
        target=Cluster(alias="west", bootstrap=tuple(target.split(","))),
        topics=Topics(include=(case.topic,)),
        sync=Sync(configs=False),
    )
    asyncio.run(Driver(flow, InThread(), until_caught_up=True).run())
    windows, looked = [], []
    for number in range(_COPIES):
        say(f"status: a copy that is watched, {number + 1} of {_COPIES}")
        turn = replace(flow, source=replace(flow.source, alias=f"watched{number}"))
        window, cpu_s, looks = _copied(turn)
        windows.append(window)
        looked.append((cpu_s, looks))
    say("status: the command, while nothing moves")
    return Watched(
        busy_s=sum(each.wall_s for each in windows),
        busy_cpu_s=sum(each.cpu_s for each in windows),
        parts_cpu_s={part: sum(each.spent_s[part] for each in windows) for part in PARTS},
        looker_cpu_s=sum(cpu_s for cpu_s, _ in looked),
        looks=sum(looks for _, looks in looked),
        status_s=_asked(source, target, case.topic),
    )


def _copied(flow: Flow) -> tuple[Mark, float, int]:
    meter = Meter(PARTS)
    with _clocked(meter), _looker(flow) as looker:
        asyncio.run(Driver(flow, InThread(), until_caught_up=True).run())
        looker.send(None)
        cpu_s, looks = looker.recv()  # between two looks it hears at once
    return meter.window, cpu_s, looks


@contextlib.contextmanager
def _clocked(meter: Meter) -> Iterator[None]:
    with contextlib.ExitStack() as patches:
        for owner, name, instead in (
            (Follower, "report", stepped(meter, LANES, Follower.report)),
            (Report, "news", timed(meter, DRIVER, Report.news)),
            (Scene, "show", timed(meter, DRIVER, Scene.show)),
            (Writer, "write", marking(meter)),
        ):
            patches.enter_context(replaced(owner, name, instead))
        yield


@contextlib.contextmanager
def _looker(flow: Flow) -> Iterator[Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_look, args=(flow, theirs))
    process.start()
    ours.recv()  # it has started: what that costs is no look
    try:
        yield ours
    finally:
        process.join(60)


def _look(flow: Flow, told: Connection) -> None:
    """Until it is told to end; rarer where a look costs more, as the page does it."""
    with Exporter([flow]) as exporter:
        told.send(None)
        told.poll(_EVERY_S)
        exporter.look()  # connects, which is done once
        began, looks = time.process_time(), 0
        while not told.poll(max(_EVERY_S, exporter.spent_s / LOOKS_SHARE)):
            exporter.look()
            looks += 1
        told.send((time.process_time() - began, looks))


def _asked(source: str, target: str, topic: str) -> list[float]:
    """Seconds of `isthmus status`, as a user waits for it."""
    text = (
        f"clusters:\n  watched0: {{bootstrap: '{source}'}}\n  west: {{bootstrap: '{target}'}}\n"
        f"flows:\n  - {{from: watched0, to: west, topics: [{topic}]}}\n"
    )
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        file = Path(folder) / "flow.yaml"
        file.write_text(text)
        return [_seconds([sys.executable, "-m", "isthmus", "status", str(file)]) for _ in range(_ASKED)]


def _seconds(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, capture_output=True, check=False)  # its status tells of the flow
    return time.monotonic() - began


def show(found: Watched, console: Console) -> None:
    console.print(
        f"Watching cost {found.share:.2%} of {found.busy_cpu_s:.1f} CPU-seconds of a busy flow "
        f"({found.looks} looks; bar {BAR_SHARE:.0%}); `isthmus status` answers in "
        f"{statistics.median(found.status_s):.2f} s (median; bar {BAR_STATUS_S} s)"
    )
