"""Everything a topic can hold arrives equal: each kind in a topic of its own, all of them in one crossing.

The proof is librdkafka's (the oracle), for some topics also that of Kafka's Java consumer; kafka-dump-log shows
that the odd thing which a test is about was really in the source's log.
"""

from __future__ import annotations

import pytest
from tests.crossing import cross, flow_between
from tests.integration.sources import (
    CODECS,
    KEPT,
    console_consumer,
    numbered,
    own_settings,
    partition_count,
    read,
    stored,
    unique,
    values,
    write,
)
from tests.integration.world import MAX_MESSAGE_BYTES, World, filled

from isthmus.lab import Lab
from isthmus.lab.oracle import compare

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def world(lab: Lab) -> World:
    """All kinds of content in the source, and one crossing."""
    made = filled(lab)
    made.batches = stored(lab["east"], *made.topics)
    made.status = made.cross()
    made.batches |= stored(lab["west"], *(made.remote(name.removeprefix(f"{made.prefix}-")) for name in made.topics))
    return made


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
