"""Positions of a flow, seen and changed from outside: what progress says, and writing it anew while nobody runs.

What must stay true: a change is made only while the flow is held (`hold`). A position lies within the source's log.
Records that were copied already and are behind a new position will be copied again: the caller shows that first.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from isthmus.engine.control import write as write_control
from isthmus.engine.hold import Hold
from isthmus.engine.resolve.record import stop_key, stops
from isthmus.engine.sides import Sides
from isthmus.errors import SourceError
from isthmus.mm2.filters import choose
from isthmus.model import Flow, TopicPartition
from isthmus.wire.fetch import EARLIEST, LATEST, READ_COMMITTED, settled_offsets


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
        self._hold = Hold(flow, self._target)

    async def read(self) -> list[Position]:
        """Every partition that the flow carries, with what is stored for it."""
        await self._hold.read()
        stored = self._hold.ledger.positions
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
                next=stored.get(tp, -1),
                log_start=begins[tp],
                end=ends[tp],
            )
            for tp in partitions
        ]

    async def write(self, changes: Mapping[TopicPartition, int | None]) -> None:
        """Store these positions; None forgets one. Refused while somebody drives the flow."""
        async with self.held():
            await self.store(changes)
            # Who moves a partition by hand has decided what to do about its stop.
            known = set(stops(self._hold.view)) & set(changes)
            if known:
                await write_control(self._hold.journal, {stop_key(tp): None for tp in known})

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the flow as its driver would, with every id fenced that could still write progress."""
        async with self._hold.held("use `start` in the file to say where it begins"):
            yield

    async def store(self, changes: Mapping[TopicPartition, int | None]) -> None:
        """To be called while the flow is held."""
        await self._hold.store(changes)


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
