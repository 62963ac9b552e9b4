"""Whole flows that are answered with error codes, request by request: every record once, or words about what to do.

A running flow meets one code after another to each request that it and its lanes make, and works in between; judged by
librdkafka. What a code does to a single request is in `test_reactions.py`, records themselves are in
`test_error_codes.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.crossing import QUICK, RECORDS_ONLY, Crossing, cross
from tests.faults.reactions import EVERY_CODE, row_of
from tests.faults.scripted import (
    ADD,
    COMMIT,
    CREATE,
    FETCH,
    FIND,
    INIT,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSETS,
    PRODUCE,
)
from tests.faults.staged import InTurn, Stage, staged, trickle, wait_until
from tests.integration.command import fill, unique
from tests.integration.grouped import commit

from isthmus import model
from isthmus.dr.groups import Movers
from isthmus.dr.values import GroupPlace
from isthmus.engine.offsets import keeper
from isthmus.engine.sides import unconnected
from isthmus.errors import BrokerUnreachable, IsthmusError
from isthmus.lab import ClusterSpec
from isthmus.model import Flow
from isthmus.observe.status import FlowStatus

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(600)]

# Of each kind of trouble some: unknown, moving, coordinators, controllers, rights, versions, fences, topics, logins.
SOME = [-1, 2, 3, 5, 7, 14, 16, 29, 31, 35, 41, 47, 48, 51, 53, 58, 90, 100]
LANES = 8
BRIEF = dataclasses.replace(QUICK, epoch_seconds=0.3)  # many orders, so many fences, claims and reads of progress


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    first = ClusterSpec(name="first", features={"transaction.version": 1})
    with staged(ClusterSpec(name="east"), ClusterSpec(name="west"), first) as found:
        yield found


@pytest.fixture(autouse=True)
def as_usual(stage: Stage) -> Iterator[None]:
    yield
    stage.calm()


def filled(stage: Stage) -> tuple[str, str]:
    topic, alias = unique("t-"), unique("a")
    fill(stage.lab["east"], topic, 10 * LANES, LANES)
    return topic, alias


def meet(stage: Stage, crossing: Crossing, side: str, script: InTurn) -> None:
    """Every code of a script, then calm."""
    stage.doors[side].script = script
    try:
        wait_until(lambda: crossing.error or not script.left, 120)
    finally:
        stage.doors[side].script = lambda *_: 0
    assert crossing.error is None, crossing.error


def test_a_running_flow_goes_on_after_any_answer_to_any_request(stage: Stage) -> None:
    topic, alias = filled(stage)
    flow = stage.flow(topic, alias, lanes=LANES, tuning=BRIEF)
    ids, control, progress = f".{alias}.", flow.control_topic, flow.progress_topic
    asked = [
        ("west", INIT, ids),
        ("west", FIND, ids),
        *(("west", api, control) for api in (LIST_OFFSETS, PRODUCE, FETCH, METADATA)),
        *(("west", api, progress) for api in (LIST_OFFSETS, PRODUCE, FETCH, METADATA)),
        ("west", METADATA, f"{alias}.{topic}"),
        ("east", METADATA, topic),
    ]
    with trickle(stage.lab["east"].bootstrap, topic, LANES), Crossing(flow) as crossing:
        crossing.until_copied(10 * LANES)
        for side, api, name in asked:
            meet(stage, crossing, side, InTurn(api, lambda said, name=name: name in said, SOME))  # type: ignore[misc]
    assert crossing.error is None, crossing.error
    status = cross(flow)
    assert (status.stopped, status.lag) == ((), 0)
    assert stage.verdict(topic, alias).equal


def test_a_running_flow_goes_on_after_any_answer_under_the_first_protocol(stage: Stage) -> None:
    topic, alias = filled(stage)
    flow = stage.flow(topic, alias, "first", lanes=LANES, tuning=BRIEF)
    with trickle(stage.lab["east"].bootstrap, topic, LANES), Crossing(flow) as crossing:
        crossing.until_copied(10 * LANES)
        for api in (ADD, INIT):
            meet(stage, crossing, "first", InTurn(api, lambda name: f".{alias}." in name, SOME, every=4))
    status = cross(flow)
    assert (status.stopped, status.lag) == ((), 0)
    assert stage.verdict(topic, alias, "first").equal


def test_every_answer_to_the_question_where_a_log_begins_has_its_reaction(stage: Stage) -> None:
    """And none holds up another partition (I7)."""
    topic, alias, told = unique("begin-"), unique("a"), set[int]()
    fill(stage.lab["east"], topic, 2 * len(EVERY_CODE), len(EVERY_CODE))

    def script(api: int, name: str, partition: int) -> int:
        if (api, name) != (LIST_OFFSETS, topic) or partition in told:
            return 0
        told.add(partition)
        return EVERY_CODE[partition]

    stage.east.script = script
    refused = set(EVERY_CODE) - set(row_of("ListOffsets of a source partition").again)
    with Crossing(stage.flow(topic, alias)) as crossing:
        status = crossing.until(
            lambda now: len(now.stopped) == len(refused) and now.records == 2 * (130 - len(refused))
        )
    assert {EVERY_CODE[each.partition] for each in status.stopped} == refused
    assert {each.code for each in status.stopped} == {"SOURCE_REFUSED"}
    assert cross(stage.flow(topic, alias)).stopped == ()
    assert stage.verdict(topic, alias).equal


def test_a_leader_that_does_not_tell_where_a_log_begins_holds_up_no_other_partition(stage: Stage) -> None:
    topic, alias = filled(stage)
    stage.east.script = lambda api, name, number: 5 if (api, name, number) == (LIST_OFFSETS, topic, 0) else 0
    with Crossing(stage.flow(topic, alias)) as crossing:
        crossing.until_copied(10 * (LANES - 1), 20)
        stage.calm()
        crossing.until_copied(10 * LANES, 20)
    assert stage.verdict(topic, alias).equal


# (request, code, where it is asked of, a word of the answer that a start ends with)
FOR_GOOD = [
    (INIT, 53, "isthmus.", "InitProducerId"),
    (INIT, 31, "isthmus.", "InitProducerId"),
    (FIND, 53, "isthmus.", "FindCoordinator"),
    (LIST_OFFSETS, 29, "mm2-isthmus.", "ListOffsets"),
    (LIST_OFFSETS, 29, "mm2-offsets.", "ListOffsets"),
    (FETCH, 29, "mm2-isthmus.", "Fetch"),
    (FETCH, 58, "mm2-offsets.", "Fetch"),
    (PRODUCE, 29, "mm2-isthmus.", "Produce"),
    (PRODUCE, 35, "mm2-isthmus.", "Produce"),
    (PRODUCE, 29, "mm2-offsets.", "Produce"),
]


def test_a_start_that_is_refused_for_good_ends_with_the_request_the_cluster_and_what_to_do(stage: Stage) -> None:
    topic, alias = filled(stage)
    flow = stage.flow(topic, alias)
    cross(flow)  # or there would be nothing to read
    for api, code, name, word in FOR_GOOD[:-1]:
        stage.west.script = lambda asked, said, _, api=api, code=code, name=name: (  # type: ignore[misc]
            code if asked == api and said.startswith(name) and alias in said else 0
        )
        with pytest.raises(IsthmusError) as error:
            cross(flow)
        told = (word in str(error.value), f"({code})" in str(error.value), "west" in str(error.value))
        assert (told, bool(error.value.hint)) == ((True, True, True), True), error.value
        stage.calm()
        fill_more(stage, topic)
    cross(flow)
    assert stage.verdict(topic, alias).equal


def test_a_running_flow_that_is_refused_for_good_says_so_and_goes_on_when_that_ends(stage: Stage) -> None:
    topic, alias = filled(stage)
    flow = stage.flow(topic, alias, tuning=BRIEF)
    with Crossing(flow) as crossing:
        crossing.until_copied(10 * LANES)
        for api, code, name, word in FOR_GOOD:
            stage.west.script = lambda asked, said, _, api=api, code=code, name=name: (  # type: ignore[misc]
                code if asked == api and said.startswith(name) and alias in said else 0
            )
            fill_more(stage, topic)
            crossing.until(lambda now, word=word, code=code: _is_told(now, word, code), 30)  # type: ignore[misc]
            stage.calm()
        crossing.until(lambda _: stage.verdict(topic, alias).equal)
    assert crossing.final is not None
    assert crossing.final.stopped == ()


def _is_told(status: FlowStatus, word: str, code: int) -> bool:
    texts = [*(lane.error for lane in status.lanes), *status.events]
    return any(word in text and f"({code})" in text for text in texts)


def fill_more(stage: Stage, topic: str) -> None:
    with trickle(stage.lab["east"].bootstrap, topic, LANES, 0.02) as count:
        wait_until(lambda: count[0])


def test_a_topic_that_the_target_refuses_to_create_waits_with_a_stop_and_is_copied_when_it_may(stage: Stage) -> None:
    topic, alias = filled(stage)
    later = f"{topic}-later"
    flow = stage.flow(f"{topic}.*", alias)
    stage.west.script = lambda api, name, _: 44 if api == CREATE and name.endswith(later) else 0  # POLICY_VIOLATION
    with Crossing(flow) as crossing:
        crossing.until_copied(10 * LANES)
        fill(stage.lab["east"], later, 10, 1)
        status = crossing.until(lambda now: bool(now.stopped))
        assert [(each.topic, each.code) for each in status.stopped] == [(later, "TARGET_REFUSED")]
        stage.calm()
        crossing.until_copied(10 * LANES + 10)
    assert stage.verdict(later, alias).equal


def test_groups_are_taken_along_after_any_answer_about_them_and_records_never_wait(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_IDLE_SHARE", 0)  # rounds become rarer on a busy machine, and each meets one code
    topic, alias, group = *filled(stage), unique("g")
    commit(stage.lab["east"].bootstrap, group, topic, {0: 7})
    kept = dataclasses.replace(
        RECORDS_ONLY, checkpoints=True, checkpoint_seconds=0.1, group_offsets=True, group_offsets_seconds=0.1
    )
    flow = stage.flow(topic, alias, mm2_topics=kept)
    some = [-1, 7, 14, 16, 24, 25, 30, 35, 69]
    commits = InTurn(COMMIT, lambda name: name == group, some, every=1)
    stage.west.script = commits
    with trickle(stage.lab["east"].bootstrap, topic, LANES), Crossing(flow) as crossing:
        meet(stage, crossing, "west", commits)
        wait_until(lambda: _committed(stage, group, f"{alias}.{topic}") == 7)
        for side in ("east", "west"):
            for api in (LIST_GROUPS, OFFSETS):
                meet(stage, crossing, side, InTurn(api, lambda name: name in ("", group), some))
        told = crossing.status.events if crossing.status else ()
        assert any(f"offsets of group {group} could not be read: NOT_COORDINATOR" in event for event in told)
        commit(stage.lab["east"].bootstrap, group, topic, {0: 9})
        wait_until(lambda: _committed(stage, group, f"{alias}.{topic}") == 9)
    cross(flow)
    assert stage.verdict(topic, alias).equal


def test_a_group_that_moves_while_clients_change_sides_is_waited_for_and_one_that_stays_away_is_named(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, alias, group = *filled(stage), unique("g")
    flow = stage.flow(topic, alias, mm2_topics=dataclasses.replace(RECORDS_ONLY, group_offsets=True))
    cross(flow)
    commit(stage.lab["east"].bootstrap, group, topic, {0: 7})
    stage.east.script = away = InTurn(OFFSETS, lambda name: name in ("", group), [16, 14, 15], every=1)
    (place,) = asyncio.run(_moved(flow, topic))
    assert (place.group, place.offset, away.left) == (group, 7, [])
    assert _committed(stage, group, f"{alias}.{topic}") == 7
    monkeypatch.setattr(keeper, "_TRIES", 1)
    stage.east.script = lambda api, name, _: 16 if (api, name) == (OFFSETS, group) else 0
    with pytest.raises(BrokerUnreachable, match=f"offsets of group {group} could not be read: NOT_COORDINATOR"):
        asyncio.run(_moved(flow, topic))


async def _moved(flow: Flow, topic: str) -> list[GroupPlace]:
    """As a switchover does it, when everything is copied."""
    (source, target), copy = unconnected(flow), f"{flow.source.alias}.{topic}"
    try:
        await asyncio.gather(source.start(), target.start())
        await source.refresh([topic])
        await target.refresh([copy, flow.index_topic])
        copied = {model.TopicPartition(topic, each): 10 for each in range(LANES)}
        return await Movers(flow, source, target, {topic: copy}, copied).move()
    finally:
        source.close()
        target.close()


def _committed(stage: Stage, group: str, topic: str) -> int:
    reader = Consumer({"bootstrap.servers": stage.lab["west"].bootstrap, "group.id": group, "log_level": 0})
    try:
        (found,) = reader.committed([TopicPartition(topic, 0)], 10)
    finally:
        reader.close()
    return int(found.offset)
