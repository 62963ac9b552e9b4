"""A task that writes rows into the open transaction of its batch, and tells what it wrote.

Must stay true: a task writes only after its claim won, so of two attempts one writes (I3); it returns only when every
Produce was acknowledged (I1), and base offsets must rise (I9). It never ends the transaction: that is the driver's. Its
errors come back as values, so that they keep their code; one of somebody else's code fails the task.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from pyspark import TaskContext

from isthmus.engine import control
from isthmus.engine.outbox import Outbox, Refused, swallowed
from isthmus.engine.refusals import TOO_LARGE
from isthmus.errors import BadRecord, IsthmusError, OrderVoid, TargetError
from isthmus.frames.loop import Loop
from isthmus.frames.placing import UnknownTopics, makers, placed, rows_of, shares
from isthmus.frames.tickets import Slip, Ticket
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import Stamp, next_sequence, seal
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal
from isthmus.wire.produce import Landed, Parcel
from isthmus.wire.rows import bodies

SLIPS = "slip binary"
LARGE = "TOO_LARGE"
_HEALS = codes.MOVING | {codes.UNKNOWN_TOPIC, codes.UNKNOWN_TOPIC_ID, codes.CONCURRENT_TRANSACTIONS}


def write(ticket: Ticket, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The body of a writing task: one row comes out, its slip."""
    with closing(_Task(ticket)) as task:
        try:
            for batch in batches:
                if batch.num_rows:
                    task.take(batch)
            slip = task.slip()
        except UnknownTopics as unknown:
            slip = Slip(unknown=tuple(unknown.names), claim=task.claim)
        except IsthmusError as error:
            slip = Slip(error=error, claim=task.claim)
    yield row(slip)


def place(ticket: Ticket, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fill in partitions, and who made the rows, before they are brought together."""
    context = TaskContext.get()
    task, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
    for batch in batches:
        yield placed(batch, ticket.places, task, attempt)


def judge(ticket: Ticket, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As `write`, but nothing is sent: whether these rows could be written."""
    try:
        for batch in batches:
            if batch.num_rows:
                rows_of(batch)
                for _ in shares(batch, ticket.places):
                    pass
        slip = Slip()
    except UnknownTopics:
        slip = Slip()
    except IsthmusError as error:
        slip = Slip(error=error)
    yield row(slip)


def row(slip: Slip) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(slip)], pa.binary())], names=["slip"])


class _Task:
    """One attempt at one share of a batch."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self._loop = Loop()
        self._client = Client(ticket.cluster)
        self._outbox = Outbox(
            self._client,
            second_protocol=ticket.second_protocol,
            timeout_ms=ticket.timeout_ms,
            arrived=self._arrived,
        )
        self.claim = ""
        self._makers: set[tuple[int, int]] = set()
        self._bytes = self._row_bytes = 0
        self._counts: dict[TopicPartition, int] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._floors: dict[TopicPartition, int] = {}

    def close(self) -> None:
        try:
            self._loop.run(self._outbox.let_answers_come())
            self._loop.run(self._end())
        finally:
            self._loop.close()

    async def _end(self) -> None:
        self._client.close()

    def take(self, batch: pa.RecordBatch) -> None:
        """Encode and send; returns while requests are on their way."""
        rows = rows_of(batch)
        self._makers |= makers(batch)
        self._row_bytes = max(self._row_bytes, batch.nbytes // batch.num_rows)
        waiting = [
            (share, bodies(rows, share.chosen, self._ticket.codec, self._ticket.batch_bytes))
            for share in shares(batch, self._ticket.places)
        ]
        if not self.claim:
            self._loop.run(self._begin())
        while waiting:
            wave, left = [], []
            for share, source in waiting:
                body = next(source, None)
                if body is not None:
                    header = seal(body, self._stamp(share.tp, body.count))
                    wave.append(Parcel(share.tp, share.place.topic_id, header, body.payload, body.count))
                    left.append((share, source))
            if wave:
                self._bytes += sum(parcel.size for parcel in wave)
                self._send(wave)
            waiting = left

    def slip(self) -> Slip:
        if self.claim:
            self._flush()
        return Slip(
            counts=self._counts,
            sequences=self._sequences,
            bytes=self._bytes,
            row_bytes=self._row_bytes,
            makers=frozenset(self._makers),
            claim=self.claim,
        )

    def _send(self, wave: list[Parcel]) -> None:
        try:
            self._loop.run(self._outbox.send(wave))
        except Refused as refused:
            raise _not_taken(refused) from refused

    def _flush(self) -> None:
        try:
            self._loop.run(self._outbox.flush())
        except Refused as refused:
            raise _not_taken(refused) from refused

    async def _begin(self) -> None:
        """Claim this share of the batch, then find the leaders of what may be written."""
        ticket = self._ticket
        context = TaskContext.get()
        number = context.partitionId() if context else 0
        await self._client.start()
        topics = {place.topic for place in ticket.places.values()}
        await self._client.refresh([ticket.claims.topic, *topics])
        journal = Journal(self._client, ticket.claims.topic)
        share, attempt = f"{ticket.batch}.{number}", uuid.uuid4().hex[:8]
        if not await control.claim(journal, share, attempt, ticket.claims.since):
            raise OrderVoid("another attempt writes this share of the batch", where=share, code="CLAIMED")
        self.claim = control.claim_key(share, attempt)
        self._outbox.begin(ticket.who)

    def _stamp(self, tp: TopicPartition, count: int) -> Stamp:
        sequence = self._sequences.get(tp, self._ticket.sequences.get(tp, 0))
        self._sequences[tp] = next_sequence(sequence, count)
        self._counts[tp] = self._counts.get(tp, 0) + count
        return Stamp(self._ticket.who.producer_id, self._ticket.who.epoch, sequence)

    def _arrived(self, result: Landed, count: int) -> None:
        floor = self._floors.get(result.tp, -1)
        if result.base_offset < floor:
            raise swallowed(result, floor)
        self._floors[result.tp] = result.base_offset + count


def _not_taken(refused: Refused) -> IsthmusError:
    """What heals is tried again with the whole batch; what does not is told as the fault of records."""
    if all(result.error in _HEALS for result in refused.results):
        return TargetError(f"the target did not take a batch: {refused}", code="TARGET_REFUSED")
    too_large = any(result.error in TOO_LARGE for result in refused.results)
    what = "; ".join(f"{codes.name(result.error)} {result.message}".strip() for result in refused.results[:2])
    where = f"on the target: {refused.results[0].tp}"
    return BadRecord(f"the target refuses records: {what}", where=where, code=LARGE if too_large else "")
