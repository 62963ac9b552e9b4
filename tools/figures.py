"""The page of benchmarks: every figure is read from a file of bench/results, and stands beside the command for it.

Owns what is shown of each file, and the words around it. Must stay true: no figure is written here by hand; each part
says the file, its command, and when and on what it was measured, as the file says it. What is measured is left to
`isthmus.bench`. `make reference` writes the page (tools/reference.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parents[1] / "bench" / "results"
Row = tuple[str, str]
_SYSTEMS = {"isthmus": "Isthmus", "mm2-eos": "MirrorMaker 2, exactly once", "mm2-alo": "MirrorMaker 2, at least once"}

ABOUT = """\
Every figure on this page is read from a file in `bench/results`, which the named command has written; the page itself
is written by `make reference`. The files tell the machine, its load and the time; the commit is that of the file
(`git log -1 bench/results/NAME`). Clusters, clients and what is measured share the named cores. Systems that are
compared were measured in turn, within one run.

MirrorMaker 2 is that of the Kafka release named below, with two tasks, in its dedicated mode. Records per second and
CPU are of the steady state: from the first commit seen on the target to the last. GB are 10^9 bytes of keys and
values."""

REPEAT = """\
## Repeating it

`.venv/bin/isthmus bench` needs nothing but Java; it starts its own clusters, and writes to `bench/results` (`--out` for
another folder). `--scale 1` is a full run and takes minutes for each case; the default of 0.2 is for a quick look. `-o
json` prints what is written. Leave the machine alone meanwhile: the load that is noted is that at the start.

## What is not measured

- Machines of their own for brokers and lanes; more than two cores; disks and networks of a data centre.
- More than one broker for each cluster, and replication within a cluster (`acks=all` waits for one replica here).
- A Spark cluster: lanes ran on `local[N]`. Its tests are about what is lost, not about speed.
- TLS and SASL to brokers, apart from what is said of the tunnel.
- Months: nothing here ran for longer than minutes.
- MirrorMaker 2 with more tasks, other settings, or a newer release."""


class Part(NamedTuple):
    """One file: its title, the command that writes it, and what is shown of it."""

    title: str
    file: str
    command: str
    shown: Callable[[Mapping[str, Any]], Iterator[Row]]


def page() -> list[str]:
    lines = [
        "# Benchmarks",
        "",
        "<!-- Written by the program: `make reference`. Edits here are lost. -->",
        "",
        ABOUT,
        "",
    ]
    for part in PARTS:
        found = json.loads((RESULTS / part.file).read_text(encoding="utf-8"))
        lines += [
            f"## {part.title}",
            "",
            f"`{part.command}` · [{part.file}](../bench/results/{part.file}) · {_where(found)}",
            "",
        ]
        lines += ["| | |", "|---|---|", *(f"| {what} | {value} |" for what, value in part.shown(found)), ""]
    return [*lines, REPEAT]


def _where(found: Mapping[str, Any]) -> str:
    machine = found["machine"]
    return (
        f"{machine['time']}, {machine['cores']} cores, load {machine['load_1m']} at the start, Kafka {machine['kafka']}"
    )


def _several(values: list[float], unit: str) -> str:
    return ", ".join(f"{value:,}" for value in values) + f" {unit}"


# --- what is shown of each file ---------------------------------------------------------------


def _cases(found: Mapping[str, Any]) -> Iterator[Row]:
    for case in found["cases"]:
        about = f"{case['records']:,} records in {case['partitions']} partitions: {case['what']}"
        yield f"**{case['case']}**", about
        for system, crossed in case["systems"].items():
            yield _SYSTEMS.get(system, system), _crossed(crossed)


def _crossed(one: Mapping[str, Any]) -> str:
    if one["records_per_s"] is None:
        return "too fast for a topic of this size"
    told = (
        f"{one['records_per_s']:,.0f} records/s, {one['cpu_s_per_gb']:.1f} CPU-s per GB, "
        f"peak {one['peak_bytes'] / 1e6:,.0f} MB, stored {one['stored_bytes'] / 1e6:,.0f} MB"
    )
    latency = one.get("latency")
    return told + (f", latency p50 {latency['p50']:.0f} ms, p99 {latency['p99']:.0f} ms" if latency else "")


def _plan(found: Mapping[str, Any]) -> Iterator[Row]:
    yield "partitions, topics", f"{found['partitions']:,}, {found['topics']:,}"
    yield "a first plan", f"{found['first_plan']['seconds']:.1f} s, {found['first_plan']['requests']} requests"
    yield "the whole command", f"{found['command_s']:.1f} s"
    round_ = found["unchanged_round"]
    yield "a round in which nothing changed", f"{round_['seconds'] * 1000:.0f} ms, {round_['requests']} requests"


def _distance(found: Mapping[str, Any]) -> Iterator[Row]:
    yield "records, round trip", f"{found['records']:,}, {found['round_trip_ms']} ms"
    yield "near, three runs", _several(found["near"], "records/s")
    yield "far, three runs", _several(found["far"], "records/s")
    yield "kept of the throughput", f"{found['kept']:.1%}"


def _groups(found: Mapping[str, Any]) -> Iterator[Row]:
    yield "groups, partitions", f"{found['groups']:,}, {found['partitions']}"
    yield "a first round over all", f"{found['first_round_s']} s, {found['first_round_cpu_s']} s of CPU"
    yield "a round in which nothing changed", f"{found['unchanged_round_s']} s"
    yield "the index: share of a busy flow's CPU", f"{found['index']['share']:.2%}"
    yield "the index: bytes for bytes copied", f"{found['index_bytes']:,} for {found['data_bytes']:,}"


def _failover(found: Mapping[str, Any]) -> Iterator[Row]:
    yield "groups, partitions", f"{found['groups']:,}, {found['partitions']}"
    yield "failover without the source", f"{found['failover_s']} s, {found['failover_exact']:,} places exact"
    quiet = f"({found['switchover_quiet_s']} s of them quiet)"
    yield "switchover", f"{found['switchover_s']} s {quiet}, {found['switchover_exact']:,} places exact"


def _tunnel(found: Mapping[str, Any]) -> Iterator[Row]:
    yield "one connection, direct", f"{found['direct_mb_s']:,} MB/s, p99 of a round trip {found['direct_p99_ms']} ms"
    yield "through the tunnel", f"{found['tunnel_mb_s']:,} MB/s, {found['tunnel_p99_ms']} ms"
    yield "through two `stunnel`", f"{found['stunnel_mb_s']:,} MB/s"
    yield "CPU-seconds per GB, client and exit", f"{found['client_cpu_per_gb']}, {found['exit_cpu_per_gb']}"
    rates = found["replicated_direct_per_s"], found["replicated_tunnel_per_s"]
    yield "a replication, direct and tunnelled", f"{rates[0]:,} and {rates[1]:,} records/s ({found['share']:.0%})"
    yield f"{found['connections']} connections, one after the other", f"{found['connections_s']} s"


def _verify(found: Mapping[str, Any]) -> Iterator[Row]:
    yield "records on each side", f"{found['records']:,}"
    yield "`verify`, three runs", f"{_several(found['verify_s'], 's')}; CPU {_several(found['verify_cpu_s'], 's')}"
    yield "a loop over librdkafka", f"{_several(found['loop_s'], 's')}; CPU {_several(found['loop_cpu_s'], 's')}"
    yield "times as fast", f"{found['times_as_fast']}"


def _transform(found: Mapping[str, Any]) -> Iterator[Row]:
    yield "records, of which pass the filter", f"{found['records']:,}, {found['kept']:,}"
    yield "with a filter and a mask, two runs", _several(found["sql_per_s"], "records/s")
    yield "MirrorMaker 2, exactly once, without any", _several(found["mm2_per_s"], "records/s")
    yield "latency at 500 records/s", f"p50 {found['p50_ms']:.0f} ms, p99 {found['p99_ms']:.0f} ms"
    yield "peak memory", f"{found['peak_mb']:,} MB"


def _decode(found: Mapping[str, Any]) -> Iterator[Row]:
    yield "records", f"{found['records']:,}"
    for name, rate in found["records_per_s"].items():
        yield name, f"{rate:,} records/s; {found['has'][name]}"


def _status(found: Mapping[str, Any]) -> Iterator[Row]:
    yield "a busy flow", f"{found['busy_s']} s, {found['busy_cpu_s']} s of CPU"
    spent = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in found["cpu_s"].items())
    yield "of that", spent
    yield "somebody who looks at it", f"{found['looks']} looks, {found['looker_cpu_s']:.3f} s of CPU"
    yield "all of it, as a share", f"{found['share']:.2%}"
    yield "`isthmus status`, five times", _several(found["status_s"], "s")


PARTS = (
    Part("Against MirrorMaker 2", "bench.json", "isthmus bench --cases json,wide --scale 1 --rounds 2", _cases),
    Part(
        "Against MirrorMaker 2: all cases, an earlier run",
        "all-cases.json",
        "isthmus bench --cases all --scale 1",
        _cases,
    ),
    Part("A plan over many partitions", "plan.json", "isthmus bench --cases plan", _plan),
    Part("A source that is far away", "distance.json", "isthmus bench --cases distance --scale 2", _distance),
    Part("Consumer groups", "groups.json", "isthmus bench --cases groups --scale 1", _groups),
    Part("Changing sides", "failover.json", "isthmus bench --cases failover", _failover),
    Part("Through the tunnel", "tunnel.json", "isthmus bench --cases tunnel --scale 1", _tunnel),
    Part("Proving that both sides are equal", "verify.json", "isthmus bench --cases verify --scale 1", _verify),
    Part("A flow with a transform", "transform.json", "isthmus bench --cases transform --scale 1", _transform),
    Part("Watching a flow", "status.json", "isthmus bench --cases status --scale 3", _status),
    Part("Topics as columns", "decode.json", "isthmus bench --cases decode --scale 1", _decode),
)
