"""Progress as it stands in the target: read from MirrorMaker 2's offsets topic, by our own markers (R5).

It remembers where it is and what is still undecided, and goes on from there at the next look: a start costs one scan,
an epoch costs the tail. How a topic is read by its markers is in `marked`.

What must stay true: `advance` is called only after both ids of a lane were fenced (I2). A snapshot may only claim what
lies below the first undecided transaction of a partition, and belongs to one topic id (R6).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any

from isthmus.engine.marked import MarkedLog, Scan
from isthmus.errors import RivalError, TargetError
from isthmus.mm2.progress import parse_progress, progress_pairs
from isthmus.model import NO_ID, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST
from isthmus.wire.journal import Journal
from isthmus.wire.records import Record


class Ledger(MarkedLog):
    """Positions (next source offset) of one flow, by source partition."""

    def __init__(self, client: Client, topic: str, source_alias: str, connector: str) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.marks: dict[TopicPartition, str] = {}  # by what to know the source's logs again, where that is needed
        self.epochs: dict[TopicPartition, str] = {}  # the leader's epoch of the last record copied, where it is known
        super().__init__(client, topic)
        self.topic_id = NO_ID  # of the topic that was opened
        self._alias = source_alias
        self._connector = connector

    async def open(self, snapshot: dict[str, Any] | None) -> None:
        """Begin at the snapshot's cut where it is of this topic and still inside the log, else at the start."""
        await self._client.refresh([self._topic])
        info = self._client.topics[self._topic]
        self.topic_id = info.topic_id
        partitions = [TopicPartition(self._topic, number) for number in info.partitions]
        starts = await self._edges(partitions, EARLIEST)
        cuts = _usable_cuts(snapshot, info.topic_id, {tp.partition: offset for tp, offset in starts.items()})
        if cuts and snapshot:
            self.positions = {TopicPartition(t, p): o for t, p, o in snapshot["positions"]}
            self.marks = {TopicPartition(t, p): mark for t, p, mark in snapshot.get("marks", ())}
            self.epochs = {TopicPartition(t, p): epoch for t, p, epoch in snapshot.get("epochs", ())}
        self._scans = {tp.partition: Scan(cuts.get(tp.partition, starts[tp])) for tp in partitions}

    def snapshot(self) -> dict[str, Any]:
        """Positions and cuts in one value; positions beyond a cut are read again, which is harmless."""
        return {
            # Not the one that is there now: were it deleted meanwhile, the next start would not know (PROGRESS_LOST).
            "topic_id": str(self.topic_id),
            "cuts": {str(number): scan.cut for number, scan in self._scans.items()},
            "positions": [[tp.topic, tp.partition, offset] for tp, offset in self.positions.items()],
            "marks": [[tp.topic, tp.partition, mark] for tp, mark in self.marks.items()],
            "epochs": [[tp.topic, tp.partition, epoch] for tp, epoch in self.epochs.items()],
        }

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

    def _apply(self, scan: Scan, records: list[Record]) -> None:
        for record in records:
            position = parse_progress(record.key or b"", record.value)
            if position is None or position.connector != self._connector or position.source != self._alias:
                continue
            tp = TopicPartition(position.topic, position.partition)
            if not scan.supersedes(tp, record):
                continue
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
