"""The body of a Spark task that compares: some stretches of one flow, one after the other, with its own connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from isthmus.engine.sides import clients
from isthmus.engine.task import die_with_parent
from isthmus.engine.verify.compare import compare
from isthmus.engine.verify.values import Compared, Task
from isthmus.errors import IsthmusError


def examine(tasks: Iterator[Task]) -> Iterator[list[Compared] | IsthmusError]:
    """Compare all of the one task of this partition."""
    die_with_parent()
    for task in tasks:
        yield compared(task)


def compared(task: Task) -> list[Compared] | IsthmusError:
    """Errors of ours come back as values, so that they keep their code and hint."""
    try:
        return asyncio.run(_compare_all(task))
    except IsthmusError as error:
        return error


async def _compare_all(task: Task) -> list[Compared]:
    async with clients(task.flow) as (source, target):
        await asyncio.gather(source.start(), target.start())
        await source.refresh({stretch.source.topic for stretch in task.stretches})
        await target.refresh({stretch.target.topic for stretch in task.stretches})
        return [await compare(source, target, stretch) for stretch in task.stretches]
