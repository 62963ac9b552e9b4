"""The driver's part in cutting loops: puts producer ids on record in the target before they are used, and stops what
could go round.

A topic with records on both clusters, of which nobody knows whether they were copied before (by MirrorMaker 2, say),
is not begun without a word from the operator: copies of that time carry no id that is on record. It is safe where the
source's topic was empty when the first flow that keeps a register came, where it is empty now, or where nothing was
ever written to the target's. What must stay true: a register that a flow has relied on is the same for ever; its
topic id stands in the control topic. Reading batches is left to `sieve`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from isthmus.engine import control
from isthmus.engine.control import ControlView
from isthmus.engine.orders import Stop
from isthmus.engine.register import Origin, Register, register_lost
from isthmus.engine.survey import Route
from isthmus.errors import LoopError
from isthmus.mm2.filters import TopicFilter
from isthmus.mm2.javaregex import compile_java
from isthmus.mm2.policy import HEARTBEATS
from isthmus.model import NO_ID, REGISTER, Flow, Start, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, settled_offsets
from isthmus.wire.journal import Journal
from isthmus.wire.transaction import Identity

RECORD = "register"  # key in the control topic


class Registrar:
    """Of one flow; does nothing for flows whose names tell where a topic came from."""

    def __init__(self, flow: Flow, source: Client, target: Client, journal: Journal) -> None:
        self.flow = flow
        self._source = source
        self._target = target
        self._journal = journal
        self.source_register = NO_ID
        self._there = Register(source)
        self._here = Register(target)
        self._recorded: set[int] = set()

    @property
    def origin(self) -> Origin | None:
        """What the flow's lanes write into the register; None: nothing."""
        if not self.flow.keeps_register:
            return None
        return Origin(self.flow.name, self.flow.source.alias, self._source.cluster_id)

    async def open(self, view: ControlView) -> None:
        """LoopError if a register is not the one that this flow has used before."""
        then = view.values.get(RECORD, {})
        now = dict(then)
        if self.flow.all_cuts:
            now["source"] = str(await self._known(self._source, then.get("source")))
            self.source_register = uuid.UUID(now["source"])
            self._there = Register(self._source, self.source_register)
        if self.origin is not None:
            now["target"] = str(await self._known(self._target, then.get("target")))
            self._here = Register(self._target, uuid.UUID(now["target"]))
        if now != then:
            await control.write(self._journal, {RECORD: now})
            view.values[RECORD] = now

    async def _known(self, client: Client, before: str | None) -> uuid.UUID:
        await client.refresh([REGISTER])
        seen = client.topic_id(REGISTER)
        if before is not None and NO_ID not in (seen, uuid.UUID(before)) and str(seen) != before:
            raise register_lost(client)
        return seen

    async def record(self, identities: Iterable[Identity]) -> None:
        """To be called before the first batch under these ids."""
        if self.origin is None:
            return
        await self._target.refresh([REGISTER])
        self._here.check()
        self._there.check()
        if fresh := {who.producer_id for who in identities} - self._recorded:
            await self._here.record(fresh, self.origin)
            self._recorded |= fresh

    # -- topics that begin ---------------------------------------------------------------------

    async def mark_empty(self, routes: Sequence[Route]) -> None:
        """Tell flows that lead away from the target which of these topics hold no copies of earlier days."""
        if self.origin is not None:
            written = await _ends(self._target, [(r.target, r.partitions) for r in routes])
            await self._here.mark_empty(_mark(r.target, r.target_id) for r in routes if not written[r.target])

    async def refuse_uncut(self) -> None:
        """Somebody else's file may have a flow back, and this one may not know: it must not send all of that home."""
        if self.origin is None or any(cut.origin == self.flow.target.alias for cut in self.flow.all_cuts):
            return
        if REGISTER not in self._source.topics:
            return
        await self._there.catch_up()
        for origin in self._there.origins.values():
            if origin.source_id and origin.source_id == self._target.cluster_id:
                raise self._uncut(origin)

    def _uncut(self, origin: Origin) -> LoopError:
        return LoopError(
            f"flow {origin.flow} brings records from {self.flow.target.alias} to {self.flow.source.alias}, under "
            "names that do not tell, and this flow would send them back",
            where=f"flow {self.flow.name}",
            hint=f"add `cut_from: [{self.flow.target.alias}]` to this flow, or put both flows into one file",
            code="UNCUT",
        )

    async def doubtful(self, routes: Sequence[Route], starts: tuple[Start, ...]) -> list[Stop]:
        """Those of these new topics that must not begin as they are."""
        asked = [r for r in routes if not _has_start(r, starts) and self._may_hold_copies(r.source)]
        if not asked:
            return []
        await self._there.catch_up()
        asked = [r for r in asked if _mark(r.source, r.source_id) not in self._there.empty]
        there = await _ends(self._target, [(r.target, r.partitions) for r in asked])
        here = await _ends(self._source, [(r.source, r.partitions) for r in asked if there[r.target]], held=True)
        return [self._stop(r) for r in asked if here.get(r.source)]

    def _may_hold_copies(self, topic: str) -> bool:
        brought = (TopicFilter(cut.brings.include, cut.brings.exclude) for cut in self.flow.all_cuts)
        return not topic.endswith(HEARTBEATS) and any(each.matches(topic) for each in brought)

    def _stop(self, route: Route) -> Stop:
        source, target = self.flow.source.alias, self.flow.target.alias
        return Stop(
            source=TopicPartition(route.source, 0),
            code="HISTORY",
            message=f"{route.source} on {source} and {route.target} on {target} both have records from before these "
            "flows: which of them were copied already is not known",
            hint=f"give {self.flow.name} a `start` for it and run it again: `latest` leaves out what is there, "
            "`earliest` takes all of it, which is right if nothing was ever copied from one to the other",
        )


def _has_start(route: Route, starts: tuple[Start, ...]) -> bool:
    return any(compile_java(start.topics).fullmatch(route.source) for start in starts)


def _mark(topic: str, topic_id: uuid.UUID) -> str:
    """Brokers before 2.8 have no ids."""
    return topic if topic_id == NO_ID else str(topic_id)


async def _ends(client: Client, topics: Sequence[tuple[str, int]], *, held: bool = False) -> dict[str, bool]:
    """Whether anything was ever written to each topic; with `held`, whether anything of it is left."""
    partitions = [TopicPartition(name, number) for name, count in topics for number in range(count)]
    ends = await settled_offsets(client, partitions, LATEST)
    begins = await settled_offsets(client, partitions, EARLIEST) if held else {}
    return {name: any(ends[tp] > begins.get(tp, 0) for tp in partitions if tp.topic == name) for name in dict(topics)}
