"""A short storm, by a seed: the same command as users have, with every judge it has. `make torture` is the long one."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaException, Producer
from tests.faults.staged import wait_until
from tests.integration.command import fill, isthmus, unique

from isthmus.lab import Lab
from isthmus.torture.bystander import end_of, written
from isthmus.torture.tools import open_transactions

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(600)]

KINDS = (
    "worker killed",
    "program killed",
    "target: broker killed",
    "target: reset again and again",
    "source: cut off",
    "one topic: made anew",
)


def test_a_short_storm_loses_doubles_and_moves_nothing() -> None:
    only = [word for kind in KINDS for word in ("--only", kind)]
    ended = isthmus("torture", "--seed", 7, "--faults", len(KINDS), *only, "-o", "json", seconds=560)
    assert ended.code == 0, ended
    found = ended.json()
    assert sorted(row["kind"] for row in found["kinds"]) == sorted(KINDS)
    assert (found["lost"], found["duplicated"], found["reordered"], found["altered"]) == (0, 0, 0, 0)
    assert found["reader"] == {"missing": 0, "again": 0}
    assert found["records"] > 1_000


def test_a_topic_that_brokers_have_not_heard_of_yet_is_waited_for(lab: Lab) -> None:
    """As after it was made anew: a broker that is behind says that there is none."""
    topic, bootstrap = unique("late-"), lab["west"].bootstrap
    with pytest.raises(KafkaException):
        end_of(bootstrap, topic, within_s=0)
    creating = threading.Timer(2.0, lab["west"].create_topic, [topic])
    creating.start()
    assert end_of(bootstrap, topic) == 0
    creating.join()
    assert written(bootstrap, topic, 3, 10) == 3
    assert end_of(bootstrap, topic) == 3


def test_a_transaction_that_was_left_open_is_found_by_kafkas_own_tool(lab: Lab) -> None:
    topic, name = unique("t-"), unique("left-")
    fill(lab["west"], topic, 1, 1)
    producer = Producer({"bootstrap.servers": lab["west"].bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    assert open_transactions(lab["west"].bootstrap, "left-") == [name]
    producer.abort_transaction(30)
    wait_until(lambda: not open_transactions(lab["west"].bootstrap, "left-"), 60)  # its marker is still to come
