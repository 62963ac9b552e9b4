"""A plan over many partitions: how long it takes, and what a round costs when nothing has changed.

Both clusters hold the same topics, without records. Measured: the first plan, when the target has none of them yet
(as a call, and as the command with its start); the plan when everything is there; and one round of a running driver
(metadata of both clusters, then settings) when nothing has changed. CPU is that of this process: brokers are no part.
What must stay true: the functions measured are those that a run uses.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from isthmus.engine.control import ControlView
from isthmus.engine.internal import create_internal_topics
from isthmus.engine.plan import plan_all
from isthmus.engine.registrar import Registrar
from isthmus.engine.roster import Roster
from isthmus.engine.scene import Scene
from isthmus.engine.sides import clients
from isthmus.engine.upkeep import SettingsKeeper
from isthmus.errors import TargetError
from isthmus.model import Cluster, Flow, Mm2Topics, Topics
from isthmus.wire.admin import NewTopic, create_topics, wait_for_topics
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal

BAR_S = 15.0
_ALIAS = "wide"
_PER_TOPIC = 10
_ROUNDS = 5
_PATIENCE_S = 900.0
_RECORDS_ONLY = Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=False, checkpoints=False)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds on the clock, CPU-seconds of this process, requests to both clusters."""

    seconds: float
    cpu_s: float
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    partitions: int
    topics: int
    first_plan: Cost
    command_s: float  # `isthmus plan FILE`, from its start to its end
    unchanged_plan: Cost
    unchanged_round: Cost  # the mean of some
    unchanged_settings_round: Cost

    @property
    def within_bar(self) -> bool:
        return max(self.first_plan.seconds, self.command_s) < BAR_S

    def as_json(self) -> dict[str, Any]:
        return {"bar_s": BAR_S, "within_bar": self.within_bar, **asdict(self)}


def measure_planning(source: str, target: str, partitions: int, say: Say) -> Planned:
    """On two empty clusters."""
    return asyncio.run(_Measure(source, target, partitions, say).run())


def show(found: Planned, console: Console) -> None:
    table = Table(title=f"a plan over {found.partitions:,} partitions in {found.topics:,} topics")
    for name in ("", "seconds", "CPU-seconds", "requests"):
        table.add_column(name, justify="left" if not name else "right")
    costs = {
        "first plan": found.first_plan,
        "plan when all is there": found.unchanged_plan,
        "a round without a change": found.unchanged_round,
        "a round of settings without a change": found.unchanged_settings_round,
    }
    for name, cost in costs.items():
        table.add_row(name, f"{cost.seconds:.3f}", f"{cost.cpu_s:.3f}", str(cost.requests))
    table.add_row("the command `isthmus plan`", f"{found.command_s:.1f}", "", "")
    console.print(table)
    console.print(f"bar: {BAR_S:.0f} s: {'kept' if found.within_bar else 'NOT kept'}")


class _Measure:
    def __init__(self, source: str, target: str, partitions: int, say: Say) -> None:
        self._flow = Flow(
            source=Cluster(alias=_ALIAS, bootstrap=tuple(source.split(","))),
            target=Cluster(alias="target", bootstrap=tuple(target.split(","))),
            topics=Topics(include=(r"bench-.*",)),
            mm2_topics=_RECORDS_ONLY,
            lanes=2,
        )
        self._topics = [
            NewTopic(f"bench-{number:05}", _PER_TOPIC, 1, {"retention.ms": "-1"})
            for number in range(partitions // _PER_TOPIC)
        ]
        self._say = say

    async def run(self) -> Planned:
        async with clients(self._flow) as (source, target):
            await source.start()
            await target.start()
            self._say("plan: creating topics on the source")
            await _create(source, self._topics)
            self._say("plan: the first plan")
            first = await self._plan(source, target, len(self._topics))
            command_s = await asyncio.to_thread(self._command)
            self._say("plan: creating topics on the target")
            # Those of the flow itself first: behind thousands of others a broker would open them minutes later.
            await create_internal_topics(source, target, self._flow, self._say)
            copies = [topic._replace(name=f"{_ALIAS}.{topic.name}") for topic in self._topics]
            await _create(target, copies)
            self._say("plan: rounds without a change")
            unchanged = await self._plan(source, target, 0)
            renewal, settings = await self._rounds(source, target)
        return Planned(
            partitions=len(self._topics) * _PER_TOPIC,
            topics=len(self._topics),
            first_plan=first,
            command_s=command_s,
            unchanged_plan=unchanged,
            unchanged_round=renewal,
            unchanged_settings_round=settings,
        )

    async def _plan(self, source: Client, target: Client, created: int) -> Cost:
        async with _Meter(source, target) as meter:
            plan = await plan_all(source, target, self._flow)
        if len(plan.create) != created:
            raise TargetError(f"the plan creates {len(plan.create)} topics, not {created}", code="BENCH")
        return meter.cost(1)

    def _command(self) -> float:
        ends = {_ALIAS: self._flow.source, "target": self._flow.target}
        lines = [f"  {alias}: {{bootstrap: '{','.join(end.bootstrap)}'}}" for alias, end in ends.items()]
        flow = f"  - {{from: {_ALIAS}, to: target, topics: 'bench-.*', lanes: 2}}"
        with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
            file = Path(folder) / "wide.yaml"
            file.write_text("\n".join(["clusters:", *lines, "flows:", flow, ""]))
            began = time.monotonic()
            subprocess.run([sys.executable, "-m", "isthmus", "plan", str(file)], check=True, capture_output=True)
            return time.monotonic() - began

    async def _rounds(self, source: Client, target: Client) -> tuple[Cost, Cost]:
        scene, view = Scene(self._flow, lambda _: None), ControlView()
        journal = Journal(target, self._flow.control_topic)
        registrar = Registrar(self._flow, source, target, journal)
        roster = Roster(self._flow, source, target, journal, scene, registrar)
        await roster.renew(view)
        keeper = SettingsKeeper(self._flow, source, target, scene.note, scene.note)
        await keeper.round(roster.remotes())
        renewal = await _mean(source, target, lambda: roster.renew(view))
        settings = await _mean(source, target, lambda: keeper.round(roster.remotes()))
        return renewal, settings


async def _create(client: Client, topics: list[NewTopic]) -> None:
    await create_topics(client, topics)
    await wait_for_topics(client, [topic.name for topic in topics], _PATIENCE_S)


async def _mean(source: Client, target: Client, work: Callable[[], Awaitable[object]]) -> Cost:
    await work()
    async with _Meter(source, target) as meter:
        for _ in range(_ROUNDS):
            await work()
    return meter.cost(_ROUNDS)


class _Meter:
    """Clock, CPU and requests of what happens in its block."""

    def __init__(self, *clients: Client) -> None:
        self._clients = clients

    async def __aenter__(self) -> _Meter:
        self._began = self._now()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = self._now()

    def _now(self) -> tuple[float, float, int]:
        return time.monotonic(), time.process_time(), sum(client.requests for client in self._clients)

    def cost(self, rounds: int) -> Cost:
        seconds, cpu_s, requests = (end - begin for begin, end in zip(self._began, self._ended, strict=True))
        return Cost(
            seconds=round(seconds / rounds, 4), cpu_s=round(cpu_s / rounds, 4), requests=round(requests / rounds)
        )
