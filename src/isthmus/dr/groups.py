"""Consumer groups that change sides: their exact places on the other side, committed there.

With the source alive they are translated anew, holes closed, and published as MirrorMaker 2 would. With the source
gone, what was last published counts, put right by the index: some records may be read again, none is left out.
What must stay true: a group that somebody already works in on the other side is left alone, and no place moves back
that was used there (`GroupKeeper`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from isthmus.dr.values import GroupPlace
from isthmus.engine.offsets.index import Index
from isthmus.engine.offsets.keeper import GroupKeeper, Place
from isthmus.engine.offsets.translate import AT_LEAST, EXACT, Standing
from isthmus.mm2.filters import GroupFilter
from isthmus.mm2.formats import checkpoints_topic, offset_syncs_topic
from isthmus.model import Flow, TopicPartition
from isthmus.wire import codes
from isthmus.wire.cluster import Client
from isthmus.wire.groups import IDLE, Committed, Offsets, commit_many, committed_offsets, list_groups
from isthmus.wire.journal import Journal

IN_USE, REFUSED = "in use", "refused"
_ROUNDS = 20
_PATIENCE_S = 60.0

Lift = Callable[[Standing], int]  # where a group had better go on


class Movers:
    """The groups of one flow."""

    def __init__(
        self,
        flow: Flow,
        source: Client,
        target: Client,
        remotes: Mapping[str, str],
        positions: Mapping[TopicPartition, int],
    ) -> None:
        self.notes: list[str] = []
        self._flow = _publishing(flow, source, target)
        self._target = target
        self._sources = {remote: name for name, remote in remotes.items()}
        self._keeper = GroupKeeper(self._flow, source, target, lambda: remotes, lambda: positions, self.notes.append)

    @property
    def can_translate(self) -> bool:
        return self._flow.index_topic in self._target.topics

    async def move(self, lift: Lift = lambda one: one.translated) -> list[GroupPlace]:
        """With the source alive."""
        standings = await self._settled()
        before = {(one.group, one.target): one for one in standings if one.translated >= 0}
        wanted = {place: lift(one) for place, one in before.items()}
        await self._commit(
            {place: Committed(offset, before[place].committed.metadata) for place, offset in wanted.items()}
        )
        return await self._places({(one.group, one.target): one.state for one in standings}, wanted)

    async def _settled(self) -> list[Standing]:
        """Round after round while holes are being closed: each does a part."""
        standings = await self._keeper.settle()
        for _ in range(_ROUNDS):
            unsure = sum(one.state != EXACT for one in standings)
            if not unsure:
                break
            standings = await self._keeper.settle()
            if sum(one.state != EXACT for one in standings) >= unsure:
                break
        return standings

    async def move_blindly(self) -> list[GroupPlace]:
        """Without the source: by what was published of groups, as exactly as the index tells."""
        published = await self._published()
        if self.can_translate:
            await self._keeper.index.catch_up()
        found: dict[Place, tuple[int, str]] = {}
        for (group, tp), (upstream, downstream) in published.items():
            found[group, tp] = await self._best(self._keeper.index, tp, upstream, downstream)
        await self._commit({place: Committed(offset) for place, (offset, _) in found.items()})
        return await self._places(
            {place: state for place, (_, state) in found.items()},
            {place: offset for place, (offset, _) in found.items()},
        )

    async def _published(self) -> dict[Place, tuple[int, int]]:
        if checkpoints_topic(self._flow) not in self._target.topics:
            return {}
        wanted = GroupFilter(self._flow.groups.include, self._flow.groups.exclude)
        found = await self._keeper.read_checkpoints()
        return {
            (group, tp): pair
            for (group, tp), pair in found.items()
            if wanted.matches(group) and tp.topic in self._sources
        }

    async def _best(self, index: Index, tp: TopicPartition, upstream: int, downstream: int) -> tuple[int, str]:
        where = await index.translate(TopicPartition(self._sources[tp.topic], tp.partition), upstream)
        return (where.target, EXACT) if where.target >= downstream else (downstream, AT_LEAST)

    # -- writing -------------------------------------------------------------------------------

    async def _commit(self, wanted: Mapping[Place, Committed]) -> None:
        """Forward only, and only where nobody works; asked again while coordinators move."""
        by_group: dict[str, dict[TopicPartition, Committed]] = {}
        for (group, tp), committed in wanted.items():
            by_group.setdefault(group, {})[tp] = committed
        until = time.monotonic() + _PATIENCE_S
        while by_group:
            by_group = await self._commit_some(by_group)
            if by_group and time.monotonic() > until:
                self.notes.append(f"groups without a coordinator: {', '.join(sorted(by_group))}")
                return
            await asyncio.sleep(0.3 if by_group else 0)

    async def _commit_some(
        self, by_group: Mapping[str, dict[TopicPartition, Committed]]
    ) -> dict[str, dict[TopicPartition, Committed]]:
        """Returns those whose coordinators could not be asked."""
        states = await list_groups(self._target)
        idle = [group for group in by_group if states.get(group, "") in IDLE]
        there = await committed_offsets(self._target, idle)
        again = {group: by_group[group] for group in idle if group not in there}
        due = {group: _forward(by_group[group], there[group]) for group in there}
        refused = await commit_many(self._target, {group: offsets for group, offsets in due.items() if offsets})
        for group, codes_of in refused.items():
            found = set(codes_of.values())
            if found & (codes.MOVING | codes.COORDINATOR_MOVING):
                again[group] = by_group[group]
            elif found:
                self._tell_refused(group, min(found))
        return again

    def _tell_refused(self, group: str, code: int) -> None:
        where = self._target.cluster.alias
        self.notes.append(f"group {group}: {where} refuses its places: {codes.name(code)}; see `isthmus acls`")

    async def _places(self, states: Mapping[Place, str], wanted: Mapping[Place, int]) -> list[GroupPlace]:
        """What stands there now, read back."""
        groups = sorted({group for group, _ in states})
        busy = {name for name, state in (await list_groups(self._target)).items() if state not in IDLE}
        there = await committed_offsets(self._target, groups)
        if left := sorted(busy & set(groups)):
            where = self._target.cluster.alias
            self.notes.append(
                f"somebody works on {where} in groups that were to be moved: {', '.join(left)}; left alone"
            )
        found = []
        for (group, tp), state in sorted(states.items()):
            offset = there.get(group, {}).get(tp, Committed(-1)).offset
            if group in busy:
                state = IN_USE
            elif (group, tp) in wanted and offset < wanted[group, tp]:
                state = REFUSED
            found.append(GroupPlace(group=group, topic=tp.topic, partition=tp.partition, offset=offset, state=state))
        return found


def _forward(wanted: Offsets, there: Offsets) -> dict[TopicPartition, Committed]:
    return {tp: each for tp, each in wanted.items() if tp not in there or each.offset > there[tp].offset}


def _publishing(flow: Flow, source: Client, target: Client) -> Flow:
    """With the groups' own offsets, and without topics that are not there."""
    kept = flow.mm2_topics
    on = source if kept.offset_syncs_on == "source" else target
    kept = replace(
        kept,
        group_offsets=True,
        checkpoints=kept.checkpoints and checkpoints_topic(flow) in target.topics,
        offset_syncs=kept.offset_syncs and offset_syncs_topic(flow) in on.topics,
    )
    return replace(flow, mm2_topics=kept)


def index_of(flow: Flow, target: Client) -> Index:
    return Index(Journal(target, flow.index_topic))
