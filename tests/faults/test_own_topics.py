"""What happens to the topics that a flow keeps for itself: deleted, under it or while it is down, and others in them.

Threads instead of Spark; judged by librdkafka. Progress that is deleted while a flow is down is in
`test_lost_progress.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.crossing import Crossing, cross, flow_between
from tests.faults.staged import wait_until
from tests.integration.command import fill, unique

from isthmus.engine.writer import CONNECTOR
from isthmus.errors import RivalError, TargetError
from isthmus.lab import Lab
from isthmus.lab.oracle import compare
from isthmus.mm2.progress import progress_key, progress_value
from isthmus.model import Flow

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(300)]


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


def more(lab: Lab, topic: str) -> None:
    producer = Producer({"bootstrap.servers": lab["east"].bootstrap, "log_level": 0})
    for number in range(100):
        producer.produce(topic, b"more %d" % number, partition=number % 2)
    producer.flush(30)


def test_a_control_topic_that_was_deleted_while_a_flow_was_down_costs_no_record_and_doubles_none(
    lab: Lab, topic: str, flow: Flow
) -> None:
    cross(flow)
    lab["west"].delete_topic(flow.control_topic)
    more(lab, topic)

    status = cross(flow)

    assert (status.stopped, status.lag) == ((), 0)
    assert any("nothing else on record" in event for event in status.events)
    assert is_equal(lab, flow, topic)


def test_a_progress_topic_that_is_deleted_under_a_running_flow_ends_it_and_the_next_start_is_refused(
    lab: Lab, topic: str, flow: Flow
) -> None:
    with Crossing(flow) as crossing:
        crossing.until_copied(200)
        lab["west"].delete_topic(flow.progress_topic)
        more(lab, topic)
        with pytest.raises(TargetError) as ended:
            crossing.until(lambda _: False)
    assert ended.value.code == "PROGRESS_LOST"
    assert ended.value.hint
    for _ in range(2):
        with pytest.raises(TargetError) as refused:
            cross(flow)
        assert refused.value.code == "PROGRESS_LOST"


def test_a_flow_that_is_ended_after_its_progress_was_deleted_does_not_forget_that(
    lab: Lab, topic: str, flow: Flow
) -> None:
    """The last words of a flow name the progress that it had, not what is there by then."""
    with Crossing(flow) as crossing:
        crossing.until_copied(200)
        lab["west"].delete_topic(flow.progress_topic)
        driver = crossing.driver
        wait_until(lambda: driver is not None and flow.progress_topic not in driver._target.topics)
    with pytest.raises(TargetError) as refused:
        cross(flow)
    assert refused.value.code == "PROGRESS_LOST"
    assert is_equal(lab, flow, topic)


@contextlib.contextmanager
def open_transaction(lab: Lab, topic: str, key: bytes, value: bytes) -> Iterator[Producer]:
    """Somebody else's, which holds the last stable offset of that topic."""
    stranger = Producer(
        {"bootstrap.servers": lab["west"].bootstrap, "transactional.id": unique("stranger"), "log_level": 0}
    )
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(topic, key=key, value=value, partition=0)
    stranger.flush(30)
    try:
        yield stranger
    finally:
        stranger.abort_transaction(30)


def test_r5_a_strangers_open_transaction_in_the_progress_topic_hides_none_of_ours(
    lab: Lab, topic: str, flow: Flow
) -> None:
    cross(flow)
    with open_transaction(lab, flow.progress_topic, b"not ours", b"{}"):
        for _ in range(3):  # each start has to read what the one before committed behind the stranger's record
            more(lab, topic)
            status = cross(flow)
            assert (status.stopped, status.lag) == ((), 0)
            assert is_equal(lab, flow, topic)


def test_r5_a_stranger_that_has_our_progress_in_an_open_transaction_is_a_rival_and_is_named(
    lab: Lab, topic: str, flow: Flow
) -> None:
    cross(flow)
    key = progress_key(CONNECTOR, flow.source.alias, topic, 0)
    with open_transaction(lab, flow.progress_topic, key, progress_value(5, "", "")):
        with pytest.raises(RivalError) as rival:
            cross(flow)
        assert flow.progress_topic in str(rival.value)
        assert rival.value.hint
    cross(flow)
    assert is_equal(lab, flow, topic)
