"""A transaction that stays open on the source: nothing behind it is copied, and it is told who holds it back."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from tests.crossing import Crossing
from tests.integration.sources import Pair, values

from isthmus.engine import hanging
from isthmus.lab import Lab
from isthmus.observe.status import FlowStatus

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(300)]


@pytest.fixture
def pair(lab: Lab) -> Pair:
    return Pair(lab)


def opened(bootstrap: str, topic: str, records: int) -> Producer:
    """A transaction with some records, which nobody ends."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"hangs-{topic}", "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, b"open %d" % number, partition=0)
    producer.flush(60)
    return producer


def told(status: FlowStatus) -> list[str]:
    return [event for event in status.events if "wait behind a transaction" in event]


def test_a_transaction_that_stays_open_is_named_and_what_waits_behind_it_arrives_when_it_ends(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hanging, "LONG_S", 1.0)
    topic = pair.topic("held")
    pair.write(topic, 10)
    producer = opened(pair.source.bootstrap, topic, 5)
    pair.write(topic, 7, first=10)
    with Crossing(pair.flow()) as crossing:
        status = crossing.until(lambda now: bool(told(now)), 120)
        (words,) = told(status)
        assert f"{topic}-0: 12 offsets from 10 on wait behind a transaction of producer" in words
        assert "open since offset 10" in words
        assert len(values(pair.target.bootstrap, pair.remote(topic))) == 10
        producer.commit_transaction(60)
        crossing.until(lambda now: now.records >= 22, 120)
        assert len(told(crossing.status or status)) == 1
    assert len(values(pair.target.bootstrap, pair.remote(topic))) == 22
