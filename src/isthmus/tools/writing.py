"""Writing records to a topic by hand: acks=all, one batch at a time, no transaction, nothing repeated.

What must stay true: a batch whose answer was lost is not sent again, because it may be there already; the caller is
told how many records are known to be stored. Keys choose partitions as Kafka's Java producer does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from isthmus.errors import TargetError
from isthmus.mm2.progress import java_partition
from isthmus.model import TopicPartition
from isthmus.tools.reading import refuse_missing
from isthmus.wire import codes
from isthmus.wire.batch import Stamp, seal
from isthmus.wire.cluster import Client
from isthmus.wire.produce import Parcel, landed, send_parcels
from isthmus.wire.records import Record, encode_stamped

_NOBODY = Stamp(-1, -1, -1)
_PRODUCE, _NEWEST, _OLDEST = 0, 9, 3


class TopicWriter:
    """Appends to one topic; counts what was acknowledged."""

    def __init__(self, client: Client, topic: str, partition: int = -1) -> None:
        self.stored = 0
        self.client = client
        self._topic = topic
        self._partition = partition
        self._turn = itertools.count()

    async def open(self) -> None:
        await self.client.refresh(None)
        refuse_missing(self.client, self._topic)
        if self._partition >= len(self.client.topics[self._topic].partitions):
            raise TargetError(
                f"topic {self._topic} has no partition {self._partition}",
                where=f"cluster {self.client.cluster.alias}",
                hint=f"it has {len(self.client.topics[self._topic].partitions)}, from 0",
                code="UNKNOWN_PARTITION",
            )

    async def write(self, records: Sequence[Record]) -> list[tuple[TopicPartition, int]]:
        """Store these records; where the first of each partition landed."""
        grouped: dict[int, list[Record]] = {}
        turn = next(self._turn)
        for record in records:
            grouped.setdefault(self._choose(record.key, turn), []).append(record)
        return [await self._append(TopicPartition(self._topic, n), part) for n, part in grouped.items()]

    def _choose(self, key: bytes | None, turn: int) -> int:
        count = len(self.client.topics[self._topic].partitions)
        if self._partition >= 0:
            return self._partition
        return turn % count if key is None else java_partition(key, count)

    async def _append(self, tp: TopicPartition, records: list[Record]) -> tuple[TopicPartition, int]:
        link = await self.client.link(self.client.leader(tp), "produce")
        body = encode_stamped(records)
        header = seal(body, _NOBODY, transactional=False)
        parcel = Parcel(tp, self.client.topic_id(tp.topic), header, body.payload, body.count)
        version = link.offer.best(_PRODUCE, _NEWEST, _OLDEST)
        (result,) = landed(await send_parcels(link, version, None, [parcel], 15_000), [parcel])
        if result.error != codes.NONE:
            raise TargetError(
                f"{tp} refused {len(records)} records: {codes.name(result.error)} {result.message}".strip(),
                where=f"cluster {self.client.cluster.alias}",
                hint=f"{self.stored} records before them are stored",
                code="TARGET_REFUSED",
            )
        self.stored += len(records)
        return tp, result.base_offset
