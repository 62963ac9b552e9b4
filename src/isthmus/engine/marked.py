"""A topic whose records count by the markers of their transactions, read with isolation 0 (R5).

Every transaction is decided by its own marker, so a stranger's open one can never hide what we committed. Where each
partition is, and what is still undecided in it, is remembered: the next look costs the tail.

What must stay true: of two committed records about one thing the later one *in the log* counts, whichever marker came
first: a busy broker writes markers of several transactional ids in any order. `advance` reads at least up to what
ListOffsets(latest, read_uncommitted) said when it was called; whoever needs everything that an id committed fences that
id before (I2). What records say is left to others.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod

from isthmus.errors import BrokerRefused, BrokerUnreachable, TargetError
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import Batch, find_batches, marker_of
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import LATEST, READ_UNCOMMITTED, Fetched, Limits, Want, fetch, settled_offsets
from isthmus.wire.records import Record, decode_records

_COMMIT = 1
_PATIENCE_S = 60.0


class Scan:
    """One partition of a topic: the next offset, and transactions not yet decided."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.undecided: dict[int, tuple[int, list[Record]]] = {}  # producer id -> first offset, records
        self.applied: dict[object, int] = {}  # what a record is about -> offset of the one that counts

    def supersedes(self, about: object, record: Record) -> bool:
        """Whether this committed record counts: it does, unless one that follows it in the log is committed already."""
        if record.offset < self.applied.get(about, -1):
            return False
        self.applied[about] = record.offset
        return True

    @property
    def cut(self) -> int:
        """Everything below is decided for good."""
        return min([self.cursor, *(first for first, _ in self.undecided.values())])


class MarkedLog(ABC):
    """All partitions of one topic. Those who read it say what a committed record means, in `_apply`."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._scans: dict[int, Scan] = {}
        self._last_said = ""  # by a broker that did not answer as it should

    async def advance(self, at_least: dict[int, int] | None = None) -> None:
        """Read every partition up to its end as of now, and at least past the given barrier offsets."""
        await self._client.refresh([self._topic])
        ends = await self._edges([TopicPartition(self._topic, n) for n in self._scans], LATEST)
        goals = {tp.partition: max(end, (at_least or {}).get(tp.partition, 0)) for tp, end in ends.items()}
        until = time.monotonic() + _PATIENCE_S
        while behind := [n for n, scan in self._scans.items() if scan.cursor < goals[n]]:
            if time.monotonic() > until:
                raise TargetError(
                    f"{self._topic} cannot be read: partitions {behind} do not answer{self._last_said}",
                    where=f"cluster {self._client.cluster.alias}",
                    hint="check the brokers that lead them",
                    code="PROGRESS",
                )
            await self._read_some(behind)

    async def _edges(self, partitions: list[TopicPartition], when: int) -> dict[TopicPartition, int]:
        try:
            return await settled_offsets(self._client, partitions, when)
        except BrokerUnreachable as error:
            raise TargetError(error.message, where=error.where) from error
        except BrokerRefused as error:
            raise TargetError(error.message, where=error.where, hint=error.hint, code="PROGRESS") from error

    async def _read_some(self, numbers: list[int]) -> None:
        topic_id = self._client.topic_id(self._topic)
        by_node: dict[int, list[Want]] = {}
        for number in numbers:
            tp = TopicPartition(self._topic, number)
            by_node.setdefault(self._client.leader(tp), []).append(Want(tp, topic_id, self._scans[number].cursor))
        limits = Limits(isolation=READ_UNCOMMITTED, wait_ms=100)
        for node, wants in by_node.items():
            try:
                answers = await fetch(self._client, node, wants, limits, purpose="ledger") if node >= 0 else []
            except BrokerUnreachable:
                answers = []
            bad = [a for a in answers if a.error != codes.NONE]
            for answer in bad:
                self._refuse_for_good(answer)
            for answer in answers:
                self._take(answer)
            if bad or not answers:
                await asyncio.sleep(0.2)
                await self._client.refresh([self._topic])

    def _refuse_for_good(self, answer: Fetched) -> None:
        said = f"Fetch of {answer.tp} answered {codes.name(answer.error)}"
        self._last_said = f"; {said}"
        if answer.error not in codes.ASKED_AGAIN | {codes.OFFSET_OUT_OF_RANGE}:
            where, hint = f"cluster {self._client.cluster.alias}", codes.advice(answer.error, "READ")
            raise TargetError(said, where=where, hint=hint, code="PROGRESS")

    def _take(self, answer: Fetched) -> None:
        scan = self._scans[answer.tp.partition]
        if answer.error == codes.OFFSET_OUT_OF_RANGE and answer.log_start > scan.cursor:
            scan.cursor = answer.log_start  # compaction or retention removed what we had not read
        if answer.error != codes.NONE:
            return
        for batch in find_batches(answer.records):
            if batch.last_offset >= scan.cursor:
                self._take_batch(scan, answer.records, batch)
                scan.cursor = batch.last_offset + 1

    def _take_batch(self, scan: Scan, buffer: memoryview, batch: Batch) -> None:
        if batch.is_control:
            _, records = scan.undecided.pop(batch.producer_id, (0, []))
            if marker_of(buffer, batch) == _COMMIT:
                self._apply(scan, records)
            return
        records = [] if batch.count == 0 else decode_records(buffer, batch)
        if batch.is_transactional:
            scan.undecided.setdefault(batch.producer_id, (batch.base_offset, []))[1].extend(records)
        else:
            self._apply(scan, records)

    @abstractmethod
    def _apply(self, scan: Scan, records: list[Record]) -> None:
        """Committed records of one partition; `scan.supersedes` tells whether one counts."""
