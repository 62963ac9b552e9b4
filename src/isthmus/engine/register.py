"""The register of a cluster: which producer ids belong to flows that write into it, and where their records come from.

One compacted topic with one partition, shared by all flows into that cluster. Keys, all JSON values:
    id/<producer id>   the flow that writes with it, and the alias and id of the cluster that it reads from
    empty/<topic id>   a topic into which nothing was ever written when the first of these flows came

A copy is known by the producer id in the header of its batch: it survives compaction, recompression and replication,
and a cluster hands it out once. So no header is added to any record. What must stay true: an id is on record, on all
replicas, before the first batch that carries it; hence an id that is not there after the register was read to an end
that was asked for *after* the batch was fetched is a stranger's, for good. Nothing is ever removed: compacted topics
keep batches for ever. A register that was deleted makes all copies look like strangers' records: LoopError.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterable
from typing import NamedTuple

from isthmus.errors import BrokerUnreachable, LoopError
from isthmus.model import NO_ID, REGISTER
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal
from isthmus.wire.records import Record

TOPIC_SETTINGS = {"cleanup.policy": "compact"}
_PATIENCE_S = 20.0


class Origin(NamedTuple):
    """Who writes with an id: the flow, and the cluster that its records come from (the id is empty if not known)."""

    flow: str
    source: str
    source_id: str


class Register:
    """Reads and writes the register of one cluster; what was read stays known."""

    def __init__(self, client: Client, topic_id: uuid.UUID = NO_ID) -> None:
        """`topic_id`: what the register's must be; without it, the one that is found first."""
        self.origins: dict[int, Origin] = {}
        self.empty: set[str] = set()
        self._client = client
        self._topic_id = topic_id
        self._journal = Journal(client, REGISTER)
        self._cursor = -1
        self._lock = asyncio.Lock()

    async def catch_up(self) -> None:
        """Read to the end as of now. BrokerUnreachable when it does not answer."""
        async with self._lock:
            end = await self._journal.end()
            if self._cursor < 0:
                self._cursor = await self._journal.beginning()
            if end < self._cursor:
                raise register_lost(self._client)
            until = time.monotonic() + _PATIENCE_S
            # Once at least, even if nothing is new: a read by id shows whether it is the same topic still.
            await self._read(end, until)
            while self._cursor < end:
                await self._read(end, until)

    async def _read(self, end: int, until: float) -> None:
        try:
            records, self._cursor = await self._journal.poll(self._cursor, 100 if self._cursor < end else 0)
        except BrokerUnreachable:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)
            await self._client.refresh([REGISTER])
            records = []
        self.check()
        for record in records:
            self._apply(record)

    def check(self) -> None:
        """Whether the register, as metadata knows it, is the one that it was."""
        seen = self._client.topic_id(REGISTER)
        if NO_ID not in (seen, self._topic_id) and seen != self._topic_id:
            raise register_lost(self._client)
        self._topic_id = self._topic_id if seen == NO_ID else seen

    def _apply(self, record: Record) -> None:
        try:
            kind, _, name = (record.key or b"").decode().partition("/")
            value = json.loads(record.value or b"null")
            if kind == "id":
                self.origins[int(name)] = Origin(*(str(value.get(field, "")) for field in Origin._fields))
            elif kind == "empty":
                self.empty.add(name)
        except (ValueError, AttributeError, RecursionError):
            return  # damaged, or not ours

    async def record(self, ids: Iterable[int], origin: Origin) -> None:
        """Put these ids on record; returns when all replicas have them."""
        value = json.dumps(origin._asdict(), separators=(",", ":")).encode()
        await self._journal.append([(f"id/{number}".encode(), value) for number in sorted(ids)])
        self.check()

    async def mark_empty(self, topics: Iterable[str]) -> None:
        if pairs := [(f"empty/{name}".encode(), b"{}") for name in topics]:
            await self._journal.append(pairs)


def register_lost(client: Client) -> LoopError:
    return LoopError(
        f"topic {REGISTER} was deleted or made anew: what flows have copied into this cluster cannot be told from "
        "other records any more, and would be sent back",
        where=f"cluster {client.cluster.alias}",
        hint="stop all flows that keep topic names from and to this cluster, move each to the end of its topics "
        f"(`isthmus positions FILE --set ...`), then run it once with --forget {REGISTER}",
        code="REGISTER_LOST",
    )
