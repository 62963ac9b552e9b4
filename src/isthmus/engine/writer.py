"""Transactions of a lane: data and progress in one, two transactional ids in turn.

    wave     one Produce request per target broker, with at most one batch per partition (`outbox` sends it)
    last     the wave that ends a transaction also carries the progress records of every partition touched

Invariants: I1 (a commit is sent only when every Produce was acknowledged; progress covers acknowledged
batches only), I4 (an unknown outcome is resolved by EndTxn under TV2 and by a void order under TV1), I9
(returned base offsets rise). On any trouble the transaction is aborted and every track goes back to what is
committed; what to do with a partition that was refused is `refusals`' business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from isthmus.engine.ages import AgeCounts
from isthmus.engine.letters import letter_partition
from isthmus.engine.orders import Order
from isthmus.engine.outbox import Outbox, Refused, swallowed
from isthmus.engine.packing import Packed, pack
from isthmus.engine.register import Register
from isthmus.engine.track import Track
from isthmus.errors import BrokerUnreachable, OrderVoid, WireError
from isthmus.mm2.progress import java_partition, progress_key, progress_value
from isthmus.model import NO_ID, TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import Stamp, next_sequence, seal
from isthmus.wire.cluster import Client
from isthmus.wire.compression import NAMES
from isthmus.wire.produce import Landed, Parcel
from isthmus.wire.records import encode_records
from isthmus.wire.transaction import Identity, end

CONNECTOR = "MirrorSourceConnector"


class Tally:
    """What this order has committed so far."""

    def __init__(self) -> None:
        self.records = self.bytes = self.transactions = self.aborts = self.dead_letters = 0
        self.read, self.committed = AgeCounts(), AgeCounts()  # ages of the newest records, at both moments


class Writer:
    """Writes what tracks have queued; one instance per order."""

    def __init__(self, client: Client, order: Order, tracks: dict[TopicPartition, Track]) -> None:
        self.tally = Tally()
        self.open = False
        self.hungry = asyncio.Event()  # what is fetched now can be written soon: nothing open, or about to commit
        self.hungry.set()
        self._client = client
        self._order = order
        self._flow = order.flow
        self._tuning = order.flow.tuning
        self._by_target = {track.assignment.target: track for track in tracks.values()}
        self._codec = NAMES.index(order.flow.compression) if order.flow.compression else None
        self._indexed = order.flow.keeps_index
        self._identities = list(order.identities)
        self._turn = 0
        self._register = Register(client)
        self._recorded = {who.producer_id for who in order.identities}
        self.own_ids = {who.producer_id for who in order.identities}  # all that this order ever wrote with
        # TV1 sequences run on within an epoch, for each id by itself; TV2 starts each transaction at 0 (R2).
        self._sequences: list[dict[TopicPartition, int]] = [{}, {}]
        self._outbox = Outbox(
            client,
            second_protocol=order.second_protocol,
            timeout_ms=order.flow.tuning.request_timeout_ms,
            arrived=self._check_rise,
            untended=[letter_partition(order.flow)],
        )
        self._touched: set[Track] = set()
        self._reaching: dict[Track, int] = {}  # what the progress records of this transaction say
        self._records = self._bytes = self._letters = 0
        self._opened_at = 0.0
        self._keys: dict[TopicPartition, tuple[bytes, int]] = {}
        self._progress_next: dict[TopicPartition, int] = {}

    @property
    def identity(self) -> Identity:
        return self._identities[self._turn]

    # -- one transaction -----------------------------------------------------------------------

    async def write(self, tracks: Sequence[Track], ending: Callable[[], bool]) -> None:
        """One whole transaction with what is queued now; commits. Raises Refused, OrderVoid, WireError."""
        await self._record_identity()
        self._begin()
        while True:
            packed = self._wave(tracks)
            for piece in packed:
                piece.track.sent, piece.track.newest_ms = piece.past, piece.made.max_timestamp
                self._touched.add(piece.track)
            last = self._is_last(tracks) or ending()
            parcels = [self._parcel(piece) for piece in packed]
            parcels += self._progress(tracks) if last else []
            await self._outbox.send(parcels)
            if last:
                break
            # Let fetches land their answers while requests are on their way.
            await asyncio.sleep(0)
        await self._commit(tracks)

    async def _record_identity(self) -> None:
        """Under TV2 an id whose epochs are used up is replaced at EndTxn, every half hour or so on a busy lane: the new
        one is on record before its first batch, or the flow back would take that for somebody else's (see `register`).
        """
        number = self.identity.producer_id
        if number not in self._recorded and self._order.origin is not None:
            await self._register.record([number], self._order.origin)
            self._recorded.add(number)

    def _wave(self, tracks: Iterable[Track]) -> list[Packed]:
        """The next batch of each track. Dead letters share a partition, so one that would be the second waits."""
        packed: list[Packed] = []
        lettered = False
        for track in tracks:
            if track.queue and not (lettered and track.letters):
                packed.append(self._pack(track))
                lettered = lettered or packed[-1].is_letter
        return packed

    def _pack(self, track: Track) -> Packed:
        try:
            return pack(track, self._tuning, self._codec)
        except WireError as error:
            bad = Landed(track.assignment.target, codes.CORRUPT_MESSAGE, -1, -1, error.message)
            raise Refused([bad], {}) from error

    def _begin(self) -> None:
        self.open = True
        self.hungry.clear()
        self._opened_at = time.monotonic()
        self._touched.clear()
        self._reaching.clear()
        self._outbox.begin(self.identity)
        self._records = self._bytes = self._letters = 0
        if self._order.second_protocol:
            self._sequences[self._turn] = {}

    def _is_last(self, tracks: Iterable[Track]) -> bool:
        if self._bytes >= self._tuning.commit_bytes:
            return True
        if (time.monotonic() - self._opened_at) * 1000 >= self._tuning.commit_interval_ms:
            return True
        return not any(track.queue for track in tracks)

    async def _commit(self, tracks: Iterable[Track]) -> None:
        await self._outbox.flush()
        self.hungry.set()
        self._identities[self._turn] = await end(
            self._client, self.identity, commit=True, second_protocol=self._order.second_protocol
        )
        self._took_turn()
        self.tally.transactions += 1
        self.tally.records += self._records
        self.tally.bytes += self._bytes
        self.tally.dead_letters += self._letters
        now_ms = int(time.time() * 1000)
        for track in tracks:
            if track in self._touched:
                self.tally.committed.add(now_ms, track.newest_ms)
                track.commit()
                track.tide.ended()
            track.persisted = self._reaching.get(track, track.persisted)
            track.settle()

    def _took_turn(self) -> None:
        """A transaction is over; EndTxn may have handed out another id for the next one."""
        self.own_ids.add(self.identity.producer_id)
        self._turn ^= 1
        self.open = False

    async def abort(self, tracks: Iterable[Track]) -> None:
        """Give up the open transaction; afterwards nothing of it can ever be committed."""
        if not self._order.second_protocol:
            raise OrderVoid("a transaction went wrong under the first protocol: the driver must fence")
        self.hungry.set()
        await self._outbox.let_answers_come()
        self._identities[self._turn] = await end(self._client, self.identity, commit=False, second_protocol=True)
        self._took_turn()
        self.tally.aborts += 1
        for track in tracks:
            track.rewind()

    # -- parcels -------------------------------------------------------------------------------

    def _stamp(self, tp: TopicPartition, count: int) -> Stamp:
        sequences = self._sequences[self._turn]
        sequence = sequences.get(tp, 0)
        sequences[tp] = next_sequence(sequence, count)
        return Stamp(self.identity.producer_id, self.identity.epoch, sequence)

    def _parcel(self, packed: Packed) -> Parcel:
        assignment = packed.track.assignment
        target, topic_id = assignment.target, assignment.target_id
        if packed.is_letter:
            target, topic_id = letter_partition(self._flow), self._order.dead_letters_id or NO_ID
        header = packed.header(self._stamp(target, packed.records))
        if self._indexed and not packed.is_letter:
            packed.track.send(packed.runs)
        self._letters += packed.is_letter
        self._records += 0 if packed.is_letter else packed.records
        size = len(header) + len(packed.payload)
        packed.track.load(size)
        self._bytes += size
        return Parcel(target, topic_id, header, packed.payload, packed.records, packed)

    def _progress(self, tracks: Iterable[Track]) -> list[Parcel]:
        """Progress records of every track that moved, one batch per partition of the progress topic."""
        grouped: dict[int, list[tuple[bytes, bytes]]] = {}
        for track in tracks:
            # Also of one that has stopped meanwhile: what is in the transaction needs its progress there (I1).
            if track.sent > max(track.persisted, 0):
                key, number = self._key(track.assignment.source)
                mark, reign = track.mark_below(track.sent), track.reigns.below(track.sent)
                value = progress_value(track.sent - 1, str(mark or ""), str(reign))
                grouped.setdefault(number, []).append((key, value))
                self._reaching[track] = track.sent
        now_ms = int(time.time() * 1000)
        parcels = []
        for number, pairs in grouped.items():
            tp = TopicPartition(self._flow.progress_topic, number)
            body = encode_records(pairs, now_ms)
            header = seal(body, self._stamp(tp, body.count))
            parcels.append(Parcel(tp, self._order.progress_id, header, body.payload, body.count))
        return parcels

    def _key(self, source: TopicPartition) -> tuple[bytes, int]:
        known = self._keys.get(source)
        if known is None:
            key = progress_key(CONNECTOR, self._flow.source.alias, source.topic, source.partition)
            known = self._keys[source] = (key, java_partition(key, self._order.progress_partitions))
        return known

    def _check_rise(self, result: Landed, count: int) -> None:
        """I9: an answer below what we know to be there is a batch that the broker swallowed."""
        track = self._by_target.get(result.tp)
        floor = track.next_base if track is not None else self._progress_next.get(result.tp, -1)
        if result.base_offset < floor:
            raise swallowed(result, floor)
        if track is not None:
            track.next_base = result.base_offset + count
            track.tide.landed(result.base_offset, count)
            if self._indexed:
                track.land(result.base_offset)
        else:
            self._progress_next[result.tp] = result.base_offset + count


def is_unreachable(error: BaseException) -> bool:
    return isinstance(error, BrokerUnreachable) or (isinstance(error, WireError) and error.retriable)
