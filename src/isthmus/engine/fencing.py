"""Fence, then read (I2): make sure that nobody else can write with a lane's ids before progress is read.

TV2: InitProducerId on both ids, then a barrier record in an aborted transaction on each progress partition
of the lane; reading at least up to it proves that the broker which answers has everything that was
committed before. TV1: a leader learns a new epoch only from a batch or marker that reaches it, so the barrier
is a transaction over *all* partitions that an old holder could write to, aborted, then fenced again (R4).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence

from isthmus.errors import BrokerRefused, BrokerUnreachable, OrderVoid, TargetError
from isthmus.model import Flow, TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import Stamp, seal
from isthmus.wire.cluster import Client
from isthmus.wire.produce import Landed, Parcel, landed, produce_version, send_parcels
from isthmus.wire.records import encode_records
from isthmus.wire.transaction import Identity, add_partitions, end, fence, list_transactional_ids

FENCE_PATIENCE_S = 30.0
MARKERS_PATIENCE_S = 180.0
_BARRIER = [(b"isthmus-barrier", b"")]
_AGAIN = codes.MOVING | {codes.CONCURRENT_TRANSACTIONS}


class IdFence:
    """Fences transactional ids on one cluster, whoever they belong to."""

    def __init__(
        self, client: Client, timeout_ms: int, *, second_protocol: bool, waiting: Callable[[str], None]
    ) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._second = second_protocol
        self._waiting = waiting

    async def one(self, transactional_id: str) -> Identity:
        return await fence(
            self._client,
            transactional_id,
            self._timeout_ms,
            FENCE_PATIENCE_S,
            self._waiting,
            markers_s=MARKERS_PATIENCE_S,
        )

    async def with_barrier(self, transactional_id: str, partitions: Sequence[TopicPartition]) -> Identity:
        """Fence one id everywhere: under TV1 by a barrier over these partitions, under TV2 by the fence alone."""
        until = time.monotonic() + FENCE_PATIENCE_S
        while True:
            who = await self.one(transactional_id)
            if self._second or not partitions:
                return who
            try:
                await add_partitions(self._client, who, partitions)
                await end(self._client, who, commit=False, second_protocol=False)
            except OrderVoid:
                # An answer was lost: whether the barrier stands is unknown, so it is built again after a new fence.
                if time.monotonic() > until:
                    raise
            else:
                return await self.one(transactional_id)

    async def progress_barrier(
        self, who: Identity, progress: Sequence[TopicPartition]
    ) -> tuple[dict[int, int], Identity]:
        """TV2: offsets of a progress topic that must be read at least, and the identity for what comes."""
        floors: dict[int, int] = {}
        until = time.monotonic() + FENCE_PATIENCE_S
        while missing := [tp for tp in progress if tp.partition not in floors]:
            for result in await self._write_barrier(who, missing):
                if result.error == codes.NONE:
                    floors[result.tp.partition] = result.base_offset + 1
                elif result.error not in _AGAIN or time.monotonic() > until:
                    said = f"{codes.name(result.error)} {result.message}".strip()
                    raise TargetError(
                        f"progress cannot be written: Produce answered {said}",
                        where=f"cluster {self._client.cluster.alias}, {result.tp}",
                        hint=codes.advice(result.error, "WRITE")
                        if result.error not in codes.MOVING
                        else "check the replicas and min.insync.replicas of that topic",
                        code="PROGRESS",
                    )
            if len(floors) < len(progress):
                await asyncio.sleep(0.05)
                await self._client.refresh({tp.topic for tp in progress})
        return floors, await end(self._client, who, commit=False, second_protocol=True)

    async def _write_barrier(self, who: Identity, progress: Sequence[TopicPartition]) -> list[Landed]:
        by_node: dict[int, list[Parcel]] = {}
        body = encode_records(_BARRIER, int(time.time() * 1000))
        header = seal(body, Stamp(who.producer_id, who.epoch, 0))
        for tp in progress:
            parcel = Parcel(tp, self._client.topic_id(tp.topic), header, body.payload, body.count)
            by_node.setdefault(self._client.leader(tp), []).append(parcel)
        results = [Landed(p.tp, codes.LEADER_NOT_AVAILABLE, -1, -1, "") for p in by_node.pop(-1, [])]
        for node, parcels in by_node.items():
            try:
                link = await self._client.link(node, "produce")
                version = produce_version(link, parcels, second_protocol=True)
                answer = await send_parcels(link, version, who.transactional_id, parcels, 15_000)
            except (BrokerUnreachable, BrokerRefused) as error:
                results += [Landed(p.tp, codes.NETWORK_EXCEPTION, -1, -1, str(error)) for p in parcels]
            else:
                results += landed(answer, parcels)
        return results


class Fence(IdFence):
    """Fences transactional ids of one flow on its target."""

    def __init__(self, client: Client, flow: Flow, *, second_protocol: bool, waiting: Callable[[str], None]) -> None:
        timeout_ms = flow.tuning.transaction_timeout_ms
        super().__init__(client, timeout_ms, second_protocol=second_protocol, waiting=waiting)
        self._flow = flow

    async def everyone(self, lanes: int, partitions: Sequence[TopicPartition]) -> None:
        """Fence all ids that lanes of this flow ever had; the target itself may know of more than our record."""
        known = {self._flow.transactional_id(lane, turn) for lane in range(lanes) for turn in (0, 1)}
        prefix = self._flow.transactional_id(0, 0)[: -len("0.a")]
        ours = re.compile(re.escape(prefix) + r"\d+\.[ab]")  # not those of a flow whose alias begins like ours: a, a.b
        known |= {name for name in await list_transactional_ids(self._client, prefix) if ours.fullmatch(name)}
        await asyncio.gather(*(self.with_barrier(name, partitions) for name in sorted(known)))

    async def lane(
        self, lane: int, data: Sequence[TopicPartition], progress: Sequence[TopicPartition]
    ) -> tuple[tuple[Identity, Identity], dict[int, int]]:
        """Both identities of a lane, and offsets of the progress topic that must be read at least."""
        everything = [*data, *progress]
        names = [self._flow.transactional_id(lane, turn) for turn in (0, 1)]
        first, second = await asyncio.gather(*(self.with_barrier(name, everything) for name in names))
        if not self._second:
            return (first, second), {}
        floors, first = await self.progress_barrier(first, progress)
        return (first, second), floors
