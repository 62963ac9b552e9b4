"""Everything a topic can hold arrives equal: each kind in a topic of its own, all of them in one crossing.

The proof is librdkafka's (the oracle), for some topics also that of Kafka's Java consumer; kafka-dump-log shows
that the odd thing which a test is about was really in the source's log.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer
from tests.crossing import cross, flow_between
from tests.integration.sources import (
    CODECS,
    KEPT,
    START_MS,
    Row,
    StoredBatch,
    alter,
    console_consumer,
    delete_before,
    forget_clients,
    numbered,
    own_settings,
    partition_count,
    producer,
    read,
    send,
    stored,
    unique,
    values,
    wait_until,
    write,
)

from isthmus.lab import Lab
from isthmus.lab.mix import order
from isthmus.lab.oracle import Verdict, compare, read_topic
from isthmus.observe.status import FlowStatus

pytestmark = pytest.mark.integration

MAX_MESSAGE_BYTES = 1_048_588  # the broker's default, for a whole batch
LONE_RECORD_BYTES = 72  # what a batch with one record needs beside a value of about 1 MB
CLEANED_AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
    "message.timestamp.after.max.ms": str(2**62),
}
HOUR_MS = 3_600_000


@dataclass
class World:
    """Topics of the source by the name of what they hold, and what was seen of them after the crossing."""

    lab: Lab
    prefix: str = field(default_factory=lambda: unique("c"))
    topics: list[str] = field(default_factory=list)
    open_transaction: Producer | None = None
    status: FlowStatus | None = None
    batches: dict[str, list[StoredBatch]] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return self.lab["east"].bootstrap

    @property
    def target(self) -> str:
        return self.lab["west"].bootstrap

    def name(self, kind: str) -> str:
        return f"{self.prefix}-{kind}"

    def remote(self, kind: str) -> str:
        return f"e{self.prefix}.{self.prefix}-{kind}"

    def topic(self, kind: str, partitions: int = 1, settings: Mapping[str, str] | None = None, **more: str) -> str:
        """Settings by their names, or as words with underscores for dots."""
        name = self.name(kind)
        dotted = dict(settings or {}) | {key.replace("_", "."): value for key, value in more.items()}
        self.lab["east"].create_topic(name, partitions=partitions, configs=KEPT | dotted)
        self.topics.append(name)
        return name

    def cross(self) -> FlowStatus:
        patterns = [re.escape(name) for name in self.topics]
        return cross(flow_between(self.lab, *patterns, alias=f"e{self.prefix}"))

    def verdict(self, kind: str) -> Verdict:
        return compare(self.source, self.name(kind), self.target, self.remote(kind))

    def proven(self, kind: str, records: int) -> None:
        """Equal, and not because there was nothing."""
        verdict = self.verdict(kind)
        assert verdict.equal, verdict
        assert verdict.records == records

    def source_batches(self, kind: str) -> list[StoredBatch]:
        return self.batches[self.name(kind)]

    def target_batches(self, kind: str) -> list[StoredBatch]:
        return self.batches[self.remote(kind)]


# ---- what the source holds ---------------------------------------------------------------------


def _codecs(world: World) -> None:
    def fill(codec: str) -> None:
        rows = [row | {"value": row["value"] * 20} for row in numbered(500)]
        write(world.source, world.topic(f"codec-{codec}"), rows, compression_type=codec)
        # Thousands of tiny batches wait together and are merged.
        small = numbered(2_000, headers=[("n", b"1")])
        write(world.source, world.topic(f"tiny-{codec}"), small, compression_type=codec, batch_num_messages=1)

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, CODECS))


def _large_batches(world: World) -> None:
    """Batches of about 1 MB as they are stored: nothing that can be compressed."""
    dice = random.Random(7)
    for codec in ("none", "zstd"):
        rows = [{"value": dice.randbytes(1_000)} for _ in range(3_000)]
        topic = world.topic(f"large-{codec}")
        write(world.source, topic, rows, compression_type=codec, linger_ms=2_000, batch_size=MAX_MESSAGE_BYTES - 2_000)


def _headers_and_nulls(world: World) -> None:
    many = [("a", b"1"), ("b", None), ("a", b"2"), ("", b""), ("ü", "日本".encode()), ("a", b"1")]
    rows: list[Row] = [
        {"key": None, "value": b"no key"},
        {"key": b"no value", "value": None},
        {"key": None, "value": None},
        {"key": b"", "value": b""},
        {"key": b"", "value": None},
        {"key": None, "value": b""},
        {"key": "schlüssel".encode(), "value": "très bien ✓ 素晴らしい 👍🏽".encode()},
        {"key": b"\xff\xfe\x00", "value": bytes(range(256))},
    ]
    rows += [row | {"headers": many} for row in rows]
    rows += [{"value": b"h", "headers": [(f"h{n}", b"x" * n) for n in range(200)]}]
    for codec in ("none", "lz4"):
        write(world.source, world.topic(f"odd-{codec}"), rows, compression_type=codec)
    write(world.source, world.topic("odd-alone"), rows, batch_num_messages=1)


def _times(world: World) -> None:
    now = 1_760_000_000_000
    odd = [1, START_MS, 2, now, 999, now - 5, 978_307_200_000, 1, now + 86_400_000, START_MS - 1]
    rows: list[Row] = [{"value": b"%d" % n, "timestamp": time_ms} for n, time_ms in enumerate(odd * 20)]
    create = world.topic("create-time", message_timestamp_after_max_ms=str(2**62))
    write(world.source, create, rows, compression_type="gzip")
    append = world.topic(
        "append-time", message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=str(2**62)
    )
    for codec in CODECS:
        write(world.source, append, rows, compression_type=codec, batch_num_messages=7)
    # A topic may change its mind: both kinds of batches lie side by side.
    both = world.topic("both-times")
    past = numbered(50)
    for kind in ("CreateTime", "LogAppendTime", "CreateTime"):
        alter(world.source, both, message_timestamp_type=kind)
        write(world.source, both, past, batch_num_messages=5)


def _transactions(world: World) -> None:
    """Two producers take turns in one partition; every third transaction is aborted, their markers interleave."""
    topic = world.topic("transactions")
    pair = [producer(world.source, transactional_id=f"{topic}-{n}", compression_type="lz4") for n in range(2)]
    bystander = producer(world.source)
    for turn in range(6):
        for each in pair:
            each.begin_transaction()
        for step in range(4):
            send(pair[step % 2], topic, numbered(25, first=1_000 * turn + 100 * step))
            send(bystander, topic, numbered(2, first=1_000 * turn + 100 * step + 50))
        for number, each in enumerate(pair if turn % 2 else reversed(pair)):
            each.abort_transaction(60) if (turn + number) % 3 == 0 else each.commit_transaction(60)
    # An aborted transaction and its marker are the last things in the log.
    ends = world.topic("ends-aborted")
    send(producer(world.source), ends, numbered(10))
    last = producer(world.source, transactional_id=ends)
    last.begin_transaction()
    send(last, ends, numbered(10, first=100))
    last.abort_transaction(60)


def _open_transaction(world: World) -> None:
    topic = world.topic("open")
    write(world.source, topic, numbered(10))
    late = producer(world.source, transactional_id=topic, transaction_timeout_ms=600_000)
    late.begin_transaction()
    send(late, topic, numbered(5, first=100))
    write(world.source, topic, numbered(10, first=200))
    world.open_transaction = late


def _moved_starts(world: World) -> None:
    """One partition starts in the middle of a batch, one at a batch, one has lost everything, one is untouched."""
    topic = world.topic("moved", partitions=5)
    for partition in range(4):
        for first in (0, 50):
            write(world.source, topic, numbered(50, first=first, partition=partition), compression_type="snappy")
    delete_before(world.source, topic, {0: 17, 1: 50, 2: 100})


def _largest(world: World) -> None:
    dice = random.Random(5)
    record = {"value": os.urandom(MAX_MESSAGE_BYTES - LONE_RECORD_BYTES)}
    topic = world.topic("largest")
    lone = producer(world.source, batch_num_messages=1)
    send(lone, topic, [record, {"value": b"small"}, record])
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        send(lone, topic, [{"value": record["value"] + b"!"}])  # so it was the largest
    huge = world.topic("huge", max_message_bytes="5000000")
    rows: list[Row] = [{"value": os.urandom(4_990_000)}, {"value": b"between"}, {"value": os.urandom(3_000_000)}]
    write(world.source, huge, rows)
    # A batch that was packed harder than we pack, and that must be packed anew: it must not outgrow the limit.
    hard = world.topic("hard-packed", message_timestamp_type="LogAppendTime")
    rows = [{"value": order(n, dice).value} for n in range(7_200)]
    write(world.source, hard, rows, compression_type="lz4", compression_level=12, linger_ms=3_000, batch_size=4 << 20)
    few = world.topic("small-limit", max_message_bytes="2000")
    write(world.source, few, numbered(500, headers=[("h", b"h" * 100)]), batch_num_messages=1)


def _names(world: World) -> None:
    for kind in ("with.dots", "with_underscores", "With-Dashes.and_all"):
        write(world.source, world.topic(kind, partitions=2), numbered(20, partitions=2))
    world.topic("empty", partitions=3)
    world.topic(
        "settings",
        partitions=4,
        retention_ms="123456789",
        compression_type="zstd",
        segment_bytes="2000000",
        cleanup_policy="compact,delete",
        min_insync_replicas="1",
        message_timestamp_type="LogAppendTime",
        unclean_leader_election_enable="true",
    )


def _compacted(world: World) -> Callable[[], bool]:
    """Holes within batches, batches with nothing left, tombstones that went: in plain and in transactions."""
    plain = world.topic("compacted", settings=CLEANED_AT_ONCE)
    ours = world.topic("compacted-transactions", settings=CLEANED_AT_ONCE)
    # A batch that lost all its records stays as long as it is the last one of its producer.
    writers = [(codec, [producer(world.source, compression_type=codec) for _ in range(2)]) for codec in CODECS]
    for number, (codec, pair) in enumerate(writers):
        _rounds(pair, plain, codec, START_MS + 10 * number * HOUR_MS)
    keepers = [producer(world.source, transactional_id=f"{ours}-{n}", compression_type="zstd") for n in range(4)]
    # Markers are stamped with the present: only times that lie ahead of them roll a segment per transaction.
    ahead = int(time.time() * 1000) + 24 * HOUR_MS
    for number, keeper in enumerate(keepers):
        keeper.begin_transaction()
        rows = numbered(30, first=10 * number)
        send(keeper, ours, [row | {"timestamp": ahead + number * HOUR_MS} for row in rows])
        keeper.abort_transaction(60) if number == 2 else keeper.commit_transaction(60)
    # Segments roll when something is appended, and the last one is never cleaned.
    for topic in (plain, ours):
        write(world.source, topic, [{"key": b"last", "value": b"last", "timestamp": ahead + 999 * HOUR_MS}])

    def cleaned() -> bool:
        return _count(world, plain) < 5 * 50 and _count(world, ours) <= 61

    return cleaned


def _count(world: World, topic: str) -> int:
    return sum(len(each.digests) for each in read_topic(world.source, topic).values())


def _rounds(writers: list[Producer], topic: str, codec: str, begin_ms: int) -> None:
    """Three batches an hour apart, which rolls a segment for each: the first one is overwritten as a whole,
    of the second one every other record, the third one stays but for its tombstone."""
    for round_, writer in enumerate((writers[0], writers[1], writers[1])):
        step = 2 if round_ == 2 else 1
        rows: list[Row] = [
            {
                "key": b"%s-%d" % (codec.encode(), n * step),
                "value": b"%d-%d" % (round_, n) if n != 3 else None,
                "timestamp": begin_ms + round_ * HOUR_MS + n,
            }
            for n in range(30)
        ]
        send(writer, topic, rows)


def _settle(world: World, cleaned: Callable[[], bool]) -> None:
    """Wait for the cleaner, then forbid it: what is compared must hold still, here and on the target."""
    wait_until(cleaned, "the cleaner removed what was overwritten")
    for kind in ("compacted", "compacted-transactions"):
        alter(world.source, world.name(kind), cleanup_policy="delete", segment_ms="604800000")


@pytest.fixture(scope="module")
def world(lab: Lab) -> Iterator[World]:
    """All kinds of content in the source, and one crossing."""
    made = World(lab)
    cleaned = _compacted(made)
    for fill in (
        _codecs,
        _large_batches,
        _headers_and_nulls,
        _times,
        _transactions,
        _open_transaction,
        _moved_starts,
        _largest,
        _names,
    ):
        fill(made)
    _settle(made, cleaned)
    made.batches = stored(lab["east"], *made.topics)
    made.status = made.cross()
    made.batches |= stored(lab["west"], *(made.remote(name.removeprefix(f"{made.prefix}-")) for name in made.topics))
    yield made
    forget_clients()


# ---- proofs ------------------------------------------------------------------------------------


def test_one_crossing_takes_everything_and_stops_nothing(world: World) -> None:
    assert world.status is not None
    assert world.status.stopped == ()
    assert world.status.lag == 0


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_arrives_equal_and_stays_compressed_alike(world: World, codec: str) -> None:
    world.proven(f"codec-{codec}", 500)
    there = world.target_batches(f"codec-{codec}")
    assert {batch.codec.lower() for batch in there if not batch.is_control} == {codec}


@pytest.mark.parametrize("codec", CODECS)
def test_thousands_of_batches_of_one_record_are_merged_and_arrive_equal(world: World, codec: str) -> None:
    assert {batch.count for batch in world.source_batches(f"tiny-{codec}")} == {1}
    world.proven(f"tiny-{codec}", 2_000)
    assert len(world.target_batches(f"tiny-{codec}")) < 500


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_batches_of_a_megabyte_arrive_equal(world: World, codec: str) -> None:
    assert max(batch.size for batch in world.source_batches(f"large-{codec}")) > 900_000
    world.proven(f"large-{codec}", 3_000)


@pytest.mark.parametrize("kind", ["odd-none", "odd-lz4", "odd-alone"])
def test_headers_null_keys_tombstones_and_empty_values_arrive_equal(world: World, kind: str) -> None:
    world.proven(kind, 17)


def test_odd_and_old_create_times_arrive_equal(world: World) -> None:
    world.proven("create-time", 200)


def test_append_times_arrive_as_a_consumer_of_the_source_saw_them(world: World) -> None:
    world.proven("append-time", 1_000)


def test_a_topic_with_both_kinds_of_times_arrives_equal(world: World) -> None:
    world.proven("both-times", 150)


@pytest.mark.parametrize("kind", ["append-time", "transactions"])
def test_the_java_consumer_sees_the_same_on_both_sides(world: World, kind: str) -> None:
    count = len(read(world.source, world.name(kind)))
    ours = console_consumer(world.source, world.name(kind), count)
    assert len(ours) >= count
    assert console_consumer(world.target, world.remote(kind), count) == ours


def test_committed_transactions_arrive_and_aborted_ones_never_do(world: World) -> None:
    batches = world.source_batches("transactions")
    assert sum(batch.is_control for batch in batches) == 12
    world.proven("transactions", 6 * 4 * 2 + 8 * 50)
    # Not even a reader of uncommitted data meets them (though perhaps tries of ours that were given up).
    everything = read(world.target, world.remote("transactions"), committed=False)
    assert set(everything) == set(read(world.source, world.name("transactions")))


def test_a_log_that_ends_with_an_aborted_transaction_is_caught_up(world: World) -> None:
    world.proven("ends-aborted", 10)
    assert world.status is not None
    (partition,) = [each for each in world.status.partitions if each.topic == world.name("ends-aborted")]
    assert (partition.position, partition.end) == (21, 21)


def test_an_open_transaction_ends_the_copy_until_it_is_decided(world: World) -> None:
    assert values(world.target, world.remote("open")) == [b"v%d" % n for n in range(10)]
    assert world.open_transaction is not None
    world.open_transaction.commit_transaction(60)
    assert world.cross().stopped == ()
    world.proven("open", 25)


def test_logs_that_start_late_or_within_a_batch_arrive_from_there(world: World) -> None:
    world.proven("moved", 83 + 50 + 0 + 100)
    assert values(world.target, world.remote("moved"), 0)[0] == b"v17"


def test_records_as_large_as_the_limit_arrive(world: World) -> None:
    assert max(batch.size for batch in world.source_batches("largest")) == MAX_MESSAGE_BYTES
    world.proven("largest", 3)


def test_a_raised_limit_is_copied_to_the_target_before_the_records(world: World) -> None:
    assert own_settings(world.target, world.remote("huge"))["max.message.bytes"] == "5000000"
    world.proven("huge", 3)


def test_a_hard_packed_batch_that_must_be_made_anew_does_not_outgrow_the_limit(world: World) -> None:
    assert max(batch.size for batch in world.source_batches("hard-packed")) > 1_000_000
    world.proven("hard-packed", 7_200)


def test_batches_are_not_merged_beyond_a_lowered_limit(world: World) -> None:
    world.proven("small-limit", 500)


@pytest.mark.parametrize("kind", ["with.dots", "with_underscores", "With-Dashes.and_all"])
def test_names_with_dots_dashes_and_underscores_are_kept(world: World, kind: str) -> None:
    world.proven(kind, 20)


def test_an_empty_topic_is_made_with_all_its_partitions(world: World) -> None:
    assert partition_count(world.target, world.remote("empty")) == 3
    world.proven("empty", 0)


def test_own_settings_of_a_topic_are_copied_but_for_those_that_mirrormaker_leaves_out(world: World) -> None:
    ours = own_settings(world.source, world.name("settings"))
    assert partition_count(world.target, world.remote("settings")) == 4
    left_out = {"min.insync.replicas", "message.timestamp.type", "unclean.leader.election.enable"}
    assert left_out < set(ours)
    kept = {name: value for name, value in ours.items() if name not in left_out}
    assert own_settings(world.target, world.remote("settings")) == kept


def test_a_compacted_topic_with_holes_and_emptied_batches_arrives_equal(world: World) -> None:
    batches = world.source_batches("compacted")
    assert any(batch.count == 0 for batch in batches), "no batch was emptied"
    assert any(batch.has_holes and batch.count for batch in batches), "no batch has holes"
    verdict = world.verdict("compacted")
    assert verdict.equal, verdict
    assert verdict.records > 100


def test_a_compacted_topic_with_transactions_arrives_equal(world: World) -> None:
    batches = world.source_batches("compacted-transactions")
    assert any(batch.is_transactional and not batch.is_control and batch.has_holes for batch in batches)
    verdict = world.verdict("compacted-transactions")
    assert verdict.equal, verdict
    assert verdict.records > 30


def test_a_thousand_partitions_arrive_equal(lab: Lab) -> None:
    topic = unique("wide")
    lab["east"].create_topic(topic, partitions=1_000, configs=KEPT)
    write(lab["east"].bootstrap, topic, numbered(3_000, partitions=1_000), compression_type="lz4", linger_ms=500)
    alias = unique("e")
    status = cross(flow_between(lab, topic, alias=alias))
    assert status.stopped == ()
    verdict = compare(lab["east"].bootstrap, topic, lab["west"].bootstrap, f"{alias}.{topic}")
    assert verdict.equal, verdict
    assert (verdict.partitions, verdict.records) == (1_000, 3_000)


def test_crossing_again_copies_nothing_twice(world: World) -> None:
    status = world.cross()
    assert status.stopped == ()
    for kind in ("codec-none", "transactions", "compacted", "append-time"):
        assert world.verdict(kind).equal
