"""Progress as it stands in the target: read from MirrorMaker 2's offsets topic, by our own markers (R5).

The ledger scans every partition of the progress topic with isolation 0 and decides each transaction by
its marker, so a stranger's open transaction can never hide what we committed. It remembers where it is and
what is still undecided, and goes on from there at the next look: a start costs one scan, an epoch costs the
tail.

What must stay true: of two committed records of a key the later one *in the log* counts, whichever marker came first:
a broker that is busy sends the markers of a lane's two ids in any order. `advance` is called only after both ids of a
lane were fenced (I2), and reads at least up to what ListOffsets(latest, read_uncommitted) said after that. A snapshot
may only claim what lies below the first undecided transaction of a partition, and belongs to one topic id (R6).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from isthmus.errors import BrokerUnreachable, RivalError, TargetError
from isthmus.mm2.progress import parse_progress, progress_pairs
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import Batch, find_batches, marker_of
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, READ_UNCOMMITTED, Fetched, Limits, Want, fetch, settled_offsets
from isthmus.wire.journal import Journal
from isthmus.wire.records import Record, decode_records

_COMMIT = 1
_PATIENCE_S = 60.0


class _Scan:
    """One partition of the progress topic: the next offset, and transactions not yet decided."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.undecided: dict[int, tuple[int, list[Record]]] = {}  # producer id -> first offset, records
        self.applied: dict[TopicPartition, int] = {}  # source partition -> offset of the record that counts

    @property
    def cut(self) -> int:
        """Everything below is decided for good."""
        return min([self.cursor, *(first for first, _ in self.undecided.values())])


class Ledger:
    """Positions (next source offset) of one flow, by source partition."""

    def __init__(self, client: Client, topic: str, source_alias: str, connector: str) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.marks: dict[TopicPartition, str] = {}  # by what to know the source's logs again, where that is needed
        self.epochs: dict[TopicPartition, str] = {}  # the leader's epoch of the last record copied, where it is known
        self._client = client
        self._topic = topic
        self._alias = source_alias
        self._connector = connector
        self._scans: dict[int, _Scan] = {}

    async def open(self, snapshot: dict[str, Any] | None) -> None:
        """Begin at the snapshot's cut where it is of this topic and still inside the log, else at the start."""
        await self._client.refresh([self._topic])
        info = self._client.topics[self._topic]
        partitions = [TopicPartition(self._topic, number) for number in info.partitions]
        starts = await self._edges(partitions, EARLIEST)
        cuts = _usable_cuts(snapshot, info.topic_id, {tp.partition: offset for tp, offset in starts.items()})
        if cuts and snapshot:
            self.positions = {TopicPartition(t, p): o for t, p, o in snapshot["positions"]}
            self.marks = {TopicPartition(t, p): mark for t, p, mark in snapshot.get("marks", ())}
            self.epochs = {TopicPartition(t, p): epoch for t, p, epoch in snapshot.get("epochs", ())}
        self._scans = {tp.partition: _Scan(cuts.get(tp.partition, starts[tp])) for tp in partitions}

    def snapshot(self) -> dict[str, Any]:
        """Positions and cuts in one value; positions beyond a cut are read again, which is harmless."""
        return {
            "topic_id": str(self._client.topic_id(self._topic)),
            "cuts": {str(number): scan.cut for number, scan in self._scans.items()},
            "positions": [[tp.topic, tp.partition, offset] for tp, offset in self.positions.items()],
            "marks": [[tp.topic, tp.partition, mark] for tp, mark in self.marks.items()],
            "epochs": [[tp.topic, tp.partition, epoch] for tp, epoch in self.epochs.items()],
        }

    async def advance(self, at_least: dict[int, int] | None = None) -> None:
        """Read every partition up to its end as of now, and at least past the given barrier offsets."""
        await self._client.refresh([self._topic])
        ends = await self._edges([TopicPartition(self._topic, n) for n in self._scans], LATEST)
        goals = {tp.partition: max(end, (at_least or {}).get(tp.partition, 0)) for tp, end in ends.items()}
        until = time.monotonic() + _PATIENCE_S
        while behind := [n for n, scan in self._scans.items() if scan.cursor < goals[n]]:
            if time.monotonic() > until:
                raise TargetError(f"progress cannot be read: {self._topic} partitions {behind} do not answer")
            await self._read_some(behind)

    async def put(self, changes: Mapping[TopicPartition, int | None]) -> None:
        """Other positions; None forgets one. As `erase`, only after the fence."""
        count = len(self._client.topics[self._topic].partitions)
        for number, pairs in progress_pairs(self._connector, self._alias, changes, count).items():
            await Journal(self._client, self._topic, number).append(pairs)
        await self.advance()

    async def erase(self, topics: Collection[str]) -> None:
        """Tombstones for the progress of topics that the operator wants copied anew.

        To be called after the fence, so that nobody can write progress behind them; before the new ids are on record,
        so that a start that dies in between finds the old ids and stops again: old progress never meets a new topic.
        """
        await self.put({tp: None for tp in self.positions if tp.topic in topics})

    def refuse_strangers(self, partitions: set[TopicPartition], own_ids: set[int]) -> None:
        """After our fence nobody may have undecided progress for our partitions."""
        for scan in self._scans.values():
            for producer_id, (_, records) in scan.undecided.items():
                mine = [tp for record in records if (tp := self._source_of(record)) in partitions]
                if mine and producer_id in own_ids:
                    raise TargetError(
                        f"the fence of producer id {producer_id} is not complete",
                        where=str(mine[0]),
                        code="FENCE",
                    )
                if mine:
                    raise RivalError(
                        f"somebody else replicates {mine[0]}: producer id {producer_id} has an open transaction "
                        f"with its progress in {self._topic}",
                        hint="stop the other replicator (MirrorMaker 2?) first",
                    )

    async def _edges(self, partitions: list[TopicPartition], when: int) -> dict[TopicPartition, int]:
        try:
            return await settled_offsets(self._client, partitions, when)
        except BrokerUnreachable as error:
            raise TargetError(error.message, where=error.where) from error

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
            for answer in answers:
                self._take(answer)
            if bad or not answers:
                await asyncio.sleep(0.2)
                await self._client.refresh([self._topic])

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

    def _take_batch(self, scan: _Scan, buffer: memoryview, batch: Batch) -> None:
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

    def _apply(self, scan: _Scan, records: list[Record]) -> None:
        for record in records:
            position = parse_progress(record.key or b"", record.value)
            if position is None or position.connector != self._connector or position.source != self._alias:
                continue
            tp = TopicPartition(position.topic, position.partition)
            if record.offset < scan.applied.get(tp, -1):
                continue  # its marker came late, and what follows it in the log is committed already
            scan.applied[tp] = record.offset
            self.marks.pop(tp, None)
            self.epochs.pop(tp, None)
            if position.offset is None:
                self.positions.pop(tp, None)
                continue
            self.positions[tp] = position.offset + 1
            if position.mark:
                self.marks[tp] = position.mark
            if position.epoch:
                self.epochs[tp] = position.epoch

    def _source_of(self, record: Record) -> TopicPartition | None:
        position = parse_progress(record.key or b"", record.value)
        if position is None or position.source != self._alias or position.connector != self._connector:
            return None
        return TopicPartition(position.topic, position.partition)


def _usable_cuts(snapshot: dict[str, Any] | None, topic_id: uuid.UUID, starts: dict[int, int]) -> dict[int, int]:
    if not snapshot or snapshot.get("topic_id") != str(topic_id) or topic_id.int == 0:
        return {}
    cuts = {int(number): int(cut) for number, cut in snapshot.get("cuts", {}).items()}
    if set(cuts) != set(starts) or any(cuts[n] < start for n, start in starts.items()):
        return {}
    return cuts
