"""Clusters change while a flow runs, or while it is down: topics come, grow, go and come back under their old name,
retention overtakes, brokers die. What can go on goes on exactly; what cannot stops loudly, alone, with its reason.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from tests.crossing import Crossing, InThread, cross
from tests.integration.sources import (
    Pair,
    Stream,
    add_partitions,
    admin,
    codes,
    delete_before,
    forget_clients,
    partition_count,
    position,
    read,
    values,
    wait_until,
)

from isthmus.engine import survey
from isthmus.engine.driver import Driver
from isthmus.engine.orders import Order, Receipt
from isthmus.errors import WireError
from isthmus.lab import ClusterSpec, Lab, LabCluster
from isthmus.model import Naming
from isthmus.observe.status import FlowStatus
from isthmus.wire.admin import grow_topic
from isthmus.wire.cluster import Client

pytestmark = pytest.mark.integration


# ---- while it runs -----------------------------------------------------------------------------


def test_a_topic_that_is_made_while_a_flow_runs_joins_it(pair: Pair) -> None:
    first = pair.topic("first")
    pair.write(first, 10)
    with Crossing(pair.flow()) as crossing:
        crossing.until_copied(10)
        second = pair.topic("second", partitions=3)
        pair.write(second, 30, partitions=3)
        pair.write(first, 10, first=10)
        crossing.until_copied(50)
    pair.proven(first, 20)
    pair.proven(second, 30)


def test_partitions_that_are_added_join_and_the_target_grows(pair: Pair) -> None:
    topic = pair.topic("grows")
    pair.write(topic, 10)
    with Crossing(pair.flow()) as crossing:
        crossing.until_copied(10)
        add_partitions(pair.source.bootstrap, topic, 4)
        pair.write(topic, 40, first=10, partitions=4)
        crossing.until_copied(50)
    assert partition_count(pair.target.bootstrap, pair.remote(topic)) == 4
    pair.proven(topic, 50)


def test_partitions_that_were_added_while_it_was_down_join_too(pair: Pair) -> None:
    topic = pair.topic("grows")
    pair.write(topic, 10)
    cross(pair.flow())
    add_partitions(pair.source.bootstrap, topic, 3)
    pair.write(topic, 30, first=10, partitions=3)
    assert cross(pair.flow()).stopped == ()
    pair.proven(topic, 40)


def test_partitions_that_the_target_shows_late_are_waited_for(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker answers with its metadata of a moment ago: a run that ends when caught up must not leave them out."""
    topic = pair.topic("late")
    pair.write(topic, 10)
    cross(pair.flow())
    add_partitions(pair.source.bootstrap, topic, 3)
    pair.write(topic, 30, first=10, partitions=3)
    fresh, grown_at = Client.refresh, list[float]()

    async def grow(client: Client, name: str, partitions: int) -> None:
        await grow_topic(client, name, partitions)
        grown_at.append(time.monotonic())

    async def late(self: Client, topics: Iterable[str] | None = None) -> None:
        if self.cluster.alias != "west" or not grown_at or time.monotonic() > grown_at[0] + 1:
            await fresh(self, topics)

    monkeypatch.setattr(survey, "grow_topic", grow)
    monkeypatch.setattr(Client, "refresh", late)
    assert cross(pair.flow()).stopped == ()
    assert grown_at
    pair.proven(topic, 40)


def test_a_deleted_topic_is_reported_and_the_others_go_on(pair: Pair) -> None:
    going, staying = pair.topic("going", partitions=2), pair.topic("staying")
    pair.write(going, 20, partitions=2)
    pair.write(staying, 10)
    with Crossing(pair.flow()) as crossing:
        crossing.until_copied(30)
        pair.source.delete_topic(going)
        crossing.until(lambda status: _is_reported_gone(status, going))
        pair.write(staying, 100, first=10)
        crossing.until(lambda status: position(status, staying) == 110)
    pair.proven(staying, 110)
    assert len(read(pair.target.bootstrap, pair.remote(going))) == 20, "what was copied stays"


def _is_reported_gone(status: FlowStatus, topic: str) -> bool:
    return any(stop.topic == topic and stop.code == "SOURCE_GONE" for stop in status.stopped) or any(
        topic in event and "gone" in event for event in status.events
    )


def test_a_topic_recreated_while_it_runs_is_not_continued(pair: Pair) -> None:
    anew, staying = pair.topic("anew"), pair.topic("staying")
    pair.write(anew, 10)
    pair.write(staying, 10)
    with Crossing(pair.flow()) as crossing:
        crossing.until_copied(20)
        pair.recreate(pair.source, anew)
        pair.write(anew, 50, first=1_000)
        crossing.until(lambda status: codes(status).get((anew, 0)) in ("SOURCE_RECREATED", "SOURCE_GONE"))
        pair.write(staying, 10, first=10)
        crossing.until(lambda status: position(status, staying) == 20)
    pair.proven(staying, 20)
    assert values(pair.target.bootstrap, pair.remote(anew)) == [b"v%d" % n for n in range(10)]


def test_a_target_topic_deleted_while_it_runs_stops_alone(pair: Pair) -> None:
    going, staying = pair.topic("going"), pair.topic("staying")
    pair.write(going, 10)
    pair.write(staying, 10)
    with Crossing(pair.flow()) as crossing:
        crossing.until_copied(20)
        pair.target.delete_topic(pair.remote(going))
        pair.write(going, 10, first=10)
        crossing.until(lambda status: (going, 0) in codes(status))
        pair.write(staying, 10, first=10)
        crossing.until(lambda status: position(status, staying) == 20)
    pair.proven(staying, 20)
    assert crossing.final is not None
    assert codes(crossing.final) == {(going, 0): "TARGET_RECREATED"}


def test_a_restart_in_the_middle_of_a_stream_neither_loses_nor_doubles(pair: Pair) -> None:
    topic = pair.topic("stream", partitions=3)
    with Stream(pair.source.bootstrap, topic, partitions=3) as stream:
        for _ in range(3):
            with Crossing(pair.flow()) as crossing:
                crossing.until_copied(150)
    assert cross(pair.flow()).stopped == ()
    pair.proven(topic, stream.written)


# ---- while it is down --------------------------------------------------------------------------


def test_a_source_topic_made_anew_stops_loudly_and_the_others_go_on(pair: Pair) -> None:
    anew, staying = pair.topic("anew"), pair.topic("staying")
    pair.write(anew, 10)
    pair.write(staying, 10)
    cross(pair.flow())
    pair.recreate(pair.source, anew)
    pair.write(anew, 50, first=1_000)
    pair.write(staying, 10, first=10)
    status = cross(pair.flow())
    assert codes(status) == {(anew, 0): "SOURCE_RECREATED"}
    assert "--forget" in status.stopped[0].error
    pair.proven(staying, 20)
    assert values(pair.target.bootstrap, pair.remote(anew)) == [b"v%d" % n for n in range(10)]


def test_another_name_for_a_copy_stops_loudly_and_half_a_copy_is_never_made(pair: Pair) -> None:
    topic = pair.topic("named")
    pair.write(topic, 10)
    cross(pair.flow())
    pair.write(topic, 10, first=10)
    renamed = replace(pair.flow(), naming=Naming(policy="rename", suffix=".copy"))
    status = cross(renamed)
    assert codes(status) == {(topic, 0): "TARGET_RENAMED"}
    assert pair.remote(topic) in status.stopped[0].error
    assert partition_count(pair.target.bootstrap, f"{topic}.copy") == 0, "nothing was made"

    assert cross(renamed, forget=(topic,)).stopped == ()
    assert values(pair.target.bootstrap, f"{topic}.copy") == [b"v%d" % n for n in range(20)]


def test_a_target_topic_deleted_stops_loudly_and_is_copied_anew_when_told_to(pair: Pair) -> None:
    topic, staying = pair.topic("anew", partitions=2), pair.topic("staying")
    pair.write(topic, 20, partitions=2)
    pair.write(staying, 10)
    cross(pair.flow())
    pair.target.delete_topic(pair.remote(topic))
    wait_until(lambda: partition_count(pair.target.bootstrap, pair.remote(topic)) == 0, "the target topic is gone")
    assert codes(cross(pair.flow())) == {(topic, 0): "TARGET_RECREATED"}
    assert partition_count(pair.target.bootstrap, pair.remote(topic)) == 0, "nothing was made in its stead"

    assert cross(pair.flow(), forget=(topic,)).stopped == ()
    pair.proven(topic, 20)
    pair.proven(staying, 10)
    pair.write(topic, 10, first=20, partitions=2)
    assert cross(pair.flow()).stopped == (), "a topic is forgotten once"
    pair.proven(topic, 30)


def test_a_topic_made_anew_on_both_sides_is_copied_when_told_to(pair: Pair) -> None:
    topic = pair.topic("anew")
    pair.write(topic, 30)
    cross(pair.flow())
    pair.recreate(pair.source, topic)
    pair.target.delete_topic(pair.remote(topic))
    pair.write(topic, 10, first=100)
    assert cross(pair.flow(), forget=(topic,)).stopped == ()
    pair.proven(topic, 10)


class FailsFirst(InThread):
    """Loses its first attempt before it has done anything, as a cluster that kills an executor does."""

    async def run(self, order: Order) -> Receipt:
        if not self.orders:
            self.orders.append(order)
            raise WireError("the executor was lost")
        return await super().run(order)


def test_a_forgotten_topic_begins_anew_even_if_the_first_attempt_is_lost(pair: Pair) -> None:
    topic = pair.topic("anew")
    pair.write(topic, 20)
    cross(pair.flow())
    pair.target.delete_topic(pair.remote(topic))
    wait_until(lambda: partition_count(pair.target.bootstrap, pair.remote(topic)) == 0, "the target topic is gone")
    flow = pair.flow()

    async def drive() -> FlowStatus:
        return await Driver(flow, FailsFirst(), until_caught_up=True, forget=(topic,)).run()

    asyncio.run(drive())
    pair.proven(topic, 20)


# ---- retention overtakes -----------------------------------------------------------------------


def test_a_gap_stops_its_partition_and_the_lost_range_is_on_record(pair: Pair) -> None:
    topic = pair.topic("overtaken", partitions=2)
    pair.write(topic, 20, partitions=2)
    cross(pair.flow())
    pair.write(topic, 40, first=20, partitions=2)
    delete_before(pair.source.bootstrap, topic, {0: 25})
    status = cross(pair.flow())
    assert codes(status) == {(topic, 0): "GAP"}
    assert gaps(pair) == {f"gap/{topic}/0/10": (10, 25)}
    assert len(values(pair.target.bootstrap, pair.remote(topic), 0)) == 10, "nothing behind the gap was copied"
    assert len(values(pair.target.bootstrap, pair.remote(topic), 1)) == 30


def test_told_to_skip_it_goes_on_behind_the_gap(pair: Pair) -> None:
    topic = pair.topic("overtaken")
    pair.write(topic, 10)
    flow = pair.flow(on_gap="skip")
    cross(flow)
    pair.write(topic, 30, first=10)
    delete_before(pair.source.bootstrap, topic, {0: 25})
    assert cross(flow).stopped == ()
    assert gaps(pair) == {f"gap/{topic}/0/10": (10, 25)}
    kept = [*range(10), *range(25, 40)]
    assert values(pair.target.bootstrap, pair.remote(topic)) == [b"v%d" % n for n in kept]
    pair.write(topic, 5, first=40)
    assert cross(flow).stopped == ()
    assert len(values(pair.target.bootstrap, pair.remote(topic))) == 30


def gaps(pair: Pair) -> dict[str, tuple[int, int]]:
    """Lost ranges as the control topic has them, read by librdkafka."""
    found = {}
    for _, key, value in read(pair.target.bootstrap, f"mm2-isthmus.{pair.alias}.internal"):
        if key is not None and value is not None and key.startswith(b"gap/"):
            content = json.loads(value)
            found[key.decode()] = (content["first"], content["past"])
    return found


# ---- brokers die -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def threes() -> Iterator[Lab]:
    """Two clusters of three brokers each, which miss one that was killed sooner than after nine seconds."""
    soon = {"broker.session.timeout.ms": "5000"}
    with Lab([ClusterSpec(name=name, brokers=3, heap_mb=256, properties=soon) for name in ("north", "south")]) as lab:
        yield lab
        forget_clients()


@pytest.mark.parametrize(("how", "node"), [("killed", 2), ("shut down in good order", 3)])
def test_a_broker_of_each_side_goes_and_comes_back_and_all_arrives_once(threes: Lab, how: str, node: int) -> None:
    pair = Pair(threes, "north", "south")
    topic = pair.topic("stream", partitions=6, replicas=3)
    flow = pair.flow(replication_factor=3, internal_replication_factor=3, lanes=2)
    with Stream(pair.source.bootstrap, topic, partitions=6) as stream, Crossing(flow) as crossing:
        crossing.until_copied(300)
        _on_both(pair, partial(_end, node=node, how=how))
        seen = crossing.until_copied(0).records
        crossing.until_copied(seen + 300, 120)
        _on_both(pair, partial(_bring_back, node=node))
        seen = crossing.until_copied(0).records
        crossing.until_copied(seen + 300, 120)
    assert cross(flow).stopped == ()
    pair.proven(topic, stream.written)


def _on_both(pair: Pair, act: Callable[[LabCluster], None]) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(act, (pair.source, pair.target)))


def _bring_back(cluster: LabCluster, node: int) -> None:
    cluster.restart(node)
    wait_until(lambda: in_sync(cluster, 3), "all replicas are back")


def _end(cluster: LabCluster, node: int, how: str) -> None:
    if how == "killed":
        cluster.kill(node)
    else:
        cluster.shut_down(node)


def in_sync(cluster: LabCluster, replicas: int) -> bool:
    topics = admin(cluster.bootstrap).list_topics(timeout=30).topics.values()
    return all(
        len(p.isrs) >= replicas for topic in topics for p in topic.partitions.values() if len(p.replicas) >= replicas
    )
