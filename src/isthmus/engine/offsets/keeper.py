"""Publishing where groups stand: MirrorMaker 2's checkpoints and offset syncs, and the groups' own offsets.

Runs in the driver beside its other standing work. What must stay true: no null is ever written into MirrorMaker 2's
topics; offsets of a group on the target are written only when nobody works in that group there, and never move back,
unless the group was moved back on the source and nobody has used it on the target since. A cluster that refuses costs
a note, and never holds up records.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from isthmus.engine.offsets.index import Index
from isthmus.engine.offsets.translate import AHEAD, AT_LEAST, EXACT, Standing, Translator
from isthmus.errors import BrokerRefused, BrokerUnreachable, WireError
from isthmus.mm2.formats import Checkpoint, OffsetSync, checkpoints_topic, offset_syncs_topic
from isthmus.model import Flow, TopicPartition
from isthmus.wire import codes
from isthmus.wire.cluster import Client
from isthmus.wire.groups import IDLE, Committed, commit_many, committed_offsets, list_groups
from isthmus.wire.journal import Journal

_TIDY_EVERY_S = 60.0
_SYNCS_EVERY_S = 10.0  # nobody reads them while we run; a MirrorMaker 2 that takes over needs no newer ones
_PAIRS_AT_ONCE = 1_000
_PATIENCE_S = 10.0
_LAST_ROUND_S = 30.0
_TRIES = 10  # to read every group, when clients change sides: one that moves to another broker is back in seconds
_IDLE_SHARE = 4  # rounds that take long become rarer: at most a fifth of the time

Place = tuple[str, TopicPartition]  # a group and a partition of the target


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """How the last look at all groups went, for those who watch."""

    at: float = 0.0  # when the last one that went well was done; 0: none was
    seconds: float = 0.0  # from the look at the source until everything was written
    groups: int = 0
    states: Mapping[str, int] = field(default_factory=dict)  # how many places are in which state
    error: str = ""  # of the last round, if it went wrong

    def as_value(self) -> dict[str, Any]:
        return asdict(self)


class GroupKeeper:
    """The groups of one flow, round after round."""

    def __init__(
        self,
        flow: Flow,
        source: Client,
        target: Client,
        remotes: Callable[[], Mapping[str, str]],
        positions: Callable[[], Mapping[TopicPartition, int]],
        tell: Callable[[str], None],
    ) -> None:
        self.flow = flow
        self.skipped = 0  # foreign or damaged records in the checkpoints topic
        self._source = source
        self._target = target
        self._tell = tell
        self._positions = positions
        self.index = Index(Journal(target, flow.index_topic))
        self._translator = Translator(source, target, self.index, remotes, positions)
        self._checkpoints: dict[Place, tuple[int, int]] | None = None  # upstream and downstream, as published
        self._written: dict[Place, tuple[int, int]] = {}  # the same, as written into groups of the target
        self._awaited: dict[Place, Standing] = {}  # of groups that are ahead: an earlier place, not copied yet
        self._groups_at = self._syncs_at = self._tidy_at = 0.0
        self.latest = Round()

    async def run(self) -> None:
        """Until cancelled. Nothing that happens here ends the flow."""
        while True:
            began = time.monotonic()
            if self.flow.keeps_index:
                await self.round()
            took = time.monotonic() - began
            kept = self.flow.mm2_topics
            pause = min(kept.checkpoint_seconds, kept.group_offsets_seconds)
            await asyncio.sleep(max(pause - took, took * _IDLE_SHARE, 0.1))

    async def last_round(self) -> None:
        """Before a flow ends: what it has copied counts. Not for ever, because somebody waits for the end."""
        if self.flow.keeps_index:
            try:
                async with asyncio.timeout(_LAST_ROUND_S):
                    await self.round(last=True)
            except TimeoutError:
                self._tell("consumer groups: the last round took too long; the next run goes on with it")

    async def round(self, *, last: bool = False) -> None:
        """Look at everything once; `last` also writes what is not due yet."""
        began = time.monotonic()
        try:
            standings = await self._round(last)
        except BrokerUnreachable as error:
            self.latest = replace(self.latest, error=str(error))  # whoever carries records says so, too
        except WireError as error:
            self.latest = replace(self.latest, error=str(error))
            self._tell(f"consumer groups are not taken along: {error}")
        else:
            unread = str(self._unread() or "")
            self.latest = replace(_told(standings, time.monotonic() - began), error=unread)
            if unread:
                self._tell(f"consumer groups: {unread}; asked again in the next round")

    def published(self) -> Mapping[Place, tuple[int, int]]:
        """Upstream and downstream offset of every checkpoint."""
        return self._checkpoints or {}

    async def settle(self) -> list[Standing]:
        """For a change of sides: everything is written now, and what a cluster refuses is raised."""
        standings = await self._round(last=True)
        for _ in range(_TRIES):
            if not self._translator.unread:
                break
            await asyncio.sleep(1.0)
            standings = await self._round(last=True)
        if error := self._unread():
            raise error
        return standings

    def _unread(self) -> BrokerUnreachable | None:
        """Most often a group moves to another broker; the next round has it."""
        if not (unread := self._translator.unread):
            return None
        group, code = min(unread.items())
        more = f" and {len(unread) - 1} more groups" if len(unread) > 1 else ""
        return BrokerUnreachable(
            f"offsets of group {group}{more} could not be read: {codes.name(code)}",
            where=f"cluster {self._source.cluster.alias}",
            hint=codes.advice(code, "DESCRIBE on the group"),
        )

    async def _round(self, last: bool) -> list[Standing]:
        kept = self.flow.mm2_topics
        await self.index.catch_up()
        if kept.offset_syncs and self.index.changed and (last or time.monotonic() >= self._syncs_at):
            self._syncs_at = time.monotonic() + _SYNCS_EVERY_S
            await self._try_to_publish_syncs()
        standings = []
        if kept.checkpoints or kept.group_offsets:
            standings = await self._behind(await self._translator.round(self.flow))
        if kept.checkpoints:
            await self._publish(standings)
        now = time.monotonic()
        if kept.group_offsets and (last or now >= self._groups_at):
            await self._write_groups(standings)
            self._groups_at = now + kept.group_offsets_seconds
        if last or now >= self._tidy_at:
            await self.index.tidy(self._translator.log_starts)
            self._tidy_at = now + _TIDY_EVERY_S
        return standings

    async def _behind(self, standings: list[Standing]) -> list[Standing]:
        """A group that follows its writers is ahead of the copy whenever one looks, and would have no place at all on
        the day that the source is lost. So an earlier place of it is published, as soon as that is copied."""
        awaited, found = {}, []
        for one in standings:
            place = one.group, one.target
            earlier = self._awaited.get(place, one)
            if one.state == AHEAD and earlier.committed.offset < one.committed.offset:
                known = await self._translator.again(earlier)
                awaited[place] = earlier if known.state == AHEAD else one
                found.append(known)
                continue
            if one.state == AHEAD:
                awaited[place] = one
            found.append(one)
        self._awaited = awaited
        return found

    # -- MirrorMaker 2's records ---------------------------------------------------------------

    async def _try_to_publish_syncs(self) -> None:
        """A source is often read-only; groups are translated all the same, by our own index."""
        try:
            await self._publish_syncs()
        except BrokerRefused as error:
            self._tell(f"offset-syncs are not written: {error}; switch them off, or write them to the target")

    async def _publish_syncs(self) -> None:
        on = self._source if self.flow.mm2_topics.offset_syncs_on == "source" else self._target
        changed, pairs = sorted(tp for tp in self.index.changed if self._reaches_the_end(tp)), []
        for tp in changed:
            found = await self.index.last(tp)
            if found is not None:
                pairs.append(OffsetSync(tp.topic, tp.partition, *found).encode())
        await self._append(on, offset_syncs_topic(self.flow), pairs)
        self.index.changed -= set(changed)

    def _reaches_the_end(self, tp: TopicPartition) -> bool:
        """While holes before the end are being closed, the last run on record is not the last record that was copied. A
        sync of it would go back, and take away those of MirrorMaker 2 by which the next hole is closed."""
        return self.index.end(tp) >= self._positions().get(tp, -1)

    async def _publish(self, standings: list[Standing]) -> None:
        known = self._checkpoints
        if known is None:
            known = self._checkpoints = await self.read_checkpoints()
            self._written = dict(known)
        pairs, fresh = [], {}
        for one in standings:
            place, pair = (one.group, one.target), (one.committed.offset, one.translated)
            if _is_news(one, known.get(place)):
                checkpoint = Checkpoint(one.group, one.target.topic, one.target.partition, *pair)
                pairs.append(checkpoint.encode())
                fresh[place] = pair
        await self._append(self._target, checkpoints_topic(self.flow), pairs)
        known.update(fresh)

    async def read_checkpoints(self) -> dict[Place, tuple[int, int]]:
        """What an earlier run, or MirrorMaker 2, has published."""
        journal = Journal(self._target, checkpoints_topic(self.flow))
        found: dict[Place, tuple[int, int]] = {}
        for record in await journal.read(await journal.beginning(), await journal.end()):
            checkpoint = Checkpoint.decode(record.key or b"", record.value or b"")
            if checkpoint is None:
                self.skipped += 1
                continue
            place = checkpoint.group, TopicPartition(checkpoint.topic, checkpoint.partition)
            found[place] = checkpoint.upstream, checkpoint.downstream
        if self.skipped:
            self._tell(f"{self.skipped} records in {checkpoints_topic(self.flow)} are no checkpoints: left alone")
        return found

    async def _append(self, client: Client, topic: str, pairs: list[tuple[bytes, bytes]]) -> None:
        journal = Journal(client, topic)
        for at in range(0, len(pairs), _PAIRS_AT_ONCE):
            await journal.append(pairs[at : at + _PAIRS_AT_ONCE], _PATIENCE_S)

    # -- groups of the target ------------------------------------------------------------------

    async def _write_groups(self, standings: list[Standing]) -> None:
        by_group: dict[str, list[Standing]] = {}
        for one in standings:
            if one.translated >= 0:
                by_group.setdefault(one.group, []).append(one)
        states = await list_groups(self._target)
        idle = [group for group in by_group if states.get(group, "") in IDLE]
        there = await committed_offsets(self._target, idle)
        due = {
            group: {one.target: one for one in by_group[group] if self._is_due(one, there[group])}
            for group in idle
            if group in there  # one that moves to another broker is not known now
        }
        await self._commit({group: standings for group, standings in due.items() if standings})

    def _is_due(self, one: Standing, there: Mapping[TopicPartition, Committed]) -> bool:
        now = there.get(one.target)
        if now is None or one.translated > now.offset:
            return True
        upstream, downstream = self._written.get((one.group, one.target), (-1, -1))
        moved_back = one.committed.offset < upstream and now.offset == downstream
        return moved_back and one.translated < now.offset

    async def _commit(self, due: Mapping[str, Mapping[TopicPartition, Standing]]) -> None:
        wanted = {
            group: {tp: Committed(one.translated, one.committed.metadata) for tp, one in standings.items()}
            for group, standings in due.items()
        }
        refused = await commit_many(self._target, wanted)
        for group, standings in due.items():
            for tp, one in standings.items():
                if tp not in refused[group]:
                    self._written[group, tp] = one.committed.offset, one.translated
            self._tell_refused(group, set(refused[group].values()))

    def _tell_refused(self, group: str, found: set[int]) -> None:
        bad = found - {codes.UNKNOWN_MEMBER_ID, *codes.MOVING, *codes.COORDINATOR_MOVING}
        if bad:  # a member that came just now is the business of the next round
            rights = {
                codes.GROUP_AUTHORIZATION_FAILED: f"group {group}",
                codes.TOPIC_AUTHORIZATION_FAILED: "the copies",
            }
            hint = f"; grant READ on {rights[min(bad)]}" if min(bad) in rights else ""
            self._tell(f"offsets of group {group} are not written on the target: {codes.name(min(bad))}{hint}")


def _told(standings: list[Standing], seconds: float) -> Round:
    return Round(
        at=time.time(),
        seconds=round(seconds, 3),
        groups=len({one.group for one in standings}),
        states=dict(Counter(one.state for one in standings)),
    )


def _is_news(one: Standing, known: tuple[int, int] | None) -> bool:
    """As MirrorMaker 2 does it: forward, or back with the group; an exact answer also puts an inexact one right."""
    if one.state not in (EXACT, AT_LEAST):
        return False
    if known is None:
        return True
    upstream, downstream = known
    if one.state == AT_LEAST:
        return one.translated > downstream or one.committed.offset < upstream
    return (one.committed.offset, one.translated) != known
