"""What the bench copies: five kinds of topics, and how to fill them.

Sizes are those of a full run (`scale` 1). Content comes from pools that are longer than what a
codec can look back on, so topics compress like real ones although filling takes seconds.

What must stay true: every partition holds batches of the size that its case asks for. Records go to
one partition in runs of exactly one batch, and librdkafka cuts batches by that number of records;
`run` prints what the source really stores. All is produced before the first replicator starts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from isthmus.bench.watch import end_offsets
from isthmus.errors import SourceError
from isthmus.lab.mix import order_bodies

PATIENCE_S = 120.0
LATENCY_PARTITIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of topic. `batch_records` decides the size of its batches."""

    name: str
    what: str
    records: int
    make: Callable[[int], bytes]
    codec: str
    batch_records: int
    partitions: int = 4

    @property
    def topic(self) -> str:
        return f"bench-{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A case's topic as it is on the source now. `bytes` counts keys and values."""

    case: Case
    records: int
    bytes: int


def _json(number: int) -> bytes:
    bodies = order_bodies()
    return b'{"order_id": "%012d", %b' % (number, bodies[number % len(bodies)])


def _slim_json(number: int) -> bytes:
    bodies = order_bodies()
    return b'{"order_id": "%012d", "slim": 1, %b' % (number, bodies[number % len(bodies)][-300:])


def _random(number: int) -> bytes:
    blocks = _blocks()
    return b"%012d%b" % (number, blocks[number % len(blocks)])


@cache
def _blocks() -> tuple[bytes, ...]:
    dice = random.Random(5)
    return tuple(dice.randbytes(488) for _ in range(4_093))


# 90 JSON records are 16 KB as lz4, 35 of them 16 KB as they are; 130 of 500 B are 64 KB; 12 slim
# ones are 4 KB before compression.
CASES = {
    case.name: case
    for case in (
        Case(
            name="json",
            what="JSON of ~460 B, lz4, 16 KB batches",
            records=2_000_000,
            make=_json,
            codec="lz4",
            batch_records=90,
        ),
        Case(
            name="random",
            what="500 B incompressible, 64 KB batches",
            records=1_000_000,
            make=_random,
            codec="none",
            batch_records=130,
        ),
        Case(
            name="small",
            what="lz4 batches of 12 records, 4 KB uncompressed",
            records=1_000_000,
            make=_slim_json,
            codec="lz4",
            batch_records=12,
        ),
        Case(
            name="wide",
            what="as json, over 512 partitions",
            records=2_000_000,
            make=_json,
            codec="lz4",
            batch_records=90,
            partitions=512,
        ),
        Case(
            name="uncompressed",
            what="JSON of ~460 B, 16 KB batches",
            records=1_000_000,
            make=_json,
            codec="none",
            batch_records=35,
        ),
    )
}


def _bare(_: int) -> dict[str, Any]:
    return {}


def fill(bootstrap: str, case: Case, scale: float, dress: Callable[[int], dict[str, Any]] = _bare) -> Filled:
    """Create the case's topic and produce its records; the topic must not exist. `dress`: keys, headers, times."""
    # Whole batches in every partition, so that no short ones blur the case.
    share = case.batch_records * case.partitions
    records = max(1, round(case.records * scale / share)) * share
    create_topic(bootstrap, case.topic, case.partitions)
    producer = _producer(bootstrap, case)
    size = 0
    for number in range(records):
        value = case.make(number)
        size += len(value)
        _send(producer, case.topic, value, number // case.batch_records % case.partitions, dress(number))
    if left := producer.flush(PATIENCE_S):
        raise SourceError(f"{left} records of {case.topic} were not taken within {PATIENCE_S:.0f} s")
    return Filled(case=case, records=records, bytes=size)


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create it and wait until every partition answers, so that nobody measures elections."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=PATIENCE_S).values():
        future.result(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while end_offsets(admin, topic, partitions) is None:
        if time.monotonic() > deadline:
            raise SourceError(f"Topic {topic} has no leaders after {PATIENCE_S:.0f} s", where=bootstrap)
        time.sleep(0.1)


def _producer(bootstrap: str, case: Case) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": case.codec,
            "batch.num.messages": case.batch_records,
            "batch.size": 1_000_000,  # the number of records decides, not this
            "linger.ms": 200,  # long enough that a batch is full before it leaves
            "enable.idempotence": True,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 256 << 10,
            "delivery.report.only.error": True,
            "log_level": 3,
        }
    )


def _send(producer: Producer, topic: str, value: bytes, partition: int, more: dict[str, Any]) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition, on_delivery=_delivered, **more)
        except BufferError:
            producer.poll(0.05)
        else:
            return


def _delivered(error: KafkaError | None, _message: object) -> None:
    if error is not None:
        raise KafkaException(error)


def write_slowly(bootstrap: str, topic: str, partitions: int, seconds: float, per_s: int = 500) -> None:
    """A trickle of records, at a pace that a clock keeps; for a process of its own."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 2})
    began, sent = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        while sent < passed * per_s:
            producer.produce(topic, _json(sent), partition=sent % partitions)
            sent += 1
        producer.poll(0)
        time.sleep(0.002)
    producer.flush(PATIENCE_S)
