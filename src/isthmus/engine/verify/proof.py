"""The proof of one flow: finds what is to be the same, has it compared in parallel, and gathers what came out.

Beside records, topic settings and partition counts are looked at (what a plan would still change), and where consumer
groups stand. What must stay true: nothing is changed on either cluster, and a running flow is not disturbed: it is
compared up to what was committed when the proof began.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from isthmus.engine.control import ControlView
from isthmus.engine.offsets.index import Index
from isthmus.engine.offsets.view import GroupsReader
from isthmus.engine.plan import Plan, on_record, plan_flow, stored_positions
from isthmus.engine.resolve.record import Gap
from isthmus.engine.sides import clients, reach, refuse_transformed
from isthmus.engine.survey import chosen_topics
from isthmus.engine.verify.exempt import exempt
from isthmus.engine.verify.stretches import Surveyor
from isthmus.engine.verify.values import Compared, Stretch, Task
from isthmus.errors import ConfigError, IsthmusError, SourceError, TargetError
from isthmus.mm2.javaregex import compile_java
from isthmus.mm2.policy import remote_topic
from isthmus.model import Flow, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal
from isthmus.wire.settings import describe_settings

NOT_READ = "not read (see `isthmus groups`)"
_TASKS_PER_SLOT = 8  # few enough to cost nothing, many enough to show progress and to even out


class Examiner(Protocol):
    """Compares the stretches of one task somewhere."""

    async def run(self, task: Task) -> list[Compared]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be proven. `topics`: Java patterns of source topics, all of them if there is none."""

    topics: tuple[str, ...] = ()
    since_ms: int | None = None
    slots: int = 2  # tasks at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a proof is. Offsets are those of the source."""

    flow: str
    partitions: int
    partitions_done: int
    offsets: int
    offsets_done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came out. `settings`: what differs in topics apart from records; `groups`: how many stand how."""

    flow: str
    began: float
    seconds: float
    since_ms: int | None
    compared: tuple[Compared, ...]
    settings: tuple[str, ...]
    groups: dict[str, int]
    gaps: tuple[Gap, ...] = ()  # on record, and passed over

    @property
    def dead_letters(self) -> int:
        return sum(each.dead_letters for each in self.compared)

    @property
    def equal(self) -> bool:
        return all(each.equal for each in self.compared) and not self.settings

    @property
    def different(self) -> tuple[Compared, ...]:
        return tuple(each for each in self.compared if not each.equal)


async def prove(
    flow: Flow, examiner: Examiner, wanted: Wanted, watch: Callable[[Progress], None] = lambda _: None
) -> Report:
    """Compare everything that the flow has committed so far."""
    _refuse_two_way(flow)
    refuse_transformed(flow, "compared")
    began, clock = time.time(), time.monotonic()
    async with clients(flow) as (source, target):
        await reach(source, SourceError)
        await reach(target, TargetError)
        stretches, left_out, gaps = await _find(flow, source, target, wanted)
        async with asyncio.TaskGroup() as beside:
            plan = beside.create_task(_plan(flow, source, target))
            groups = beside.create_task(_groups(flow))
            compared = await _compare(flow, examiner, stretches, wanted.slots, watch)
    return Report(
        flow=flow.name,
        began=began,
        seconds=time.monotonic() - clock,
        since_ms=wanted.since_ms,
        compared=tuple(sorted([*compared, *left_out], key=lambda each: each.source)),
        settings=tuple(_unlike_settings(plan.result(), {each.target.topic for each in compared})),
        groups=groups.result(),
        gaps=gaps,
    )


def _refuse_two_way(flow: Flow) -> None:
    if flow.all_cuts:
        raise ConfigError(
            f"{flow.name} is one of two flows that meet under the same names: both clusters hold the same records, but "
            "each in the order in which they came there, so they cannot be compared in order",
            where=f"flow {flow.name}",
            hint="compare a flow of one direction",
            code="TWO_WAY",
        )


# --- what is to be compared -------------------------------------------------------------------


async def _find(
    flow: Flow, source: Client, target: Client, wanted: Wanted
) -> tuple[list[Stretch], list[Compared], tuple[Gap, ...]]:
    names = [name for name in await chosen_topics(source, flow) if _is_wanted(name, wanted)]
    if not names:
        raise ConfigError(
            "no topic of the flow is called so" if wanted.topics else "the flow carries no topic",
            where=f"flow {flow.name}",
            hint="`isthmus positions FILE` lists what it carries",
            code="UNKNOWN_TOPIC",
        )
    await target.refresh(None)
    view = await on_record(target, flow)
    progress = await stored_positions(target, flow, view)
    index = Index(Journal(target, flow.index_topic))
    if flow.index_topic in target.topics:
        await index.catch_up()
    remotes, absent = _remotes(flow, source, target, names, progress)
    compacted = await _compacted(source, target, {tp.topic: remote.topic for tp, remote in remotes.items()})
    surveyor = Surveyor(source, target, index, _begins(view, names))
    stretches, left_out = await surveyor.stretches(remotes, progress, compacted, wanted.since_ms)
    known = await exempt(flow, source, target, view)
    return [known.applied(each) for each in stretches], [*left_out, *absent], known.of(names)


def _is_wanted(name: str, wanted: Wanted) -> bool:
    return not wanted.topics or any(compile_java(pattern).fullmatch(name) for pattern in wanted.topics)


def _remotes(
    flow: Flow, source: Client, target: Client, names: Sequence[str], progress: dict[TopicPartition, int]
) -> tuple[dict[TopicPartition, TopicPartition], list[Compared]]:
    """Each source partition with its copy; those whose copy is not there though it should be."""
    found: dict[TopicPartition, TopicPartition] = {}
    absent: list[Compared] = []
    for name in names:
        remote = remote_topic(flow, name)
        there = target.topics[remote].partitions if remote in target.topics else {}
        for number in sorted(source.topics[name].partitions):
            tp, copy = TopicPartition(name, number), TopicPartition(remote, number)
            if number in there:
                found[tp] = copy
            else:
                reason = f"{copy} is not on the target"
                absent.append(Compared(source=tp, target=copy, low=-1, until=progress.get(tp, -1), reason=reason))
    return found, absent


async def _compacted(source: Client, target: Client, remotes: dict[str, str]) -> frozenset[str]:
    here, there = await describe_settings(source, remotes), await describe_settings(target, remotes.values())
    return frozenset(
        name
        for name, remote in remotes.items()
        if any(
            "compact" in (settings[topic]["cleanup.policy"].value or "")
            for settings, topic in ((here.topics, name), (there.topics, remote))
            if topic in settings and "cleanup.policy" in settings[topic]
        )
    )


def _begins(view: ControlView, names: Sequence[str]) -> dict[TopicPartition, int]:
    """Where partitions began that were told to begin later than at their start."""
    return {
        TopicPartition(name, int(number)): int(offset)
        for name in names
        for number, offset in view.values.get(f"topic/{name}", {}).get("starts", {}).items()
    }


# --- comparing --------------------------------------------------------------------------------


async def _compare(
    flow: Flow,
    examiner: Examiner,
    stretches: Sequence[Stretch],
    slots: int,
    watch: Callable[[Progress], None],
) -> list[Compared]:
    travelling = replace(flow, source=flow.source.for_travel(), target=flow.target.for_travel())
    tasks = [Task(flow=travelling, stretches=each) for each in _dealt(stretches, slots * _TASKS_PER_SLOT)]
    free = asyncio.Semaphore(slots)
    total, done = sum(each.size for each in stretches), Counter[str]()

    async def one(task: Task) -> list[Compared]:
        async with free:
            found = await examiner.run(task)
        done["partitions"] += len(task.stretches)
        done["offsets"] += sum(each.size for each in task.stretches)
        watch(_so_far(flow, stretches, total, done))
        return found

    watch(_so_far(flow, stretches, total, done))
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one(task)) for task in tasks]
    return [each for task in running for each in task.result()]


def _so_far(flow: Flow, stretches: Sequence[Stretch], total: int, done: Counter[str]) -> Progress:
    return Progress(
        flow=flow.name,
        partitions=len(stretches),
        partitions_done=done["partitions"],
        offsets=total,
        offsets_done=done["offsets"],
    )


def _dealt(stretches: Sequence[Stretch], count: int) -> list[tuple[Stretch, ...]]:
    """At most so many heaps of about the same size, the largest stretches first."""
    heaps: list[list[Stretch]] = [[] for _ in range(min(count, len(stretches)))]
    sizes = [0] * len(heaps)
    for stretch in sorted(stretches, key=lambda each: -each.size):
        least = sizes.index(min(sizes))
        heaps[least].append(stretch)
        sizes[least] += stretch.size
    return [tuple(heap) for heap in heaps]


# --- what is not a record ---------------------------------------------------------------------


async def _plan(flow: Flow, source: Client, target: Client) -> Plan:
    return await plan_flow(source, target, flow, await on_record(target, flow))


def _unlike_settings(plan: Plan, names: set[str]) -> list[str]:
    """What a run would still change in the copies of these names."""
    grown = [
        f"{each.target}: {each.before} partitions, its source has {each.partitions}"
        for each in plan.grow
        if each.target in names
    ]
    return [*grown, *(str(each) for each in plan.alter if each.topic in names)]


async def _groups(flow: Flow) -> dict[str, int]:
    """How many places of consumer groups are exact, ahead and so on. Where they cannot be read, records are proven all
    the same, and it is said."""
    try:
        async with GroupsReader(flow) as reader:
            view = await reader.read()
    except IsthmusError:
        return {NOT_READ: 1}
    return dict(Counter(row.state for row in view.rows))
