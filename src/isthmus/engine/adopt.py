"""Taking a flow over from MirrorMaker 2, and giving it back: whose offsets count, and where the other one goes on.

Both keep progress in Connect's form. A dedicated MirrorMaker 2 has it in the very topic that a run reads, under the
same keys; Strimzi's Connect cluster has a topic and a connector name of its own, so there it is copied.

What must stay true: nothing is changed while MirrorMaker 2 runs (its Connect group has members on the target), nor
while a run of ours drives the flow. Transactions of a killed MirrorMaker 2 are decided before its offsets are read
(I2). A position is set beyond the stored one only where both logs tell that those records are there already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from isthmus.engine.fencing import Fence
from isthmus.engine.internal import create_internal_topics
from isthmus.engine.ledger import Ledger
from isthmus.engine.offsets.tails import Logs, end_of_copy
from isthmus.engine.positions import Positions
from isthmus.engine.sides import Sides
from isthmus.errors import BrokerUnreachable, RivalError, TargetError, WireError
from isthmus.mm2.filters import choose
from isthmus.mm2.policy import HEARTBEATS, remote_topic
from isthmus.mm2.progress import CONNECTOR, progress_pairs
from isthmus.model import Flow, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, READ_COMMITTED, settled_offsets
from isthmus.wire.groups import CONNECT, IDLE, list_groups
from isthmus.wire.journal import Journal
from isthmus.wire.transaction import list_transactional_ids, speaks_second_protocol

STRIMZI_CLUSTER = "mirrormaker2-cluster"  # its default for Connect's group; its offsets topic is named after it

EXACT, FURTHER, NEW, UNCERTAIN = "exact", "further", "new", "uncertain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mm2:
    """Where a MirrorMaker 2 keeps the offsets of one flow, and the Connect group that it works in."""

    offsets_topic: str
    connector: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One source partition. `stored`: where MirrorMaker 2 would go on (-1: it has stored nothing)."""

    topic: str
    partition: int
    stored: int
    next: int  # where the taker goes on; -1: at its beginning
    end: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What was found, and what changes (or has changed)."""

    mm2: Mm2
    group_state: str  # "" when nobody works in it
    transactional_ids: tuple[str, ...]  # of its exactly-once mode
    rows: tuple[Row, ...]
    elsewhere: tuple[str, ...]  # topics with stored offsets that the file does not name
    done: bool = False

    @property
    def uncertain(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.state == UNCERTAIN)


class Exchange(Sides):
    """Both clusters of one flow, for as long as it changes hands."""

    def __init__(self, flow: Flow, *, offsets_topic: str = "", connector: str = "", group: str = "") -> None:
        super().__init__(flow)
        self._wanted = Mm2(offsets_topic=offsets_topic, connector=connector, group=group)

    # -- taking over -----------------------------------------------------------------------------

    async def plan(self) -> Handover:
        """What taking over would do; changes nothing."""
        mm2, ledger = await self._find()
        return await self._look(mm2, ledger.positions)

    async def adopt(self, *, accept_duplicates: bool) -> Handover:
        """Take over: decide what MirrorMaker 2 left open, and store where a run goes on."""
        mm2, _ = await self._find()
        await self._refuse_running(mm2)
        await create_internal_topics(self._source, self._target, self.flow, lambda _: None)
        async with Positions(self.flow) as ours:
            known = {TopicPartition(p.topic, p.partition): p.next for p in await ours.read()}
            async with ours.held():
                await self._fence(mm2)
                ledger = await self._read(mm2)
                ledger.refuse_strangers(set(known), set())
                found = await self._look(mm2, ledger.positions)
                if found.uncertain and not accept_duplicates:
                    raise self._not_certain(found)
                goals = {TopicPartition(row.topic, row.partition): row.next for row in found.rows if row.next >= 0}
                await ours.store({tp: offset for tp, offset in goals.items() if known.get(tp) != offset})
        return replace(found, done=True)

    async def _look(self, mm2: Mm2, stored: Mapping[TopicPartition, int]) -> Handover:
        logs = await self._logs()
        rows = [await self._row(each, stored.get(each.source, -1)) for each in logs]
        carried = {each.source.topic for each in logs}
        return Handover(
            mm2=mm2,
            group_state=await self._group_state(mm2),
            transactional_ids=tuple(
                sorted(await list_transactional_ids(self._target, f"{mm2.group}-{mm2.connector}-"))
            ),
            rows=tuple(rows),
            elsewhere=tuple(sorted({tp.topic for tp in stored} - carried)),
        )

    async def _row(self, logs: Logs, stored: int) -> Row:
        found = await self._end(logs, stored)
        state = UNCERTAIN if found is None else EXACT if found == stored else FURTHER
        if stored < 0 and found == logs.source_start:
            found, state = -1, NEW
        following = stored if found is None else found
        return Row(
            topic=logs.source.topic,
            partition=logs.source.partition,
            stored=stored,
            next=following,
            end=logs.source_end,
            state=state,
        )

    async def _end(self, logs: Logs, stored: int) -> int | None:
        if logs.source.topic == HEARTBEATS:  # of signs of life only the last one counts
            return max(stored, logs.source_start)
        if logs.hidden:
            return None
        try:
            return await end_of_copy(self._source, self._target, logs, stored)
        except BrokerUnreachable:
            raise
        except WireError:
            return None  # what cannot be compared is not certain

    async def _logs(self) -> list[Logs]:
        """Every partition that the flow carries, with the edges of both logs."""
        pairs = [
            (TopicPartition(name, number), TopicPartition(remote_topic(self.flow, name), number))
            for name in choose(self.flow, self._source.topics)
            for number in sorted(self._source.topics[name].partitions)
        ]
        here = [source for source, _ in pairs]
        there = [tp for _, tp in pairs if self._exists(tp)]
        starts, ends = await _edges(self._source, here)
        starts_there, ends_there = await _edges(self._target, there)
        written = await settled_offsets(self._target, there, LATEST)
        return [
            Logs(
                source,
                target,
                starts[source],
                ends[source],
                starts_there.get(target, 0),
                ends_there.get(target, 0),
                written.get(target, 0) > ends_there.get(target, 0),
            )
            for source, target in pairs
        ]

    def _exists(self, tp: TopicPartition) -> bool:
        """Not whether it has a leader just now: one that has none is waited for, or it would look empty."""
        info = self._target.topics.get(tp.topic)
        return info is not None and tp.partition in info.partitions

    # -- giving back -----------------------------------------------------------------------------

    async def release(self, *, write: bool) -> Handover:
        """Put our progress where MirrorMaker 2 reads it, as plain records: readers of any isolation see the same."""
        mm2 = self._named(self._wanted.offsets_topic or self.flow.progress_topic)
        self._refuse_missing(mm2)
        if write:
            await self._refuse_running(mm2)
        stored = (await self._read(mm2)).positions
        async with Positions(self.flow) as ours:
            read = await ours.read()
            if write:
                async with ours.held():
                    read = await ours.read()
                    await self._hand(mm2, {TopicPartition(p.topic, p.partition): p.next for p in read if p.next >= 0})
        rows = [
            Row(
                topic=p.topic,
                partition=p.partition,
                stored=stored.get(TopicPartition(p.topic, p.partition), -1),
                next=p.next,
                end=p.end,
                state=EXACT if p.next >= 0 else NEW,
            )
            for p in read
        ]
        return Handover(
            mm2=mm2,
            group_state=await self._group_state(mm2),
            transactional_ids=(),
            rows=tuple(rows),
            elsewhere=(),
            done=write,
        )

    async def _hand(self, mm2: Mm2, positions: Mapping[TopicPartition, int]) -> None:
        count = len(self._target.topics[mm2.offsets_topic].partitions)
        for number, pairs in progress_pairs(mm2.connector, self.flow.source.alias, positions, count).items():
            await Journal(self._target, mm2.offsets_topic, number).append(pairs)

    # -- the other one ---------------------------------------------------------------------------

    def _named(self, offsets_topic: str) -> Mm2:
        """The names that belong to an offsets topic, unless others were given."""
        dedicated = offsets_topic == self.flow.progress_topic
        connector = CONNECTOR if dedicated else f"{self.flow.name}.{CONNECTOR}"
        group = f"{self.flow.source.alias}-mm2" if dedicated else offsets_topic.removesuffix("-offsets")
        return Mm2(
            offsets_topic=offsets_topic,
            connector=self._wanted.connector or connector,
            group=self._wanted.group or group,
        )

    async def _find(self) -> tuple[Mm2, Ledger]:
        """Strimzi's topic, or the dedicated mode's, which has our own offsets, too: whichever has some of this flow."""
        candidates = [f"{STRIMZI_CLUSTER}-offsets", self.flow.progress_topic]
        for topic in [self._wanted.offsets_topic] if self._wanted.offsets_topic else candidates:
            if topic in self._target.topics:
                mm2 = self._named(topic)
                ledger = await self._read(mm2)
                if ledger.positions or topic in (self._wanted.offsets_topic, self.flow.progress_topic):
                    return mm2, ledger
        raise self._nothing_found(self._wanted.offsets_topic or " or ".join(candidates))

    async def _read(self, mm2: Mm2) -> Ledger:
        ledger = Ledger(self._target, mm2.offsets_topic, self.flow.source.alias, mm2.connector)
        await ledger.open(None)
        await ledger.advance()
        return ledger

    async def _group_state(self, mm2: Mm2) -> str:
        state = (await list_groups(self._target, CONNECT)).get(mm2.group, "")
        return "" if state in IDLE else state

    async def _fence(self, mm2: Mm2) -> None:
        """After this no task of MirrorMaker 2 can commit, and what one had open is aborted."""
        second = speaks_second_protocol(self._target)
        fence = Fence(self._target, self.flow, second_protocol=second, waiting=lambda _: None)
        topics = {remote_topic(self.flow, name) for name in choose(self.flow, self._source.topics)}
        everywhere = [
            TopicPartition(name, number)
            for name in sorted({*topics & set(self._target.topics), mm2.offsets_topic})
            for number in self._target.topics[name].partitions
        ]
        ids = await list_transactional_ids(self._target, f"{mm2.group}-{mm2.connector}-")
        await asyncio.gather(*(fence.with_barrier(name, everywhere) for name in sorted(ids)))

    async def _refuse_running(self, mm2: Mm2) -> None:
        groups = await list_groups(self._target, CONNECT)
        active = sorted(name for name, state in groups.items() if state not in IDLE)
        rivals = [name for name in active if name in (mm2.group, f"{self.flow.source.alias}-mm2")]
        if mm2.group not in groups and mm2.connector != CONNECTOR:
            rivals = active  # its group may just have another name: any that works could be the one
        if rivals:
            named = ", ".join(rivals)
            raise RivalError(
                f"MirrorMaker 2 still runs: Connect group {named} has members",
                where=f"cluster {self.flow.target.alias}, flow {self.flow.name}",
                hint="stop it (one that was killed counts as running for 10 more seconds); "
                "if that is another Connect cluster, name the right group by --group",
                code="MM2_RUNS",
            )

    def _refuse_missing(self, mm2: Mm2) -> None:
        if mm2.offsets_topic not in self._target.topics:
            raise self._nothing_found(mm2.offsets_topic)

    def _nothing_found(self, topics: str) -> TargetError:
        return TargetError(
            f"no offsets of a MirrorMaker 2 for flow {self.flow.name}: looked into {topics}",
            where=f"cluster {self.flow.target.alias}",
            hint="name Connect's offset.storage.topic by --offsets-topic; the source's alias must be MirrorMaker 2's",
            code="NO_MM2",
        )

    def _not_certain(self, found: Handover) -> TargetError:
        first = found.uncertain[0]
        return TargetError(
            f"for {len(found.uncertain)} partitions it is not certain which records are on the target already, "
            f"such as {first.topic}-{first.partition} from offset {max(first.stored, 0)} on",
            where=f"flow {self.flow.name}",
            hint="see them in the plan; --accept-duplicates goes on at the offsets that MirrorMaker 2 has stored, "
            "as itself would, and may copy some records again",
            code="NOT_CERTAIN",
        )


async def _edges(
    client: Client, partitions: list[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    starts = await settled_offsets(client, partitions, EARLIEST)
    return starts, await settled_offsets(client, partitions, LATEST, READ_COMMITTED)
