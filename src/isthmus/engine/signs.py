"""Signs of life and signs of trouble to come, beside what lanes report: heartbeats on the target, ends of certificates.

Only reads, and never fails: what cannot be known is None, or empty. What must stay true: a heartbeat that is not among
the last ones read is at least as old as the oldest of them, and said to be no younger; certificates are looked at now
and then, because that takes a connection to every broker.
"""

from __future__ import annotations

import asyncio
import time

from isthmus.errors import IsthmusError, WireError
from isthmus.mm2.formats import HEARTBEATS, Heartbeat
from isthmus.model import Cluster, Flow
from isthmus.observe.health import CertificateHealth
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal
from isthmus.wire.records import Record

_TAIL = 300  # heartbeats: all flows to a cluster share one topic
_AGAIN_S = 30.0  # after a topic that is not there, or that may not be read
_CERTIFICATES_EVERY_S = 600.0
_CERTIFICATES_AGAIN_S = 120.0
_WITHIN_S = 5.0


class Pulse:
    """When a flow's last heartbeat on its target was written."""

    def __init__(self, flow: Flow, target: Client) -> None:
        self._names = flow.source.alias, flow.target.alias
        self._is_on = flow.mm2_topics.heartbeats
        self._target = target
        self._journal = Journal(target, HEARTBEATS)
        self._cursor = -1
        self._last_ms: int | None = None
        self._not_before = 0.0

    async def last_ms(self) -> int | None:
        """By the clock of who wrote it."""
        if self._is_on and time.monotonic() >= self._not_before:
            try:
                await self._read()
            except WireError:  # whatever matters about the target is told by those who need it
                self._not_before = time.monotonic() + _AGAIN_S
        return self._last_ms

    async def _read(self) -> None:
        if HEARTBEATS not in self._target.topics:
            await self._target.refresh([HEARTBEATS])
        if HEARTBEATS not in self._target.topics:
            self._not_before = time.monotonic() + _AGAIN_S
            return
        end = await self._journal.end()
        begin = self._cursor if self._cursor >= 0 else max(await self._journal.beginning(), end - _TAIL)
        self._hear(await self._journal.read(begin, end))
        self._cursor = max(self._cursor, end)

    def _hear(self, records: list[Record]) -> None:
        found = [Heartbeat.decode(each.key or b"", each.value or b"") for each in records]
        beats = [each for each in found if each is not None]
        ours = [each.timestamp_ms for each in beats if (each.source, each.target) == self._names]
        if ours:
            self._last_ms = max(ours)
        elif self._last_ms is None and beats:
            self._last_ms = min(each.timestamp_ms for each in beats)


class Papers:
    """When the certificates of one cluster's brokers, our own, and the authority that signed them end.

    By connections of its own, which are given up after seconds: a broker that is silent must not hold up whoever looks.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._found: tuple[CertificateHealth, ...] = ()
        self._not_before = 0.0

    async def ends(self) -> tuple[CertificateHealth, ...]:
        """What was found last, if nothing can be found now."""
        if self._cluster.security.tls is not None and time.monotonic() >= self._not_before:
            self._not_before = time.monotonic() + _CERTIFICATES_EVERY_S
            try:
                self._found = await self._look()
            except (IsthmusError, OSError):  # also TimeoutError
                self._not_before = time.monotonic() + _CERTIFICATES_AGAIN_S
        return self._found

    async def _look(self) -> tuple[CertificateHealth, ...]:
        from isthmus.engine.certificates import validities

        client = Client(self._cluster, timeout_s=_WITHIN_S)
        try:
            async with asyncio.timeout(_WITHIN_S):
                await client.start()
                found = await validities(client)
        finally:
            client.close()
        return tuple(CertificateHealth(whose=each.whose, until=each.until) for each in sorted(set(found)))
