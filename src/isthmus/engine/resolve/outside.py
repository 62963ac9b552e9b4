"""Stops of a flow, seen and decided upon from outside.

A look needs both clusters, and changes nothing. A decision goes to the driver as a wish where one runs (`wishes`), and
is carried out here where none does, under its lease and after its fence, as `positions` are changed.
"""

from __future__ import annotations

from isthmus.engine.control import ControlView, never_run
from isthmus.engine.hold import Hold
from isthmus.engine.plan import on_record
from isthmus.engine.resolve import record
from isthmus.engine.resolve.carry import Ground, planned, resolve
from isthmus.engine.resolve.choices import Wanted
from isthmus.engine.resolve.record import Decision
from isthmus.engine.resolve.states import State, look
from isthmus.engine.sides import Sides, reach
from isthmus.engine.switch import halted
from isthmus.engine.wishes import Wishing
from isthmus.errors import TargetError
from isthmus.model import Flow
from isthmus.wire.cluster import Client


class Resolver(Sides):
    """Both clusters of one flow, while its stops are looked at."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        self._hold = Hold(flow, self._target)

    async def open(self) -> None:
        """Read what is on record. A flow that clients were moved away from stays as it was then."""
        if self.flow.control_topic not in self._target.topics:
            raise never_run(self.flow, "nothing of it can have stopped")
        await self._hold.read()
        if (reason := halted(self.flow, self._hold.view)) is not None:
            raise reason

    async def states(self, topic: str) -> list[State]:
        hold = self._hold
        return await look(self.flow, self._source, self._target, hold.view, hold.ledger, topic)

    def decided(self, topic: str) -> list[Decision]:
        return record.decisions(self._hold.view, topic)

    async def plan(self, wanted: Wanted) -> list[Decision]:
        return await planned(self._ground(), wanted)

    async def resolve(self, wanted: Wanted) -> list[Decision]:
        """Nobody drives the flow: RivalError if somebody does."""
        async with self._hold.held("nothing of it can have stopped"):
            await self._hold.read()
            return await resolve(self._ground(), wanted)

    def _ground(self) -> Ground:
        hold = self._hold
        return Ground(self.flow, self._source, self._target, hold.journal, hold.view, hold.ledger)


async def carry_out(resolver: Resolver, wanted: Wanted) -> str:
    """By whoever drives the flow, whose name is returned; by us, if nobody does: then it is empty.

    A driver that lives and does not answer keeps its lease, so that we are refused: nothing is done twice at a time.
    """
    async with Wishing(resolver.flow) as wishing:
        answer = await wishing.resolve(wanted.as_wish())
    if not answer.heard_by:
        await resolver.resolve(wanted)
    return answer.heard_by


async def recorded(flow: Flow) -> ControlView:
    """What the control topic says; of a flow that never ran: nothing."""
    client = Client(flow.target, timeout_s=flow.tuning.request_timeout_ms / 1000)
    try:
        await reach(client, TargetError)
        return await on_record(client, flow)
    finally:
        client.close()
