"""Kafka's own Java consumers change sides in a switchover while writers write: nothing is read again, nothing missed.

One group goes on by the places that were committed for it on the target, one asks MirrorMaker 2's own
`RemoteClusterUtils` where to go on, as Java clients of MirrorMaker 2 do.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.crossing import Crossing
from tests.integration.grouped import PARTITIONS
from tests.integration.java import JavaReader, kafka_java, told_by_java
from tests.integration.test_failover import OPTIONS as HASTY
from tests.integration.test_failover import Stage

from isthmus.dr.failover import fail_over
from isthmus.dr.values import Step
from isthmus.lab import Lab

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PATIENCE_S = 120.0
OPTIONS = dataclasses.replace(HASTY, quiet_s=3.0)  # longer than a busy machine keeps a writer waiting


class Background:
    """Does something again and again in a thread until it is told to end; an error fails the test."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._work()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise self._error
        time.sleep(0.05)

    def end(self) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self.check()


class Writing:
    """A few hundred records a second, in order within each partition."""

    def __init__(self, bootstrap: str, topic: str, tag: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._topic, self._tag = topic, tag
        self.count = 0

    def some(self) -> None:
        for _ in range(10):
            self._producer.produce(self._topic, f"{self._tag} {self.count}", partition=self.count % PARTITIONS)
            self.count += 1
        assert self._producer.flush(PATIENCE_S) == 0
        time.sleep(0.03)


def until(happened: Callable[[], object], work: Callable[[], None]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "not in time"
        work()


def test_java_consumers_read_every_record_once_over_a_switchover_under_load(lab: Lab) -> None:
    stage = Stage(lab, "default")
    east, west = lab["east"].bootstrap, lab["west"].bootstrap
    moved, asking = f"{stage.group}-moved", f"{stage.group}-asking"
    with kafka_java() as jvm, Crossing(stage.flow) as crossing:
        before = {group: JavaReader(jvm, east, group, anywhere=True) for group in (moved, asking)}
        writing = Writing(east, stage.topic, "east")
        writers = Background(writing.some)
        for reader in before.values():
            reader.subscribe(stage.topic)
        readers = Background(lambda: poll_all(before))
        until(lambda: all(reader.count > 100 for reader in before.values()), readers.check)
        crossing.until(lambda status: status.records > 100, PATIENCE_S)

        # The command waits for writers, then for consumers: each leaves when it is asked to.
        steps: list[Step] = []
        change = threading.Thread(target=fail_over, args=(stage.flow, OPTIONS, steps.append), daemon=True)
        change.start()
        until(lambda: any(step.name == "writers" for step in steps), readers.check)
        writers.end()
        until(lambda: any(step.name == "freeze" for step in steps), readers.check)
        readers.end()
        for reader in before.values():
            reader.close()
        change.join(PATIENCE_S)
        assert any((step.name, step.state) == ("switch", "done") for step in steps), steps

        after = Writing(west, stage.copy, "west")
        for _ in range(5):
            after.some()
        goes_on, seeks = JavaReader(jvm, west, moved), JavaReader(jvm, west, f"{asking}-anew")
        goes_on.subscribe(stage.copy)
        seeks.seek(told_by_java(jvm, west, stage.flow.source.alias, asking))
        for reader in (goes_on, seeks):
            until(lambda: reader.is_at_end(PARTITIONS), reader.poll)  # noqa: B023 - used within this turn only
            reader.close()
    whole = {p: [(value or b"").decode() for value in values] for p, values in stage.values("west").items()}
    assert sum(map(len, whole.values())) == writing.count + after.count
    assert joined(before[moved], goes_on) == whole
    assert joined(before[asking], seeks) == whole


def poll_all(readers: dict[str, JavaReader]) -> None:
    for reader in readers.values():
        reader.poll()


def joined(first: JavaReader, second: JavaReader) -> dict[int, list[Any]]:
    """What both read of each partition, one after the other."""
    return {p: first.read.get(p, []) + second.read.get(p, []) for p in range(PARTITIONS)}
