"""A realistic mix of topics for demo and tests: what a shop's cluster would hold.

    <prefix>-orders           4 partitions   lz4     JSON of ~460 B, keys, headers
    <prefix>-clicks           6 partitions   zstd    small records, no keys
    <prefix>-payments         3 partitions   snappy  transactions, every fourth one aborted
    <prefix>-customers        2 partitions   none    compacted; tombstones, empty values
    <prefix>-audit            2 partitions   gzip    LogAppendTime; null values under null keys
    <prefix>-blobs            1 partition    none    a few records just below 1 MB
    <prefix>.eu-west.reviews  2 partitions   lz4     a dot and a dash in the name, unicode content
    <prefix>-quiet            3 partitions   -       nothing at all

Produces with librdkafka and creates the topics itself; they must not exist yet. Content is the same
on every call (times aside). It leaves compaction to the broker's defaults: a closed segment is
needed before records vanish, so a comparison right afterwards finds all of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from isthmus.errors import SourceError

RECORDS_PER_TRANSACTION = 500
BLOB_BYTES = 1_040_000  # the broker's default limit is 1,048,588 for the whole batch
PATIENCE_S = 60.0

Headers = list[tuple[str, bytes | str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """One record to be produced."""

    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One topic of the mix. `share` is its part of all records; `make` gives its n-th record."""

    name: str
    partitions: int
    share: float
    codec: str
    make: Callable[[int, random.Random], Content]
    configs: Mapping[str, str] = field(default_factory=dict)
    transactional: bool = False


def produce_mix(bootstrap: str, prefix: str, records: int, *, replication_factor: int = -1) -> list[str]:
    """Create and fill the topics; about `records` committed records in all. Names in order."""
    topics = [f"{prefix}{part.name}" for part in MIX]
    try:
        _create(bootstrap, dict(zip(topics, MIX, strict=True)), replication_factor)
        for topic, part in zip(topics, MIX, strict=True):
            fill = _fill_in_transactions if part.transactional else _fill
            fill(bootstrap, topic, part, _count(part, records))
    except KafkaException as error:
        raise SourceError(f"The mix could not be produced: {error.args[0]}", where=bootstrap) from error
    return topics


def _count(part: Part, records: int) -> int:
    if part.name == "-blobs":
        return max(3, min(20, records // 20_000))  # 1 MB each: a share would be far too much
    return round(records * part.share)


def _create(bootstrap: str, parts: Mapping[str, Part], replication_factor: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    wanted = [
        NewTopic(topic, part.partitions, replication_factor, config=dict(part.configs)) for topic, part in parts.items()
    ]
    for future in admin.create_topics(wanted, operation_timeout=PATIENCE_S).values():
        future.result(PATIENCE_S)


def _producer(bootstrap: str, codec: str, transactional_id: str = "") -> Producer:
    transactions = {"transactional.id": transactional_id} if transactional_id else {}
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": codec,
            "enable.idempotence": True,
            "linger.ms": 10,
            "batch.size": 64 << 10,
            "message.max.bytes": 1_048_000,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,  # a call into Python per record would halve the speed
            "log_level": 3,
            **transactions,
        }
    )


def _fill(bootstrap: str, topic: str, part: Part, count: int) -> None:
    producer = _producer(bootstrap, part.codec)
    for content in _contents(part, count):
        _send(producer, topic, content)
    _flush(producer, topic)


def _fill_in_transactions(bootstrap: str, topic: str, part: Part, count: int) -> None:
    """Commit `count` records; after every third transaction another one, aborted, is in the way."""
    producer = _producer(bootstrap, part.codec, f"mix-{topic}")
    producer.init_transactions(PATIENCE_S)
    contents = list(_contents(part, count))
    for turn, start in enumerate(range(0, count, RECORDS_PER_TRANSACTION)):
        chunk = contents[start : start + RECORDS_PER_TRANSACTION]
        _transaction(producer, topic, chunk)
        producer.commit_transaction(PATIENCE_S)
        if turn % 3 == 2:
            _transaction(producer, topic, chunk)
            producer.abort_transaction(PATIENCE_S)


def _transaction(producer: Producer, topic: str, contents: list[Content]) -> None:
    producer.begin_transaction()
    for content in contents:
        _send(producer, topic, content)
    # Without this, an abort would drop what is still queued and nothing aborted would be in the log.
    _flush(producer, topic)


def _send(producer: Producer, topic: str, content: Content) -> None:
    while True:
        try:
            producer.produce(topic, content.value, content.key, on_delivery=_delivered, headers=content.headers)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _delivered(error: KafkaError | None, _message: object) -> None:
    if error is not None:
        raise KafkaException(error)


def _flush(producer: Producer, topic: str) -> None:
    if left := producer.flush(PATIENCE_S):
        raise SourceError(f"{left} records of {topic} were not taken within {PATIENCE_S:.0f} s")


def _contents(part: Part, count: int) -> Iterator[Content]:
    dice = random.Random(part.name)  # noqa: S311 - repeatable content, no secret
    for number in range(count):
        yield part.make(number, dice)


# ---- what the records look like ------------------------------------------------------------


def order(number: int, _dice: random.Random) -> Content:
    """A JSON document of about 460 bytes that compresses like real ones do (lz4: to 45 %)."""
    bodies = order_bodies()
    headers: Headers = [
        ("trace", b"%016x" % (number * 0x9E3779B97F4A7C15 & (1 << 64) - 1)),
        ("origin", b"web"),
    ]
    value = b'{"order_id": "%012d", %b' % (number, bodies[number % len(bodies)])
    return Content(key=b"c-%d" % (number % 5_000), value=value, headers=headers)


@cache
def order_bodies() -> tuple[bytes, ...]:
    """What follows an order's id. 4,093 of them are 1.8 MB: no batch meets the same one twice."""
    dice = random.Random("orders")  # noqa: S311 - repeatable content, no secret
    return tuple(json.dumps(_order_body(dice)).encode()[1:] for _ in range(4_093))


def _order_body(dice: random.Random) -> dict[str, object]:
    return {
        "customer": f"c-{dice.randrange(50_000):06d}",
        "currency": dice.choice(("EUR", "USD", "GBP")),
        "placed_at": 1_750_000_000_000 + dice.randrange(10**9),
        "items": [
            {
                "sku": f"{dice.getrandbits(40):010x}",
                "quantity": dice.randrange(1, 9),
                "price_cents": dice.randrange(99_999),
            }
            for _ in range(4)
        ],
        "ship_to": {"street": f"{dice.randrange(200)} Canal Road", "zip": f"{dice.randrange(99_999):05d}"},
        "token": f"{dice.getrandbits(128):032x}",
    }


def _click(number: int, dice: random.Random) -> Content:
    return Content(key=None, value=b"%d,/page/%d,%x" % (number, dice.randrange(400), dice.getrandbits(48)))


def _payment(number: int, dice: random.Random) -> Content:
    value = b'{"payment":%d,"cents":%d,"state":"captured"}' % (number, dice.randrange(1, 500_000))
    return Content(key=b"p-%d" % (number % 1_000), value=value, headers=[("attempt", b"1")])


def _customer(number: int, dice: random.Random) -> Content:
    key = b"customer-%d" % dice.randrange(1 + number // 3)
    if number % 7 == 6:
        return Content(key=key, value=None)
    if number % 11 == 10:
        return Content(key=key, value=b"")
    return Content(key=key, value=b'{"version":%d,"name":"Customer %d"}' % (number, dice.randrange(9_999)))


def _audit(number: int, dice: random.Random) -> Content:
    value = None if number % 50 == 49 else b"user %d did %d" % (dice.randrange(300), number)
    return Content(key=None, value=value, headers=[("empty", b""), ("null", None), ("empty", b"twice")])


def _blob(number: int, dice: random.Random) -> Content:
    return Content(key=b"blob-%d" % number, value=dice.randbytes(BLOB_BYTES))


def _review(number: int, dice: random.Random) -> Content:
    text = dice.choice(("très bien ✓", "素晴らしい", "отлично", "ממש טוב", "👍🏽" * 5))
    return Content(
        key=f"käufer-{number % 90}".encode(),
        value=f"{number}: {text}".encode(),
        headers=[("sprache", "日本".encode())],
    )


MIX = (
    Part(name="-orders", partitions=4, share=0.35, codec="lz4", make=order),
    Part(name="-clicks", partitions=6, share=0.40, codec="zstd", make=_click),
    Part(name="-payments", partitions=3, share=0.10, codec="snappy", make=_payment, transactional=True),
    Part(
        name="-customers",
        partitions=2,
        share=0.08,
        codec="none",
        make=_customer,
        configs={"cleanup.policy": "compact"},
    ),
    Part(
        name="-audit",
        partitions=2,
        share=0.05,
        codec="gzip",
        make=_audit,
        configs={"message.timestamp.type": "LogAppendTime"},
    ),
    Part(name="-blobs", partitions=1, share=0.0, codec="none", make=_blob),
    Part(name=".eu-west.reviews", partitions=2, share=0.02, codec="lz4", make=_review),
    Part(name="-quiet", partitions=3, share=0.0, codec="none", make=_click),
)
