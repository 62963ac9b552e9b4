"""Transactions of a flow with a transform: beside rows they hold dead letters and the progress of source partitions.

Must stay true: an id is on record before its first batch, where the flow keeps a register. How a transaction ends is
left to `deeds`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from isthmus.engine.letters import letter, letter_partition
from isthmus.engine.orders import Order
from isthmus.engine.register import Register
from isthmus.engine.reigns import Reign
from isthmus.engine.writer import Tally
from isthmus.frames.deeds import Deeds, Entry, Terms
from isthmus.frames.tickets import Place, Slip, Ticket
from isthmus.mm2.progress import java_partition, progress_key, progress_value
from isthmus.model import NO_ID, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.compression import NAMES
from isthmus.wire.records import Record, encode_records, encode_stamped

_CONNECTOR = "MirrorSourceConnector"
_DEFAULT_CODEC = "lz4"

Reached = tuple[int, int]  # the source offset after what was read, and the epoch of the leader that had it
Letter = tuple[TopicPartition, Record, str]  # where it came from, and why it is here


class FlowDeeds(Deeds):
    """One transaction after another, by the two identities of an order in turn."""

    def __init__(self, client: Client, order: Order, tally: Tally) -> None:
        super().__init__(client, _terms(order), order.identities)
        self._order = order
        self._tally = tally
        self._register = Register(client)
        self._recorded = {who.producer_id for who in order.identities}

    async def begin(self, places: Mapping[str, Place], since: int, batch_bytes: int) -> Ticket:
        if self.who.producer_id not in self._recorded and self._order.origin is not None:
            await self._register.record([self.who.producer_id], self._order.origin)
            self._recorded.add(self.who.producer_id)
        return await super().begin(places, since, batch_bytes)

    async def commit(
        self, slips: Sequence[Slip], reached: Mapping[TopicPartition, Reached], letters: Sequence[Letter]
    ) -> None:
        """Everything of this batch, or nothing. Raises Overlap; the caller aborts then."""
        await self.close(slips, [*self._letters(letters), *self._progress(reached)])
        self._tally.transactions += 1
        self._tally.records += sum(sum(slip.counts.values()) for slip in slips)
        self._tally.bytes += sum(slip.bytes for slip in slips)
        self._tally.dead_letters += len(letters)

    async def abort(self) -> None:
        await super().abort()
        self._tally.aborts += 1

    def _letters(self, letters: Sequence[Letter]) -> Iterable[Entry]:
        tp = letter_partition(self._order.flow)
        for source, record, reason in letters:
            body = encode_stamped([letter(source, record, reason)])
            yield Entry(tp, self._order.dead_letters_id or NO_ID, body)

    def _progress(self, reached: Mapping[TopicPartition, Reached]) -> Iterable[Entry]:
        flow, now_ms = self._order.flow, int(time.time() * 1000)
        grouped: dict[int, list[tuple[bytes, bytes]]] = {}
        for source, (past, epoch) in reached.items():
            key = progress_key(_CONNECTOR, flow.source.alias, source.topic, source.partition)
            number = java_partition(key, self._order.progress_partitions)
            value = progress_value(past - 1, epoch=str(Reign(epoch, past)))
            grouped.setdefault(number, []).append((key, value))
        for number, pairs in grouped.items():
            tp = TopicPartition(flow.progress_topic, number)
            yield Entry(tp, self._order.progress_id, encode_records(pairs, now_ms))


def _terms(order: Order) -> Terms:
    flow = order.flow
    return Terms(
        name=order.order_id,
        cluster=flow.target.for_travel(),
        claims_topic=flow.control_topic,
        second_protocol=order.second_protocol,
        codec=NAMES.index(flow.compression or _DEFAULT_CODEC),
        timeout_ms=flow.tuning.request_timeout_ms,
        untended=(letter_partition(flow),),
    )
