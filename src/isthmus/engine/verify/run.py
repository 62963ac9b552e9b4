"""Proofs on Spark: starts it while both clusters are looked at, and hands it one task after another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from isthmus.engine.masters import refuse_unfit
from isthmus.engine.spark import Spark, open_spark
from isthmus.engine.verify.proof import Progress, Report, Wanted, prove
from isthmus.engine.verify.values import Compared, Task
from isthmus.errors import IsthmusError
from isthmus.model import Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to compare."""

    master: str = "local[*]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)


class _OnSpark:
    """Runs tasks as soon as the context is there."""

    def __init__(self, starting: asyncio.Future[Spark]) -> None:
        self._starting = starting
        self._tasks = 0

    async def run(self, task: Task) -> list[Compared]:
        from isthmus.engine.verify.task import examine

        spark = await asyncio.shield(self._starting)
        self._tasks += 1
        group = f"{task.flow.name} verify {self._tasks}"
        text = f"{group}: {len(task.stretches)} partitions"
        found: list[Compared] = await spark.submit(group, text, task, examine)
        return found


def verify(
    flows: Sequence[Flow], wanted: Wanted, place: Place, watch: Callable[[Progress], None] = lambda _: None
) -> list[Report]:
    """One report per flow."""
    refuse_unfit(place.master, flows, place.spark_conf)
    return asyncio.run(_verify(flows, wanted, place, watch))


async def _verify(
    flows: Sequence[Flow], wanted: Wanted, place: Place, watch: Callable[[Progress], None]
) -> list[Report]:
    unwanted = threading.Event()
    name = "isthmus verify " + ", ".join(flow.name for flow in flows)
    starting = asyncio.ensure_future(
        asyncio.to_thread(open_spark, place.master, wanted.slots, name, place.spark_conf, unwanted)
    )
    try:
        return [await prove(flow, _OnSpark(starting), wanted, watch) for flow in flows]
    except BaseExceptionGroup as group:
        raise _first(group) from group
    finally:
        unwanted.set()
        await _close(starting)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Tasks fail together when Spark or a cluster goes: one of them tells it."""
    told = group.subgroup(IsthmusError) or group
    error = told.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _close(starting: asyncio.Future[Spark]) -> None:
    try:
        spark = await starting
    except IsthmusError:
        return  # whoever waited for it has been told
    await asyncio.to_thread(spark.close)
