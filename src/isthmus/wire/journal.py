"""One partition of a topic used as a log: append with acks=all, read to a known end, follow the tail.

Appends are not transactional and may be repeated after a lost answer, so a record can stand twice:
everything written here must be harmless when doubled (the last one of a key wins, a claim names its
attempt). Reads use isolation 0 and end where ListOffsets said, never at a high watermark of a Fetch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from isthmus.errors import BrokerRefused, BrokerUnreachable, WireError
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import Body, Stamp, recompressed, seal
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, READ_UNCOMMITTED, Fetched, Limits, Want, fetch, list_offsets
from isthmus.wire.produce import Landed, Parcel, landed, send_parcels
from isthmus.wire.records import Record, decode_records, encode_records, plain_batches

_NOBODY = Stamp(-1, -1, -1)
_LARGE = 256 << 10
_GZIP = 1
_PATIENCE_S = 30.0


class Appended(NamedTuple):
    offset: int  # of the first record
    time_ms: int  # the broker's clock, when the topic stamps appends; else -1


class Journal:
    """One partition of a topic, as an append-only log of key-value records."""

    def __init__(self, client: Client, topic: str, partition: int = 0) -> None:
        self._client = client
        self._tp = TopicPartition(topic, partition)

    async def append(self, pairs: Sequence[tuple[bytes, bytes | None]], deadline_s: float = 20) -> Appended:
        """Write these records in one batch; returns when all replicas have them."""
        until = time.monotonic() + deadline_s
        while True:
            try:
                result = await self._append_once(pairs)
            except BrokerUnreachable as error:
                if time.monotonic() > until:
                    raise
                result = Landed(self._tp, codes.NETWORK_EXCEPTION, -1, -1, str(error))
            if result.error == codes.NONE:
                return Appended(result.base_offset, result.append_time_ms)
            await self._heal(f"Produce to {self._tp}", result.error, until)

    async def _append_once(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> Landed:
        node = await self._leader()
        link = await self._client.link(node, "journal")
        body = packed(pairs, int(time.time() * 1000))
        header = seal(body, _NOBODY, transactional=False)
        parcel = Parcel(self._tp, self._client.topic_id(self._tp.topic), header, body.payload, body.count)
        # Outside a transaction version 9 does all that is needed, on any broker since 2.4.
        version = link.offer.best(0, 9, 3)
        if version < 0:
            raise BrokerRefused("brokers before 0.11 cannot be written to", where=self._client.cluster.alias)
        return landed(await send_parcels(link, version, None, [parcel], 15_000), [parcel])[0]

    async def end(self, deadline_s: float = 20) -> int:
        return await self._edge(LATEST, deadline_s)

    async def beginning(self) -> int:
        return await self._edge(EARLIEST)

    async def _edge(self, when: int, deadline_s: float = 20) -> int:
        until = time.monotonic() + deadline_s
        while True:
            try:
                await self._leader()
                offset, error = (await list_offsets(self._client, [self._tp], when))[self._tp]
            except BrokerUnreachable:
                if time.monotonic() > until:
                    raise
                offset, error = -1, codes.NETWORK_EXCEPTION
            if error == codes.NONE:
                return offset
            await self._heal(f"ListOffsets of {self._tp}", error, until)

    async def read(self, start: int, end: int) -> list[Record]:
        """All records in [start, end); retries while leaders move."""
        until = time.monotonic() + _PATIENCE_S
        records: list[Record] = []
        while start < end:
            before = start
            try:
                found, start = await self.poll(start, 100)
            except BrokerUnreachable:
                if time.monotonic() > until:
                    raise
                await self._heal(f"Fetch of {self._tp}", codes.NETWORK_EXCEPTION, until)
                continue
            if start > before:
                until = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > until:  # made anew, or cut short, since its end was asked for
                raise BrokerUnreachable(f"{self._tp} has no offset {start}", where=self._client.cluster.alias)
            records.extend(record for record in found if record.offset < end)
        return records

    async def poll(self, start: int, wait_ms: int, purpose: str = "journal-read") -> tuple[list[Record], int]:
        """Records from `start` on that are there within `wait_ms`, and the next offset to ask for: a lower one when the
        log has become shorter."""
        node = await self._leader()
        want = Want(self._tp, self._client.topic_id(self._tp.topic), start)
        limits = Limits(wait_ms=wait_ms, isolation=READ_UNCOMMITTED)
        answer = (await fetch(self._client, node, [want], limits, purpose))[0]
        if answer.error == codes.OFFSET_OUT_OF_RANGE:
            return [], min(max(start, await self.beginning()), await self.end())
        if answer.error != codes.NONE:
            await self._heal(f"Fetch of {self._tp}", answer.error, time.monotonic() + 30)
            return [], start
        return _decode(answer, start)

    async def _leader(self) -> int:
        node = self._client.leader(self._tp)
        if node < 0:
            await self._client.refresh([self._tp.topic])
            node = self._client.leader(self._tp)
        if node < 0:
            raise BrokerUnreachable(f"{self._tp} has no leader", where=self._client.cluster.alias)
        return node

    async def _heal(self, what: str, error: int, until: float) -> None:
        """Also after a Produce: a record may stand here twice."""
        if error not in codes.ASKED_AGAIN or time.monotonic() > until:
            raise BrokerRefused(
                f"{what} answered {codes.name(error)}",
                error,
                where=f"cluster {self._client.cluster.alias}",
                hint=codes.advice(error, "READ, WRITE and DESCRIBE"),
            )
        await asyncio.sleep(0.2)
        try:
            await self._client.refresh([self._tp.topic])
        except WireError:
            return  # the next attempt finds out whether the cluster is back


def packed(pairs: Sequence[tuple[bytes, bytes | None]], time_ms: int) -> Body:
    """One batch. A large one is compressed, in the codec that brokers of every age know: positions of many partitions
    would be more than a topic takes (1 MB, by default)."""
    body = encode_records(pairs, time_ms)
    return body if len(body.payload) < _LARGE else recompressed(body, _GZIP)


def _decode(answer: Fetched, start: int) -> tuple[list[Record], int]:
    records: list[Record] = []
    for batch in plain_batches(answer.records):
        if not batch.is_control and batch.last_offset >= start:
            records.extend(r for r in decode_records(answer.records, batch) if r.offset >= start)
        start = max(start, batch.last_offset + 1)
    return records, start
