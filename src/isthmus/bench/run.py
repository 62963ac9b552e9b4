"""A bench run: fill the source, let every system copy it in turn, and gather what was measured.

What must stay true: one system runs at a time, on the same two clusters, from the same topics, onto
a target without any topic of an earlier run, each under a source alias of its own; no copy counts
before a reader found every record on the target. Replicators and brokers never outlive the bench.
What is measured, and how, is said where it is done: `watch`, `measure`, `latency`, `limit`.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from isthmus.bench import mirrormaker, ours
from isthmus.bench.cases import CASES, LATENCY_PARTITIONS, Case, Filled, create_topic, fill
from isthmus.bench.crossing import Crossing
from isthmus.bench.latency import Latency, measure_latency
from isthmus.bench.limit import Half, Limit, measure_limit
from isthmus.bench.measure import TreeMeter
from isthmus.bench.results import (
    LIMIT,
    OURS,
    THEIRS,
    THEIRS_AT_LEAST_ONCE,
    BenchResult,
    CaseResult,
    Crossed,
    best_of,
)
from isthmus.bench.warm import warm_up
from isthmus.bench.watch import ASK_EVERY_S, TargetWatch, delete_all, stored_bytes
from isthmus.errors import TargetError
from isthmus.lab.guard import Guard
from isthmus.lab.jars import KAFKA

START_S = 90.0  # until the first commit
STALL_S = 60.0  # without a commit, before everything arrived
QUIET_S = 1.5  # without a commit: time to count whether all is there
END_S = 30.0
MOSTLY = 0.8  # a first commit with more than this leaves no steady state to speak of

Say = Callable[[str], None]
COMMANDS: dict[str, Callable[[Crossing, Path], list[str]]] = {
    OURS: ours.command,
    THEIRS: lambda crossing, folder: mirrormaker.command(crossing, folder, exactly_once=True),
    THEIRS_AT_LEAST_ONCE: lambda crossing, folder: mirrormaker.command(crossing, folder, exactly_once=False),
}
SYSTEMS = (*COMMANDS, LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run. Latency, and what runs `once`, belong to the first case only."""

    scale: float
    cases: tuple[str, ...]
    systems: tuple[str, ...]
    latency_seconds: float
    logs: Path
    rounds: int = 1  # every second one in the opposite order: brokers get faster as they run
    once: tuple[str, ...] = (THEIRS_AT_LEAST_ONCE,)


def run(plan: Plan, source: str, target: str, say: Say) -> BenchResult:
    """Measure everything in the plan on two running clusters with one broker each."""
    told = machine()
    results = []
    for number, name in enumerate(plan.cases):
        chosen = tuple(each for each in plan.systems if number == 0 or each not in plan.once)
        seconds = plan.latency_seconds if number == 0 else 0.0
        with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
            bench = CaseBench(source, target, Path(folder), plan, say)
            results.append(bench.run(CASES[name], chosen, seconds, cold=number == 0))
    return BenchResult(scale=plan.scale, machine=told, cases=tuple(results))


def machine() -> dict[str, str | int | float]:
    return {
        "cores": os.cpu_count() or 0,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_1m": round(os.getloadavg()[0], 2),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "kafka": KAFKA,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def write_found(name: str, found: Mapping[str, Any], folder: Path) -> Path:
    """<name>.json: what was found, on which machine, under which load."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"machine": machine(), **found}, indent=2) + "\n")
    return file


@dataclass(frozen=True, slots=True)
class CaseBench:
    """One case, all systems."""

    source: str
    target: str
    folder: Path
    plan: Plan
    say: Say

    def run(self, case: Case, systems: tuple[str, ...], latency_seconds: float, *, cold: bool) -> CaseResult:
        self.say(f"{case.name}: filling the source")
        filled = fill(self.source, case, self.plan.scale)
        if cold:
            self.say("warming the brokers")
            warm_up(self.source, case, self.target)
        chosen = [system for system in systems if system in COMMANDS]
        rounds: dict[str, list[Crossed]] = {system: [] for system in chosen}
        for number in range(self.plan.rounds):
            for system in chosen if number % 2 == 0 else reversed(chosen):
                self.say(f"{case.name}: {system}, round {number + 1} of {self.plan.rounds}")
                rounds[system].append(self.cross(system, number, filled, latency_seconds))
        self.say(f"{case.name}: the limit")
        limit = self._limit(filled) if LIMIT in systems else None
        stored = stored_bytes(self.source, case.topic)
        return CaseResult(
            source=filled,
            source_stored_bytes=stored,
            crossed=tuple(best_of(each) for each in rounds.values()),
            rounds=tuple(one for each in rounds.values() for one in each),
            limit=limit,
        )

    def cross(self, system: str, number: int, filled: Filled, latency_seconds: float) -> Crossed:
        """One system, until as many records as `filled` says are on the target."""
        crossing = Crossing(
            source=self.source,
            target=self.target,
            source_alias=f"{system.replace('-', '')}{number}",
            topics=(filled.case.topic, *self._latency_topics(f"{system}-{number}", latency_seconds)),
        )
        delete_all(self.target)
        began = time.monotonic()
        log = self.plan.logs / f"{filled.case.name}-{system}.log"
        with _running(COMMANDS[system](crossing, self.folder), log) as child:
            meter = TreeMeter(child.pid)
            try:
                watch = self._watch(child, crossing, filled, log)
                finished = _evaluate(system, filled, watch, meter, began)
                latency = self._latency(crossing, latency_seconds)
            finally:
                meter.close()
        stored = stored_bytes(self.target, watch.topic)
        return replace(finished, peak_bytes=meter.peak_bytes, stored_bytes=stored, latency=latency)

    def _watch(self, child: subprocess.Popen[bytes], crossing: Crossing, filled: Filled, log: Path) -> TargetWatch:
        """Watch the target until every record is there."""
        case = filled.case
        watch = TargetWatch(self.target, crossing.replica(case.topic), case.partitions)
        deadline = time.monotonic() + START_S
        while True:
            total = watch.ask()
            if watch.steps:
                deadline = watch.steps[-1][0] + STALL_S
            if total >= filled.records and watch.quiet_s > QUIET_S and watch.count() >= filled.records:
                return watch
            if not _alive(child.pid) or time.monotonic() > deadline:
                raise _failed(crossing, total, filled, log)
            time.sleep(ASK_EVERY_S)

    def _latency_topics(self, name: str, seconds: float) -> tuple[str, ...]:
        """None, or a new one: what an earlier system was asked to copy would delay this one."""
        if not seconds:
            return ()
        topic = f"bench-latency-{name}"
        create_topic(self.source, topic, LATENCY_PARTITIONS)
        return (topic,)

    def _latency(self, crossing: Crossing, seconds: float) -> Latency | None:
        _, *latency_topics = crossing.topics
        if not latency_topics:
            return None
        (topic,) = latency_topics
        return measure_latency(self.source, topic, self.target, crossing.replica(topic), seconds)

    def _limit(self, filled: Filled) -> Limit:
        case = filled.case
        delete_all(self.target)
        create_topic(self.target, case.topic, case.partitions)
        ends = dict.fromkeys(range(case.partitions), filled.records // case.partitions)
        half = Half(source=self.source, target=self.target, topic=case.topic, replica=case.topic, ends=ends)
        return measure_limit(half)


def _evaluate(system: str, filled: Filled, watch: TargetWatch, meter: TreeMeter, began: float) -> Crossed:
    """Steady-state figures, from the steps that the watch saw."""
    (first, at_first), (last, at_last) = watch.steps[0], watch.steps[-1]
    share, seconds = 1 - at_first / at_last, last - first
    long_enough = share > 1 - MOSTLY and seconds > 2 * ASK_EVERY_S
    gigabytes = filled.bytes * share / 1e9
    cpu_s = meter.cpu_s(last) - meter.cpu_s(first)
    return Crossed(
        system=system,
        case=filled.case.name,
        first_commit_s=first - began,
        steady_s=seconds,
        records_per_s=filled.records * share / seconds if long_enough else None,
        mb_per_s=gigabytes * 1000 / seconds if long_enough else None,
        cpu_s_per_gb=cpu_s / gigabytes if long_enough else None,
        cpu_s=meter.cpu_s(last),
        peak_bytes=0,
        stored_bytes=0,
    )


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The replicator, asked to end in good order afterwards, and ended in any case."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    guard = Guard(Path(tempfile.mkdtemp(prefix="isthmus-bench-")))
    try:
        child = guard.spawn(command, log=log)
        yield child
        os.kill(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + END_S
        while _alive(child.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        guard.close()


def _alive(pid: int) -> bool:
    """Without waiting for it: the guard must still know the number as the child's."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def _failed(crossing: Crossing, total: int, filled: Filled, log: Path) -> TargetError:
    lines = log.read_text(errors="replace").splitlines()[-5:]
    return TargetError(
        f"{crossing.source_alias} did not copy {filled.case.topic}: at {total:,} of {filled.records:,}. "
        f"Its last words: {' / '.join(lines)}",
        where=str(log),
        code="BENCH",
    )
