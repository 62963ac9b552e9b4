"""One copy to be measured: from which cluster to which, which topics, under which names.

Every run gets a source alias of its own. It names the target topics and all internal ones, so no
system ever sees progress or data that another one left.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from isthmus.engine.lane import run_order
from isthmus.engine.orders import Order, Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """What a replicator is asked to do. `source` and `target` are bootstrap servers."""

    source: str
    target: str
    source_alias: str
    topics: tuple[str, ...]
    target_alias: str = "west"
    lanes: int = 2

    def replica(self, topic: str) -> str:
        return f"{self.source_alias}.{topic}"


class InThread:
    """A LaneRunner whose executor is a thread: what Spark adds is no part of what is measured."""

    async def run(self, order: Order) -> Receipt:
        return await asyncio.to_thread(run_order, order, "bench")
