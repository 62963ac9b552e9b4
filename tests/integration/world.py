"""What the tests of content fill a source with: each kind of odd thing in a topic of its own.

`filled` makes them all; `World` knows their names on both sides. Nothing here judges: the proofs are in
`test_content`.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer
from tests.crossing import cross, flow_between
from tests.integration.sources import (
    CODECS,
    KEPT,
    START_MS,
    Row,
    StoredBatch,
    alter,
    delete_before,
    numbered,
    producer,
    send,
    unique,
    wait_until,
    write,
)

from isthmus.lab import Lab
from isthmus.lab.mix import order
from isthmus.lab.oracle import Verdict, compare, read_topic
from isthmus.observe.status import FlowStatus

MAX_MESSAGE_BYTES = 1_048_588  # the broker's default, for a whole batch
LONE_RECORD_BYTES = 72  # what a batch with one record needs beside a value of about 1 MB
CLEANED_AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
    "message.timestamp.after.max.ms": str(2**62),
}
HOUR_MS = 3_600_000


@dataclass
class World:
    """Topics of the source by the name of what they hold, and what was seen of them after the crossing."""

    lab: Lab
    prefix: str = field(default_factory=lambda: unique("c"))
    topics: list[str] = field(default_factory=list)
    open_transaction: Producer | None = None
    status: FlowStatus | None = None
    batches: dict[str, list[StoredBatch]] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return self.lab["east"].bootstrap

    @property
    def target(self) -> str:
        return self.lab["west"].bootstrap

    def name(self, kind: str) -> str:
        return f"{self.prefix}-{kind}"

    def remote(self, kind: str) -> str:
        return f"e{self.prefix}.{self.prefix}-{kind}"

    def topic(self, kind: str, partitions: int = 1, settings: Mapping[str, str] | None = None, **more: str) -> str:
        """Settings by their names, or as words with underscores for dots."""
        name = self.name(kind)
        dotted = dict(settings or {}) | {key.replace("_", "."): value for key, value in more.items()}
        self.lab["east"].create_topic(name, partitions=partitions, configs=KEPT | dotted)
        self.topics.append(name)
        return name

    def cross(self) -> FlowStatus:
        patterns = [re.escape(name) for name in self.topics]
        return cross(flow_between(self.lab, *patterns, alias=f"e{self.prefix}"))

    def verdict(self, kind: str) -> Verdict:
        return compare(self.source, self.name(kind), self.target, self.remote(kind))

    def proven(self, kind: str, records: int) -> None:
        """Equal, and not because there was nothing."""
        verdict = self.verdict(kind)
        assert verdict.equal, verdict
        assert verdict.records == records

    def source_batches(self, kind: str) -> list[StoredBatch]:
        return self.batches[self.name(kind)]

    def target_batches(self, kind: str) -> list[StoredBatch]:
        return self.batches[self.remote(kind)]


# ---- what the source holds ---------------------------------------------------------------------


def _codecs(world: World) -> None:
    def fill(codec: str) -> None:
        rows = [row | {"value": row["value"] * 20} for row in numbered(500)]
        write(world.source, world.topic(f"codec-{codec}"), rows, compression_type=codec)
        # Thousands of tiny batches wait together and are merged.
        small = numbered(2_000, headers=[("n", b"1")])
        write(world.source, world.topic(f"tiny-{codec}"), small, compression_type=codec, batch_num_messages=1)

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, CODECS))


def _large_batches(world: World) -> None:
    """Batches of about 1 MB as they are stored: nothing that can be compressed."""
    dice = random.Random(7)
    for codec in ("none", "zstd"):
        rows = [{"value": dice.randbytes(1_000)} for _ in range(3_000)]
        topic = world.topic(f"large-{codec}")
        write(world.source, topic, rows, compression_type=codec, linger_ms=2_000, batch_size=MAX_MESSAGE_BYTES - 2_000)


def _headers_and_nulls(world: World) -> None:
    many = [("a", b"1"), ("b", None), ("a", b"2"), ("", b""), ("ü", "日本".encode()), ("a", b"1")]
    rows: list[Row] = [
        {"key": None, "value": b"no key"},
        {"key": b"no value", "value": None},
        {"key": None, "value": None},
        {"key": b"", "value": b""},
        {"key": b"", "value": None},
        {"key": None, "value": b""},
        {"key": "schlüssel".encode(), "value": "très bien ✓ 素晴らしい 👍🏽".encode()},
        {"key": b"\xff\xfe\x00", "value": bytes(range(256))},
    ]
    rows += [row | {"headers": many} for row in rows]
    rows += [{"value": b"h", "headers": [(f"h{n}", b"x" * n) for n in range(200)]}]
    for codec in ("none", "lz4"):
        write(world.source, world.topic(f"odd-{codec}"), rows, compression_type=codec)
    write(world.source, world.topic("odd-alone"), rows, batch_num_messages=1)


def _times(world: World) -> None:
    now = 1_760_000_000_000
    odd = [1, START_MS, 2, now, 999, now - 5, 978_307_200_000, 1, now + 86_400_000, START_MS - 1]
    rows: list[Row] = [{"value": b"%d" % n, "timestamp": time_ms} for n, time_ms in enumerate(odd * 20)]
    create = world.topic("create-time", message_timestamp_after_max_ms=str(2**62))
    write(world.source, create, rows, compression_type="gzip")
    append = world.topic(
        "append-time", message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=str(2**62)
    )
    for codec in CODECS:
        write(world.source, append, rows, compression_type=codec, batch_num_messages=7)
    # A topic may change its mind: both kinds of batches lie side by side.
    both = world.topic("both-times")
    past = numbered(50)
    for kind in ("CreateTime", "LogAppendTime", "CreateTime"):
        alter(world.source, both, message_timestamp_type=kind)
        write(world.source, both, past, batch_num_messages=5)


def _transactions(world: World) -> None:
    """Two producers take turns in one partition; every third transaction is aborted, their markers interleave."""
    topic = world.topic("transactions")
    pair = [producer(world.source, transactional_id=f"{topic}-{n}", compression_type="lz4") for n in range(2)]
    bystander = producer(world.source)
    for turn in range(6):
        for each in pair:
            each.begin_transaction()
        for step in range(4):
            send(pair[step % 2], topic, numbered(25, first=1_000 * turn + 100 * step))
            send(bystander, topic, numbered(2, first=1_000 * turn + 100 * step + 50))
        for number, each in enumerate(pair if turn % 2 else reversed(pair)):
            each.abort_transaction(60) if (turn + number) % 3 == 0 else each.commit_transaction(60)
    # An aborted transaction and its marker are the last things in the log.
    ends = world.topic("ends-aborted")
    send(producer(world.source), ends, numbered(10))
    last = producer(world.source, transactional_id=ends)
    last.begin_transaction()
    send(last, ends, numbered(10, first=100))
    last.abort_transaction(60)


def _open_transaction(world: World) -> None:
    topic = world.topic("open")
    write(world.source, topic, numbered(10))
    late = producer(world.source, transactional_id=topic, transaction_timeout_ms=600_000)
    late.begin_transaction()
    send(late, topic, numbered(5, first=100))
    write(world.source, topic, numbered(10, first=200))
    world.open_transaction = late


def _moved_starts(world: World) -> None:
    """One partition starts in the middle of a batch, one at a batch, one has lost everything, one is untouched."""
    topic = world.topic("moved", partitions=5)
    for partition in range(4):
        for first in (0, 50):
            write(world.source, topic, numbered(50, first=first, partition=partition), compression_type="snappy")
    delete_before(world.source, topic, {0: 17, 1: 50, 2: 100})


def _largest(world: World) -> None:
    dice = random.Random(5)
    record = {"value": os.urandom(MAX_MESSAGE_BYTES - LONE_RECORD_BYTES)}
    topic = world.topic("largest")
    lone = producer(world.source, batch_num_messages=1)
    send(lone, topic, [record, {"value": b"small"}, record])
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        send(lone, topic, [{"value": record["value"] + b"!"}])  # so it was the largest
    huge = world.topic("huge", max_message_bytes="5000000")
    rows: list[Row] = [{"value": os.urandom(4_990_000)}, {"value": b"between"}, {"value": os.urandom(3_000_000)}]
    write(world.source, huge, rows)
    # A batch that was packed harder than we pack, and that must be packed anew: it must not outgrow the limit.
    hard = world.topic("hard-packed", message_timestamp_type="LogAppendTime")
    rows = [{"value": order(n, dice).value} for n in range(7_200)]
    write(world.source, hard, rows, compression_type="lz4", compression_level=12, linger_ms=3_000, batch_size=4 << 20)
    few = world.topic("small-limit", max_message_bytes="2000")
    write(world.source, few, numbered(500, headers=[("h", b"h" * 100)]), batch_num_messages=1)


def _names(world: World) -> None:
    for kind in ("with.dots", "with_underscores", "With-Dashes.and_all"):
        write(world.source, world.topic(kind, partitions=2), numbered(20, partitions=2))
    world.topic("empty", partitions=3)
    world.topic(
        "settings",
        partitions=4,
        retention_ms="123456789",
        compression_type="zstd",
        segment_bytes="2000000",
        cleanup_policy="compact,delete",
        min_insync_replicas="1",
        message_timestamp_type="LogAppendTime",
        unclean_leader_election_enable="true",
    )


def _compacted(world: World) -> Callable[[], bool]:
    """Holes within batches, batches with nothing left, tombstones that went: in plain and in transactions."""
    plain = world.topic("compacted", settings=CLEANED_AT_ONCE)
    ours = world.topic("compacted-transactions", settings=CLEANED_AT_ONCE)
    # A batch that lost all its records stays as long as it is the last one of its producer.
    writers = [(codec, [producer(world.source, compression_type=codec) for _ in range(2)]) for codec in CODECS]
    for number, (codec, pair) in enumerate(writers):
        _rounds(pair, plain, codec, START_MS + 10 * number * HOUR_MS)
    keepers = [producer(world.source, transactional_id=f"{ours}-{n}", compression_type="zstd") for n in range(4)]
    # Markers are stamped with the present: only times that lie ahead of them roll a segment per transaction.
    ahead = int(time.time() * 1000) + 24 * HOUR_MS
    for number, keeper in enumerate(keepers):
        keeper.begin_transaction()
        rows = numbered(30, first=10 * number)
        send(keeper, ours, [row | {"timestamp": ahead + number * HOUR_MS} for row in rows])
        keeper.abort_transaction(60) if number == 2 else keeper.commit_transaction(60)
    # Segments roll when something is appended, and the last one is never cleaned.
    for topic in (plain, ours):
        write(world.source, topic, [{"key": b"last", "value": b"last", "timestamp": ahead + 999 * HOUR_MS}])

    def cleaned() -> bool:
        return _count(world, plain) < 5 * 50 and _count(world, ours) <= 61

    return cleaned


def _count(world: World, topic: str) -> int:
    return sum(len(each.digests) for each in read_topic(world.source, topic).values())


def _rounds(writers: list[Producer], topic: str, codec: str, begin_ms: int) -> None:
    """Three batches an hour apart, which rolls a segment for each: the first one is overwritten as a whole,
    of the second one every other record, the third one stays but for its tombstone."""
    for round_, writer in enumerate((writers[0], writers[1], writers[1])):
        step = 2 if round_ == 2 else 1
        rows: list[Row] = [
            {
                "key": b"%s-%d" % (codec.encode(), n * step),
                "value": b"%d-%d" % (round_, n) if n != 3 else None,
                "timestamp": begin_ms + round_ * HOUR_MS + n,
            }
            for n in range(30)
        ]
        send(writer, topic, rows)


def _settle(world: World, cleaned: Callable[[], bool]) -> None:
    """Wait for the cleaner, then forbid it: what is compared must hold still, here and on the target."""
    wait_until(cleaned, "the cleaner removed what was overwritten")
    for kind in ("compacted", "compacted-transactions"):
        alter(world.source, world.name(kind), cleanup_policy="delete", segment_ms="604800000")


def filled(lab: Lab) -> World:
    """All kinds of content in the source, held still."""
    made = World(lab)
    cleaned = _compacted(made)
    for fill in (
        _codecs,
        _large_batches,
        _headers_and_nulls,
        _times,
        _transactions,
        _open_transaction,
        _moved_starts,
        _largest,
        _names,
    ):
        fill(made)
    _settle(made, cleaned)
    return made
