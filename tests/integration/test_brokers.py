"""Brokers of ten years: sources from 0.10.2 to 3.9 into a cluster of today, and older targets, under kills.

What arrives is judged by librdkafka. Every old cluster is one broker, started once for this module.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.crossing import QUICK, Crossing, cross
from tests.integration.framed import by_librdkafka, in_columns_by
from tests.integration.sources import (
    CODECS,
    Pair,
    Row,
    codes,
    created,
    delete_before,
    forget_clients,
    numbered,
    own_settings,
    position,
    producer,
    read,
    send,
    values,
    wait_until,
    write,
)
from tests.killable import Killable
from tests.versions import FIRST, OLDEST, ONE, THREE, TWO

from isthmus.engine.driver import Driver
from isthmus.engine.plan import make_plan
from isthmus.errors import TargetError
from isthmus.lab import ClusterSpec, Lab, LabCluster
from isthmus.model import Cluster, Flow, Groups, Mm2Topics, Sync
from isthmus.wire.cluster import Client

# The first test may have to fetch the jars of four versions.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

WITH_GROUPS = Mm2Topics(heartbeats=False, carry_heartbeats=False, group_offsets=True)


@pytest.fixture(scope="module")
def clusters(lab: Lab) -> Iterator[dict[str, LabCluster]]:
    """East and west, which are of today, and a cluster of one broker for each old version, by its number."""
    # A cluster that is asked for a topic must not make one: the oldest would, if we asked in the wrong way.
    specs = [ClusterSpec(name=version, version=version, heap_mb=256) for version in (FIRST, ONE, TWO, THREE)]
    specs.append(ClusterSpec(name=OLDEST, version=OLDEST, properties={"auto.create.topics.enable": "true"}))
    with Lab(specs) as more:
        yield {**lab.clusters, **more.clusters}
        forget_clients()


# ---- old sources -------------------------------------------------------------------------------


def odd_rows(first: int) -> list[Row]:
    """Headers, an empty value, tombstones, no key; the times rise and fall."""
    rows = numbered(40, first, headers=[("h", b"x" * 40), ("none", None), ("h", b"")])
    rows += [{"key": b"gone", "value": None}, {"key": None, "value": b"no key"}, {"key": b"empty", "value": b""}]
    return rows + numbered(10, 0)


def in_transactions(bootstrap: str, topic: str, codec: str) -> int:
    """Committed and aborted ones; returns how many records count."""
    writer = producer(bootstrap, transactional_id=topic, compression_type=codec)
    for turn in range(4):
        writer.begin_transaction()
        send(writer, topic, numbered(20, first=100 * turn, headers=[("turn", b"%d" % turn)]))
        writer.abort_transaction(60) if turn in (1, 3) else writer.commit_transaction(60)
    return 40


@pytest.mark.parametrize("version", [FIRST, ONE, TWO, THREE])
def test_everything_of_an_old_source_arrives_equal(clusters: dict[str, LabCluster], version: str) -> None:
    pair = Pair(clusters, version, "west")
    known = CODECS if version in (TWO, THREE) else CODECS[:-1]  # zstd came with 2.1
    mixed = pair.topic("mixed", partitions=2, settings={"max.message.bytes": "2000000"})
    transactions = pair.topic("transactions")
    flow = pair.flow(sync=Sync(configs=True))
    count = 0
    for turn in range(2):  # the second one goes on where the first has ended
        for codec in known:
            rows = odd_rows(1000 * turn)
            write(pair.source.bootstrap, mixed, rows, compression_type=codec)
            count += len(rows)
        assert cross(flow).stopped == ()
        pair.proven(mixed, count)
    committed = in_transactions(pair.source.bootstrap, transactions, known[-1])
    assert cross(flow).stopped == ()
    pair.proven(transactions, committed)
    assert len(read(pair.target.bootstrap, pair.remote(transactions), committed=False)) == committed
    assert own_settings(pair.target.bootstrap, pair.remote(mixed))["max.message.bytes"] == "2000000"
    for topic in (mixed, transactions):
        equal_in_columns(pair.source.bootstrap, topic)
    followed_by_its_group(pair, mixed, 37)


def equal_in_columns(bootstrap: str, topic: str) -> None:
    """A DataFrame would hold what librdkafka reads."""
    expected = {number: records for number, records in by_librdkafka(bootstrap, topic).items() if records}
    assert in_columns_by(kafka_bootstrap_servers=bootstrap, subscribe=topic) == expected


def followed_by_its_group(pair: Pair, topic: str, offset: int) -> None:
    """A group that stands at this offset of the source stands at the same record on the target."""
    group = f"{pair.alias}-readers"
    here, there = TopicPartition(topic, 0, offset), TopicPartition(pair.remote(topic), 0)
    reader(pair.source, group).commit(offsets=[here], asynchronous=False)
    assert cross(pair.flow(mm2_topics=WITH_GROUPS, groups=Groups(include=(group,)))).stopped == ()
    (found,) = reader(pair.target, group).committed([there], timeout=30)
    assert found.offset > 0
    assert record_at(pair.target, found) == record_at(pair.source, here)


def reader(cluster: LabCluster, group: str) -> Consumer:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    return Consumer(settings | {"isolation.level": "read_committed", "log_level": 2})


def record_at(cluster: LabCluster, place: TopicPartition) -> tuple[object, ...]:
    consumer = reader(cluster, "isthmus-test-reader")
    consumer.assign([place])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None and message.error() is None
    return message.key(), message.value(), message.timestamp()[1]


def test_a_source_from_before_transactions_arrives_equal_and_gets_no_topic_by_being_asked(
    clusters: dict[str, LabCluster],
) -> None:
    pair = Pair(clusters, OLDEST, "west")
    topics = {codec: pair.topic(codec) for codec in CODECS[:-1]}
    rows = [row for row in odd_rows(0) if row.pop("headers", True)]
    # From the start: what was copied without an index cannot be found in logs of the old formats afterwards.
    flow = pair.flow(sync=Sync(configs=True), mm2_topics=WITH_GROUPS)
    for turn in (1, 2):
        for codec, topic in topics.items():
            write(pair.source.bootstrap, topic, rows, compression_type=codec, enable_idempotence=False)
        assert cross(flow).stopped == ()
        for topic in topics.values():
            pair.proven(topic, turn * len(rows))
    for topic in topics.values():
        equal_in_columns(pair.source.bootstrap, topic)
    followed_by_its_group(pair, topics["lz4"], 7)
    gone = topics["gzip"]
    with Crossing(flow) as crossing:
        crossing.until_copied(0)
        pair.source.delete_topic(gone)
        crossing.until(lambda status: (gone, 0) in codes(status) or gone not in {p.topic for p in status.partitions})
    assert gone not in listed(pair.source)


def listed(cluster: LabCluster) -> set[str]:
    async def ask() -> set[str]:
        client = Client(Cluster(alias="any", bootstrap=(cluster.bootstrap,)))
        await client.start()
        await client.refresh(None)
        client.close()
        return set(client.topics)

    return asyncio.run(ask())


# ---- topics that are made anew, where they have no ids ------------------------------------------


@pytest.mark.parametrize("version", [OLDEST, FIRST, ONE, TWO])
def test_a_topic_made_anew_on_an_old_source_stops_alone_until_it_is_forgotten(
    clusters: dict[str, LabCluster], version: str
) -> None:
    pair = Pair(clusters, version, "west")
    again, other = pair.topic("again"), pair.topic("other")
    for topic in (again, other):
        plainly(pair, topic, numbered(10))
    assert cross(pair.flow()).stopped == ()
    pair.source.delete_topic(again)
    # Not asked for by name: librdkafka would make the oldest broker create it.
    wait_until(lambda: again not in listed(pair.source), f"{again} is gone")
    wait_until(lambda: created(pair.source, again), f"{again} may be made anew")
    plainly(pair, again, numbered(30, first=500))
    plainly(pair, other, numbered(10, first=10))
    assert codes(cross(pair.flow())) == {(again, 0): "SOURCE_RECREATED"}
    pair.proven(other, 20)
    assert values(pair.target.bootstrap, pair.remote(again)) == [b"v%d" % n for n in range(10)]

    pair.target.delete_topic(pair.remote(again))
    assert cross(pair.flow(), forget=(again,)).stopped == ()
    pair.proven(again, 30)


def plainly(pair: Pair, topic: str, rows: list[Row]) -> None:
    """Not idempotent: the producer is shared, and its sequences would not fit a topic made anew, or cut short."""
    write(pair.source.bootstrap, topic, rows, enable_idempotence=False)


def test_a_topic_made_anew_while_the_flow_runs_is_not_read_on(clusters: dict[str, LabCluster]) -> None:
    pair = Pair(clusters, FIRST, "west")
    again = pair.topic("again")
    plainly(pair, again, numbered(10))
    with Crossing(pair.flow()) as crossing:
        crossing.until(lambda status: position(status, again) == 10)
        pair.recreate(pair.source, again)
        plainly(pair, again, numbered(30, first=500))
        crossing.until(lambda status: (again, 0) in codes(status))
    assert codes(cross(pair.flow())) == {(again, 0): "SOURCE_RECREATED"}
    assert values(pair.target.bootstrap, pair.remote(again)) == [b"v%d" % n for n in range(10)]


def test_what_retention_takes_from_an_old_source_is_not_taken_for_another_topic(
    clusters: dict[str, LabCluster],
) -> None:
    pair = Pair(clusters, FIRST, "west")
    topic = pair.topic("short")
    plainly(pair, topic, numbered(10))
    assert cross(pair.flow()).stopped == ()
    delete_before(pair.source.bootstrap, topic, {0: 10})
    plainly(pair, topic, numbered(10, first=10))
    assert cross(pair.flow()).stopped == ()
    assert values(pair.target.bootstrap, pair.remote(topic)) == [b"v%d" % n for n in range(20)]


# ---- old targets -------------------------------------------------------------------------------


def small_transactions(pair: Pair) -> Flow:
    tuning = dataclasses.replace(QUICK, commit_bytes=20_000, merge_below_bytes=0, fetch_partition_bytes=32 << 10)
    return pair.flow(tuning=tuning)


@pytest.mark.parametrize("version", [TWO, THREE])
def test_an_old_target_is_exact_though_a_lane_is_killed(clusters: dict[str, LabCluster], version: str) -> None:
    pair = Pair(clusters, "east", version)
    topic = pair.topic("numbers", partitions=2)
    rows = numbered(4_000, partitions=2, headers=[("h", b"x" * 60)])
    write(pair.source.bootstrap, topic, rows, batch_num_messages=20)
    killer = Killable(1, pair.target.bootstrap, pair.remote(topic))
    status = asyncio.run(Driver(small_transactions(pair), killer, until_caught_up=True).run())
    assert killer.kills == 0
    assert any(each.offset < 2_000 for each in killer.orders[1].assignments), "the kill came too late"
    assert status.stopped == ()
    pair.proven(topic, 4_000)


@pytest.mark.parametrize("version", [FIRST, ONE])
def test_even_older_targets_take_everything_once(clusters: dict[str, LabCluster], version: str) -> None:
    pair = Pair(clusters, "east", version)
    topic = pair.topic("numbers", partitions=2)
    for turn in range(2):
        rows = numbered(1_000, 1_000 * turn, partitions=2, headers=[("h", b"x" * 60)])
        write(pair.source.bootstrap, topic, rows, batch_num_messages=20)
        status = cross(small_transactions(pair))
        assert status.stopped == ()
        assert status.lanes[0].transactions > 1
        pair.proven(topic, 1_000 * (turn + 1))


def test_a_target_without_transactions_is_refused_before_anything_is_created(
    clusters: dict[str, LabCluster],
) -> None:
    pair = Pair(clusters, "east", OLDEST)
    pair.write(pair.topic("numbers"), 10)
    before = listed(pair.target)
    with pytest.raises(TargetError) as caught:
        cross(pair.flow())
    assert caught.value.code == "NO_TRANSACTIONS"
    assert listed(pair.target) == before


# ---- what is told beforehand ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        (FIRST, "west", {"NO_TOPIC_IDS", "NO_TRUNCATION_ANSWER", "SETTINGS_ORIGIN"}),
        (ONE, "west", {"NO_TOPIC_IDS", "NO_TRUNCATION_ANSWER"}),
        (OLDEST, "west", {"OLD_FORMAT", "NO_SETTINGS", "NO_TOPIC_IDS", "NO_TRUNCATION_ANSWER", "SETTINGS_ORIGIN"}),
        (TWO, THREE, set()),
        ("east", TWO, {"NO_LIST_OF_TRANSACTIONS"}),
        ("east", OLDEST, {"NO_TRANSACTIONS", "NO_SETTING_CHANGES", "NO_GROWTH", "NO_ZSTD", "NO_TOPIC_IDS"}),
    ],
)
def test_a_plan_tells_what_brokers_are_too_old_for(
    clusters: dict[str, LabCluster], source: str, target: str, told: set[str]
) -> None:
    pair = Pair(clusters, source, target)
    pair.topic("numbers")
    plan = asyncio.run(make_plan(pair.flow(sync=Sync(configs=True))))
    found = {each.code for each in plan.lacks}
    assert found >= told
    assert found - told <= {"NO_LIST_OF_TRANSACTIONS"}
    assert plan.problems == ()


def test_a_flow_from_the_oldest_to_the_middle_aged_needs_no_cluster_of_today(clusters: dict[str, LabCluster]) -> None:
    pair = Pair(clusters, FIRST, TWO)
    topic = pair.topic("numbers", partitions=2)
    flow: Flow = pair.flow(sync=Sync(configs=True))
    for turn in range(2):
        pair.write(topic, 100, first=100 * turn, partitions=2)
        assert cross(flow).stopped == ()
    pair.proven(topic, 200)
