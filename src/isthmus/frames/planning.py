"""What a query reads next: the driver's part of a source, for a batch and for the micro-batches of a stream.

Must stay true: offsets that were given out for a micro-batch are read from these very numbers again after a restart,
so nothing here depends on what was asked before, but for the last offsets of a run that ends with what is there now.
Partitions that come while a query runs are read from their beginning. Spark's interfaces are left to others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from isthmus.errors import BrokerUnreachable
from isthmus.frames import offsets
from isthmus.frames.jsons import Offsets
from isthmus.frames.loop import Loop
from isthmus.frames.options import Options, wrong
from isthmus.frames.ranges import Loss, Range, admitted, between, shared
from isthmus.model import TopicPartition
from isthmus.wire.cluster import Client

_T = TypeVar("_T")


class Planner:
    """Asks one cluster. To be closed."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client = Client(options.cluster)
        self._loop = Loop()
        self._started = False
        self._ends: Offsets | None = None  # where a run ends that ends with what is there now

    def close(self) -> None:
        self._loop.run(self._closed())
        self._loop.close()

    def batch(self) -> list[Range]:
        """All that a batch reads, for its tasks."""
        return self._loop.run(self._batch())

    def initial(self) -> Offsets:
        """Where a stream begins that has no checkpoint."""
        return self._loop.run(self._initial())

    def latest(self, start: Mapping[TopicPartition, int] | None = None, most: int = 0) -> Offsets:
        """How far the next micro-batch goes, or all of it could go; not beyond what `end_with_now` saw."""
        return self._loop.run(self._latest(start, most))

    def end_with_now(self) -> None:
        """Nothing that comes later is read by this planner."""
        self._ends = self.latest()

    def ranges(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[Range]:
        """What a micro-batch reads, for its tasks; what is lost is an error, or left out."""
        return self._loop.run(self._ranges(start, end))

    # --- in the loop -------------------------------------------------------------------------

    async def _closed(self) -> None:
        self._client.close()

    async def _selected(self) -> list[TopicPartition]:
        if not self._started:
            await self._client.start()
            self._started = True
        try:
            return await offsets.selected(self._client, self._options.selection)
        except BrokerUnreachable:
            self._started = False
            raise

    async def _batch(self) -> list[Range]:
        places, loud = await self._selected(), self._options.fail_on_loss
        start = await offsets.resolved(self._client, places, self._options.start, loud)
        end = await offsets.resolved(self._client, places, self._options.end, loud)
        for tp, at in end.items():
            if at < start[tp]:
                raise wrong(self._options.end.option, f"{tp} would end at {at}, before it begins at {start[tp]}")
        return self._shared(start, end)

    async def _initial(self) -> Offsets:
        places = await self._selected()
        return await offsets.resolved(self._client, places, self._options.start, self._options.fail_on_loss)

    async def _latest(self, start: Mapping[TopicPartition, int] | None, most: int) -> Offsets:
        last = self._ends
        if last is None:
            last = await offsets.latest(self._client, await self._selected())
        if start is None or not most:
            return dict(last)
        return admitted(await self._with_new(start, last), last, most)

    async def _ranges(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[Range]:
        await self._selected()
        whole = await self._with_new(start, end)
        late = [Loss(tp, f"it is new, and begins at {whole[tp]}") for tp in end if tp not in start and whole[tp]]
        offsets.judge(late, self._options.fail_on_loss)
        return self._shared(whole, end)

    async def _with_new(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Offsets:
        """The start, with the beginning of those partitions that were not there then."""
        new = [tp for tp in end if tp not in start]
        if not new:
            return dict(start)
        await self._selected()
        return {**start, **await offsets.earliest(self._client, new)}

    def _shared(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[Range]:
        ids = {name: info.topic_id for name, info in self._client.topics.items()}
        found, losses = between(start, end, ids)
        offsets.judge(losses, self._options.fail_on_loss)
        return shared(found, self._options.least_tasks)
