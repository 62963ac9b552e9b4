"""A flow changes hands between the real MirrorMaker 2 and Isthmus, and back: every record once, groups to the record.

What MirrorMaker 2 writes beside records is taken from these runs, too: its bytes are the ones that we read and write.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from tests.crossing import Crossing, cross
from tests.integration.command import Writing, committed, isthmus, topics_of, wait_for, yaml_file
from tests.integration.grouped import PARTITIONS, assert_exact, commit_at_random, flow_with_groups, write_plain
from tests.integration.java import kafka_java, mirror_answers
from tests.integration.mirrormaker import MirrorMaker
from tests.integration.sources import KEPT, Pair, numbered, producer, read, send, write

from isthmus.engine.adopt import Exchange, Handover
from isthmus.engine.survey import beside
from isthmus.errors import RivalError, TargetError
from isthmus.lab import Lab
from isthmus.lab.oracle import compare, read_topic
from isthmus.mm2.formats import Checkpoint, Heartbeat, OffsetSync
from isthmus.mm2.progress import CONNECTOR, java_partition, parse_progress, progress_key, progress_value
from isthmus.model import Flow
from isthmus.wire.cluster import Client

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

Row = tuple[int, bytes | None, bytes | None]
LONG_S = 180.0  # MirrorMaker 2 starts slowly where much else runs
SLOW_FLUSH = {"offset_flush_interval_ms": "600000"}
TALKATIVE = {
    "emit_heartbeats_enabled": "true",
    "refresh_groups_interval_seconds": "1",
    "emit_checkpoints_interval_seconds": "1",
}


@pytest.fixture
def alias() -> str:
    return f"m{uuid.uuid4().hex[:8]}"


def copied(lab: Lab, remote: str) -> int:
    return sum(len(each.digests) for each in read_topic(lab["west"].bootstrap, remote).values())


def planned(flow: Flow, **names: str) -> Handover:
    async def plan() -> Handover:
        async with Exchange(flow, **names) as exchange:
            return await exchange.plan()

    return asyncio.run(plan())


def taken(flow: Flow, *, accept_duplicates: bool = False, **names: str) -> Handover:
    async def adopt() -> Handover:
        async with Exchange(flow, **names) as exchange:
            return await exchange.adopt(accept_duplicates=accept_duplicates)

    return asyncio.run(adopt())


def given_back(flow: Flow, **names: str) -> Handover:
    async def release() -> Handover:
        async with Exchange(flow, **names) as exchange:
            return await exchange.release(write=True)

    return asyncio.run(release())


def states(found: Handover) -> dict[int, tuple[str, int, int]]:
    return {row.partition: (row.state, row.stored, row.next) for row in found.rows}


def proven(lab: Lab, topic: str, alias: str) -> int:
    verdict = compare(lab["east"].bootstrap, topic, lab["west"].bootstrap, f"{alias}.{topic}")
    assert verdict.equal, verdict
    return verdict.records


# ---- the real MirrorMaker 2 ----------------------------------------------------------------------


def test_mirrormaker_isthmus_and_mirrormaker_again_copy_every_record_once(
    lab: Lab, topic_name: str, alias: str, tmp_path: Path
) -> None:
    lab["east"].create_topic(topic_name, PARTITIONS)
    flow, remote = flow_with_groups(lab, topic_name, alias), f"{alias}.{topic_name}"
    write_plain(lab["east"].bootstrap, topic_name, 2_000)
    # A flow of ours on the same topic: it leaves heartbeats at the source, which MirrorMaker 2 carries as well.
    cross(flow_with_groups(lab, topic_name, f"{alias}i", heartbeats=True, carry_heartbeats=True))
    mirror = MirrorMaker(flow, tmp_path, exactly_once=True, groups=f"{alias}-.*", **TALKATIVE)
    with contextlib.ExitStack() as producing:
        producing.enter_context(Writing(lab["east"].bootstrap, topic_name, PARTITIONS, per_second=100))
        with mirror:
            mirror.until(lambda: copied(lab, remote) > 2_000, "it copies", LONG_S)
            with pytest.raises(RivalError, match="MirrorMaker 2 still runs"):
                taken(flow)
            assert "runs beside this flow" in asyncio.run(_word_of_warning(flow))
            places = commit_at_random(lab, alias, topic_name, groups=6)
            mirror.until(lambda: len(read(lab["west"].bootstrap, f"{alias}.checkpoints.internal")), "groups", LONG_S)
            mirror.until(lambda: f"{alias}.heartbeats" in topics_of(lab["west"].bootstrap), "heartbeats", LONG_S)
            mirror.kill()
        _assert_bytes_are_ours(lab, flow, topic_name)
        _assert_answers_are_the_same(lab, alias, f"{alias}i")
        wait_for(lambda: not planned(flow).group_state, 60, "its group has lost its members")

        adopted = isthmus("adopt", mirror.file, "--from", "mm2", "--yes", "-o", "json")
        assert adopted.code == 0, adopted
        told = adopted.json()
        assert told["done"]
        assert told["transactional_ids"] == [f"{alias}-mm2-MirrorSourceConnector-0"]
        assert {row["state"] for row in told["rows"] if row["topic"] == topic_name} == {"exact"}

        with Crossing(flow) as crossing:
            crossing.until_copied(300)
        assert_exact(lab, alias, topic_name, places)

        released = isthmus("release", mirror.file, "--to", "mm2", "--yes", "-o", "json")
        assert released.json()["done"], released
        rows = {(row["topic"], row["partition"]): row["next"] for row in released.json()["rows"] if row["next"] >= 0}
        assert len(rows) >= PARTITIONS
        assert rows.items() <= _believed(lab, flow).items()
        ours = copied(lab, remote)
        with mirror:
            mirror.until(lambda: copied(lab, remote) > ours, "it goes on", LONG_S)
            producing.close()
            total = sum(committed(lab["east"].bootstrap, topic_name))
            mirror.until(lambda: copied(lab, remote) >= total, "it copies the rest", LONG_S)
    assert proven(lab, topic_name, alias) == total


async def _word_of_warning(flow: Flow) -> str:
    """What a run says of a MirrorMaker 2 that is still there."""
    target = Client(flow.target)
    try:
        await target.start()
        return await beside(target, flow)
    finally:
        target.close()


def _believed(lab: Lab, flow: Flow) -> dict[tuple[str, int], int]:
    """Where a MirrorMaker 2 that reads uncommitted offsets, too, would go on."""
    stored = read(lab["west"].bootstrap, flow.progress_topic, committed=False)
    found = [one for _, key, value in stored if (one := parse_progress(key or b"", value)) is not None]
    return {(one.topic, one.partition): one.offset + 1 for one in found if one.offset is not None}


def _assert_answers_are_the_same(lab: Lab, theirs: str, ours: str) -> None:
    """MirrorClient tells of our flow what it tells of MirrorMaker 2's."""
    with kafka_java() as jvm:
        told = mirror_answers(jvm, lab["west"].bootstrap, theirs)
        assert mirror_answers(jvm, lab["west"].bootstrap, ours) == told
    assert all(told.values()), told


def _assert_bytes_are_ours(lab: Lab, flow: Flow, topic: str) -> None:
    """What the real MirrorMaker 2 wrote is read here, and would be written here as the same bytes."""
    alias, west = flow.source.alias, lab["west"].bootstrap
    kinds: dict[type[Heartbeat] | type[Checkpoint] | type[OffsetSync], list[Row]] = {
        Heartbeat: read(west, "heartbeats"),
        Checkpoint: read(west, f"{alias}.checkpoints.internal"),
        OffsetSync: read(lab["east"].bootstrap, "mm2-offset-syncs.west.internal"),
    }
    for kind, records in kinds.items():
        found = [(kind.decode(key or b"", value or b""), key, value) for _, key, value in records]
        assert all(one is not None and one.encode() == (key, value) for one, key, value in found), kind
        assert any(one is not None and {alias, f"{alias}.{topic}", topic} & set(one) for one, _, _ in found), kind
    stored = read(west, flow.progress_topic)
    named = [(number, parse_progress(key or b"", value), key, value) for number, key, value in stored]
    ours = [each for each in named if each[1] is not None]
    assert ours
    assert {json.loads(key or b"[0]")[0] for _, one, key, _ in named if one is None} <= {
        "MirrorHeartbeatConnector",
        "MirrorCheckpointConnector",
    }
    for number, one, key, value in ours:
        assert one is not None
        assert one.offset is not None
        assert (key, value) == (progress_key(CONNECTOR, alias, one.topic, one.partition), progress_value(one.offset))
        assert number == java_partition(key or b"", 3)


def test_what_a_killed_mirrormaker_had_not_stored_is_not_copied_again(
    lab: Lab, topic_name: str, alias: str, tmp_path: Path
) -> None:
    """At least once: its offsets lag behind its records. It began where Isthmus had stopped."""
    east, remote = lab["east"].bootstrap, f"{alias}.{topic_name}"
    lab["east"].create_topic(topic_name, 3, configs=KEPT)
    flow = named(Pair(lab).flow(), alias, topic_name)
    write(east, topic_name, numbered(600, partitions=2))
    cross(flow)
    write(east, topic_name, numbered(900, first=600, partitions=3))
    mirror = MirrorMaker(flow, tmp_path, exactly_once=False, **SLOW_FLUSH)
    with mirror:
        mirror.until(lambda: copied(lab, remote) >= 1_500, "it copies", LONG_S)
        mirror.kill()
    write(east, topic_name, numbered(300, first=1_500, partitions=3))
    wait_for(lambda: not planned(flow).group_state, 60, "its group has lost its members")
    expected = {0: ("further", 300, 600), 1: ("further", 300, 600), 2: ("further", -1, 300)}
    assert states(planned(flow)) == expected
    assert states(planned(flow)) == expected, "a plan changes nothing"

    adopted = isthmus("adopt", mirror.file, "--from", "mm2", "--yes")

    assert adopted.code == 0, adopted
    assert "further" in adopted.out
    cross(flow)
    assert proven(lab, topic_name, alias) == 1_800


def test_a_transaction_that_a_killed_task_left_open_is_decided_before_its_offsets_are_read(
    lab: Lab, topic_name: str, alias: str
) -> None:
    """A task of exactly-once mode by its transactional id; it had written records and progress, and no end."""
    west, remote = lab["west"].bootstrap, f"{alias}.{topic_name}"
    lab["east"].create_topic(topic_name, configs=KEPT)
    write(lab["east"].bootstrap, topic_name, numbered(50))
    flow = named(Pair(lab).flow(), alias, topic_name)
    cross(flow)
    write(lab["east"].bootstrap, topic_name, numbered(50, first=50))
    task = producer(west, transactional_id=f"{alias}-mm2-MirrorSourceConnector-0")
    task.begin_transaction()
    send(task, remote, numbered(50, first=50))
    send(task, flow.progress_topic, [{"key": progress_key(CONNECTOR, alias, topic_name, 0), "value": b'{"offset":99}'}])
    assert states(planned(flow)) == {0: ("uncertain", 50, 50)}

    found = taken(flow)

    assert states(found) == {0: ("exact", 50, 50)}
    with pytest.raises(KafkaException, match="_FENCED"):
        task.commit_transaction(20)
    cross(flow)
    assert proven(lab, topic_name, alias) == 100


def named(flow: Flow, alias: str, topic: str) -> Flow:
    return replace(flow, source=replace(flow.source, alias=alias), topics=replace(flow.topics, include=(topic,)))


# ---- names of Strimzi, and what is not certain ---------------------------------------------------


def _strimzi(lab: Lab, alias: str, topic: str, stored: dict[int, int]) -> str:
    """An offsets topic as Strimzi's Connect cluster keeps it, with the last offset of each partition."""
    name = f"{alias}-connect-offsets"
    lab["west"].create_topic(name, 1, configs={"cleanup.policy": "compact"})
    rows = [
        {
            "key": progress_key(f"{alias}->west.MirrorSourceConnector", alias, topic, number),
            "value": progress_value(last),
        }
        for number, last in stored.items()
    ]
    write(lab["west"].bootstrap, name, rows)
    return name


def test_offsets_of_strimzi_are_taken_over_and_given_back(
    lab: Lab, topic_name: str, alias: str, tmp_path: Path
) -> None:
    east, west, remote = lab["east"].bootstrap, lab["west"].bootstrap, f"{alias}.{topic_name}"
    for cluster, name in (("east", topic_name), ("west", remote)):
        lab[cluster].create_topic(name, 2, configs=KEPT)
        write(lab[cluster].bootstrap, name, numbered(200, partitions=2))
    topic = _strimzi(lab, alias, topic_name, {0: 99, 1: 59})
    write(east, topic_name, numbered(100, first=200, partitions=2))
    file = yaml_file(tmp_path, east, west, alias=alias, topics=[topic_name])
    flow = named(Pair(lab).flow(), alias, topic_name)
    expected = {0: ("exact", 100, 100), 1: ("further", 60, 100)}

    shown = isthmus("adopt", file, "--from", "mm2", "--offsets-topic", topic)
    assert shown.code == 0, shown
    assert "Nothing was changed" in shown.out
    assert states(taken(flow, offsets_topic=topic)) == expected
    cross(flow)
    assert proven(lab, topic_name, alias) == 300

    assert given_back(flow, offsets_topic=topic).done
    found = [parse_progress(key or b"", value) for _, key, value in read(west, topic)]
    assert {(one.partition, one.offset) for one in found[2:] if one is not None} >= {(0, 149), (1, 149)}


def test_where_it_is_not_certain_the_operator_decides(lab: Lab, topic_name: str, alias: str, tmp_path: Path) -> None:
    """Somebody else wrote into the copy; a topic holds the same record all over; the copy is gone."""
    east, west, remote = lab["east"].bootstrap, lab["west"].bootstrap, f"{alias}.{topic_name}"
    for cluster, name in (("east", topic_name), ("west", remote)):
        lab[cluster].create_topic(name, 3, configs=KEPT)
        write(lab[cluster].bootstrap, name, numbered(50))
        write(lab[cluster].bootstrap, name, [{"value": b"same", "timestamp": 1_700_000_000_000, "partition": 1}] * 30)
    write(west, remote, [{"value": b"stranger"}])
    write(east, topic_name, numbered(50, partition=2))
    topic = _strimzi(lab, alias, topic_name, {0: 39, 1: 9, 2: 19})
    file = yaml_file(tmp_path, east, west, alias=alias, topics=[topic_name])
    refused = isthmus("adopt", file, "--from", "mm2", "--offsets-topic", topic, "--yes")
    assert (refused.code, "NOT_CERTAIN" in refused.err) == (TargetError.exit_code, True), refused
    assert "for 3 partitions" in refused.err
    found = taken(named(Pair(lab).flow(), alias, topic_name), accept_duplicates=True, offsets_topic=topic)
    assert [row.next for row in found.rows] == [40, 10, 20]


def test_a_flow_that_mirrormaker_never_had_is_refused(lab: Lab, topic_name: str, alias: str) -> None:
    lab["east"].create_topic(topic_name)
    with pytest.raises(TargetError, match="no offsets of a MirrorMaker 2") as error:
        planned(named(Pair(lab).flow(), alias, topic_name))
    assert error.value.code == "NO_MM2"
