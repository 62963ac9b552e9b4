"""Both transaction protocols, and brokers that are years older: old message formats, an old target."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from functools import partial

import pytest
from tests.crossing import QUICK, Crossing, cross
from tests.integration.sources import (
    Pair,
    Stream,
    alter,
    codes,
    console_consumer,
    delete_before,
    forget_clients,
    java_tool,
    numbered,
    position,
    producer,
    read,
    send,
    stored,
    wait_until,
    write,
)

from isthmus.lab import ClusterSpec, Lab, LabCluster
from isthmus.model import Flow
from isthmus.observe.status import FlowStatus

pytestmark = pytest.mark.integration

OLD = "2.8.2"
OLD_CODECS = ("none", "gzip", "snappy", "lz4")  # zstd came after these formats


@pytest.fixture(scope="module")
def clusters(lab: Lab) -> Iterator[dict[str, LabCluster]]:
    """Beside east and west: `first`, which speaks the first transaction protocol only, and `old`."""
    specs = [
        ClusterSpec(name="first", features={"transaction.version": 1}),
        ClusterSpec(name="old", version=OLD),
    ]
    with Lab(specs) as more:
        yield {**lab.clusters, **more.clusters}
        forget_clients()


def finalized_version(cluster: LabCluster) -> int:
    text = java_tool("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", cluster.bootstrap, "describe")
    (level,) = re.findall(r"Feature: transaction.version.*FinalizedVersionLevel: (\d+)", text)
    return int(level)


# ---- the first transaction protocol ------------------------------------------------------------


def in_small_transactions(pair: Pair, **changes: object) -> Flow:
    tuning = dataclasses.replace(QUICK, commit_bytes=500, fetch_partition_bytes=1_000, merge_below_bytes=0)
    return pair.flow(tuning=tuning, **changes)


def test_many_transactions_and_restarts_are_exact_under_the_first_protocol(clusters: dict[str, LabCluster]) -> None:
    pair = Pair(clusters, "east", "first")
    topic = pair.topic("numbers", partitions=3)
    flow = in_small_transactions(pair)
    for turn in range(3):
        write(pair.source.bootstrap, topic, numbered(300, 300 * turn, 3), batch_num_messages=10)
        status = cross(flow)
        assert status.stopped == ()
        assert status.lanes[0].transactions >= 5, "sequences must run on over several transactions"
        pair.proven(topic, 300 * (turn + 1))


@pytest.mark.parametrize("target", ["first", "old"])
def test_a_record_that_is_too_large_becomes_a_dead_letter_under_the_first_protocol(
    clusters: dict[str, LabCluster], target: str
) -> None:
    pair = Pair(clusters, "east", target)
    topic = pair.topic("large")
    pair.target.create_topic(pair.remote(topic), 1, 1, {"max.message.bytes": "3000"})
    large = os.urandom(5_000)
    rows = [{"key": b"a"}, {"key": b"b", "value": large}, {"key": b"c"}]
    write(pair.source.bootstrap, topic, rows, linger_ms=200)
    flow = pair.flow(on_too_large="dead_letter")
    status = cross(flow)
    assert (status.stopped, status.records, status.dead_letters) == ((), 2, 1)
    assert [key for _, key, _ in read(pair.target.bootstrap, pair.remote(topic))] == [b"a", b"c"]
    assert read(pair.target.bootstrap, flow.dead_letter_topic) == [(0, b"b", large)]


def test_a_stream_with_restarts_is_exact_under_the_first_protocol(clusters: dict[str, LabCluster]) -> None:
    pair = Pair(clusters, "east", "first")
    topic = pair.topic("stream", partitions=3)
    with Stream(pair.source.bootstrap, topic, partitions=3) as stream:
        for _ in range(3):
            with Crossing(pair.flow(lanes=2)) as crossing:
                crossing.until_copied(150)
    assert cross(pair.flow()).stopped == ()
    assert not crossing.runner.orders[0].second_protocol
    pair.proven(topic, stream.written)


def test_batches_that_a_lowered_limit_refuses_are_made_smaller_under_the_first_protocol(
    clusters: dict[str, LabCluster],
) -> None:
    pair = Pair(clusters, "east", "first")
    topic = pair.topic("small-limit", settings={"max.message.bytes": "2000"})
    other = pair.topic("other")
    pair.write(other, 10)
    write(pair.source.bootstrap, topic, numbered(200, headers=[("h", b"h" * 100)]), batch_num_messages=1)
    with Crossing(pair.flow()) as crossing:
        crossing.until(lambda status: position(status, topic) == 200 and position(status, other) == 10)
    pair.proven(topic, 200)
    pair.proven(other, 10)


def test_a_target_topic_that_goes_stops_alone_under_the_first_protocol(clusters: dict[str, LabCluster]) -> None:
    pair = Pair(clusters, "east", "first")
    going, staying = pair.topic("going"), pair.topic("staying")
    pair.write(going, 10)
    pair.write(staying, 10)
    with Crossing(pair.flow()) as crossing:
        crossing.until_copied(20)
        pair.target.delete_topic(pair.remote(going))
        pair.write(going, 10, first=10)
        pair.write(staying, 10, first=10)
        crossing.until(lambda status: (going, 0) in codes(status) and position(status, staying) == 20)
    pair.proven(staying, 20)


@pytest.mark.parametrize("target", ["first", "west"])
def test_what_the_target_refuses_for_good_stops_alone_under_either_protocol(
    clusters: dict[str, LabCluster], target: str
) -> None:
    """I7: a compacted target takes no record without a key; another partition of the same lane goes on."""
    pair = Pair(clusters, "east", target)
    refused, staying = pair.topic("refused"), pair.topic("staying")
    pair.target.create_topic(pair.remote(refused), configs={"cleanup.policy": "compact"})
    write(pair.source.bootstrap, refused, [{"value": b"no key"}])
    pair.write(staying, 10)
    with Crossing(pair.flow()) as crossing:
        crossing.until(lambda status: position(status, staying) == 10)
        crossing.until(lambda status: codes(status) == {(refused, 0): "TARGET_REFUSED"} or _noted(status, refused))
        pair.write(staying, 10, first=10)
        crossing.until(lambda status: position(status, staying) == 20)
    assert crossing.final is not None
    assert codes(crossing.final) == {(refused, 0): "TARGET_REFUSED"}
    assert codes(cross(pair.flow())) == {(refused, 0): "TARGET_REFUSED"}
    pair.proven(staying, 20)


def _noted(status: FlowStatus, topic: str) -> bool:
    """A lane that goes on tells of a stop by a note; the driver lists it when the lane's epoch ends."""
    return any(topic in event and "TARGET_REFUSED" in event for event in status.events)


# ---- old brokers -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
def test_old_message_formats_arrive_equal(clusters: dict[str, LabCluster], version: str) -> None:
    pair = Pair(clusters, "old", "west")
    settings = {"message.format.version": version}
    magic = 0 if version == "0.9.0" else 1
    rows = [row | {"value": row["value"] * 50} for row in numbered(60)]
    rows += [{"key": None, "value": b"no key"}, {"key": b"gone", "value": None}, {"value": b""}]
    topics = {}
    for codec in OLD_CODECS:
        topics[codec] = pair.topic(codec, settings=settings)
        write(pair.source.bootstrap, topics[codec], rows, compression_type=codec, enable_idempotence=False)
    # One that starts in the middle of a wrapper, and one that changes its format half-way.
    moved = pair.topic("moved", settings=settings)
    write(pair.source.bootstrap, moved, rows, compression_type="gzip", enable_idempotence=False)
    delete_before(pair.source.bootstrap, moved, {0: 17})
    mixed = pair.topic("mixed", settings=settings)
    for format_version in (version, OLD, version):
        alter(pair.source.bootstrap, mixed, message_format_version=format_version)
        wait_until(partial(took_effect, pair, mixed, 2 if format_version == OLD else magic), "the format has changed")
        write(pair.source.bootstrap, mixed, rows, compression_type="lz4", enable_idempotence=False)
    stamped = pair.topic("stamped", settings=settings | {"message.timestamp.type": "LogAppendTime"})
    write(pair.source.bootstrap, stamped, rows, compression_type="snappy", enable_idempotence=False)

    held = stored(pair.source, topics["gzip"], mixed)
    assert {batch.magic for batch in held[topics["gzip"]]} == {magic}
    assert "gzip" in {batch.codec.lower() for batch in held[topics["gzip"]]}
    assert {batch.magic for batch in held[mixed]} == {magic, 2}
    assert cross(pair.flow()).stopped == ()
    counts = dict.fromkeys(topics.values(), 63) | {
        moved: 46,
        mixed: len(read(pair.source.bootstrap, mixed)),
        stamped: 63,
    }
    for topic, count in counts.items():
        if magic == 1:
            pair.proven(topic, count)
        else:
            proven_without_times(pair, topic, count)
    # Format 0 has no times, for which librdkafka says 0 and the Java consumer -1; on the target it is -1 for both.
    ours = console_consumer(pair.source.bootstrap, topics["lz4"], 63)
    assert console_consumer(pair.target.bootstrap, pair.remote(topics["lz4"]), 63) == ours
    assert all(line.startswith("CreateTime:-1\t") for line in ours) == (magic == 0)


def took_effect(pair: Pair, topic: str, magic: int) -> bool:
    """Write a record and look at the format in which it was stored: an old broker hears of settings by and by."""
    write(pair.source.bootstrap, topic, [{"value": b"probe"}], enable_idempotence=False)
    log = next((pair.source.log_dir(1) / f"{topic}-0").glob("*.log")).read_bytes()
    at, last = 0, -1
    while at + 17 <= len(log):
        size = int.from_bytes(log[at + 8 : at + 12], "big")
        last = log[at + 16]
        at += 12 + size
    return last == magic


def proven_without_times(pair: Pair, topic: str, records: int) -> None:
    ours = read(pair.source.bootstrap, topic)
    assert len(ours) == records
    assert read(pair.target.bootstrap, pair.remote(topic)) == ours


def test_transactions_of_an_old_source_arrive_equal(clusters: dict[str, LabCluster]) -> None:
    pair = Pair(clusters, "old", "west")
    topic = pair.topic("transactions")
    writer = producer(pair.source.bootstrap, transactional_id=topic, compression_type="zstd")
    for turn in range(4):
        writer.begin_transaction()
        send(writer, topic, numbered(20, first=100 * turn, headers=[("h", None)]))
        writer.abort_transaction(60) if turn == 1 else writer.commit_transaction(60)
    assert cross(pair.flow()).stopped == ()
    pair.proven(topic, 60)


def test_an_old_target_takes_everything_exactly_once(clusters: dict[str, LabCluster]) -> None:
    pair = Pair(clusters, "east", "old")
    # The setting is younger than the target: it must not keep the topic from being made.
    topic = pair.topic("numbers", partitions=3, settings={"message.timestamp.after.max.ms": "3600000"})
    for turn in range(2):
        write(
            pair.source.bootstrap, topic, numbered(300, 300 * turn, 3), batch_num_messages=10, compression_type="zstd"
        )
        assert cross(in_small_transactions(pair)).stopped == ()
        pair.proven(topic, 300 * (turn + 1))


# ---- the protocol changes under way: last, because there is no way back --------------------------


def test_a_target_that_is_upgraded_while_a_flow_runs_is_written_by_the_second_protocol_from_the_next_epoch_on(
    clusters: dict[str, LabCluster],
) -> None:
    pair = Pair(clusters, "east", "first")
    topic = pair.topic("stream", partitions=3)
    flow = pair.flow(tuning=dataclasses.replace(QUICK, epoch_seconds=2.0))
    assert finalized_version(pair.target) == 1
    with Stream(pair.source.bootstrap, topic, partitions=3) as stream, Crossing(flow) as crossing:
        crossing.until_copied(100)
        words = "upgrade", "--feature", "transaction.version=2"
        java_tool("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", pair.target.bootstrap, *words)
        crossing.until(lambda _: crossing.runner.orders[-1].second_protocol)
        seen = crossing.until_copied(0).records
        crossing.until_copied(seen + 100)
    assert not crossing.runner.orders[0].second_protocol
    assert cross(flow).stopped == ()
    pair.proven(topic, stream.written)
