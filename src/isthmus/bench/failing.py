"""How long clients wait when they change sides: a switchover and a failover of a flow with many consumer groups.

What must stay true: the commands' own functions are timed, from the decision until clients may start, on real
clusters; a place counts only if the target has it, as committed, afterwards. Copying before that is no part of it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from isthmus.bench.cases import CASES, fill
from isthmus.bench.crossing import InThread
from isthmus.bench.grouping import commit_at_random
from isthmus.dr.carrying import on_spark
from isthmus.dr.failover import fail_over
from isthmus.dr.values import FAILOVER, SWITCHOVER, Options, Report
from isthmus.engine.driver import Driver
from isthmus.model import Cluster, Flow, Groups, Mm2Topics, Sync, Topics
from isthmus.wire.cluster import Client

BAR_S = 30.0
_PARTITIONS = 10
_NOBODY = ("127.0.0.1:1",)  # where no broker can be: the source is gone

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """Seconds from the decision to the end, and how many places of groups were exact on the target then."""

    groups: int
    partitions: int
    failover_s: float
    failover_exact: int
    switchover_s: float
    switchover_quiet_s: float  # of it: waiting whether writers have stopped
    switchover_exact: int
    slowest_step: str

    @property
    def within_bars(self) -> bool:
        exact = min(self.failover_exact, self.switchover_exact) == self.groups * self.partitions
        return max(self.failover_s, self.switchover_s) < BAR_S and exact

    def as_json(self) -> dict[str, Any]:
        return {"bars": {"seconds": BAR_S}, "within_bars": self.within_bars, **asdict(self)}


def measure_failing(source: str, target: str, groups: int, scale: float, say: Say) -> Failing:
    """On two empty clusters."""
    case = replace(CASES["json"], partitions=_PARTITIONS)
    say("failover: filling the source")
    fill(source, case, scale)
    say(f"failover: {groups} groups")
    flows = [_flow(source, target, case.topic, alias) for alias in ("lost", "left")]
    asyncio.run(_prepare(flows, case.topic, groups, say))
    quiet = 3.0
    options = Options(carry=on_spark("local[*]", {}, lambda _: None), quiet_s=quiet)
    say("failover: without the source")
    gone = replace(flows[0], source=replace(flows[0].source, bootstrap=_NOBODY))
    lost, lost_s = _timed(gone, replace(options, kind=FAILOVER))
    say("failover: switchover")
    left, left_s = _timed(flows[1], replace(options, kind=SWITCHOVER))
    return Failing(
        groups=groups,
        partitions=_PARTITIONS,
        failover_s=round(lost_s, 2),
        failover_exact=_exact(lost),
        switchover_s=round(left_s, 2),
        switchover_quiet_s=quiet,
        switchover_exact=_exact(left),
        slowest_step=_slowest(left),
    )


def _flow(source: str, target: str, topic: str, alias: str) -> Flow:
    return Flow(
        source=Cluster(alias=alias, bootstrap=tuple(source.split(","))),
        target=Cluster(alias="west", bootstrap=tuple(target.split(","))),
        topics=Topics(include=(topic,)),
        groups=Groups(include=("bench-.*",)),
        sync=Sync(configs=False),
        mm2_topics=Mm2Topics(heartbeats=False, carry_heartbeats=False),
    )


async def _prepare(flows: list[Flow], topic: str, groups: int, say: Say) -> None:
    """Groups stand somewhere, everything is copied, and where they stand was published as of then."""
    client = Client(flows[0].source)
    try:
        await client.start()
        await client.refresh([topic])
        await commit_at_random(client, topic, groups)
    finally:
        client.close()
    for flow in flows:
        say(f"failover: copying, for {flow.name}")
        await Driver(flow, InThread(), until_caught_up=True).run()


def _timed(flow: Flow, options: Options) -> tuple[Report, float]:
    began = time.monotonic()
    report = fail_over(flow, options)
    return report, time.monotonic() - began


def _exact(report: Report) -> int:
    return sum(place.state == "exact" and place.offset >= 0 for place in report.groups)


def _slowest(report: Report) -> str:
    times = [("decision", report.began_ms), *report.steps]
    return max((after[1] - before[1], after[0]) for before, after in itertools.pairwise(times))[1]


def show(found: Failing, console: Console) -> None:
    total = found.groups * found.partitions
    table = Table(title=f"{found.groups:,} groups in {found.partitions} partitions change sides")
    for name in ("", "seconds", "bar", "exact places"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("failover", f"{found.failover_s:.1f}", f"{BAR_S:.0f}", f"{found.failover_exact:,} of {total:,}")
    quiet = f"switchover, {found.switchover_quiet_s:.0f} s of it quiet"
    table.add_row(quiet, f"{found.switchover_s:.1f}", f"{BAR_S:.0f}", f"{found.switchover_exact:,} of {total:,}")
    console.print(table)
