"""MirrorMaker 2's offset syncs as anchors: places that are known in both logs where our own index says nothing.

Its topic is compacted, so of its past there is what compaction has left. What must stay true: an anchor counts only
after both logs were seen to hold the same record there; syncs of topics that were made anew, and of records that
were copied twice, are no anchors any more.
"""

from __future__ import annotations

import bisect

from isthmus.engine.offsets.align import Edge, read
from isthmus.errors import BrokerRefused, BrokerUnreachable, WireError
from isthmus.mm2.formats import OffsetSync, offset_syncs_topic
from isthmus.model import Flow, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal

_TRIES = 3  # anchors that are looked at, on each side of an offset


class Anchors:
    """Follows the offset syncs of one flow."""

    def __init__(self, source: Client, target: Client) -> None:
        self._source = source
        self._target = target
        self._known: dict[TopicPartition, list[Edge]] = {}
        self._proofs: dict[tuple[TopicPartition, Edge], bool] = {}  # of anchors that a group was close to
        self._cursor = -1
        self._due: Flow | None = None  # whose syncs are read before the next question is answered

    def renew(self, flow: Flow) -> None:
        """What was written until now counts. It is read when somebody asks: few groups stand in a hole of the index."""
        self._due = flow

    async def _catch_up(self, flow: Flow) -> None:
        client = self._source if flow.mm2_topics.offset_syncs_on == "source" else self._target
        topic = offset_syncs_topic(flow)
        await client.refresh([topic])
        if topic not in client.topics:
            return
        journal = Journal(client, topic)
        try:
            await self._follow(journal)
        except BrokerRefused:
            return  # not allowed to read it, which is told at the start: groups are followed without

    async def _follow(self, journal: Journal) -> None:
        if self._cursor < 0:
            self._cursor = await journal.beginning()
        end = await journal.end()
        for record in await journal.read(self._cursor, end):
            sync = OffsetSync.decode(record.key or b"", record.value or b"")
            if sync is not None:
                self.take(sync)
        self._cursor = max(self._cursor, end)

    def take(self, sync: OffsetSync) -> None:
        """A sync that goes back in one log says that what came after it was copied again, or is gone."""
        edges = self._known.setdefault(TopicPartition(sync.topic, sync.partition), [])
        while edges and (edges[-1].source >= sync.upstream or edges[-1].target >= sync.downstream):
            edges.pop()
        edges.append(Edge(sync.upstream, sync.downstream))

    def known(self, tp: TopicPartition) -> list[Edge]:
        """Rising in both offsets."""
        return self._known.get(tp, [])

    async def around(self, tp: TopicPartition, target: TopicPartition, offset: int) -> tuple[Edge | None, Edge | None]:
        """The last anchor at or below a source offset, and the first above it."""
        if self._due is not None:
            await self._catch_up(self._due)
            self._due = None
        edges = self.known(tp)
        at = bisect.bisect_right(edges, offset, key=lambda edge: edge.source)
        below = await self._first_proven(tp, target, edges[max(0, at - _TRIES) : at][::-1])
        return below, await self._first_proven(tp, target, edges[at : at + _TRIES])

    async def _first_proven(self, tp: TopicPartition, target: TopicPartition, edges: list[Edge]) -> Edge | None:
        for edge in edges:
            if (tp, edge) not in self._proofs:
                self._proofs[tp, edge] = await self._same(tp, target, edge)
            if self._proofs[tp, edge]:
                return edge
        return None

    async def _same(self, tp: TopicPartition, target: TopicPartition, edge: Edge) -> bool:
        try:
            here = await read(self._source, tp, edge.source, edge.source + 1, 1)
            there = await read(self._target, target, edge.target, edge.target + 1, 1)
        except BrokerUnreachable:
            raise
        except WireError:  # beyond the end of a log, or not to be compared
            return False
        return len(here) > 0 and here.prints == there.prints
