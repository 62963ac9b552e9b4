"""MirrorMaker 2's heartbeats, so that its tools see the flow: a record in both clusters, each second or so.

For a flow A->B, MirrorMaker 2's connector of that direction writes (A, B) into B, and that of the way back writes
(B, A) into A, from where it is carried to B as `A.heartbeats`; both are written here. What must stay true: a cluster
that refuses them, or is away, costs a note and never holds up the other one, nor records. Creating the topics is
left to `internal`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from isthmus.errors import BrokerRefused, BrokerUnreachable
from isthmus.mm2.formats import HEARTBEATS, Heartbeat
from isthmus.model import Flow
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal

_RETRY_REFUSED_S = 60.0
_PATIENCE_S = 5.0


class Heartbeats:
    """Beats in both clusters of a flow until cancelled."""

    def __init__(self, flow: Flow, source: Client, target: Client, tell: Callable[[str], None]) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._tell = tell

    async def run(self) -> None:
        there, here = self._flow.source.alias, self._flow.target.alias
        async with asyncio.TaskGroup() as both:
            both.create_task(self._beat(self._target, there, here))
            both.create_task(self._beat(self._source, here, there))

    async def _beat(self, client: Client, source: str, target: str) -> None:
        journal = Journal(client, HEARTBEATS)
        while True:
            pause = self._flow.mm2_topics.heartbeat_seconds
            try:
                if not await self._is_there(client):
                    pause = _RETRY_REFUSED_S
                else:
                    now_ms = int(time.time() * 1000)
                    await journal.append([Heartbeat(source, target, now_ms).encode()], _PATIENCE_S)
            except BrokerRefused as error:
                self._tell(
                    f"no heartbeats into cluster {client.cluster.alias}: {error}; "
                    f"grant WRITE on its topic {HEARTBEATS}, or switch heartbeats off"
                )
                pause = _RETRY_REFUSED_S
            except BrokerUnreachable:
                pass  # whoever carries records says so
            await asyncio.sleep(pause)

    async def _is_there(self, client: Client) -> bool:
        if HEARTBEATS not in client.topics:
            await client.refresh([HEARTBEATS])
        return HEARTBEATS in client.topics
