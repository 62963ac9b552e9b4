"""Sending batches of one transaction: a window of requests for each broker, every answer judged.

    wave     one Produce request per target broker, with at most one batch per partition
    window   at most WINDOW requests in flight per broker, answered in order

What must stay true: `flush` returns only when every Produce was acknowledged (I1); base offsets of answers are handed
to whoever knows what they must be (I9); the first Produce of a transaction goes alone. What is in a batch, which
sequence it has and when to commit is left to others.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

from isthmus.engine.packing import Packed
from isthmus.errors import BrokerUnreachable, OrderVoid
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.cluster import Client
from isthmus.wire.link import Answer, Link
from isthmus.wire.produce import Landed, Parcel, landed, produce_version, send_parcels
from isthmus.wire.transaction import Identity, add_partitions

WINDOW = 5  # the broker remembers the last five batches of a producer, no more
_BUSY_PAUSE_S = 0.005
_BUSY_PATIENCE_S = 30.0


class Refused(Exception):
    """Some partitions of the open transaction were refused; all of it must be aborted. `pieces`: what it was there."""

    def __init__(self, results: list[Landed], pieces: Mapping[TopicPartition, Packed]) -> None:
        more = f" and {len(results) - 2} more" if len(results) > 2 else ""
        super().__init__(", ".join(f"{r.tp}: {codes.name(r.error)}" for r in results[:2]) + more)
        self.results = results
        self.pieces = pieces


class Unreached(BrokerUnreachable):
    """A broker was lost; whether it stored these is not known. For one who aborts, that is as good as a refusal."""

    def __init__(self, lost: BrokerUnreachable, parcels: list[Parcel]) -> None:
        super().__init__(lost.message, where=lost.where, hint=lost.hint)
        self._parcels = parcels

    def as_refused(self) -> Refused:
        results = [Landed(parcel.tp, codes.NETWORK_EXCEPTION, -1, -1, "") for parcel in self._parcels]
        return Refused(results, _pieces(self._parcels))


class _Sent(NamedTuple):
    answer: asyncio.Future[Answer]
    parcels: list[Parcel]


class Outbox:
    """What is on its way to the brokers of one cluster, within one transaction after another."""

    def __init__(
        self,
        client: Client,
        *,
        second_protocol: bool,
        timeout_ms: int,
        arrived: Callable[[Landed, int], None],
        untended: Container[TopicPartition] = (),
    ) -> None:
        self._client = client
        self._second = second_protocol
        self._timeout_ms = timeout_ms
        self._arrived = arrived
        self._untended = untended
        self._who = Identity("", -1, -1)
        self._added: set[TopicPartition] = set()
        self._greeted: set[int] = set()  # brokers that took a first Produce of this transaction
        self._windows: dict[int, collections.deque[_Sent]] = {}

    def begin(self, who: Identity) -> None:
        self._who = who
        self._added.clear()
        self._greeted.clear()
        self._windows.clear()

    async def send(self, parcels: list[Parcel]) -> None:
        """At most one for each partition. Raises Refused for what an earlier or this request was answered."""
        if not self._second:
            fresh = {parcel.tp for parcel in parcels} - self._added
            if fresh:
                await add_partitions(self._client, self._who, fresh)
                self._added |= fresh
        by_node: dict[int, list[Parcel]] = {}
        for parcel in parcels:
            by_node.setdefault(self._client.leader(parcel.tp), []).append(parcel)
        if -1 in by_node:
            raise Refused([self._leaderless(p) for p in by_node[-1]], _pieces(by_node[-1]))
        if len(by_node) == 1:
            ((node, group),) = by_node.items()
            await self._send_to(node, group)
        else:
            await asyncio.gather(*(self._send_to(node, group) for node, group in by_node.items()))

    async def flush(self) -> None:
        """Wait until all is acknowledged."""
        for node in list(self._windows):
            await self._drain(node, 0)

    async def let_answers_come(self) -> None:
        # Not needed to be safe (the abort moves the epoch, late requests are refused), but answers that
        # nobody awaits would be reported as lost exceptions.
        futures = [sent.answer for window in self._windows.values() for sent in window]
        if futures:
            await asyncio.wait(futures, timeout=5)
            for future in futures:
                if future.done() and not future.cancelled():
                    future.exception()
        self._windows.clear()

    def _leaderless(self, parcel: Parcel) -> Landed:
        """A leader will come, and a copy that was deleted is noticed by the driver; what is untended by nobody."""
        gone = parcel.tp in self._untended and parcel.tp.topic not in self._client.topics
        return Landed(parcel.tp, codes.UNKNOWN_TOPIC if gone else codes.LEADER_NOT_AVAILABLE, -1, -1, "")

    async def _send_to(self, node: int, parcels: list[Parcel]) -> None:
        try:
            await self._send_alone_first(node, parcels)
        except BrokerUnreachable as lost:
            raise Unreached(lost, parcels) from lost

    async def _send_alone_first(self, node: int, parcels: list[Parcel]) -> None:
        link = await self._client.link(node, "produce")
        if node in self._greeted:
            await self._drain(node, WINDOW - 1)
            self._windows[node].append(self._post(link, parcels))
            return
        # The first Produce of a transaction may meet markers of the last one: it goes alone, and what was
        # answered "concurrent transactions" (not stored) is sent again until it is taken.
        deadline = time.monotonic() + _BUSY_PATIENCE_S
        while parcels:
            sent = self._post(link, parcels)
            busy = self._settle_answers(await sent.answer, parcels, busy_allowed=True)
            parcels = [parcel for parcel in parcels if parcel.tp in busy]
            if parcels:
                if time.monotonic() > deadline:
                    raise OrderVoid("markers of an earlier transaction do not come", where=str(parcels[0].tp))
                await asyncio.sleep(_BUSY_PAUSE_S)
        self._greeted.add(node)
        self._windows[node] = collections.deque()

    def _post(self, link: Link, parcels: list[Parcel]) -> _Sent:
        version = produce_version(link, parcels, second_protocol=self._second)
        return _Sent(send_parcels(link, version, self._who.transactional_id, parcels, self._timeout_ms), parcels)

    async def _drain(self, node: int, leave: int) -> None:
        window = self._windows.get(node, collections.deque())
        while len(window) > leave:
            sent = window.popleft()
            try:
                answer = await sent.answer
            except BrokerUnreachable as lost:
                raise Unreached(lost, sent.parcels) from lost
            self._settle_answers(answer, sent.parcels, busy_allowed=False)

    def _settle_answers(self, answer: Answer, parcels: list[Parcel], *, busy_allowed: bool) -> set[TopicPartition]:
        counts = {parcel.tp: parcel.records for parcel in parcels}
        bad: list[Landed] = []
        busy: set[TopicPartition] = set()
        for result in landed(answer, parcels):
            if result.error == codes.NONE:
                self._arrived(result, counts[result.tp])
            elif result.error == codes.CONCURRENT_TRANSACTIONS and busy_allowed:
                busy.add(result.tp)
            else:
                bad.append(result)
        if bad:
            _raise_for(bad, parcels)
        return busy


def _raise_for(bad: list[Landed], parcels: Iterable[Parcel]) -> None:
    for result in bad:
        if result.error in codes.VOID:
            raise OrderVoid(f"Produce answered {codes.name(result.error)}", where=str(result.tp))
    raise Refused(bad, _pieces(parcels))


def _pieces(parcels: Iterable[Parcel]) -> dict[TopicPartition, Packed]:
    return {parcel.tp: parcel.mark for parcel in parcels if isinstance(parcel.mark, Packed)}


def swallowed(result: Landed, floor: int) -> OrderVoid:
    """I9: an answer below what we know to be there."""
    return OrderVoid(
        f"the target answered base offset {result.base_offset} where at least {floor} was due: "
        "a batch was taken for a duplicate and not stored",
        where=str(result.tp),
        code="SWALLOWED",
    )
