"""Consumer groups on real brokers: the next record on the target is the record that was next on the source.

Groups are made, and both logs are read, by librdkafka; what is published is read by MirrorMaker 2's own Java classes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.crossing import Crossing, cross
from tests.integration.command import wait_for
from tests.integration.grouped import (
    PARTITIONS,
    assert_exact,
    checkpoints,
    checkpoints_of,
    commit,
    commit_at_random,
    flow_with_groups,
    log,
    write_plain,
    write_transactions,
)
from tests.integration.java import kafka_java, told_by_java
from tests.integration.sources import KEPT as UNENDING
from tests.integration.sources import numbered, write

from isthmus.engine.offsets import translate
from isthmus.engine.offsets.keeper import GroupKeeper
from isthmus.engine.offsets.runlog import RunLog
from isthmus.engine.offsets.runs import encode_key
from isthmus.engine.offsets.view import GroupsReader, GroupsView
from isthmus.engine.sides import clients
from isthmus.lab import Lab
from isthmus.mm2.formats import Checkpoint, Heartbeat, OffsetSync
from isthmus.mm2.progress import CONNECTOR, progress_key
from isthmus.model import Flow, Start
from isthmus.model import TopicPartition as SourcePartition

pytestmark = [pytest.mark.integration]


@pytest.fixture
def alias() -> str:
    return f"g{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with kafka_java() as machine:
        yield machine


@pytest.mark.parametrize("kind", ["plain", "transactional"])
def test_every_group_stands_at_the_record_that_it_would_read_next(
    lab: Lab, topic_name: str, alias: str, kind: str, jvm: Any
) -> None:
    lab["east"].create_topic(topic_name, PARTITIONS)
    flow = flow_with_groups(lab, topic_name, alias)
    produce = write_plain if kind == "plain" else write_transactions
    produce(lab["east"].bootstrap, topic_name, 3_000 if kind == "plain" else 60, "first ")
    with Crossing(flow) as crossing:
        crossing.until(lambda status: status.records > 0)
        produce(lab["east"].bootstrap, topic_name, 3_000 if kind == "plain" else 60, "second ")
    places = commit_at_random(lab, alias, topic_name, groups=20)

    cross(flow)

    assert_exact(lab, alias, topic_name, places)
    published = checkpoints(lab, alias)
    for group in places:  # 100 of 100: what was just found exact is what Java tells
        wanted = {place[1:]: one.downstream for place, one in published.items() if place[0] == group}
        assert len(wanted) == PARTITIONS
        assert told_by_java(jvm, lab["west"].bootstrap, alias, group) == wanted


def test_what_we_write_is_read_by_mirrormakers_own_classes(jvm: Any) -> None:
    mirror = jvm.org.apache.kafka.connect.mirror
    checkpoint, sync = Checkpoint("grüppe", "east.orders", 3, 2**40, 17, "note"), OffsetSync("orders", 4, 2**41, 5)

    def record(pair: tuple[bytes, bytes]) -> Any:
        return jvm.org.apache.kafka.clients.consumer.ConsumerRecord("any", 0, 0, *pair)

    seen = mirror.Checkpoint.deserializeRecord(record(checkpoint.encode()))
    where = seen.topicPartition()
    read = (seen.consumerGroupId(), where.topic(), where.partition(), seen.upstreamOffset(), seen.downstreamOffset())
    assert (*read, seen.metadata()) == checkpoint
    seen = mirror.OffsetSync.deserializeRecord(record(sync.encode()))
    where = seen.topicPartition()
    assert (where.topic(), where.partition(), seen.upstreamOffset(), seen.downstreamOffset()) == sync
    seen = mirror.Heartbeat.deserializeRecord(record(Heartbeat("east", "west", 1_700_000_000_123).encode()))
    assert (seen.sourceClusterAlias(), seen.targetClusterAlias(), seen.timestamp()) == (
        "east",
        "west",
        1_700_000_000_123,
    )


def test_a_hole_of_any_length_is_closed_step_by_step(
    lab: Lab, topic_name: str, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after MirrorMaker 2 has copied millions: no index of its part, and more than is compared at once."""
    monkeypatch.setattr(translate, "_MOST_AT_ONCE", 150)
    lab["east"].create_topic(topic_name, PARTITIONS)
    flow = flow_with_groups(lab, topic_name, alias)
    write_transactions(lab["east"].bootstrap, topic_name, 90, "first ")
    cross(flow)
    lab["west"].delete_topic(flow.index_topic)
    write_plain(lab["east"].bootstrap, topic_name, 50, "second ")
    places = commit_at_random(lab, alias, topic_name, groups=6)

    cross(flow)

    assert_exact(lab, alias, topic_name, places)
    with monkeypatch.context() as patch:
        patch.setattr(RunLog, "flush", _forgets)
        write_transactions(lab["east"].bootstrap, topic_name, 60, "third ")
        cross(flow)
    write_plain(lab["east"].bootstrap, topic_name, 50, "fourth ")
    places = commit_at_random(lab, alias, topic_name, groups=6, seed=2)

    cross(flow)

    assert_exact(lab, alias, topic_name, places)


def test_groups_in_a_compacted_topic_stand_at_the_next_record_that_is_left(
    lab: Lab, topic_name: str, alias: str
) -> None:
    east, hour_ms = lab["east"].bootstrap, 3_600_000
    settings = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0"}
    lab["east"].create_topic(topic_name, PARTITIONS, configs=settings)
    producer = Producer({"bootstrap.servers": east})
    for round_ in range(4):  # each has a segment of its own; the last one is never cleaned
        for partition in range(PARTITIONS):
            for number in range(0, 60, round_ + 1):
                stamp = 1_700_000_000_000 + round_ * hour_ms
                producer.produce(topic_name, f"{round_} {number}", f"{number}", partition=partition, timestamp=stamp)
        assert producer.flush(30) == 0
    # One record is left of each of the 60 keys, and all 15 of the last round.
    wait_for(lambda: {len(rows) for rows in log(east, topic_name).values()} == {75}, 120, "the cleaner is done")
    flow = flow_with_groups(lab, topic_name, alias)
    lab["west"].create_topic(f"{alias}.{topic_name}", PARTITIONS)  # not cleaned: what was next there must stay
    places = commit_at_random(lab, alias, topic_name, groups=10)

    cross(flow)

    assert_exact(lab, alias, topic_name, places)


def test_what_a_killed_lane_had_not_put_on_record_is_found_in_both_logs(
    lab: Lab, topic_name: str, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The middle third is committed by lanes that lose their runs, as at kill -9; then the whole index is lost."""
    lab["east"].create_topic(topic_name, PARTITIONS)
    flow = flow_with_groups(lab, topic_name, alias)
    write_transactions(lab["east"].bootstrap, topic_name, 30, "first ")
    cross(flow)
    with monkeypatch.context() as patch:
        patch.setattr(RunLog, "flush", _forgets)
        write_transactions(lab["east"].bootstrap, topic_name, 30, "second ")
        cross(flow)
    write_transactions(lab["east"].bootstrap, topic_name, 30, "third ")
    places = commit_at_random(lab, alias, topic_name, groups=8)

    cross(flow)

    assert_exact(lab, alias, topic_name, places)
    lab["west"].delete_topic(flow.index_topic)
    places = commit_at_random(lab, alias, topic_name, groups=8, seed=2)

    cross(flow)

    assert_exact(lab, alias, topic_name, places)


async def _forgets(self: RunLog) -> None:
    for track in self._tracks:
        track.runs.clear()
        track.indexed = track.committed


@pytest.mark.parametrize("steps", [1, 4])
def test_in_a_part_that_was_copied_twice_offset_syncs_tell_where_groups_stand(
    lab: Lab, topic_name: str, alias: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A MirrorMaker 2 without exactly-once had copied up to 79, was killed, and went on from 50. Holes are closed in
    one round, or over several, as when a run is ended in the middle of its first."""
    monkeypatch.setattr(translate, "_STEPS", steps)
    east, west, remote = lab["east"].bootstrap, lab["west"].bootstrap, f"{alias}.{topic_name}"
    flow = flow_with_groups(lab, topic_name, alias, offset_syncs_on="target")
    syncs = f"mm2-offset-syncs.{alias}.internal"
    lab["east"].create_topic(topic_name, PARTITIONS, configs=UNENDING)
    lab["west"].create_topic(remote, PARTITIONS, configs=UNENDING)
    for name in (flow.progress_topic, syncs):
        lab["west"].create_topic(name, 1, configs={"cleanup.policy": "compact"})
    rows = numbered(100)
    write(east, topic_name, rows)
    write(west, remote, rows[:80] + rows[50:])
    write(
        west, flow.progress_topic, [{"key": progress_key(CONNECTOR, alias, topic_name, 0), "value": b'{"offset":99}'}]
    )
    stale = OffsetSync(topic_name, 0, 99, 4_000)  # of a copy that is no more
    known = [*(OffsetSync(topic_name, 0, *pair) for pair in ((0, 0), (49, 49), (79, 79), (50, 80), (98, 128))), stale]
    write(west, syncs, [dict(zip(("key", "value"), one.encode(), strict=True)) for one in known])
    places = {f"{alias}-{offset}": {0: offset} for offset in (10, 49, 60, 79, 100)}
    for group, offsets in places.items():
        commit(east, group, topic_name, offsets)

    for _ in range(1 if steps > 1 else 3):
        cross(flow)

    assert_exact(lab, alias, topic_name, places)
    published = checkpoints(lab, alias)
    assert published[f"{alias}-60", remote, 0].downstream == 90, "the second time: nothing comes twice"


def test_where_nothing_is_certain_an_answer_comes_too_early_never_too_late(
    lab: Lab, topic_name: str, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are lost, and a stranger has written into the copy: both logs do not tell it any more."""
    lab["east"].create_topic(topic_name, PARTITIONS)
    flow = flow_with_groups(lab, topic_name, alias)
    write_plain(lab["east"].bootstrap, topic_name, 1_000, "first ")
    cross(flow)
    with monkeypatch.context() as patch:
        patch.setattr(RunLog, "flush", _forgets)
        write_plain(lab["east"].bootstrap, topic_name, 1_000, "second ")
        cross(flow)
    write_plain(lab["west"].bootstrap, f"{alias}.{topic_name}", 10, "stranger ")
    commit(lab["east"].bootstrap, f"{alias}-1", topic_name, dict.fromkeys(range(PARTITIONS), 300))
    commit(lab["east"].bootstrap, f"{alias}-2", topic_name, dict.fromkeys(range(PARTITIONS), 100))

    cross(flow)

    published = checkpoints(lab, alias)
    ends = {one.downstream for (group, _, _), one in published.items() if group == f"{alias}-1"}
    assert ends == {200}, "the end of what is on record"
    assert {one.downstream for (group, _, _), one in published.items() if group == f"{alias}-2"} == {100}
    states = {row.state for row in view(flow).rows if row.group == f"{alias}-1"}
    assert states == {"at least"}


def test_a_group_that_is_ahead_whenever_one_looks_has_an_earlier_place(lab: Lab, topic_name: str, alias: str) -> None:
    """It follows its writers closely. When the source is lost, that place is all that it has."""
    east, group = lab["east"].bootstrap, f"{alias}-1"
    lab["east"].create_topic(topic_name, PARTITIONS)
    flow = flow_with_groups(lab, topic_name, alias)
    carries = flow_with_groups(lab, topic_name, alias, checkpoints=False)
    write_plain(east, topic_name, 1_000)
    cross(flow)

    async def rounds() -> None:
        async with clients(flow) as (source, target):
            await asyncio.gather(source.start(), target.start())
            remotes, copied = {topic_name: f"{alias}.{topic_name}"}, dict[SourcePartition, int]()
            keeper = GroupKeeper(flow, source, target, lambda: remotes, lambda: copied, lambda _: None)
            for place in (250, 350):
                write_plain(east, topic_name, 500)
                commit(east, group, topic_name, dict.fromkeys(range(PARTITIONS), place))
                await keeper.settle()
                if place == 250:
                    assert not keeper.published(), "what it wants next is not copied"
                    await asyncio.to_thread(cross, carries)

    asyncio.run(rounds())
    assert_exact(lab, alias, topic_name, {group: dict.fromkeys(range(PARTITIONS), 250)})


def view(flow: Flow) -> GroupsView:
    async def read() -> GroupsView:
        async with GroupsReader(flow) as reader:
            return await reader.read()

    return asyncio.run(read())


def committed(lab: Lab, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": lab["west"].bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], timeout=20)
    consumer.close()
    return [one.offset for one in found]


def test_groups_of_the_target_follow_and_are_left_alone_where_somebody_works(
    lab: Lab, topic_name: str, alias: str
) -> None:
    lab["east"].create_topic(topic_name, PARTITIONS)
    flow, remote = flow_with_groups(lab, topic_name, alias, group_offsets=True), f"{alias}.{topic_name}"
    group, east, west = f"{alias}-moves", lab["east"].bootstrap, lab["west"].bootstrap
    write_plain(east, topic_name, 1_000)
    commit(east, group, topic_name, dict.fromkeys(range(PARTITIONS), 50))
    with Crossing(flow) as crossing:
        crossing.until_copied(1_000)
        wait_for(lambda: committed(lab, group, remote) == [50] * PARTITIONS, what="the group is there")

        commit(east, group, topic_name, dict.fromkeys(range(PARTITIONS), 120))
        wait_for(lambda: committed(lab, group, remote) == [120] * PARTITIONS, what="it follows")
        commit(east, group, topic_name, dict.fromkeys(range(PARTITIONS), 20))
        wait_for(lambda: committed(lab, group, remote) == [20] * PARTITIONS, what="it follows back")

        # Somebody has read on at the target: nothing moves them back.
        commit(west, group, remote, dict.fromkeys(range(PARTITIONS), 150))
        commit(east, group, topic_name, dict.fromkeys(range(PARTITIONS), 10))
        wait_for(lambda: checkpoints(lab, alias)[group, remote, 0].upstream == 10, what="a round has passed")
        assert committed(lab, group, remote) == [150] * PARTITIONS

        # Somebody works there: not even forward.
        member = Consumer({"bootstrap.servers": west, "group.id": group, "enable.auto.commit": False})
        member.subscribe([remote])
        wait_for(lambda: member.poll(0.5) is not None, what="the member has partitions")
        commit_as_idle = dict.fromkeys(range(PARTITIONS), 190)
        commit(east, group, topic_name, commit_as_idle)
        wait_for(lambda: checkpoints(lab, alias)[group, remote, 0].upstream == 190, what="another round has passed")
        rows = [row for row in view(flow).rows if row.group == group]
        assert all(row.active_on_target and row.state == "exact" for row in rows)
        assert committed(lab, group, remote) == [150] * PARTITIONS
        member.close()
        wait_for(lambda: committed(lab, group, remote) == [190] * PARTITIONS, what="it follows again")


def test_every_odd_place_of_a_group_has_a_state_and_no_wrong_offset(lab: Lab, topic_name: str, alias: str) -> None:
    east = lab["east"].bootstrap
    lab["east"].create_topic(topic_name, PARTITIONS)
    lab["east"].create_topic(f"elsewhere-{topic_name}", PARTITIONS)
    flow = flow_with_groups(lab, topic_name, alias)
    write_plain(east, topic_name, 1_000)
    cross(flow)
    admin = AdminClient({"bootstrap.servers": east})
    for future in admin.delete_records([TopicPartition(topic_name, 0, 100)]).values():
        future.result(20)
    write_plain(east, topic_name, 500)
    group = f"{alias}-odd"
    commit(east, group, topic_name, {0: 50, 1: 250, 2: 5_000, 3: 200, 4: 0})
    commit(east, group, f"elsewhere-{topic_name}", {0: 0})
    commit(east, f"{alias}-gone", topic_name, {1: 7})

    seen = view(flow)

    states = {row.partition: (row.state, row.translated) for row in seen.rows if row.group == group}
    assert states == {0: ("expired", -1), 1: ("ahead", -1), 2: ("beyond", -1), 3: ("exact", 200), 4: ("exact", 0)}
    assert seen.elsewhere == {group: [f"elsewhere-{topic_name}"]}
    cross(flow)
    published = checkpoints(lab, alias)
    assert {place[2] for place in published if place[0] == group} == {1, 3, 4}
    next(iter(admin.delete_consumer_groups([f"{alias}-gone"]).values())).result(20)
    assert view(flow).gone == (f"{alias}-gone",)


def test_records_that_are_none_of_ours_are_left_out_and_counted(lab: Lab, topic_name: str, alias: str) -> None:
    lab["east"].create_topic(topic_name, PARTITIONS)
    flow = flow_with_groups(lab, topic_name, alias)
    write_plain(lab["east"].bootstrap, topic_name, 100)
    cross(flow)
    producer = Producer({"bootstrap.servers": lab["west"].bootstrap})
    for name in (flow.index_topic, f"{alias}.checkpoints.internal"):
        producer.produce(name, b"\x01nonsense", b"not ours")
        producer.produce(name, b"", encode_key(SourcePartition(topic_name, 0), 0))
    assert producer.flush(20) == 0
    commit(lab["east"].bootstrap, f"{alias}-1", topic_name, {0: 5, 1: 6})

    cross(flow)

    found = {one.partition: one.downstream for one in checkpoints_of(lab, alias) if one is not None}
    assert found == {0: 5, 1: 6}
    assert view(flow).skipped == 4


def test_a_group_that_stands_before_the_start_of_the_flow_gets_no_offset(lab: Lab, topic_name: str, alias: str) -> None:
    """What it wants next was never copied: any offset of the target would leave that out."""
    east = lab["east"].bootstrap
    lab["east"].create_topic(topic_name, PARTITIONS)
    write_plain(east, topic_name, 500, "before ")
    flow = dataclasses.replace(flow_with_groups(lab, topic_name, alias), starts=(Start(at="latest"),))
    cross(flow)
    write_plain(east, topic_name, 500, "after ")
    commit(east, f"{alias}-early", topic_name, dict.fromkeys(range(PARTITIONS), 10))
    commit(east, f"{alias}-late", topic_name, dict.fromkeys(range(PARTITIONS), 150))

    cross(flow)

    assert {place[0] for place in checkpoints(lab, alias)} == {f"{alias}-late"}
    states = {row.group: row.state for row in view(flow).rows}
    assert states == {f"{alias}-early": "skipped", f"{alias}-late": "exact"}
