"""An independent proof that a target topic holds what a consumer of the source can read.

Reads both topics with librdkafka (never with Isthmus' own decoder), read_committed and with CRCs
checked, and compares them partition by partition, in order: key, value, headers and the time in
milliseconds that a consumer of the source sees. (The *type* of a timestamp may differ: what the
source stamped as LogAppendTime arrives as CreateTime with the same value.)

What must stay true: only 16 bytes per record are kept (a 64-bit digest and an offset), so millions
of records fit; the two topics are not written to meanwhile; nothing is committed or created on
either cluster. Digests are Python's keyed hash, valid in this process only; the chance that it
hides one altered record is 2^-64. What to do about a difference is the caller's business.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from isthmus.errors import ProofError
from isthmus.lab.reach import Reach, address, client_settings

READ_AT_ONCE = 10_000
SILENCE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """How one sequence differs from another; all zero and `first` -1 when they are equal."""

    lost: int = 0  # in the source, in no form on the target
    duplicated: int = 0  # known to the source, but more often on the target
    reordered: int = 0  # fewest records that would have to move to restore the order
    altered: int = 0  # a lost one has an unknown one in its stead
    foreign: int = 0  # unknown to the source (aborted ones that leaked, for example)
    first: int = -1  # index of the first difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the comparison of one topic found. `records` and `bytes` (keys, values) are the source's."""

    topic: str
    partitions: int
    records: int
    bytes: int
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    altered: int = 0
    foreign: int = 0
    first_difference: str = ""

    @property
    def equal(self) -> bool:
        return not self.first_difference


@dataclass(slots=True)
class Sequence64:
    """One partition as read: a digest and an offset per committed record, in order."""

    digests: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    bytes: int = 0


def compare(source_reach: Reach, source_topic: str, target_reach: Reach, target_topic: str) -> Verdict:
    """Read both topics from their beginning to their stable end and say how the target differs."""
    source = read_topic(source_reach, source_topic)
    if not source:
        raise ProofError(f"The source topic {source_topic} does not exist", where=address(source_reach))
    target = read_topic(target_reach, target_topic)
    difference = "" if target else f"the target topic {target_topic} does not exist"
    damages = []
    for partition in range(max(len(source), len(target))):
        ours, theirs = source.get(partition, Sequence64()), target.get(partition, Sequence64())
        damage = classify(ours.digests, theirs.digests)
        damages.append(damage)
        if damage.first >= 0 and not difference:
            difference = (
                f"partition {partition}, record {damage.first}: "
                f"source {_describe(source_reach, source_topic, partition, ours, damage.first)}, "
                f"target {_describe(target_reach, target_topic, partition, theirs, damage.first)}"
            )
    if target and len(target) < len(source) and not difference:
        difference = f"{len(source)} partitions became {len(target)}"
    return Verdict(
        topic=source_topic,
        partitions=len(source),
        records=sum(len(one.digests) for one in source.values()),
        bytes=sum(one.bytes for one in source.values()),
        lost=sum(damage.lost for damage in damages),
        duplicated=sum(damage.duplicated for damage in damages),
        reordered=sum(damage.reordered for damage in damages),
        altered=sum(damage.altered for damage in damages),
        foreign=sum(damage.foreign for damage in damages),
        first_difference=difference,
    )


def compare_all(source_reach: Reach, target_reach: Reach, pairs: Iterable[tuple[str, str]]) -> list[Verdict]:
    """`compare` for each pair of (source topic, target topic)."""
    return [compare(source_reach, ours, target_reach, theirs) for ours, theirs in pairs]


# ---- the pure part -------------------------------------------------------------------------


def classify(source: Sequence[int], target: Sequence[int]) -> Damage:
    """Name the differences between two sequences of digests."""
    if source == target:
        return Damage()
    whole, first = source, _shared_start(source, target)
    source, target = _trim(source[first:], target[first:])
    ours, theirs = Counter(source), Counter(target)
    missing = (ours - theirs).total()
    extra = theirs - ours
    # What is doubled may have its original in the part that was trimmed away: ask the whole source.
    known = extra.keys() & set(whole)
    duplicated = sum(count for digest, count in extra.items() if digest in known)
    unknown = extra.total() - duplicated
    altered = min(missing, unknown)
    common = ours & theirs
    return Damage(
        lost=missing - altered,
        duplicated=duplicated,
        reordered=_moves(_keep(source, common), _keep(target, common)),
        altered=altered,
        foreign=unknown - altered,
        first=first,
    )


def _keep(sequence: Sequence[int], wanted: Counter[int]) -> list[tuple[int, int]]:
    """The first `wanted[d]` occurrences of each digest, numbered, so that every element is unique."""
    seen: Counter[int] = Counter()
    kept = []
    for digest in sequence:
        if seen[digest] < wanted[digest]:
            kept.append((digest, seen[digest]))
            seen[digest] += 1
    return kept


def _moves(source: list[tuple[int, int]], target: list[tuple[int, int]]) -> int:
    """Length minus longest increasing subsequence: the records that are not where they belong."""
    place = {element: index for index, element in enumerate(source)}
    tails: list[int] = []
    for element in target:
        index = place[element]
        at = bisect_left(tails, index)
        tails[at : at + 1] = [index]
    return len(source) - len(tails)


def _shared_start(source: Sequence[int], target: Sequence[int]) -> int:
    for index, (ours, theirs) in enumerate(zip(source, target, strict=False)):
        if ours != theirs:
            return index
    return min(len(source), len(target))


def _trim(source: Sequence[int], target: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Both without the end that they share: equal records there must not blur what is compared."""
    shared = _shared_start(source[::-1], target[::-1])
    return source[: len(source) - shared], target[: len(target) - shared]


# ---- reading -------------------------------------------------------------------------------


def read_topic(reach: Reach, topic: str) -> dict[int, Sequence64]:
    """All committed records of a topic as digests, by partition; empty if there is no such topic."""
    consumer = _consumer(reach)
    try:
        sequences = {partition: Sequence64() for partition in _partitions(consumer, topic)}
        if sequences:
            consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in sequences])
            _drain(consumer, sequences)
        return sequences
    except KafkaException as error:
        raise ProofError(f"Topic {topic} could not be read: {error.args[0]}", where=address(reach)) from error
    finally:
        consumer.close()


def _consumer(reach: Reach) -> Consumer:
    return Consumer(
        client_settings(reach)
        | {
            "group.id": "isthmus-oracle",  # librdkafka wants one; nothing is ever committed to it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "auto.offset.reset": "error",  # a reset in the middle would hide a loss
            "check.crcs": True,
            "fetch.wait.max.ms": 20,
            "fetch.message.max.bytes": 4 << 20,
            "log_level": 3,
        }
    )


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    metadata = consumer.list_topics(topic, timeout=SILENCE_S).topics[topic]
    if metadata.error is None:
        return sorted(metadata.partitions)
    if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return []
    raise KafkaException(metadata.error)


def _drain(consumer: Consumer, sequences: dict[int, Sequence64]) -> None:
    open_partitions = set(sequences)
    heard = time.monotonic()
    while open_partitions:
        messages = consumer.consume(num_messages=READ_AT_ONCE, timeout=0.1)
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENCE_S:
            raise KafkaException(f"nothing heard for {SILENCE_S:.0f} s of partitions {sorted(open_partitions)}")
        for message in messages:
            error = message.error()
            if error is None:
                _note(message, sequences[message.partition() or 0])
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition() or 0)
            elif not error.retriable():
                raise KafkaException(error)


def _note(message: Message, into: Sequence64) -> None:
    key, value = message.key(), message.value()
    headers = message.headers()
    into.digests.append(hash((key, value, tuple(headers) if headers else (), message.timestamp()[1])))
    into.offsets.append(message.offset() or 0)
    into.bytes += (len(key) if key else 0) + (len(value) if value else 0)


def _describe(reach: Reach, topic: str, partition: int, sequence: Sequence64, index: int) -> str:
    """One record in words, read once more by its offset."""
    if index >= len(sequence.offsets):
        return "has no such record"
    offset = sequence.offsets[index]
    consumer = _consumer(reach)
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        message = consumer.poll(SILENCE_S)
    finally:
        consumer.close()
    if message is None or message.error() is not None:
        return f"offset {offset}"
    return (
        f"offset {offset} (key {_short(message.key())}, value {_short(message.value())}, "
        f"time {message.timestamp()[1]}, headers {len(message.headers() or ())})"
    )


def _short(content: bytes | str | None) -> str:
    if content is None:
        return "null"
    return f"{content[:24]!r}, {len(content)} B" if len(content) > 24 else repr(content)
