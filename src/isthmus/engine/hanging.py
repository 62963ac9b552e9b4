"""Transactions of the source that stay open, and what waits behind them.

Whoever reads committed records only stops at the first of them, and all looks caught up: so it is told. Owns the look
at who holds a partition back. What must stay true: nothing behind an open transaction is copied, whoever left it open;
brokers are asked only where a partition has stood still for long, and each case is told once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from isthmus.engine.track import Track
from isthmus.errors import WireError
from isthmus.model import TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.health import OpenTransaction, open_transactions

LONG_S = 60.0  # what Java's producer allows a transaction by default
_EVERY_S = 2.0


class Hanging:
    """Of the partitions of one lane, until it is cancelled."""

    def __init__(self, source: Client, tracks: Sequence[Track], note: Callable[[str], None]) -> None:
        self._source = source
        self._tracks = tracks
        self._note = note
        self._stood: dict[TopicPartition, tuple[int, float]] = {}  # at which stable end, since when
        self._told: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            if late := self._late(time.monotonic()):
                await self._tell(late)

    def _late(self, now: float) -> list[Track]:
        """Partitions whose stable end has been behind their end, and the same, for long."""
        found = []
        for track in self._tracks:
            tp = track.assignment.source
            if track.is_left or not 0 <= track.end < track.high_watermark:
                self._stood.pop(tp, None)
                continue
            end, since = self._stood.get(tp, (-1, now))
            self._stood[tp] = (track.end, since if end == track.end else now)
            if end == track.end and now - since >= LONG_S and self._told.get(tp) != end:
                found.append(track)
        return found

    async def _tell(self, late: Iterable[Track]) -> None:
        for track in late:
            tp = track.assignment.source
            self._told[tp] = track.end
            try:
                found = await open_transactions(self._source, tp)
            except WireError:
                found = []  # too old to tell (before 2.8), or away: that it stands is known all the same
            self._note(_told(track, min(found, key=lambda one: one.first, default=None)))


def _told(track: Track, who: OpenTransaction | None) -> str:
    tp, waiting = track.assignment.source, track.high_watermark - track.end
    holder = "a transaction that stays open"
    if who is not None:
        age = f", and last wrote {time.time() - who.last_ms / 1000:.0f} s ago" if who.last_ms > 0 else ""
        holder = f"a transaction of producer {who.producer_id} (epoch {who.epoch}), open since offset {who.first}{age}"
    return (
        f"{tp}: {waiting:,} offsets from {track.end} on wait behind {holder}. They are copied when it ends: see "
        f"kafka-transactions.sh describe-producers --topic {tp.topic} --partition {tp.partition}"
    )
