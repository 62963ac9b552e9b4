"""Consumer groups of a flow on both sides, read from outside and without changing anything."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.engine.offsets.index import Index
from isthmus.engine.offsets.translate import Standing, Translator
from isthmus.engine.positions import Positions
from isthmus.engine.sides import Sides
from isthmus.mm2.filters import choose
from isthmus.mm2.formats import Checkpoint, checkpoints_topic
from isthmus.mm2.policy import remote_topic
from isthmus.model import Flow, TopicPartition
from isthmus.wire.fetch import LATEST, READ_COMMITTED, settled_offsets
from isthmus.wire.groups import IDLE, Offsets, committed_offsets, list_groups
from isthmus.wire.journal import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group in one partition. Offsets of -1: there is none."""

    group: str
    topic: str
    partition: int
    source_offset: int
    source_lag: int
    target_topic: str
    translated: int  # where the group goes on, on the target
    target_offset: int  # what the group has committed there
    target_lag: int
    state: str
    active_on_target: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsView:
    """All groups of a flow; beside the rows, what has none."""

    rows: tuple[GroupRow, ...]
    elsewhere: dict[str, list[str]]  # topics that a group reads and the flow does not carry
    gone: tuple[str, ...]  # groups with checkpoints that the source has no more
    skipped: int  # foreign or damaged records in the index and among the checkpoints


class GroupsReader(Sides):
    """Both clusters of one flow, for as long as groups are looked at."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        self._index = Index(Journal(self._target, flow.index_topic))
        self._skipped = 0

    async def read(self) -> GroupsView:
        if self.flow.index_topic in self._target.topics:
            await self._index.catch_up()
        remotes = {name: remote_topic(self.flow, name) for name in choose(self.flow, self._source.topics)}
        async with Positions(self.flow) as stored:
            reached = {TopicPartition(p.topic, p.partition): p.next for p in await stored.read()}
        translator = Translator(
            self._source, self._target, self._index, lambda: remotes, lambda: reached, repairs=False
        )
        standings = await translator.round(self.flow)
        groups = sorted({one.group for one in standings})
        states, there = await list_groups(self._target), await committed_offsets(self._target, groups)
        partitions = [tp for tp in {one.target for one in standings} if tp.topic in self._target.topics]
        ends = await settled_offsets(self._target, partitions, LATEST, READ_COMMITTED)
        known = {*await list_groups(self._source)}
        return GroupsView(
            rows=tuple(_row(one, there.get(one.group, {}), ends, states) for one in sorted(standings)),
            elsewhere=translator.elsewhere,
            gone=tuple(sorted(await self._published() - known)),
            skipped=self._index.skipped + self._skipped,
        )

    async def _published(self) -> set[str]:
        """Groups that have checkpoints."""
        topic = checkpoints_topic(self.flow)
        if topic not in self._target.topics:
            return set()
        journal = Journal(self._target, topic)
        records = await journal.read(await journal.beginning(), await journal.end())
        found = [Checkpoint.decode(record.key or b"", record.value or b"") for record in records]
        self._skipped = found.count(None)
        return {checkpoint.group for checkpoint in found if checkpoint is not None}


def _row(one: Standing, there: Offsets, ends: dict[TopicPartition, int], states: dict[str, str]) -> GroupRow:
    committed = there[one.target].offset if one.target in there else -1
    place, end = max(committed, one.translated), ends.get(one.target, -1)
    return GroupRow(
        group=one.group,
        topic=one.source.topic,
        partition=one.source.partition,
        source_offset=one.committed.offset,
        source_lag=max(0, one.end - one.committed.offset),
        target_topic=one.target.topic,
        translated=one.translated,
        target_offset=committed,
        target_lag=max(0, end - place) if place >= 0 and end >= 0 else -1,
        state=one.state,
        active_on_target=states.get(one.group, "") not in IDLE,
    )
