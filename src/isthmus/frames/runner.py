"""Runs orders of flows with a transform, on the Spark context of a run.

Must stay true: every transform of a run was judged before the first order, so that nothing is written where one of them
is wrong. A transform that was edited meanwhile is judged when its first order comes.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from isthmus.engine.orders import Order, Receipt
from isthmus.engine.spark import Spark
from isthmus.errors import ConfigError
from isthmus.frames.carriage import Carriage
from isthmus.frames.lane import Memory, RecordsLane
from isthmus.model import Flow


class Transforming:
    """A LaneRunner: what has no transform is none of its business."""

    def __init__(self, spark: Spark, flows: Sequence[Flow], note: Callable[[str], None]) -> None:
        self._spark = spark
        self._session = SparkSession(spark.context)
        self._local = spark.context.master.startswith("local")
        self._note = note
        self._memories: dict[str, Memory] = {}
        self._carriages = {flow.name: self._carriage(flow) for flow in flows if flow.transform is not None}

    async def run(self, order: Order) -> Receipt:
        carriage = self._carriages.get(order.flow.name)
        if carriage is None or carriage.transform != order.flow.transform:
            carriage = await asyncio.to_thread(self._carriage, order.flow)
            self._carriages[order.flow.name] = carriage
            self._memories.pop(order.flow.name, None)  # what the old one failed on tells nothing
        memory = self._memories.setdefault(order.flow.name, Memory())
        return await RecordsLane(order, carriage, memory).run(uuid.uuid4().hex[:8])

    def _carriage(self, flow: Flow) -> Carriage:
        if flow.all_cuts:
            raise ConfigError(
                "a flow that leaves out what came from its target cannot have a transform",
                where=f"flow {flow.name}",
                hint="give copies names of their own (`naming: default`), so that no record goes round",
                code="TRANSFORM",
            )
        wanted = flow.transform.tasks if flow.transform else 0
        cores = os.cpu_count() or 1 if self._local else self._session.sparkContext.defaultParallelism
        carriage = Carriage(self._spark, self._session, flow, max(1, wanted or cores))
        for warning in carriage.shape.warnings:
            self._note(warning)
        return carriage
