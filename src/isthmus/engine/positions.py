"""Positions of a flow, seen and changed from outside: what progress says, and writing it anew while nobody runs.

What must stay true: a change is made only while we hold the flow's lease and after every id that could still write
progress was fenced (I2), so no commit of an old lane can land behind it. A position lies within the source's log.
Records that were copied already and are behind a new position will be copied again: the caller shows that first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from isthmus.engine.control import ControlView, never_run
from isthmus.engine.control import write as write_control
from isthmus.engine.fencing import Fence
from isthmus.engine.lease import Lease
from isthmus.engine.ledger import Ledger
from isthmus.engine.letters import to_be_fenced
from isthmus.engine.sides import Sides
from isthmus.errors import SourceError
from isthmus.mm2.filters import choose
from isthmus.mm2.policy import remote_topic
from isthmus.mm2.progress import CONNECTOR
from isthmus.model import Flow, TopicPartition
from isthmus.wire.fetch import EARLIEST, LATEST, READ_COMMITTED, settled_offsets
from isthmus.wire.journal import Journal
from isthmus.wire.transaction import speaks_second_protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One source partition: where copying goes on (-1: nothing was copied yet), and what the source has."""

    topic: str
    partition: int
    next: int
    log_start: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - max(self.next, self.log_start))


class Positions(Sides):
    """Both clusters of one flow, for as long as positions are looked at."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        self._journal = Journal(self._target, flow.control_topic)
        self._view = ControlView()
        self._ledger = Ledger(self._target, flow.progress_topic, flow.source.alias, CONNECTOR)

    async def read(self) -> list[Position]:
        """Every partition that the flow carries, with what is stored for it."""
        await self._read_stored()
        partitions = [
            TopicPartition(name, number)
            for name in choose(self.flow, self._source.topics)
            for number in sorted(self._source.topics[name].partitions)
        ]
        begins = await settled_offsets(self._source, partitions, EARLIEST)
        ends = await settled_offsets(self._source, partitions, LATEST, READ_COMMITTED)
        return [
            Position(
                topic=tp.topic,
                partition=tp.partition,
                next=self._ledger.positions.get(tp, -1),
                log_start=begins[tp],
                end=ends[tp],
            )
            for tp in partitions
        ]

    async def _read_stored(self) -> None:
        if self.flow.control_topic in self._target.topics:
            start, end = await self._journal.beginning(), await self._journal.end()
            for record in await self._journal.read(start, end):
                self._view.apply(record)
        if self.flow.progress_topic in self._target.topics:
            await self._ledger.open(self._view.values.get("snapshot"))
            await self._ledger.advance()

    async def write(self, changes: Mapping[TopicPartition, int | None]) -> None:
        """Store these positions; None forgets one. Refused while somebody drives the flow."""
        async with self.held():
            await self.store(changes)

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the flow as its driver would, with every id fenced that could still write progress."""
        self._refuse_unknown()
        lease = Lease(self.flow, self._journal)
        await lease.acquire(self._view, take_over=False)
        keeping = asyncio.ensure_future(lease.keep(lambda _: None))  # a fence may take longer than a lease lasts
        try:
            await self._fence()
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await lease.release()

    async def store(self, changes: Mapping[TopicPartition, int | None]) -> None:
        """To be called while the flow is held."""
        await self._ledger.put(changes)
        await write_control(self._journal, {"snapshot": self._ledger.snapshot()})

    def _refuse_unknown(self) -> None:
        if self.flow.control_topic not in self._target.topics:
            raise never_run(self.flow, "use `start` in the file to say where it begins")

    async def _fence(self) -> None:
        fence = Fence(
            self._target,
            self.flow,
            second_protocol=speaks_second_protocol(self._target),
            waiting=lambda _: None,
        )
        topics = {remote_topic(self.flow, tp.topic) for tp in self._ledger.positions} & set(self._target.topics)
        everywhere = [
            TopicPartition(name, number)
            for name in sorted({*topics, self.flow.progress_topic})
            for number in self._target.topics[name].partitions
        ]
        everywhere += to_be_fenced(self._target, self.flow)
        await fence.everyone(int(self._view.values.get("fleet", {}).get("lanes", self.flow.lanes)), everywhere)


def checked_changes(
    flow: Flow, positions: list[Position], wanted: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int | None]:
    """The changes that make a difference; SourceError for a partition or an offset that is not there."""
    known = {TopicPartition(p.topic, p.partition): p for p in positions}
    changes: dict[TopicPartition, int | None] = {}
    for tp, offset in wanted.items():
        if (position := known.get(tp)) is None:
            raise SourceError(
                f"the flow does not carry {tp}",
                where=f"flow {flow.name}, cluster {flow.source.alias}",
                hint="`isthmus positions FILE` lists what it carries",
                code="UNKNOWN_TOPIC",
            )
        if offset is not None and not position.log_start <= offset <= position.end:
            raise SourceError(
                f"{tp} has no offset {offset}: its log has {position.log_start} to {position.end}",
                where=f"flow {flow.name}, cluster {flow.source.alias}",
                hint=f"give an offset from {position.log_start} to {position.end}",
                code="START",
            )
        if (offset if offset is not None else -1) != position.next:
            changes[tp] = offset
    return changes
