"""How long a record takes from a producer on the source to a read_committed reader on the target.

One process produces 500 records/s and reads them on the other side, so one clock measures both ends.
What is measured includes the producer's and the reader's own way (about 2 ms); it is the same for all
systems. The first seconds are not counted: they wake up connections and, on JVMs, compilers.
"""

from __future__ import annotations

import struct
import threading
import time
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from isthmus.errors import TargetError

RATE = 500
WARM_UP_S = 3.0
GRACE_S = 20.0
_STAMP = struct.Struct(">qq")  # number, monotonic nanoseconds
_PADDING = b"x" * 184  # 200 B in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Quantiles in milliseconds."""

    records: int
    p50: float
    p95: float
    p99: float
    p999: float


def measure_latency(source: str, topic: str, target: str, replica: str, seconds: float) -> Latency:
    """Produce to `topic` for `seconds` after the warm-up; read all of it from `replica`."""
    total = round((WARM_UP_S + seconds) * RATE)
    sender = threading.Thread(target=_send, args=(source, topic, total), name="latency-sender")
    consumer = _consumer(target)
    try:
        sender.start()
        _assign(consumer, replica)
        delays = _receive(consumer, total, time.monotonic() + WARM_UP_S + seconds + GRACE_S)
    finally:
        sender.join()
        consumer.close()
    return quantiles(delays)


def quantiles(delays_ms: list[float]) -> Latency:
    ordered = sorted(delays_ms)
    p50, p95, p99, p999 = (ordered[min(len(ordered) - 1, int(len(ordered) * q))] for q in (0.5, 0.95, 0.99, 0.999))
    return Latency(records=len(ordered), p50=p50, p95=p95, p99=p99, p999=p999)


def _send(bootstrap: str, topic: str, total: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 3})
    begin = time.monotonic()
    for number in range(total):
        ahead = begin + number / RATE - time.monotonic()
        if ahead > 0:
            producer.poll(0)
            time.sleep(ahead)
        producer.produce(topic, _STAMP.pack(number, time.monotonic_ns()) + _PADDING)
    producer.flush(GRACE_S)


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "isthmus-bench",  # librdkafka wants one; nothing is ever committed to it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "fetch.min.bytes": 1,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 10,
            "socket.nagle.disable": True,
            "log_level": 3,
        }
    )


def _assign(consumer: Consumer, topic: str) -> None:
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        found = consumer.list_topics(timeout=GRACE_S).topics.get(topic)
        if found is not None and found.partitions:
            consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in found.partitions])
            return
        time.sleep(0.1)
    raise TargetError(f"Topic {topic} did not appear within {GRACE_S:.0f} s")


def _receive(consumer: Consumer, total: int, deadline: float) -> list[float]:
    counted_from = round(WARM_UP_S * RATE)
    delays = []
    seen = 0
    while seen < total:
        if time.monotonic() > deadline:
            raise TargetError(f"Only {seen} of {total} records arrived in time")
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        now = time.monotonic_ns()
        value = message.value()
        number, sent = _STAMP.unpack_from(value.encode() if isinstance(value, str) else value or b"")
        seen += 1
        if number >= counted_from:
            delays.append((now - sent) / 1e6)
    return delays
