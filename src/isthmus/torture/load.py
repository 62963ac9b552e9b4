"""Clients of a storm: writers that never give up, and one reader of the copies that sees every slip at once.

librdkafka throughout, never Isthmus' own wire. A record says who wrote it, its number in its partition and when it was
sent. Writers use the brokers' own doors, so the storm's network is not theirs. What must stay true: the reader is
read_committed and runs all along; a number that is not above the last one of its writer was doubled or moved, and one
of a plain writer that is not the next was lost on the way. What was really stored is for the oracle to say, at the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from isthmus.lab.reach import Reach, client_settings
from isthmus.torture.outcome import Silence

_TICK_S = 0.05
_ANSWER_S = 60.0
_TRY_S = 2.0
_FILLING = b"." * 200
_ABORT_EVERY = 5

Place = tuple[str, int]  # topic and partition


class Writer:
    """A plain, idempotent client: every number of a partition follows the one before."""

    transactional = False

    def __init__(self, reach: Reach, topic: str, partitions: int, per_second: int) -> None:
        self.topic, self._partitions = topic, partitions
        self._reach, self._per_tick = client_settings(reach), max(1, int(per_second * _TICK_S))
        self._next = [0] * partitions
        self._turn = 0
        self._first_ms = int(1000 * time.time())  # records of long ago would be retention's at once
        self.sent = 0
        self.failed: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"writes {topic}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Everything that was sent is answered when it returns."""
        self._over.set()
        self._thread.join(3 * _ANSWER_S)

    def _work(self) -> None:
        try:
            self._write()
        except BaseException as error:  # noqa: BLE001 - told at the end of the storm
            self.failed = error

    def _settings(self) -> dict[str, Any]:
        return self._reach | {
            "enable.idempotence": True,
            "message.timeout.ms": 600_000,
            "socket.timeout.ms": 5_000,
            "linger.ms": 5,
            "compression.type": "lz4",
            "log_level": 0,
        }

    def _write(self) -> None:
        producer = Producer(self._settings())
        while not self._over.wait(_TICK_S):
            if len(producer) < 100 * self._per_tick:
                self._some(producer)
            producer.poll(0)
        producer.flush(_ANSWER_S)

    def _some(self, producer: Producer) -> None:
        for _ in range(self._per_tick):
            partition, self._turn = self._turn, (self._turn + 1) % self._partitions
            number = self._next[partition]
            self._next[partition] += 1
            self.sent += 1
            producer.produce(
                self.topic,
                b"%d %d %d %s" % (partition, number, time.monotonic_ns(), _FILLING),
                b"k%d" % number if number % 7 else None,
                partition,
                timestamp=self._first_ms + number,
                headers=[("n", b"%d" % number), ("", None)] if number % 3 else [],
            )


class TransactionalWriter(Writer):
    """Writes in transactions and takes every fifth back; one that went wrong is begun anew, with a new producer."""

    transactional = True

    def _settings(self) -> dict[str, Any]:
        limits = {"transaction.timeout.ms": 10_000, "message.timeout.ms": 10_000}
        return super()._settings() | limits | {"transactional.id": f"torture-{self.topic}"}

    def _write(self) -> None:
        while not self._over.is_set():
            producer = Producer(self._settings())
            try:
                producer.init_transactions(_ANSWER_S)
                self._in_turn(producer)
            except KafkaException:
                self._over.wait(_TRY_S)  # its cluster is in trouble: that is what a storm is for

    def _in_turn(self, producer: Producer) -> None:
        count = 0
        while not self._over.wait(2 * _TICK_S):
            count += 1
            producer.begin_transaction()
            self._some(producer)
            if producer.flush(_ANSWER_S):
                producer.purge()
            if count % _ABORT_EVERY == 0:
                producer.abort_transaction(_ANSWER_S)
            else:
                producer.commit_transaction(_ANSWER_S)


@dataclass(slots=True)
class Slips:
    """What the reader saw that must not be."""

    missing: int = 0
    again: int = 0  # doubled, or moved
    told: list[str] = field(default_factory=list)

    def add(self, what: str, count: int = 1) -> None:
        setattr(self, what, getattr(self, what) + count)

    @property
    def any(self) -> bool:
        return bool(self.missing or self.again)


class Watch:
    """Since one moment: of which partitions something arrived that was sent after it."""

    def __init__(self, places: Iterable[Place], from_ns: int | None = None) -> None:
        self.since_ns = time.monotonic_ns()
        self._from_ns = from_ns or self.since_ns  # seconds count from there
        self._places = tuple(places)
        self._arrived: dict[Place, int] = {}

    def note(self, place: Place, sent_ns: int) -> None:
        if sent_ns >= self.since_ns:
            self._arrived.setdefault(place, time.monotonic_ns())

    def waiting(self) -> list[Place]:
        return [place for place in self._places if place not in self._arrived]

    @property
    def seconds(self) -> float:
        """Until every partition had one; -1: not all of them have."""
        return -1.0 if self.waiting() else (max(self._arrived.values()) - self._from_ns) / 1e9


class Silences:
    """Since one moment: for how long at most nothing came of each partition, though it had been sent. A writer that is
    in trouble itself has sent nothing."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._heard = dict.fromkeys(places, time.monotonic_ns())
        self._longest = {place: Silence(place=f"{place[0]}-{place[1]}") for place in self._heard}

    def note(self, place: Place, sent_ns: int) -> None:
        now = time.monotonic_ns()
        self._weigh(place, now - max(self._heard[place], sent_ns))
        self._heard[place] = now

    def longest(self) -> tuple[Silence, ...]:
        """The shortest first; those that last still count."""
        for place, heard in self._heard.items():
            self._weigh(place, time.monotonic_ns() - heard)
        return tuple(sorted(self._longest.values()))

    def _weigh(self, place: Place, silent_ns: int) -> None:
        if silent_ns / 1e9 > self._longest[place].seconds:
            self._longest[place] = Silence(silent_ns / 1e9, self._longest[place].place, time.time())


class Reader:
    """Follows the copies from their beginning. `topics`: each copy with the writer of what it is a copy of."""

    def __init__(self, reach: Reach, topics: Mapping[str, Writer], partitions: Mapping[str, int]) -> None:
        self._reach, self._topics = client_settings(reach), dict(topics)
        self._places = [TopicPartition(name, each, 0) for name in topics for each in range(partitions[name])]
        self._last = {(place.topic, place.partition): -1 for place in self._places}
        self._watch, self._silences = Watch(self._last), Silences(self._last)
        self.slips, self.records = Slips(), 0
        self.error: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="reads copies", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(_ANSWER_S)

    def counts(self) -> tuple[int, int, int]:
        """Records that were read so far, that were missing, that came again."""
        return self.records, self.slips.missing, self.slips.again

    def watch(self, from_ns: int | None = None) -> Watch:
        """From now on; the one before ends."""
        self._watch = Watch(self._last, from_ns)
        return self._watch

    def listen(self) -> Silences:
        """From now on; the one before ends."""
        self._silences = Silences(self._last)
        return self._silences

    def _work(self) -> None:
        try:
            self._follow()
        except BaseException as error:  # noqa: BLE001 - told at the end of the storm
            self.error = error

    def _follow(self) -> None:
        consumer = Consumer(self._settings())
        consumer.assign(self._places)
        try:
            while not self._over.is_set():
                for message in consumer.consume(1_000, 0.1):
                    if message.error() is None:
                        self._note((message.topic(), message.partition()), message.value() or b"", message.offset())
        finally:
            consumer.close()

    def _settings(self) -> dict[str, Any]:
        return self._reach | {
            "group.id": "torture",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }

    def _note(self, place: Place, value: bytes, offset: int) -> None:
        _, number, sent, _ = value.split(b" ", 3)
        last, now = self._last[place], int(number)
        if now <= last:
            self._slip("again", place, offset, f"number {now} after {last}", 1)
        elif now > last + 1 and not self._topics[place[0]].transactional:
            self._slip("missing", place, offset, f"number {now} after {last}", now - last - 1)
        self._last[place] = max(last, now)
        self._watch.note(place, int(sent))
        self._silences.note(place, int(sent))
        self.records += 1

    def _slip(self, what: str, place: Place, offset: int, text: str, count: int) -> None:
        self.slips.add(what, count)
        if len(self.slips.told) < 20:
            self.slips.told.append(f"{place[0]}-{place[1]} at {offset}: {text}")


def patiently(happened: Callable[[], object], seconds: float) -> bool:
    """Look until it has happened, or time is up."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(_TICK_S)
    return True
