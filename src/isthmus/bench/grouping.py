"""Consumer groups at scale: how long a round of translation takes, and what the index of offsets costs a busy flow.

What must stay true: the round is the one that a running driver makes. How the cost of the index is found is left to
`indexing`.
"""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from isthmus.bench.cases import CASES, fill
from isthmus.bench.indexing import IndexCost, index_cost
from isthmus.bench.watch import stored_bytes
from isthmus.engine.offsets.keeper import GroupKeeper
from isthmus.model import Cluster, Flow, Groups, Mm2Topics, Sync, TopicPartition, Topics
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import LATEST, settled_offsets
from isthmus.wire.groups import Committed, Offsets, commit_offsets

BAR_S, BAR_MB, BAR_SHARE = 20.0, 1_000.0, 0.01
_PARTITIONS = 10
_COMMITS_AT_ONCE = 20

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """Seconds, CPU-seconds and memory are of this process."""

    groups: int
    partitions: int
    first_round_s: float
    first_round_cpu_s: float
    unchanged_round_s: float
    unchanged_round_cpu_s: float
    peak_mb: float
    translated: int
    index: IndexCost
    index_bytes: int
    data_bytes: int

    @property
    def within_bars(self) -> bool:
        return (
            self.first_round_s < BAR_S
            and self.peak_mb < BAR_MB
            and self.index_bytes < BAR_SHARE * self.data_bytes
            and self.index.share < BAR_SHARE
        )

    def as_json(self) -> dict[str, Any]:
        bars = {"round_s": BAR_S, "peak_mb": BAR_MB, "share_of_index": BAR_SHARE}
        return {"bars": bars, "within_bars": self.within_bars, **asdict(self), "index": self.index.as_json()}


def measure_groups(source: str, target: str, groups: int, scale: float, say: Say) -> Grouped:
    """On two empty clusters."""
    case = replace(CASES["json"], partitions=_PARTITIONS)
    say("groups: filling the source")
    fill(source, case, scale)
    flow = Flow(
        source=Cluster(alias="indexed", bootstrap=tuple(source.split(","))),
        target=Cluster(alias="west", bootstrap=tuple(target.split(","))),
        topics=Topics(include=(case.topic,)),
        groups=Groups(include=("bench-.*",)),
        sync=Sync(configs=False),
        mm2_topics=Mm2Topics(heartbeats=False, carry_heartbeats=False),
    )
    cost = index_cost(flow, say)
    say(f"groups: {groups} of them")
    return asyncio.run(_rounds(flow, case.topic, groups, cost))


async def _rounds(flow: Flow, topic: str, groups: int, cost: IndexCost) -> Grouped:
    source, target = Client(flow.source), Client(flow.target)
    try:
        await source.start()
        await target.start()
        await source.refresh([topic])
        await target.refresh([flow.index_topic])
        await commit_at_random(source, topic, groups)
        remotes = {topic: f"{flow.source.alias}.{topic}"}
        keeper = GroupKeeper(flow, source, target, lambda: remotes, dict, lambda _: None)
        first, first_cpu = await _timed(keeper)
        again, again_cpu = await _timed(keeper)
        translated = len(keeper.published())
    finally:
        source.close()
        target.close()
    servers = ",".join(flow.target.bootstrap)
    return Grouped(
        groups=groups,
        partitions=_PARTITIONS,
        first_round_s=round(first, 2),
        first_round_cpu_s=round(first_cpu, 2),
        unchanged_round_s=round(again, 2),
        unchanged_round_cpu_s=round(again_cpu, 2),
        peak_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        translated=translated,
        index=cost,
        index_bytes=stored_bytes(servers, flow.index_topic),
        data_bytes=stored_bytes(servers, f"{flow.source.alias}.{topic}"),
    )


async def commit_at_random(source: Client, topic: str, groups: int) -> None:
    partitions = [TopicPartition(topic, number) for number in range(_PARTITIONS)]
    ends = await settled_offsets(source, partitions, LATEST)
    dice = random.Random(7)
    for at in range(0, groups, _COMMITS_AT_ONCE):
        names = [f"bench-{number}" for number in range(at, min(groups, at + _COMMITS_AT_ONCE))]
        places = [{tp: Committed(dice.randint(0, end)) for tp, end in ends.items()} for _ in names]
        await asyncio.gather(*(_commit(source, name, place) for name, place in zip(names, places, strict=True)))


async def _commit(source: Client, group: str, place: Offsets) -> None:
    """A coordinator may just be loading."""
    while await commit_offsets(source, group, place):
        await asyncio.sleep(0.2)


async def _timed(keeper: GroupKeeper) -> tuple[float, float]:
    began, cpu = time.monotonic(), time.process_time()
    await keeper.round()
    return time.monotonic() - began, time.process_time() - cpu


def show(found: Grouped, console: Console) -> None:
    table = Table(title=f"{found.groups:,} groups in {found.partitions} partitions")
    table.add_column("")
    table.add_column("found", justify="right")
    table.add_column("bar", justify="right")
    total = found.groups * found.partitions
    table.add_row("translated", f"{found.translated:,} of {total:,}", f"{total:,}")
    table.add_row("one round, everything new", f"{found.first_round_s:.2f} s", f"{BAR_S:.0f} s")
    table.add_row("one round, nothing changed", f"{found.unchanged_round_s:.2f} s", "")
    table.add_row("peak memory of the process", f"{found.peak_mb:,.0f} MB", f"{BAR_MB:,.0f} MB")
    table.add_row("index, bytes per byte of data", f"{found.index_bytes / found.data_bytes:.4%}", f"{BAR_SHARE:.0%}")
    table.add_row("index, share of a busy flow's CPU", f"{found.index.share:.2%}", f"{BAR_SHARE:.0%}")
    console.print(table)
