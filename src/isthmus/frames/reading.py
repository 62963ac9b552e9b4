"""One range of one partition as columns, for a task: the next answer is on its way while one is decoded.

Owns asking, and what is done when records are not there any more. Must stay true: what comes out are the committed
records of [low, end) in order, each once; the topic read is the one with the planned id; memory is bounded, whatever
the topic's size: three answers (one that was decoded, one that is, one that comes), a desk, and one part of columns. An
error of a broker that heals is asked again for a while; all others are raised.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from isthmus.errors import BrokerRefused, BrokerUnreachable, SourceError
from isthmus.frames.loop import Loop
from isthmus.frames.offsets import earliest, judge
from isthmus.frames.options import ANSWER_BYTES
from isthmus.frames.ranges import Loss, Range
from isthmus.model import NO_ID, Cluster
from isthmus.wire import codes
from isthmus.wire.batch import Batch, find_batches
from isthmus.wire.cluster import Client
from isthmus.wire.columns import Columns, Desk, columns_of
from isthmus.wire.fetch import Fetched, Limits, Want, fetch, fetches_by_id

_WAIT_MS = 500
_PATIENCE_S = 60.0
_HEALS = codes.MOVING | {codes.UNKNOWN_TOPIC, codes.UNKNOWN_TOPIC_ID}  # the last two: a broker that hears late


class _Answer(NamedTuple):
    fetched: Fetched
    batches: list[Batch]
    low: int  # what is below was given out before


def read(
    cluster: Cluster,
    wanted: Range,
    *,
    headers: bool = True,
    fail_on_loss: bool = True,
    answer_bytes: int = ANSWER_BYTES,
) -> Iterator[Columns]:
    """All parts of the range; brokers are asked in a thread of its own."""
    with closing(Loop()) as loop:
        asking, desk = _Asking(Client(cluster), wanted, fail_on_loss, answer_bytes), Desk()
        try:
            loop.run(asking.start())
            while (answer := loop.run(asking.next())) is not None:
                yield from columns_of(answer.fetched, answer.low, wanted.end, headers, answer.batches, desk)
        finally:
            loop.run(asking.close())


class _Asking:
    """Answers of one partition, in order, the next one asked for before this one is given out."""

    def __init__(self, client: Client, wanted: Range, fail_on_loss: bool, answer_bytes: int) -> None:
        self._client, self._wanted, self._fail_on_loss = client, wanted, fail_on_loss
        self._limits = Limits(max_bytes=answer_bytes, partition_bytes=answer_bytes, wait_ms=_WAIT_MS)
        self._at = wanted.low
        self._coming: asyncio.Task[Fetched] | None = None

    async def start(self) -> None:
        await self._client.start()
        await self._client.refresh([self._wanted.tp.topic])

    async def close(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.gather(self._coming, return_exceptions=True)
        self._client.close()
        await asyncio.sleep(0)  # what was closed ends in the next turn of the loop

    async def next(self) -> _Answer | None:
        """None at the end."""
        until = time.monotonic() + _PATIENCE_S
        while self._at < self._wanted.end:
            fetched = await (self._coming or self._ask())
            self._coming = None
            if fetched.error == codes.OFFSET_OUT_OF_RANGE:
                await self._jump()
                continue
            low, batches = self._at, find_batches(fetched.records)
            self._at = max([low, *(batch.last_offset + 1 for batch in batches[-1:])])
            if self._at > low:
                if self._at < self._wanted.end:
                    self._ask()
                return _Answer(fetched, batches, low)
            if time.monotonic() > until:
                raise self._error("nothing comes, although offsets up to the end were there", "SILENT")
        return None

    def _ask(self) -> asyncio.Task[Fetched]:
        self._coming = asyncio.ensure_future(self._fetch(self._at))
        return self._coming

    async def _jump(self) -> None:
        """The position is not in the log: what is missing is lost, reading goes on at the log's beginning."""
        tp, at = self._wanted.tp, self._at
        first = (await earliest(self._client, [tp]))[tp]
        past = min(first, self._wanted.end) if first > at else self._wanted.end
        why = f"the log begins at {first}" if first > at else "the log ends before them"
        judge([Loss(tp, f"offsets {at} to {past - 1} were to be read, and {why}")], self._fail_on_loss)
        self._at = past

    async def _fetch(self, at: int) -> Fetched:
        until = time.monotonic() + _PATIENCE_S
        error: Exception | None = None
        while True:
            try:
                if error is not None:
                    await self._look_again()
                answer = await self._fetch_once(at)
                if answer.error in (codes.NONE, codes.OFFSET_OUT_OF_RANGE):
                    return answer
                error = BrokerRefused(
                    f"{self._wanted.tp} at offset {at}: {codes.name(answer.error)}",
                    answer.error,
                    where=f"cluster {self._client.cluster.alias}",
                )
                heals = answer.error in _HEALS
            except BrokerUnreachable as lost:
                error, heals = lost, True
            if not heals or time.monotonic() > until:
                raise error

    async def _fetch_once(self, at: int) -> Fetched:
        tp = self._wanted.tp
        node = self._client.leader(tp)
        if node < 0:
            raise BrokerUnreachable(f"{tp} has no leader", where=f"cluster {self._client.cluster.alias}")
        topic_id = self._wanted.topic_id if fetches_by_id(self._client) else NO_ID
        want = Want(tp, topic_id, at)
        return (await fetch(self._client, node, [want], self._limits))[0]

    async def _look_again(self) -> None:
        """Where the leader is now. A topic that was made anew has the name, but not the records."""
        await asyncio.sleep(0.3)
        await self._client.refresh([self._wanted.tp.topic])
        there = self._client.topic_id(self._wanted.tp.topic)
        if NO_ID not in (there, self._wanted.topic_id) and there != self._wanted.topic_id:
            raise self._error("the topic was deleted and made anew since this was planned", "RECREATED")

    def _error(self, what: str, code: str) -> SourceError:
        where = f"{self._wanted.tp} at offset {self._at}"
        return SourceError(what, where=where, hint="run the query again; see what happened to the topic", code=code)
