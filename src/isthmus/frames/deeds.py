"""Transactions of batches: what tasks wrote, and what else belongs to it, committed as one.

Must stay true: I1 (a commit is sent only when every task has its slip, and progress with it), I4 (an unknown outcome is
resolved as in lanes: by EndTxn under the second protocol, by a new fence under the first). A partition that two tasks
wrote is never committed: with one producer id the broker would have swallowed batches of one of them. Nor are rows that
two attempts at one task made: Spark makes lost rows anew, perhaps others or in another order, and tasks that have read
the old ones would stand beside tasks that have read the new. What progress is, is left to those who keep it.
"""

from __future__ import annotations

import collections
import uuid
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from isthmus.engine.outbox import Outbox, Refused, swallowed
from isthmus.errors import OrderVoid, TargetError
from isthmus.frames.tickets import Claims, Place, Slip, Ticket
from isthmus.model import Cluster, TopicPartition
from isthmus.wire.batch import Body, Stamp, next_sequence, seal
from isthmus.wire.cluster import Client
from isthmus.wire.produce import Landed, Parcel
from isthmus.wire.transaction import Identity, end


class Overlap(Exception):
    """Two tasks wrote into one partition, or rows of one task were made twice."""


class Entry(NamedTuple):
    """A batch of the driver's own in the transaction: progress, dead letters."""

    tp: TopicPartition
    topic_id: uuid.UUID
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What all transactions of an order, or of a query, have in common."""

    name: str  # batches are called by it and a number
    cluster: Cluster  # as it travels to tasks
    claims_topic: str
    second_protocol: bool
    codec: int
    timeout_ms: int
    untended: Container[TopicPartition] = ()


class Deeds:
    """One transaction after another, by some identities in turn."""

    def __init__(self, client: Client, terms: Terms, identities: Sequence[Identity]) -> None:
        self._client = client
        self._terms = terms
        self._identities = list(identities)
        self._turn = 0
        self._number = 0
        self._sequences: list[dict[TopicPartition, int]] = [{} for _ in identities]  # run on under the first protocol
        self._floors: dict[TopicPartition, int] = {}
        self._outbox = Outbox(
            client,
            second_protocol=terms.second_protocol,
            timeout_ms=terms.timeout_ms,
            arrived=self._arrived,
            untended=terms.untended,
        )

    @property
    def who(self) -> Identity:
        return self._identities[self._turn]

    async def begin(self, places: Mapping[str, Place], since: int, batch_bytes: int) -> Ticket:
        """A ticket for the next transaction. `since`: the end of the topic of claims before it."""
        terms = self._terms
        self._number += 1
        if terms.second_protocol:
            self._sequences[self._turn] = {}
        self._outbox.begin(self.who)
        return Ticket(
            batch=f"{terms.name}.{self._number}",
            cluster=terms.cluster,
            places=places,
            who=self.who,
            second_protocol=terms.second_protocol,
            claims=Claims(topic=terms.claims_topic, since=since),
            codec=terms.codec,
            timeout_ms=terms.timeout_ms,
            batch_bytes=batch_bytes,
            sequences=dict(self._sequences[self._turn]),
        )

    async def close(self, slips: Sequence[Slip], entries: Iterable[Entry]) -> None:
        """Commit everything of this batch, or nothing. Raises Overlap; the caller aborts then."""
        for error in (slip.error for slip in slips if slip.error is not None):
            raise error
        if overlaps(slips):
            raise Overlap
        for slip in slips:
            self._sequences[self._turn].update(slip.sequences)
        for entry in entries:
            await self._send(entry)
        await self._settled()
        second = self._terms.second_protocol
        self._identities[self._turn] = await end(self._client, self.who, commit=True, second_protocol=second)
        self._take_turns()

    async def abort(self) -> None:
        """Give up the open transaction; tasks of it that still live are refused from now on."""
        if not self._terms.second_protocol:
            raise OrderVoid("a batch went wrong under the first protocol: the driver must fence")
        await self._outbox.let_answers_come()
        self._identities[self._turn] = await end(self._client, self.who, commit=False, second_protocol=True)
        self._take_turns()

    def _take_turns(self) -> None:
        self._turn = (self._turn + 1) % len(self._identities)

    async def _send(self, entry: Entry) -> None:
        try:
            await self._outbox.send([self._parcel(entry)])
        except Refused as refused:
            raise _not_written(refused) from refused

    async def _settled(self) -> None:
        try:
            await self._outbox.flush()
        except Refused as refused:
            raise _not_written(refused) from refused

    def _parcel(self, entry: Entry) -> Parcel:
        sequences = self._sequences[self._turn]
        sequence = sequences.get(entry.tp, 0)
        sequences[entry.tp] = next_sequence(sequence, entry.body.count)
        header = seal(entry.body, Stamp(self.who.producer_id, self.who.epoch, sequence))
        return Parcel(entry.tp, entry.topic_id, header, entry.body.payload, entry.body.count)

    def _arrived(self, result: Landed, count: int) -> None:
        floor = self._floors.get(result.tp, -1)
        if result.base_offset < floor:
            raise swallowed(result, floor)
        self._floors[result.tp] = result.base_offset + count


def overlaps(slips: Sequence[Slip]) -> bool:
    """Whether two tasks wrote one partition, or wrote rows that two attempts at one task had made."""
    written = collections.Counter(tp for slip in slips for tp in slip.counts)
    makers = {maker for slip in slips for maker in slip.makers}
    return any(times > 1 for times in written.values()) or len({task for task, _ in makers}) < len(makers)


def _not_written(refused: Refused) -> TargetError:
    return TargetError(f"the target did not take progress or dead letters: {refused}", code="TARGET_REFUSED")
