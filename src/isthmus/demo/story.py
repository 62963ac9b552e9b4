"""The demo's story, step by step; the command line only shows it.

    lab up -> a realistic mix on the source -> replicate while a producer goes on writing -> kill -9 of a lane's
    Python worker in the middle -> the lane is planned anew -> caught up -> proof by librdkafka

Nothing is staged: the same engine, real brokers, a real kill. The verdict comes from an independent reader.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from isthmus.engine.run import Options, replicate
from isthmus.lab.mix import order, produce_mix
from isthmus.lab.oracle import Verdict, compare
from isthmus.model import Cluster, Flow, Mm2Topics, Topics
from isthmus.observe.status import FlowStatus

PREFIX = "shop"
SOURCE, TARGET = "east", "west"
_LIVE_SECONDS = 10.0
_READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Two running clusters."""

    source: str  # bootstrap servers
    target: str

    def flow(self, lanes: int = 2) -> Flow:
        return Flow(
            source=Cluster(alias=SOURCE, bootstrap=tuple(self.source.split(","))),
            target=Cluster(alias=TARGET, bootstrap=tuple(self.target.split(","))),
            topics=Topics(include=(f"{PREFIX}.*",)),
            lanes=lanes,
            replication_factor=1,
            internal_replication_factor=1,
            # The story is about the shop's topics: nothing else on the table, nothing else to explain.
            mm2_topics=Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=False, checkpoints=False),
        )


class LiveProducer(threading.Thread):
    """Goes on writing orders while replication runs, then leaves the ends of all topics behind."""

    def __init__(self, stage: Stage, per_second: int) -> None:
        super().__init__(daemon=True)
        self.ends: dict[tuple[str, int], int] | None = None
        self.produced = 0
        self._stage = stage
        self._per_second = per_second
        self._begin = threading.Event()

    def begin(self) -> None:
        self._begin.set()

    def run(self) -> None:
        self._begin.wait()
        producer = Producer({"bootstrap.servers": self._stage.source, "compression.type": "lz4", "linger.ms": 20})
        began = time.monotonic()
        while (passed := time.monotonic() - began) < _LIVE_SECONDS:
            while self.produced < passed * self._per_second:
                self._send(producer)
            producer.poll(0.02)
        producer.flush(30)
        self.ends = committed_ends(self._stage.source)

    def _send(self, producer: Producer) -> None:
        content = order(self.produced, None)  # type: ignore[arg-type]
        producer.produce(f"{PREFIX}-orders", content.value, content.key, headers=content.headers)
        self.produced += 1
        if self.produced % 200 == 0:
            producer.poll(0)


def committed_ends(bootstrap: str) -> dict[tuple[str, int], int]:
    """The last stable offset of every partition of the demo's topics, by librdkafka."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = admin.list_topics(timeout=20).topics
    wanted = {
        TopicPartition(name, number): OffsetSpec.latest()
        for name, topic in topics.items()
        if name.startswith(PREFIX)
        for number in topic.partitions
    }
    answers = admin.list_offsets(wanted, isolation_level=_isolation())
    return {(tp.topic, tp.partition): future.result().offset for tp, future in answers.items()}


def _isolation() -> object:
    from confluent_kafka import IsolationLevel

    return IsolationLevel.READ_COMMITTED


class Saboteur:
    """Kills the worker of one lane, once, when part of the work is done."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.killed_pid = 0
        self._say = say

    def watch(self, status: FlowStatus, live: LiveProducer) -> None:
        busy = [lane for lane in status.lanes if lane.pid and lane.records and lane.state == "running"]
        if self.killed_pid or not busy or live.produced < live._per_second * _LIVE_SECONDS / 3:
            return
        victim = max(busy, key=lambda lane: lane.records)
        self.killed_pid = victim.pid
        os.kill(victim.pid, signal.SIGKILL)
        self._say(f"kill -9 {victim.pid}: the Python worker of lane {victim.lane} is gone, in the middle of its work")


def fill(stage: Stage, records: int) -> list[str]:
    return produce_mix(stage.source, PREFIX, records)


def cross(
    stage: Stage, per_second: int, show: Callable[[FlowStatus], None], say: Callable[[str], None], master: str
) -> FlowStatus:
    """Replicate with a live producer and a kill in the middle, until everything is across."""
    live, saboteur = LiveProducer(stage, per_second), Saboteur(say)
    live.start()

    def watch(status: FlowStatus) -> None:
        show(status)
        if status.records:
            live.begin()
        saboteur.watch(status, live)

    def enough(status: FlowStatus) -> bool:
        if live.ends is None or status.state != "running":
            return False
        reached = {(p.topic, p.partition): p.position for p in status.partitions}
        return all(reached.get(tp, -1) >= end for tp, end in live.ends.items())

    return replicate([stage.flow()], Options(master=master, enough=enough), watch)[0]


def prove(stage: Stage, topics: list[str], each: Callable[[Verdict], None]) -> list[Verdict]:
    verdicts = []
    for topic in topics:
        verdict = compare(stage.source, topic, stage.target, f"{SOURCE}.{topic}")
        verdicts.append(verdict)
        each(verdict)
    return verdicts
