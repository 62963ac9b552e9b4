"""Lanes of flows with a transform without Spark: the real lane, reading and writing, in this process; every row passes.

For what a lane does beside its transform (elections, gaps), where a start of Spark would prove nothing more.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import cast

import pyarrow as pa

from isthmus.engine.orders import Order, Receipt
from isthmus.frames.arrow import record_batch
from isthmus.frames.carriage import Carriage
from isthmus.frames.lane import Memory, RecordsLane
from isthmus.frames.placing import COLUMNS
from isthmus.frames.ranges import Range
from isthmus.frames.reading import read
from isthmus.frames.tickets import Slip, Ticket
from isthmus.frames.writing import write
from isthmus.model import Cluster


class Passing:
    """A carriage whose transform is `SELECT * FROM records`, in one task."""

    def __init__(self, source: Cluster) -> None:
        self._source = source

    def write(self, ticket: Ticket, ranges: Sequence[Range]) -> list[Slip]:
        return [pickle.loads(row) for batch in write(ticket, self._rows(ranges)) for row in batch["slip"].to_pylist()]

    def _rows(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        for wanted in ranges:
            for part in read(self._source, wanted):
                yield record_batch(part, wanted.tp).select(list(COLUMNS))


class Sparkless:
    """A LaneRunner."""

    def __init__(self) -> None:
        self.orders: list[Order] = []

    async def run(self, order: Order) -> Receipt:
        self.orders.append(order)
        carriage = cast(Carriage, Passing(order.flow.source))
        return await RecordsLane(order, carriage, Memory()).run(f"attempt-{len(self.orders)}")
