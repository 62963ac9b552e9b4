"""A source that is far away: what a round trip of 100 ms leaves of the throughput, when lanes run beside the target.

The source's listeners are advertised behind processes that pass everything on later (`delay`): one by 100 ms, one at
once, so that what the process itself costs is in both. Each copy is one process with the real driver and lanes in
threads; counted is the time from the first commit that was seen to the end. What must stay true: the same topic, the
same brokers, in turn, every second round in the opposite order. A copy without that process is measured beside them.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from isthmus.bench.cases import CASES, fill
from isthmus.bench.crossing import InThread
from isthmus.engine.driver import Driver
from isthmus.lab.brokers import ClusterSpec, Listener
from isthmus.lab.cluster import Lab
from isthmus.model import Cluster, Flow, Mm2Topics, Sync, Topics
from isthmus.observe.status import FlowStatus

BAR = 0.8
ROUND_TRIP_MS = 100
_PARTITIONS, _LANES, _ROUNDS = 8, 2, 3
_WAYS = {"near": ("127.0.0.2", 0), "far": ("127.0.0.3", ROUND_TRIP_MS)}
_RECORDS_ONLY = Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=False, checkpoints=False)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """Records per second of every round, by way."""

    records: int
    round_trip_ms: int
    direct: tuple[float, ...]  # without a process between
    near: tuple[float, ...]
    far: tuple[float, ...]

    @property
    def kept(self) -> float:
        """The better round of each counts: brokers get faster as they run."""
        return max(self.far) / max(self.near)

    def as_json(self) -> dict[str, Any]:
        return {"bar": BAR, "kept": round(self.kept, 3), "within_bar": self.kept >= BAR, **asdict(self)}


def measure_distance(scale: float, say: Say) -> Distance:
    """Starts clusters of its own: the source needs listeners for both ways."""
    doors = (Listener(), *(Listener(name=name.upper(), advertised=host) for name, (host, _) in _WAYS.items()))
    source = ClusterSpec(name="east", heap_mb=1024, listeners=doors)
    with Lab([source, ClusterSpec(name="west", heap_mb=1024)]) as lab, _delayed(lab) as ways:
        say("distance: filling the topic")
        case = replace(CASES["json"], partitions=_PARTITIONS)
        filled = fill(lab["east"].bootstrap, case, scale)
        ways["direct"] = lab["east"].bootstrap
        rates: dict[str, list[float]] = {name: [] for name in ways}
        _copied(_flow(lab["east"].bootstrap, lab["west"].bootstrap, case.topic, "warm"))
        for number in range(_ROUNDS):
            for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
                say(f"distance: round {number + 1}, {name}")
                rates[name].append(_copied(_flow(ways[name], lab["west"].bootstrap, case.topic, f"{name}{number}")))
    by_way = {name: tuple(round(rate) for rate in found) for name, found in rates.items()}
    return Distance(records=filled.records, round_trip_ms=ROUND_TRIP_MS, **by_way)


@contextmanager
def _delayed(lab: Lab) -> Iterator[dict[str, str]]:
    """Addresses of the source by way."""
    ways, running = {}, []
    try:
        for name, (host, delay_ms) in _WAYS.items():
            _, _, port = lab["east"].bootstrap_of(name.upper()).rpartition(":")
            command = [sys.executable, "-m", "isthmus.bench.delay", host, port, "127.0.0.1", port, str(delay_ms)]
            running.append(subprocess.Popen(command, stdin=subprocess.PIPE))
            ways[name] = f"{host}:{port}"
            _await_door(host, int(port))
        yield ways
    finally:
        for process in running:
            process.kill()
            process.wait()


def _await_door(host: str, port: int, patience_s: float = 30.0) -> None:
    until = time.monotonic() + patience_s
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def _flow(source: str, target: str, topic: str, alias: str) -> Flow:
    return Flow(
        source=Cluster(alias=alias, bootstrap=(source,)),
        target=Cluster(alias="west", bootstrap=tuple(target.split(","))),
        topics=Topics(include=(topic,)),
        lanes=_LANES,
        replication_factor=1,
        internal_replication_factor=1,
        sync=Sync(configs=False),
        mm2_topics=_RECORDS_ONLY,
    )


def _copied(flow: Flow) -> float:
    """Records per second from the first commit that was seen to the end; of the whole run where that is all at once."""
    start, seen = time.monotonic(), list[tuple[float, int]]()

    def watch(status: FlowStatus) -> None:
        if status.records and not seen:
            seen.append((time.monotonic(), status.records))

    ended = asyncio.run(Driver(flow, InThread(), until_caught_up=True, watch=watch).run())
    began, before = seen[0] if seen and seen[0][1] < ended.records else (start, 0)
    return (ended.records - before) / (time.monotonic() - began)


def show(found: Distance, console: Console) -> None:
    table = Table(title=f"{found.records:,} records over {_PARTITIONS} partitions, lanes beside the target")
    table.add_column("round trip to the source")
    table.add_column("records/s, by round", justify="right")
    for name, rates in (
        ("none, directly", found.direct),
        ("none", found.near),
        (f"{found.round_trip_ms} ms", found.far),
    ):
        table.add_row(name, ", ".join(f"{rate:,.0f}" for rate in rates))
    console.print(table)
    console.print(f"kept: {found.kept:.0%}; bar: {BAR:.0%}: {'kept' if found.kept >= BAR else 'NOT kept'}")
