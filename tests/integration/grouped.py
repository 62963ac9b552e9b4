"""Groups that stand somewhere, the flow that takes them along, and whether they stand right on the target.

Everything is written, committed and read by librdkafka; only checkpoints are taken apart by our own decoder.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.crossing import QUICK, flow_between

from isthmus.lab import Lab
from isthmus.mm2.formats import Checkpoint
from isthmus.model import Flow, Groups, Mm2Topics

KEPT = Mm2Topics(heartbeats=False, carry_heartbeats=False, checkpoint_seconds=0.5, group_offsets_seconds=0.5)
PARTITIONS = 5
_LOADING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
}


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
        assert producer.flush(30) == 0  # an abort before anything was sent confuses librdkafka
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
    places = [TopicPartition(topic, p, o) for p, o in offsets.items()]
    answered(lambda: consumer.commit(offsets=places, asynchronous=False))
    consumer.close()


def answered(ask: Callable[[], Any], seconds: float = 120.0) -> Any:
    """What a group's coordinator answers; on a busy machine it loads for a while."""
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _LOADING or time.monotonic() > until:
                raise
            time.sleep(0.2)


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
