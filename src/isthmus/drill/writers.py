"""Writers: clients that write marked records at a steady rate, and know what became of each.

librdkafka, idempotent, acks=all; one kind writes in transactions and takes every few of them back. A writer works in
stints, each with a producer of its own, as a client does that is told another bootstrap address. A stint ends in good
order, with all that was written acknowledged; or because the cluster is gone: of what is not yet acknowledged then it
is not known whether it was stored, and it is not written again under the same number.

What must stay true: `written` says acknowledged only after the broker did; only the writer's own thread changes it.
Not more than a few hundred records wait for their answers.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from isthmus.drill.ledger import Key, Marks, Written, marked
from isthmus.drill.runs import Runs
from isthmus.drill.timeline import WRITES, Series, Timeline
from isthmus.errors import SourceError

_WAITING_AT_MOST = 500
_LOOK_S = 0.02
_ANSWER_S = 60.0
_TRY_S = 1.0
_FILLING = b"." * 200
_TRANSACTION_S = 0.2
_ABORT_EVERY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where clients work: a cluster."""

    cluster: str
    bootstrap: str


class Writer:
    """A client that writes one topic, into all its partitions by turns."""

    def __init__(self, name: str, topic: str, partitions: int, per_second: int, timeline: Timeline) -> None:
        self.name = name
        self.written = Written()
        self.first_at: float | None = None  # of this stint: the first acknowledged record
        self.error: BaseException | None = None
        self._topic, self._partitions, self._per_second = topic, partitions, per_second
        self._timeline = timeline
        self._next = [0] * partitions
        self._turn = 0
        self._over, self._gone = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._series = Series(WRITES, "", name)

    def begin(self, place: Place) -> None:
        """A new stint: go on writing there."""
        self.written.begin_stint()
        self.first_at = None
        self._series = Series(WRITES, place.cluster, self.name)
        self._over.clear()
        self._gone.clear()
        self._thread = threading.Thread(target=self._work, args=(place,), name=self.name, daemon=True)
        self._thread.start()

    def stop(self, *, gone: bool = False) -> None:
        """Ask it to end the stint; `gone`: of a cluster that is gone."""
        if gone:
            self._gone.set()
        self._over.set()

    def join(self) -> None:
        """Wait for the end of the stint: everything is acknowledged, unless the cluster is gone."""
        if self._thread is not None:
            self._thread.join(2 * _ANSWER_S)
            if self._thread.is_alive():
                raise SourceError(f"writer {self.name} does not end", where=f"topic {self._topic}")
            self._thread = None
        self.refuse_failed()

    def refuse_failed(self) -> None:
        if self.error is not None:
            raise self.error

    def _work(self, place: Place) -> None:
        try:
            self._stint(Producer(self._settings(place)))
        except BaseException as error:  # noqa: BLE001 - handed to whoever ends the stint
            self.error = error

    def _settings(self, place: Place) -> dict[str, Any]:
        return {
            "bootstrap.servers": place.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "topic.metadata.propagation.max.ms": 60_000,
            "message.timeout.ms": 300_000,  # a writer gives up when it is told so, not before
            "log_level": 0,
        }

    def _stint(self, producer: Producer) -> None:
        began, sent = time.monotonic(), 0
        while not self._over.wait(_LOOK_S):
            due = int((time.monotonic() - began) * self._per_second)
            for _ in range(min(due - sent, _WAITING_AT_MOST - len(producer))):
                self._send(producer)
            sent = due  # what could not be written in time is not made up for
            producer.poll(0)
        self._finish(producer)

    def _finish(self, producer: Producer) -> None:
        if not self._gone.is_set() and producer.flush(_ANSWER_S):
            raise SourceError(f"writer {self.name} gets no answer", where=f"topic {self._topic}")
        producer.purge()
        producer.flush(_TRY_S)

    def _send(self, producer: Producer) -> None:
        key, number = self._take_number()
        value = marked(*key, number) + _FILLING
        producer.produce(self._topic, value, partition=key[1], on_delivery=partial(self._answered, key, number))

    def _take_number(self) -> tuple[Key, int]:
        partition, self._turn = self._turn, (self._turn + 1) % self._partitions
        number = self._next[partition]
        self._next[partition] += 1
        return (self.name, partition), number

    def _answered(self, key: Key, number: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._acknowledged({key: Runs([(number, number)])})
        else:
            _add(self.written.unsure, key, number)

    def _acknowledged(self, marks: Marks) -> None:
        for key, runs in marks.items():
            known = self.written.acknowledged[-1].setdefault(key, Runs())
            for first, last in runs:
                known.add(first, last)
        self._timeline.count(self._series, sum(map(len, marks.values())))
        if self.first_at is None:
            self.first_at = self._timeline.now()


class TransactionalWriter(Writer):
    """Writes in short transactions; every fifth is taken back, so its numbers must never be read."""

    def _settings(self, place: Place) -> dict[str, Any]:
        # A transaction that a dead cluster left open holds its readers up for so long after it is back.
        limits = dict.fromkeys(("transaction.timeout.ms", "message.timeout.ms"), 20_000)
        return super()._settings(place) | limits | {"transactional.id": f"drill-{self.name}"}

    def _stint(self, producer: Producer) -> None:
        self._insist(producer.init_transactions)
        count = 0
        while not self._over.wait(_TRANSACTION_S):
            count += 1
            if not self._transaction(producer, abort=count % _ABORT_EVERY == 0):
                break

    def _transaction(self, producer: Producer, *, abort: bool) -> bool:
        """False: the cluster is gone, and what became of it is not known."""
        producer.begin_transaction()
        marks: Marks = {}
        for _ in range(max(1, int(self._per_second * _TRANSACTION_S))):
            key, number = self._take_number()
            _add(marks, key, number)
            producer.produce(self._topic, marked(*key, number) + _FILLING, partition=key[1])
        # Sent in any case: an abort before anything was sent confuses librdkafka.
        sent = self._insist(partial(_flush, producer))
        ended = sent and self._insist(producer.abort_transaction if abort else producer.commit_transaction)
        if ended and not abort:
            self._acknowledged(marks)
            return True
        into = self.written.aborted if ended else self.written.unsure
        for key, runs in marks.items():
            for first, last in runs:
                into.setdefault(key, Runs()).add(first, last)
        return ended

    def _insist(self, step: Any) -> bool:
        """Try until it is done; False when the stint was abandoned before."""
        until = time.monotonic() + _ANSWER_S
        while not self._gone.is_set():
            try:
                step(_TRY_S)
                return True
            except KafkaException as error:
                patient = self._over.is_set() and time.monotonic() > until
                if not error.args[0].retriable() or patient:
                    raise
                self._gone.wait(_LOOK_S)
        return False


def _flush(producer: Producer, seconds: float) -> None:
    if producer.flush(seconds):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "not all is sent", retriable=True))


def _add(marks: Marks, key: Key, number: int) -> None:
    marks.setdefault(key, Runs()).add(number)
