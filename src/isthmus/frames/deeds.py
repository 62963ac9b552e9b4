"""Transactions of batches: what tasks wrote, dead letters and progress, committed as one.

Must stay true: I1 (a commit is sent only when every task has its slip, and progress with it), I4 (an unknown outcome is
resolved as in lanes: by EndTxn under the second protocol, by a void order under the first). A partition that two tasks
wrote is never committed: with one producer id the broker would have swallowed batches of one of them.
"""

from __future__ import annotations

import collections
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence

from isthmus.engine.letters import letter, letter_partition
from isthmus.engine.orders import Order
from isthmus.engine.outbox import Outbox, Refused, swallowed
from isthmus.engine.register import Register
from isthmus.engine.writer import Tally
from isthmus.errors import OrderVoid, TargetError
from isthmus.frames.tickets import Claims, Place, Slip, Ticket
from isthmus.mm2.progress import progress_pairs
from isthmus.model import NO_ID, TopicPartition
from isthmus.wire.batch import Body, Stamp, next_sequence, seal
from isthmus.wire.cluster import Client
from isthmus.wire.compression import NAMES
from isthmus.wire.produce import Landed, Parcel
from isthmus.wire.records import Record, encode_records, encode_stamped
from isthmus.wire.transaction import Identity, end

_CONNECTOR = "MirrorSourceConnector"
_DEFAULT_CODEC = "lz4"

Letter = tuple[TopicPartition, Record, str]  # where it came from, and why it is here


class Overlap(Exception):
    """Two tasks wrote into one partition."""


class Deeds:
    """One transaction after another, by the two identities of an order in turn."""

    def __init__(self, client: Client, order: Order, tally: Tally) -> None:
        self._client = client
        self._order = order
        self._tally = tally
        self._identities = list(order.identities)
        self._turn = 0
        self._number = 0
        self._sequences: list[dict[TopicPartition, int]] = [{}, {}]  # they run on under the first protocol only
        self._floors: dict[TopicPartition, int] = {}
        self._register = Register(client)
        self._recorded = {who.producer_id for who in order.identities}
        self._outbox = Outbox(
            client,
            second_protocol=order.second_protocol,
            timeout_ms=order.flow.tuning.request_timeout_ms,
            arrived=self._arrived,
            untended=[letter_partition(order.flow)],
        )

    @property
    def _who(self) -> Identity:
        return self._identities[self._turn]

    async def begin(self, places: Mapping[str, Place], since: int, batch_bytes: int) -> Ticket:
        """A ticket for the next transaction. `since`: the end of the control topic before it."""
        who = self._who
        if who.producer_id not in self._recorded and self._order.origin is not None:
            await self._register.record([who.producer_id], self._order.origin)
            self._recorded.add(who.producer_id)
        self._number += 1
        if self._order.second_protocol:
            self._sequences[self._turn] = {}
        self._outbox.begin(who)
        flow = self._order.flow
        return Ticket(
            batch=f"{self._order.order_id}.{self._number}",
            cluster=flow.target.for_travel(),
            places=places,
            who=who,
            second_protocol=self._order.second_protocol,
            claims=Claims(topic=flow.control_topic, since=since),
            codec=NAMES.index(flow.compression or _DEFAULT_CODEC),
            timeout_ms=flow.tuning.request_timeout_ms,
            batch_bytes=batch_bytes,
            sequences=dict(self._sequences[self._turn]),
        )

    async def commit(
        self, slips: Sequence[Slip], reached: Mapping[TopicPartition, int], letters: Sequence[Letter]
    ) -> None:
        """Everything of this batch, or nothing. Raises Overlap; the caller aborts then."""
        for error in (slip.error for slip in slips if slip.error is not None):
            raise error
        written = collections.Counter(tp for slip in slips for tp in slip.counts)
        if any(times > 1 for times in written.values()):
            raise Overlap
        for slip in slips:
            self._sequences[self._turn].update(slip.sequences)
        await self._send(self._letters(letters))
        await self._send(self._progress(reached))
        await self._settled()
        self._identities[self._turn] = await end(
            self._client, self._who, commit=True, second_protocol=self._order.second_protocol
        )
        self._turn ^= 1
        self._tally.transactions += 1
        self._tally.records += sum(sum(slip.counts.values()) for slip in slips)
        self._tally.bytes += sum(slip.bytes for slip in slips)
        self._tally.dead_letters += len(letters)

    async def abort(self) -> None:
        """Give up the open transaction; tasks of it that still live are refused from now on."""
        if not self._order.second_protocol:
            raise OrderVoid("a batch went wrong under the first protocol: the driver must fence")
        await self._outbox.let_answers_come()
        self._identities[self._turn] = await end(self._client, self._who, commit=False, second_protocol=True)
        self._turn ^= 1
        self._tally.aborts += 1

    async def _send(self, parcels: Iterable[Parcel]) -> None:
        for parcel in parcels:
            try:
                await self._outbox.send([parcel])
            except Refused as refused:
                raise _not_written(refused) from refused

    async def _settled(self) -> None:
        try:
            await self._outbox.flush()
        except Refused as refused:
            raise _not_written(refused) from refused

    def _letters(self, letters: Sequence[Letter]) -> Iterable[Parcel]:
        tp = letter_partition(self._order.flow)
        for source, record, reason in letters:
            body = encode_stamped([letter(source, record, reason)])
            yield self._parcel(tp, self._order.dead_letters_id or NO_ID, body)

    def _progress(self, reached: Mapping[TopicPartition, int]) -> Iterable[Parcel]:
        flow, now_ms = self._order.flow, int(time.time() * 1000)
        grouped = progress_pairs(_CONNECTOR, flow.source.alias, reached, self._order.progress_partitions)
        for number, pairs in grouped.items():
            tp = TopicPartition(flow.progress_topic, number)
            yield self._parcel(tp, self._order.progress_id, encode_records(pairs, now_ms))

    def _parcel(self, tp: TopicPartition, topic_id: uuid.UUID, body: Body) -> Parcel:
        sequences = self._sequences[self._turn]
        sequence = sequences.get(tp, 0)
        sequences[tp] = next_sequence(sequence, body.count)
        header = seal(body, Stamp(self._who.producer_id, self._who.epoch, sequence))
        return Parcel(tp, topic_id, header, body.payload, body.count)

    def _arrived(self, result: Landed, count: int) -> None:
        floor = self._floors.get(result.tp, -1)
        if result.base_offset < floor:
            raise swallowed(result, floor)
        self._floors[result.tp] = result.base_offset + count


def _not_written(refused: Refused) -> TargetError:
    return TargetError(f"the target did not take progress or dead letters: {refused}", code="TARGET_REFUSED")
