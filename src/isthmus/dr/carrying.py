"""Copying to the end what nobody else copies, on Spark: the rest of a switchover, the way back of a failback.

What must stay true: it returns only when everything that the source held at its start is on the target. A partition
that stopped, or an operator who interrupts, is an error: clients must not move then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from isthmus.dr.values import Carry
from isthmus.engine.run import Options, Run
from isthmus.errors import IsthmusError, PartitionStopped
from isthmus.model import Flow
from isthmus.observe.status import FlowStatus


def on_spark(master: str, spark_conf: Mapping[str, str], watch: Callable[[FlowStatus], None]) -> Carry:
    async def carry(flow: Flow) -> None:
        options = Options(master=master, until_caught_up=True, spark_conf=spark_conf)
        ended = await Run([flow], options, watch).go()
        refuse_unfinished(flow, ended[0] if ended else None)

    return carry


def refuse_unfinished(flow: Flow, status: FlowStatus | None) -> None:
    if status is not None and status.stopped:
        first = status.stopped[0]
        raise PartitionStopped(
            f"{len(status.stopped)} partition(s) of {flow.name} stopped; the first: "
            f"{first.topic}-{first.partition}: {first.error}",
            where=f"offset {first.position}",
            hint="clients stay where they are; `isthmus resolve` says how to go on, then run the command again",
            code=first.code,
        )
    if status is None or status.lag:
        raise IsthmusError(
            "it was interrupted before everything was copied",
            where=f"flow {flow.name}",
            hint="run the command again: it goes on where it was",
            code="INTERRUPTED",
        )
