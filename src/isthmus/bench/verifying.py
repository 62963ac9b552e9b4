"""Comparing both sides: `verify` against a loop in Python over librdkafka, on the same copy, in turn.

Both read everything and compare every record. `verify` runs two tasks in two processes that stand ready, as Spark's
workers do; what Spark adds to a start is no part. The loop is one process, in which librdkafka has threads of its own.
What must stay true: the loop does no more than it needs (hashes of time, key, value and headers, in order), and both
must find the two sides equal.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import psutil
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from isthmus.bench.cases import CASES, fill
from isthmus.bench.crossing import InThread
from isthmus.engine.driver import Driver
from isthmus.engine.verify.proof import Wanted, prove
from isthmus.engine.verify.task import compared
from isthmus.engine.verify.values import Compared, Task
from isthmus.errors import IsthmusError, ProofError
from isthmus.model import Cluster, Flow, Mm2Topics, Sync, Topics

BAR = 3.0
_ROUNDS = 3
_SLOTS = 2
_ALIAS = "verified"
_AT_ONCE = 1_000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Seconds, and CPU-seconds of all processes of ours, of every round."""

    records: int
    verify_s: tuple[float, ...]
    verify_cpu_s: tuple[float, ...]
    loop_s: tuple[float, ...]
    loop_cpu_s: tuple[float, ...]

    @property
    def times(self) -> float:
        """The best round of each counts."""
        return min(self.loop_s) / min(self.verify_s)

    def as_json(self) -> dict[str, Any]:
        return {"bar": BAR, "times_as_fast": round(self.times, 2), "within_bar": self.times >= BAR, **asdict(self)}


def measure_verifying(source: str, target: str, scale: float, say: Say) -> Verified:
    """Fills a topic, copies it, and compares."""
    with ProcessPoolExecutor(_SLOTS, multiprocessing.get_context("fork")) as workers:
        list(workers.map(time.sleep, [0.5] * _SLOTS))  # both are there before any client has threads
        return _measure(source, target, scale, say, workers)


def _measure(source: str, target: str, scale: float, say: Say, workers: ProcessPoolExecutor) -> Verified:
    case = CASES["json"]
    say("verify: filling and copying the topic")
    filled = fill(source, case, scale)
    flow = _flow(source, target, case.topic)
    asyncio.run(Driver(flow, InThread(), until_caught_up=True).run())
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    for number in range(_ROUNDS):
        say(f"verify: round {number + 1}")
        ours.append(_timed(lambda: _by_verify(flow, workers)))
        theirs.append(_timed(lambda: _by_loop(source, target, case.topic, case.partitions)))
    return Verified(
        records=filled.records,
        verify_s=tuple(seconds for seconds, _ in ours),
        verify_cpu_s=tuple(cpu for _, cpu in ours),
        loop_s=tuple(seconds for seconds, _ in theirs),
        loop_cpu_s=tuple(cpu for _, cpu in theirs),
    )


def _flow(source: str, target: str, topic: str) -> Flow:
    return Flow(
        source=Cluster(alias=_ALIAS, bootstrap=tuple(source.split(","))),
        target=Cluster(alias="west", bootstrap=tuple(target.split(","))),
        topics=Topics(include=(topic,)),
        replication_factor=1,
        internal_replication_factor=1,
        sync=Sync(configs=False),
        mm2_topics=Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=False, checkpoints=False),
    )


def _timed(work: Callable[[], None]) -> tuple[float, float]:
    began, cpu = time.monotonic(), _cpu_s()
    work()
    return round(time.monotonic() - began, 2), round(_cpu_s() - cpu, 2)


def _cpu_s() -> float:
    """Of this process and the workers."""
    children = [child for child in psutil.Process().children() if child.name() != "java"]
    return time.process_time() + sum(sum(child.cpu_times()[:2]) for child in children)


class _InProcesses:
    """An Examiner whose executors are processes."""

    def __init__(self, workers: ProcessPoolExecutor) -> None:
        self._workers = workers

    async def run(self, task: Task) -> list[Compared]:
        found = await asyncio.get_running_loop().run_in_executor(self._workers, compared, task)
        if isinstance(found, IsthmusError):
            raise found
        return found


def _by_verify(flow: Flow, workers: ProcessPoolExecutor) -> None:
    if not asyncio.run(prove(flow, _InProcesses(workers), Wanted(slots=_SLOTS))).equal:
        raise ProofError("verify does not find the two sides equal")


def _by_loop(source: str, target: str, topic: str, partitions: int) -> None:
    if _hashes(source, topic, partitions) != _hashes(target, f"{_ALIAS}.{topic}", partitions):
        raise ProofError("the loop does not find the two sides equal")


def _hashes(bootstrap: str, topic: str, partitions: int) -> list[list[int]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 2}
    # By default it rests for a second whenever its queue is full: that would not be the loop's fault.
    brisk = {"fetch.queue.backoff.ms": 5, "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer(settings | brisk)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[list[int]] = [[] for _ in range(partitions)]
    ended = 0
    while ended < partitions:
        for message in consumer.consume(_AT_ONCE, 1.0):
            if message.error():
                ended += 1
                continue
            headers = tuple(message.headers() or ())
            record = message.timestamp()[1], message.key(), message.value(), headers
            found[message.partition() or 0].append(hash(record))
    consumer.close()
    return found


def show(found: Verified, console: Console) -> None:
    table = Table(title=f"comparing {found.records:,} records on both sides")
    table.add_column("")
    for name in ("seconds, by round", "CPU-seconds"):
        table.add_column(name, justify="right")
    rows = {
        "verify, two processes": (found.verify_s, found.verify_cpu_s),
        "a loop over librdkafka": (found.loop_s, found.loop_cpu_s),
    }
    for label, (seconds, cpu) in rows.items():
        table.add_row(label, ", ".join(map(str, seconds)), ", ".join(map(str, cpu)))
    console.print(table)
    console.print(f"{found.times:.1f} times as fast; bar: {BAR:.0f}: {'kept' if found.times >= BAR else 'NOT kept'}")
