"""Consumer groups on real brokers: the next record on the target is the record that was next on the source.

Groups are made, and both logs are read, by librdkafka; what is published is read by MirrorMaker 2's own Java classes.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.crossing import QUICK, Crossing, cross, flow_between
from tests.integration.command import wait_for

from isthmus.engine.offsets.runlog import RunLog
from isthmus.engine.offsets.runs import encode_key
from isthmus.engine.offsets.view import GroupsReader, GroupsView
from isthmus.lab import Lab
from isthmus.mm2.formats import Checkpoint
from isthmus.model import Flow, Groups, Mm2Topics
from isthmus.model import TopicPartition as SourcePartition

pytestmark = [pytest.mark.integration]

KEPT = Mm2Topics(heartbeats=False, carry_heartbeats=False, checkpoint_seconds=0.5, group_offsets_seconds=0.5)
PARTITIONS = 5


@pytest.fixture
def alias() -> str:
    return f"g{uuid.uuid4().hex[:8]}"


def flow_with_groups(lab: Lab, topic: str, alias: str, **kept: object) -> Flow:
    flow = flow_between(lab, f"{topic}.*", alias=alias, groups=Groups(include=(f"{alias}-.*",)), tuning=QUICK)
    return replace(flow, mm2_topics=replace(KEPT, **kept))  # type: ignore[arg-type]


def write_plain(bootstrap: str, topic: str, records: int, tag: str = "") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 2_000})
    for number in range(records):
        producer.produce(topic, f"{tag}{number}", partition=number % PARTITIONS)
        if number % 500 == 0:
            producer.flush(10)
    assert producer.flush(30) == 0


def write_transactions(bootstrap: str, topic: str, transactions: int, tag: str = "") -> None:
    """Of random size; a third is aborted."""
    dice = random.Random(5)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    for number in range(transactions):
        producer.begin_transaction()
        for step in range(dice.randint(1, 60)):
            producer.produce(topic, f"{tag}{number}.{step}", partition=dice.randrange(PARTITIONS))
        producer.abort_transaction(30) if number % 3 == 1 else producer.commit_transaction(30)


def log(bootstrap: str, topic: str) -> dict[int, list[tuple[int, bytes | None]]]:
    """Offset and value of every committed record, by partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.partition.eof": True}
    consumer = Consumer(settings | {"isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[tuple[int, bytes | None]]] = {partition: [] for partition in range(PARTITIONS)}
    ended: set[int] = set()
    while len(ended) < PARTITIONS and (message := consumer.poll(20)) is not None:
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition() or 0)
        else:
            found[message.partition() or 0].append((message.offset() or 0, message.value()))
    consumer.close()
    return found


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, p, o) for p, o in offsets.items()], asynchronous=False)
    consumer.close()


def checkpoints(lab: Lab, alias: str) -> dict[tuple[str, str, int], Checkpoint]:
    found = checkpoints_of(lab, alias)
    assert None not in found
    return {(one.group, one.topic, one.partition): one for one in found if one is not None}


def checkpoints_of(lab: Lab, alias: str) -> list[Checkpoint | None]:
    """As they stand in the topic; None for what is no checkpoint."""
    topic = f"{alias}.checkpoints.internal"
    consumer = Consumer(
        {"bootstrap.servers": lab["west"].bootstrap, "group.id": uuid.uuid4().hex, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        value = message.value()
        assert value is not None, "a tombstone"
        found.append(Checkpoint.decode(message.key() or b"", value))
    consumer.close()
    return found


def next_at(records: list[tuple[int, bytes | None]], offset: int) -> bytes | None:
    return next((value for at, value in records if at >= offset), None)


def commit_at_random(lab: Lab, alias: str, topic: str, groups: int, seed: int = 1) -> dict[str, dict[int, int]]:
    """Groups at random lags, also at offsets of markers and aborted records, at the start and at the end."""
    dice = random.Random(seed)
    source = log(lab["east"].bootstrap, topic)
    places: dict[str, dict[int, int]] = {}
    for number in range(groups):
        ends = {p: records[-1][0] + 1 if records else 0 for p, records in source.items()}
        places[f"{alias}-{number}"] = {p: dice.choice([0, end, *[dice.randint(0, end)] * 6]) for p, end in ends.items()}
    for group, offsets in places.items():
        commit(lab["east"].bootstrap, group, topic, offsets)
    return places


def assert_exact(lab: Lab, alias: str, topic: str, places: dict[str, dict[int, int]]) -> None:
    source, target = log(lab["east"].bootstrap, topic), log(lab["west"].bootstrap, f"{alias}.{topic}")
    published = checkpoints(lab, alias)
    wrong = []
    for group, offsets in places.items():
        for partition, offset in offsets.items():
            found = published.get((group, f"{alias}.{topic}", partition))
            wanted = next_at(source[partition], offset)
            if found is None or found.upstream != offset or next_at(target[partition], found.downstream) != wanted:
                there = found and next_at(target[partition], found.downstream)
                wrong.append((group, partition, offset, wanted, found, there))
    total = sum(map(len, places.values()))
    assert not wrong, f"{total - len(wrong)} of {total} exact; {wrong[:5]}"


@pytest.mark.parametrize("kind", ["plain", "transactional"])
def test_every_group_stands_at_the_record_that_it_would_read_next(
    lab: Lab, topic_name: str, alias: str, kind: str
) -> None:
    lab["east"].create_topic(topic_name, PARTITIONS)
    flow = flow_with_groups(lab, topic_name, alias)
    write = write_plain if kind == "plain" else write_transactions
    write(lab["east"].bootstrap, topic_name, 3_000 if kind == "plain" else 60, "first ")
    with Crossing(flow) as crossing:
        crossing.until(lambda status: status.records > 0)
        write(lab["east"].bootstrap, topic_name, 3_000 if kind == "plain" else 60, "second ")
    places = commit_at_random(lab, alias, topic_name, groups=20)

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
