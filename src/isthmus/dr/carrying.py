"""Copying what nobody else copies, on Spark: the rest of a switchover, the way back of a failback.

The flow runs beside the steps of the change, from one start of Spark, so that clients wait for records and not for
programs. What must stay true: a run that ended, a partition that stopped or an operator who interrupts is an error for
whoever waits for its copies: clients must not move then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from isthmus.dr.values import Carry, Check
from isthmus.engine.run import Options, Run
from isthmus.errors import IsthmusError, PartitionStopped
from isthmus.model import Flow
from isthmus.observe.status import FlowStatus


def on_spark(master: str, spark_conf: Mapping[str, str], watch: Callable[[FlowStatus], None]) -> Carry:
    @contextlib.asynccontextmanager
    async def carry(flow: Flow) -> AsyncIterator[Check]:
        seen: list[FlowStatus] = []

        def show(status: FlowStatus) -> None:
            seen[:] = [status]
            watch(status)

        run = Run([flow], Options(master=master, spark_conf=spark_conf), show)
        task = asyncio.ensure_future(run.go())
        try:
            yield lambda: refuse_ended(flow, task, seen[0] if seen else None)
        finally:
            run.end()
            await asyncio.gather(task, return_exceptions=True)

    return carry


def refuse_ended(flow: Flow, task: asyncio.Future[Any], status: FlowStatus | None) -> None:
    if task.done():
        task.result()
        raise IsthmusError(
            "it was interrupted before everything was copied",
            where=f"flow {flow.name}",
            hint="run the command again: it goes on where it was",
            code="INTERRUPTED",
        )
    if status is not None and status.stopped:
        first = status.stopped[0]
        raise PartitionStopped(
            f"{len(status.stopped)} partition(s) of {flow.name} stopped; the first: "
            f"{first.topic}-{first.partition}: {first.error}",
            where=f"offset {first.position}",
            hint="clients stay where they are; `isthmus resolve` says how to go on, then run the command again",
            code=first.code,
        )
