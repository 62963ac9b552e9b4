"""The control topic of a flow: deleted or made anew under it, and records in it that nobody can read.

Threads instead of Spark; judged by librdkafka. Deleted while a flow is down: see `test_own_topics.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.crossing import Crossing, cross, flow_between
from tests.integration.command import fill, unique

from isthmus.engine.wishes import Wishing
from isthmus.errors import TargetError
from isthmus.lab import Lab
from isthmus.lab.oracle import compare
from isthmus.model import Flow
from isthmus.observe.status import FlowStatus

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(300)]
DAMAGED = [b"{}", b"not json", b'{"phase":"half way","kind":"failover","decided_ms":1,"by":"me"}']


@pytest.fixture
def topic(lab: Lab) -> str:
    name = unique("orders-")
    fill(lab["east"], name, 200, 2)
    return name


@pytest.fixture
def flow(lab: Lab, topic: str) -> Flow:
    return flow_between(lab, topic, alias=unique("a"))


def is_equal(lab: Lab, flow: Flow, topic: str) -> bool:
    return compare(lab["east"].bootstrap, topic, lab["west"].bootstrap, f"{flow.source.alias}.{topic}").equal


def write(bootstrap: str, topic: str, pairs: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number, (key, value) in enumerate(pairs):
        producer.produce(topic, value, key, partition=number % 2 if key is None else 0)
    assert producer.flush(30) == 0


def more(lab: Lab, topic: str) -> None:
    write(lab["east"].bootstrap, topic, [(None, b"more %d" % number) for number in range(100)])


def keys_in(lab: Lab, topic: str) -> set[bytes]:
    """By librdkafka."""
    reader = Consumer({"bootstrap.servers": lab["west"].bootstrap, "group.id": unique("g"), "log_level": 0})
    with contextlib.closing(reader):
        place = TopicPartition(topic, 0)
        _, end = reader.get_watermark_offsets(place, 10)
        reader.assign([TopicPartition(topic, 0, 0)])
        found: set[bytes] = set()
        while (message := reader.poll(10)) is not None:
            found.add(message.key() or b"")
            if (message.offset() or 0) >= end - 1:
                break
    return found


def has_regained(status: FlowStatus) -> bool:
    return any("was deleted while the flow ran" in event for event in status.events)


async def _pause(flow: Flow, *topics: str) -> str:
    async with Wishing(flow) as wishing:
        return (await wishing.pause(frozenset(topics))).heard_by


def test_a_control_topic_that_is_deleted_under_a_running_flow_is_there_again_with_what_it_said(
    lab: Lab, topic: str, flow: Flow
) -> None:
    other = unique("other-")
    fill(lab["east"], other, 10, 1)
    flow = flow_between(lab, topic, other, alias=flow.source.alias)
    with Crossing(flow) as crossing:
        crossing.until_copied(210)
        assert asyncio.run(_pause(flow, other))
        lab["west"].delete_topic(flow.control_topic)
        more(lab, topic)
        crossing.until(has_regained)
        crossing.until_copied(310)
        said = keys_in(lab, flow.control_topic)
        more(lab, topic)
        crossing.until_copied(410)
        assert asyncio.run(_pause(flow))  # and whoever asks for something is heard
    assert said >= {
        b"lease",
        b"snapshot",
        b"fleet",
        b"wish/pause",
        f"topic/{topic}".encode(),
        f"topic/{other}".encode(),
    }
    assert is_equal(lab, flow, topic)


def test_a_lane_with_nothing_new_to_say_says_it_again_in_a_control_topic_that_was_made_anew(
    lab: Lab, topic: str, flow: Flow
) -> None:
    with Crossing(flow) as crossing:
        crossing.until_copied(200)
        lab["west"].delete_topic(flow.control_topic)
        crossing.until(has_regained)
        crossing.until(lambda _: b"status/0" in keys_in(lab, flow.control_topic))


def test_a_control_topic_that_somebody_made_anew_under_a_running_flow_is_gone_on_with(
    lab: Lab, topic: str, flow: Flow
) -> None:
    with Crossing(flow) as crossing:
        crossing.until_copied(200)
        lab["west"].delete_topic(flow.control_topic)
        with contextlib.suppress(Exception):  # we may have been faster
            lab["west"].create_topic(flow.control_topic, 1, 1, {"cleanup.policy": "compact"})
        more(lab, topic)
        crossing.until(has_regained)
        crossing.until_copied(300)
        assert asyncio.run(_pause(flow))
    assert is_equal(lab, flow, topic)


@pytest.mark.parametrize("value", DAMAGED)
def test_a_start_is_refused_while_nobody_can_read_where_clients_work(
    lab: Lab, topic: str, flow: Flow, value: bytes
) -> None:
    cross(flow)
    write(lab["west"].bootstrap, flow.control_topic, [(b"switch", value)])
    more(lab, topic)
    with pytest.raises(TargetError) as refused:
        cross(flow)
    assert refused.value.code == "CONTROL_DAMAGED"
    assert flow.control_topic in refused.value.where
    assert "offset" in refused.value.where

    write(lab["west"].bootstrap, flow.control_topic, [(b"switch", None)])
    cross(flow)
    assert is_equal(lab, flow, topic)


def test_a_running_flow_ends_when_it_cannot_be_read_where_clients_work_and_not_for_other_damage(
    lab: Lab, topic: str, flow: Flow
) -> None:
    strange = [
        (b"status/0", b'{"positions":5}'),
        (b"status/x", b"{}"),
        (b"lease", b"[]"),
        (b"want/0", b'{"revision":[]}'),
    ]
    lasting = [(b"topic/x", b"5"), (b"gap/x/0/5", b'{"first":"x"}')]
    with Crossing(flow) as crossing:
        crossing.until_copied(200)
        write(lab["west"].bootstrap, flow.control_topic, strange + lasting)
        more(lab, topic)
        crossing.until_copied(300)
        crossing.until(lambda status: any("cannot be read" in event for event in status.events))
        write(lab["west"].bootstrap, flow.control_topic, [(b"switch", b"{}")])
        with pytest.raises(TargetError) as ended:
            crossing.until(lambda _: False)
    assert ended.value.code == "CONTROL_DAMAGED"
