"""What the target knows of a flow, read from outside; and holding the flow as its driver would, to change that.

`Hold` needs the target alone: the source may be gone. What must stay true: stored positions are changed only while we
have the flow's lease and after every id that could still write progress was fenced (I2), so no commit of an old lane
can land behind them. Whether a position makes sense is left to the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from isthmus.engine.control import ControlView, never_run, refuse_damaged
from isthmus.engine.control import write as write_control
from isthmus.engine.fencing import Fence
from isthmus.engine.lease import Lease
from isthmus.engine.ledger import Ledger
from isthmus.engine.letters import to_be_fenced
from isthmus.mm2.policy import remote_topic
from isthmus.mm2.progress import CONNECTOR
from isthmus.model import Flow, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal
from isthmus.wire.transaction import speaks_second_protocol


class Hold:
    """The target's side of one flow. The client is connected and knows all topics; whoever made it closes it."""

    def __init__(self, flow: Flow, target: Client) -> None:
        self.flow = flow
        self.journal = Journal(target, flow.control_topic)
        self.view = ControlView()
        self.ledger = Ledger(target, flow.progress_topic, flow.source.alias, CONNECTOR)
        self._target = target
        self._cursor = -1
        self._opened = False

    async def read(self) -> None:
        """What stands in the control topic and in the progress topic by now; again: what came since."""
        if self.flow.control_topic in self._target.topics:
            await self.hear()
        if self.flow.progress_topic in self._target.topics:
            if not self._opened:
                await self.ledger.open(self.view.values.get("snapshot"))
                self._opened = True
            await self.ledger.advance()

    async def hear(self) -> None:
        """Follow the control topic to its end."""
        if self._cursor < 0:
            self._cursor = await self.journal.beginning()
        end = await self.journal.end()
        for record in await self.journal.read(self._cursor, end):
            self.view.apply(record)
        self._cursor = max(self._cursor, end)
        refuse_damaged(self.flow, self.view)

    @contextlib.asynccontextmanager
    async def held(self, hint: str, *, take_over: bool = False) -> AsyncIterator[None]:
        """Hold the flow, with every id fenced that could still write progress; to be read before."""
        if self.flow.control_topic not in self._target.topics:
            raise never_run(self.flow, hint)
        lease = Lease(self.flow, self.journal)
        await self.hear()  # a driver that let go since the last look need not be waited for
        await lease.acquire(self.view, take_over=take_over)
        keeping = asyncio.ensure_future(lease.keep(lambda _: None))  # a fence may take longer than a lease lasts
        try:
            await self._fence()
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await lease.release()

    async def store(self, changes: Mapping[TopicPartition, int | None]) -> None:
        """Store these positions; None forgets one. To be called while the flow is held."""
        await self.ledger.put(changes)
        await write_control(self.journal, {"snapshot": self.ledger.snapshot()})

    async def _fence(self) -> None:
        fence = Fence(
            self._target,
            self.flow,
            second_protocol=speaks_second_protocol(self._target),
            waiting=lambda _: None,
        )
        topics = {remote_topic(self.flow, tp.topic) for tp in self.ledger.positions} & set(self._target.topics)
        everywhere = [
            TopicPartition(name, number)
            for name in sorted({*topics, self.flow.progress_topic})
            for number in self._target.topics[name].partitions
        ]
        everywhere += to_be_fenced(self._target, self.flow)
        await fence.everyone(int(self.view.values.get("fleet", {}).get("lanes", self.flow.lanes)), everywhere)
