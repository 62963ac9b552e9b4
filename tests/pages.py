"""Made-up flows for the web page: the real application over a status that no cluster has, up to 5,000 partitions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from isthmus.dr.values import Check
from isthmus.errors import IsthmusError
from isthmus.model import Cluster, Flow
from isthmus.observe.health import Ages, ClusterHealth, FlowHealth, LaneHealth, PartitionHealth, Totals
from isthmus.observe.metrics import Looked
from isthmus.observe.window import Verdict

PER_TOPIC = 10
NASTY = "<img src=x onerror=alert(1)>"


def flow(source: str = "east", target: str = "west") -> Flow:
    """Clusters that nobody listens for."""
    one, other = (Cluster(alias=alias, bootstrap=("127.0.0.1:1",)) for alias in (source, target))
    return Flow(source=one, target=other)


def partition(number: int, turn: int) -> PartitionHealth:
    """Every one changes with each turn; one has stopped, some fall behind, the others are well."""
    lag = number % 7 + turn % 3
    found: dict[str, Any] = {"verdict": Verdict.ok, "lag": lag}
    if number == 3:
        found = {"verdict": Verdict.stopped, "lag": 500, "code": "GAP", "error": f"lost {NASTY}", "hint": "resolve it"}
    elif number % 100 == 50:
        found = {"verdict": Verdict.falling_behind, "lag": 10_000 + turn, "trend": 1}
    position = 1_000 + 10 * turn
    return PartitionHealth(
        topic=f"topic-{number // PER_TOPIC:04d}",
        partition=number % PER_TOPIC,
        position=position,
        end=position + found["lag"],
        lag_bytes=found["lag"] * 100,
        lag_seconds=found["lag"] / 10,
        records_per_s=10.0 + turn % 5,
        eta_seconds=1.0,
        lane=0,
        **found,
    )


def health(partitions: int, turn: int, name: str = "east->west") -> FlowHealth:
    source, target = name.split("->")
    return FlowHealth(
        flow=name,
        time=time.time(),
        state="running",
        replicator=f"replicator-{source}",
        source=ClusterHealth(alias=source, answers=True),
        target=ClusterHealth(alias=target, answers=True),
        driver="process 1 on host-a",
        partitions=tuple(partition(number, turn) for number in range(partitions)),
        lanes=(LaneHealth(lane=0, state="running", host="host-a", pid=1),),
        totals=Totals(records=1_000 * turn, bytes=100_000 * turn, transactions=turn),
        records_per_s=1_000.0 + turn,
        bytes_per_s=100_000.0 + turn,
        latency=Ages(bounds_ms=(10, 100, 1000), counts=(turn, 2 * turn, 0, 0), sum_ms=turn),
        events=(f"12:00:00 turn {turn}", NASTY),
    )


class MadeUp:
    """A looker: each look finds the next turn."""

    def __init__(self, find: Callable[[int], Looked]) -> None:
        self.failures: dict[str, IsthmusError] = {}
        self.spent_s = 0.0
        self.looks = 0
        self._find = find

    def look(self) -> Looked:
        self.looks += 1
        return self._find(self.looks)


def made_up(partitions: int = 4) -> MadeUp:
    return MadeUp(lambda turn: Looked(flows=[health(partitions, turn)], lost=[]))


@contextlib.asynccontextmanager
async def carries_nothing(_: Flow) -> AsyncIterator[Check]:
    yield lambda: None
