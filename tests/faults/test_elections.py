"""Unclean elections on the source, with real brokers: the follower that becomes leader never had the newest records,
and others are written at their offsets. What was copied is no longer what the source has: that stops, with its range.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from tests.crossing import Crossing, cross
from tests.integration.sources import KEPT, Pair, admin, codes, forget_clients, numbered, position, values, wait_until
from tests.integration.sources import write as written
from tests.integration.test_resolve import file_of, plain, ranges, resolve, shown
from tests.integration.test_verify import INDEXED, verified
from tests.sparkless import Sparkless

from isthmus.engine.driver import Driver
from isthmus.lab import ClusterSpec, Lab, LabCluster
from isthmus.model import Flow, Transform
from isthmus.observe.status import FlowStatus
from isthmus.wire.fetch import fetch

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CONTROLLER, LEADER, FOLLOWER = 1, 2, 3
PATIENCE_S = 120.0
# Partition 0 changes hands, partition 1 stays with the broker that lives on.
PLACES = [[LEADER, FOLLOWER], [CONTROLLER, LEADER]]
UNCLEAN = KEPT | {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture
def torn() -> Iterator[LabCluster]:
    with Lab([ClusterSpec(name="torn", brokers=3, heap_mb=256)]) as clusters:
        yield clusters["torn"]
    forget_clients()


class Gate:
    """Holds back what lanes ask of the source, as a slow network would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        monkeypatch.setattr("isthmus.engine.fetcher.fetch", self._wait)

    async def _wait(self, *words: Any) -> Any:
        while not self.open.is_set():
            await asyncio.sleep(0.02)
        return await fetch(*words)


class Torn:
    """Two topics of one flow: after the election one is shorter than what was copied, one has grown beyond that."""

    def __init__(self, lab: Lab, torn: LabCluster, folder: Path) -> None:
        self.pair = Pair({"torn": torn, "west": lab["west"]}, "torn")
        self.short, self.grown = f"{self.pair.prefix}-short", f"{self.pair.prefix}-grown"
        self.flow = self.pair.flow(mm2_topics=INDEXED)
        folder.mkdir()
        self.file = file_of(self.pair, folder)
        self.stops = {(self.short, 0): "TRUNCATED", (self.grown, 0): "TRUNCATED"}

    @property
    def topics(self) -> tuple[str, str]:
        return self.short, self.grown

    def create(self) -> None:
        new = [NewTopic(t, num_partitions=2, replica_assignment=PLACES, config=UNCLEAN) for t in self.topics]
        for future in admin(self.pair.source.bootstrap).create_topics(new).values():
            future.result(PATIENCE_S)
        self.write(10, 0)
        self.write(10, 0, partition=1)

    def write(self, count: int, first: int, partition: int = 0, topics: tuple[str, ...] = ()) -> None:
        for topic in topics or self.topics:
            written(self.pair.source.bootstrap, topic, numbered(count, first, partition=partition))

    def regrow(self) -> None:
        """Other records, up to below and up to beyond what was copied."""
        self.write(5, 1000, topics=(self.short,))
        self.write(15, 1000, topics=(self.grown,))
        self.write(5, 10, partition=1)

    def proven(self) -> None:
        """What the source lost stays on the target, what it has now follows; once each."""
        for topic, others in ((self.short, 8), (self.grown, 18)):
            there = values(self.pair.target.bootstrap, self.pair.remote(topic))
            assert there == plain(range(20)) + plain(range(1000, 1000 + others))
            assert values(self.pair.target.bootstrap, self.pair.remote(topic), 1) == plain(range(15))
        proof = verified(self.flow)
        assert proof.equal, proof.different
        assert {(gap.topic, gap.first, gap.past) for gap in proof.gaps} == {(topic, 10, 20) for topic in self.topics}
        record = shown(self.file)
        assert (record["stops"], len(record["decisions"])) == ([], 2)


def test_records_that_an_unclean_election_replaced_stop_the_partition_also_after_a_restart(
    lab: Lab, torn: LabCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, stopped = Torn(lab, torn, tmp_path / "running"), Torn(lab, torn, tmp_path / "stopped")
    changed = Torn(lab, torn, tmp_path / "changed")
    transformed = replace(changed.pair.flow(), transform=Transform(sql="SELECT * FROM records"))
    gate = Gate(monkeypatch)
    for each in (running, stopped, changed):
        each.create()
    with Crossing(running.flow) as crossing:
        behind = frozenset(running.topics)
        torn.kill(FOLLOWER)
        for each in (running, stopped, changed):
            each.write(10, 10)
        cross(stopped.flow)
        assert cross_changing(transformed).stopped == ()
        crossing.until(lambda status: all(position(status, topic) == 20 for topic in behind), PATIENCE_S)
        gate.open.clear()
        elected_uncleanly(torn, [*running.topics, *stopped.topics, *changed.topics])
        for each in (running, stopped, changed):
            each.regrow()
        gate.open.set()

        crossing.until(lambda status: codes(status) == running.stops, PATIENCE_S)
        crossing.until(lambda status: all(position(status, topic, 1) == 15 for topic in behind), PATIENCE_S)
        for topic in running.topics:
            assert ranges(resolve(running.file, topic, "--accept-gap")) == [("TRUNCATED", 10, 20)]
        running.write(3, 1000 + 5, topics=(running.short,))
        running.write(3, 1000 + 15, topics=(running.grown,))
        crossing.until(lambda status: position(status, running.short) == 18, PATIENCE_S)
        crossing.until(lambda status: position(status, running.grown) == 28 and not status.stopped, PATIENCE_S)
    running.proven()

    assert codes(cross_changing(transformed)) == changed.stops
    for topic in changed.topics:
        assert values(changed.pair.target.bootstrap, changed.pair.remote(topic)) == plain(range(20))
        assert values(changed.pair.target.bootstrap, changed.pair.remote(topic), 1) == plain(range(15))

    assert codes(cross(stopped.flow)) == stopped.stops
    assert {each["topic"]: each["lost"] for each in shown(stopped.file)["stops"]} == {
        topic: [10, 20] for topic in stopped.topics
    }
    stopped.write(3, 1000 + 5, topics=(stopped.short,))
    stopped.write(3, 1000 + 15, topics=(stopped.grown,))
    assert codes(cross(stopped.flow)) == stopped.stops, "until somebody decides"
    for topic in stopped.topics:
        assert ranges(resolve(stopped.file, topic, "--accept-gap")) == [("TRUNCATED", 10, 20)]
    assert cross(stopped.flow).stopped == ()
    stopped.proven()


def cross_changing(flow: Flow) -> FlowStatus:
    """As `cross`, of a flow with a transform."""
    return asyncio.run(_cross_changing(flow))


async def _cross_changing(flow: Flow) -> FlowStatus:
    return await Driver(flow, Sparkless(), until_caught_up=True).run()


def elected_uncleanly(torn: LabCluster, topics: list[str]) -> None:
    """The leader dies with records that the follower, which comes back alone, never had."""
    torn.kill(LEADER)
    torn.restart(FOLLOWER)
    wait_until(lambda: all(led_by(torn, topic) == FOLLOWER for topic in topics), "the follower leads", PATIENCE_S)
    forget_clients()  # a producer that knows what is lost would insist on it


def led_by(torn: LabCluster, topic: str) -> int:
    return int(admin(torn.bootstrap).list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions[0].leader)
