"""What is in the logs of a cluster, read from their beginning to their end by librdkafka, read_committed.

The drill's own reading of both clusters: which marked records are there, how often, and when the oldest of some was
written. What must stay true: nothing is committed, and nothing of the replication is asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from isthmus.drill.ledger import Key, Marks, read_mark
from isthmus.drill.runs import Runs
from isthmus.errors import ProofError

_SILENCE_S = 60.0
_LOOK_S = 0.1


@dataclass(slots=True)
class Log:
    """The marked records of some topics."""

    marks: Marks = field(default_factory=dict)
    doubled: int = 0  # how many stand there another time


def read_log(bootstrap: str, topics: Sequence[str]) -> Log:
    log = Log()
    for key, number, _ in _records(bootstrap, topics):
        known = log.marks.setdefault(key, Runs())
        log.doubled += number in known
        known.add(number)
    return log


def oldest_ms(bootstrap: str, topics: Sequence[str], wanted: Marks) -> int | None:
    """When the oldest of these records was written, by its timestamp."""
    times = [at for key, number, at in _records(bootstrap, topics) if number in wanted.get(key, Runs())]
    return min(times, default=None)


def stable_ends(bootstrap: str, topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """Up to where each partition can be read; topics that are not there are left out."""
    until = time.monotonic() + _SILENCE_S
    while True:
        try:
            return _ends(bootstrap, topics)
        except KafkaException as error:  # a topic that was created just now is not led yet
            if time.monotonic() > until:
                raise ProofError(f"{', '.join(topics)}: {error.args[0].str()}", where=bootstrap) from error
            time.sleep(_LOOK_S)


def _ends(bootstrap: str, topics: Sequence[str]) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    known = admin.list_topics(timeout=_SILENCE_S).topics
    wanted = {
        TopicPartition(topic, each): OffsetSpec.latest()
        for topic in topics
        if topic in known
        for each in known[topic].partitions
    }
    if not wanted:
        return {}
    answers = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
    return {(place.topic, place.partition): future.result().offset for place, future in answers.items()}


def _records(bootstrap: str, topics: Sequence[str]) -> Iterator[tuple[Key, int, int]]:
    """Every marked record: its mark and its time in milliseconds."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "drill-logs",  # librdkafka wants one; nothing is ever committed to it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    try:
        unread = {place for place, end in stable_ends(bootstrap, topics).items() if end > 0}
        consumer.assign([TopicPartition(*place, 0) for place in sorted(unread)])
        for message in _until_read(consumer, unread):
            mark = _mark(message)
            if mark is not None:
                yield *mark, message.timestamp()[1]
    finally:
        consumer.close()


def _until_read(consumer: Consumer, unread: set[tuple[str, int]]) -> Iterator[Message]:
    heard = time.monotonic()
    while unread:
        messages = consumer.consume(num_messages=1_000, timeout=_LOOK_S)
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > _SILENCE_S:
            raise ProofError(f"nothing heard for {_SILENCE_S:.0f} s of {sorted(unread)}")
        for message in messages:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard((message.topic() or "", message.partition() or 0))
            elif not error.retriable():
                raise KafkaException(error)


def _mark(message: Message) -> tuple[Key, int] | None:
    try:
        return read_mark(message.value() or b"")
    except ValueError:
        return None
