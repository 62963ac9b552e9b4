"""Brokers are warmed before the first system is measured, lest it pays for their compilers.

What a replicator makes brokers do is done for some seconds by librdkafka: transactions on the
target, fetches from the source. Nothing of it is measured, and the topic is deleted afterwards.
"""

from __future__ import annotations

import time

from confluent_kafka import Producer

from isthmus.bench.cases import Case, create_topic
from isthmus.bench.watch import delete_all
from isthmus.lab.oracle import read_topic

RECORDS_PER_TRANSACTION = 500
PATIENCE_S = 60.0


def warm_up(source: str, case: Case, target: str, seconds: float = 6.0) -> None:
    """Read the case's topic on the source, write transactions to the target."""
    create_topic(target, case.topic, case.partitions)
    producer = Producer(
        {
            "bootstrap.servers": target,
            "transactional.id": "isthmus-bench-warm-up",
            "compression.codec": case.codec,
            "log_level": 3,
        }
    )
    producer.init_transactions(PATIENCE_S)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        _transaction(producer, case)
    read_topic(source, case.topic)
    read_topic(target, case.topic)
    delete_all(target)


def _transaction(producer: Producer, case: Case) -> None:
    producer.begin_transaction()
    for number in range(RECORDS_PER_TRANSACTION):
        producer.produce(case.topic, case.make(number), partition=number % case.partitions)
    producer.commit_transaction(PATIENCE_S)
