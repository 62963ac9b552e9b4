"""Readers: consumer groups that follow topics, commit what they processed, and go on elsewhere where they stood.

librdkafka, read_committed. A reader begins each stint at the offsets that are committed for its group in that
cluster, and at nothing else: where there is none, it stops with an error, because a client that began anew at one
end of the log would hide a lost position. When it is stopped it commits the last record processed, unless the cluster
is gone.

What must stay true: the trail holds every record that was processed, in order; a group never commits more than that.
Only the reader's own thread changes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from isthmus.drill.ledger import Trail, read_mark
from isthmus.drill.timeline import READS, Series, Timeline
from isthmus.drill.writers import Place
from isthmus.errors import ProofError, TargetError

_LOOK_S = 0.1
_COMMIT_EVERY_S = 0.5
_AT_ONCE = 500
_ANSWER_S = 60.0


class Reader:
    """One consumer group of one member. `per_second` 0: as fast as records come."""

    def __init__(self, group: str, topics: Sequence[str], timeline: Timeline, per_second: int = 0) -> None:
        self.group = group
        self._trail, self._lock = Trail(), threading.Lock()
        self.first_at: float | None = None  # of this stint: the first record
        self.error: BaseException | None = None
        self.count = 0
        self._topics, self._per_second = list(topics), per_second
        self._timeline = timeline
        self._next: dict[tuple[str, int], int] = {}
        self._saved = True  # what was processed in this stint is committed
        self._over, self._gone = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._series = Series(READS, "", group)

    def seat(self, place: Place, partitions: dict[str, int]) -> None:
        """Commit the beginning of all partitions: a new group has no place of its own yet."""
        consumer = Consumer(self._settings(place))
        try:
            places = [TopicPartition(name, each, 0) for name, count in partitions.items() for each in range(count)]
            consumer.commit(offsets=places, asynchronous=False)
        finally:
            consumer.close()

    def has_places(self, place: Place, partitions: dict[str, int]) -> bool:
        """Whether offsets of the group are committed there, for all partitions."""
        consumer = Consumer(self._settings(place))
        try:
            asked = [TopicPartition(name, each) for name, count in partitions.items() for each in range(count)]
            return all(found.offset >= 0 for found in consumer.committed(asked, timeout=_ANSWER_S))
        except KafkaException:
            return False  # its coordinator is not found yet: asked again
        finally:
            consumer.close()

    def begin(self, place: Place) -> None:
        """A new stint: go on reading there."""
        with self._lock:
            self._trail.begin_stint()
        self.first_at = None
        self._next, self._saved = {}, True
        self._series = Series(READS, place.cluster, self.group)
        self._over.clear()
        self._gone.clear()
        self._thread = threading.Thread(target=self._work, args=(place,), name=self.group, daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        """From now on as fast as records come."""
        self._per_second = 0

    def stop(self, *, gone: bool = False) -> None:
        """Ask it to end the stint, `gone`: of a cluster that is gone."""
        if gone:
            self._gone.set()
        self._over.set()

    def join(self) -> None:
        """Wait for the end of the stint: all that was processed is committed, unless the cluster is gone."""
        if self._thread is not None:
            self._thread.join(2 * _ANSWER_S)
            if self._thread.is_alive():
                raise TargetError(f"group {self.group} does not end", where=self._series.cluster)
            self._thread = None
        self.refuse_failed()

    def trail(self) -> Trail:
        """All that was read so far; a copy, also while it goes on."""
        with self._lock:
            return Trail(
                stints=[{key: list(runs) for key, runs in stint.items()} for stint in self._trail.stints],
                strange=self._trail.strange,
            )

    def refuse_failed(self) -> None:
        if self.error is not None:
            raise self.error

    def _work(self, place: Place) -> None:
        consumer = Consumer(self._settings(place))
        try:
            consumer.subscribe(self._topics, on_assign=self._assigned)
            self._stint(consumer)
        except KafkaException as error:
            self.error = ProofError(
                f"group {self.group} cannot go on: {error.args[0]}", where=f"cluster {place.cluster}"
            )
        except BaseException as error:  # noqa: BLE001 - handed to whoever ends the stint
            self.error = error
        finally:
            self._close(consumer)
        if self.error is None and not self._gone.is_set():
            self._save(place)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """A member that was put out on a starved machine, and let in again, still knows where it was."""
        for each in partitions:
            each.offset = self._next.get((each.topic, each.partition), each.offset)
        consumer.assign(partitions)

    def _close(self, consumer: Consumer) -> None:
        """Without its brokers a consumer waits long for a farewell that nobody answers: not on our time."""
        if self._gone.is_set():
            threading.Thread(target=consumer.close, name=f"{self.group} leaves", daemon=True).start()
        else:
            consumer.close()

    def _settings(self, place: Place) -> dict[str, object]:
        return {
            "bootstrap.servers": place.bootstrap,
            "group.id": self.group,
            "client.id": f"drill-{self.group}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "session.timeout.ms": 6_000,  # a group is free again so long after a member died with its cluster
            "heartbeat.interval.ms": 500,
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 1_024,
            "log_level": 0,
        }

    def _stint(self, consumer: Consumer) -> None:
        began, taken, committed_at = time.monotonic(), 0, time.monotonic()
        while not self._over.is_set():
            taken += self._take(consumer, self._allowed(began, taken))
            if time.monotonic() - committed_at > _COMMIT_EVERY_S:
                committed_at = time.monotonic()
                self._commit(consumer, wait=False)
        if not self._gone.is_set():
            self._saved = self._commit(consumer, wait=True)

    def _allowed(self, began: float, taken: int) -> int:
        if not self._per_second:
            return _AT_ONCE
        return min(_AT_ONCE, int((time.monotonic() - began) * self._per_second) - taken)

    def _take(self, consumer: Consumer, allowed: int) -> int:
        if allowed <= 0:
            self._over.wait(_LOOK_S)
            return 0
        records = 0
        for message in consumer.consume(num_messages=allowed, timeout=_LOOK_S):
            error = message.error()
            if error is None:
                with self._lock:
                    self._process(message)
                records += 1
            elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(error)  # all else librdkafka gets over by itself
        if records:
            self._noted(records)
        return records

    def _noted(self, records: int) -> None:
        self.count += records
        self._timeline.count(self._series, records)
        if self.first_at is None:
            self.first_at = self._timeline.now()

    def _process(self, message: Message) -> None:
        try:
            key, number = read_mark(message.value() or b"")
        except ValueError:
            self._trail.strange += 1
        else:
            self._trail.note(key, number)
        self._next[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1

    def _commit(self, consumer: Consumer, *, wait: bool) -> bool:
        """False when it was refused, as it is to a member that was put out: the next one, or the last one, will do."""
        places = [TopicPartition(*place, offset) for place, offset in self._next.items()]
        try:
            if places:
                consumer.commit(offsets=places, asynchronous=not wait)
        except KafkaException:
            return False
        return True

    def _save(self, place: Place) -> None:
        """The last commit was refused: without a member in the group anybody may write its places."""
        until = time.monotonic() + _ANSWER_S
        while not self._saved:
            consumer = Consumer(self._settings(place))
            self._saved = self._commit(consumer, wait=True)
            consumer.close()
            if not self._saved and time.monotonic() > until:
                self.error = ProofError(f"group {self.group} cannot commit", where=f"cluster {place.cluster}")
                return
            time.sleep(0 if self._saved else _LOOK_S)
