"""`isthmus bench`: Isthmus and MirrorMaker 2 on the same clusters, as tables, JSON and a plot.

Only reads the command line, starts the lab and shows results; all measuring is in `isthmus.bench`.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from isthmus.errors import ConfigError, MachineError

QUICK_SCALE = 0.2
QUICK_CASES = "json,random,small"
GROUPS_AT_ONCE = 1_000
PLANNED_PARTITIONS = 10_000


def bench(
    scale: Annotated[float, typer.Option(help="Size of the topics; 1 is a full run.")] = QUICK_SCALE,
    cases: Annotated[
        str,
        typer.Option(
            help="Comma list of json, random, small, wide, uncompressed; or all. "
            "By itself: plan, groups, failover, distance, tunnel, verify, decode, size or status."
        ),
    ] = QUICK_CASES,
    systems: Annotated[
        str, typer.Option(help="Comma list of isthmus, mm2-eos, mm2-alo, limit.")
    ] = "isthmus,mm2-eos,mm2-alo,limit",
    rounds: Annotated[int, typer.Option(min=1, help="Every second one in the opposite order; the better counts.")] = 1,
    latency_seconds: Annotated[
        float, typer.Option(help="How long latency is measured, in the first case; 0: not at all.")
    ] = 8.0,
    every_case: Annotated[
        bool, typer.Option("--every-case", help="Run mm2-alo in every case, not in the first one only.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure the constants of `isthmus size`, and nothing else.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for bench.json, bench.png, bench.svg and logs.")] = Path(
        "bench/results"
    ),
    output: Annotated[str, typer.Option("--output", "-o", help="human or json.")] = "human",
) -> None:
    """Measure Isthmus against MirrorMaker 2 on two real clusters of this machine."""
    if output not in ("human", "json"):
        raise ConfigError(f"{output} is no output format", where="--output", hint="use human or json")
    if scale <= 0:
        raise ConfigError(f"{scale:g} is no scale", where="--scale", hint="use a number above 0, for example 0.2")
    _require_lab_extras()
    if calibrate:
        _calibrate(out, output, scale)
        return
    if cases in (alone := _alone()):
        alone[cases](out, output, scale)
        return
    from isthmus.bench import report
    from isthmus.bench.cases import CASES
    from isthmus.bench.run import SYSTEMS, Plan, run
    from isthmus.lab.brokers import ClusterSpec
    from isthmus.lab.cluster import Lab

    console = Console(stderr=output == "json")
    plan = Plan(
        scale=scale,
        cases=_chosen(",".join(CASES) if cases == "all" else cases, tuple(CASES), "--cases"),
        systems=_chosen(systems, SYSTEMS, "--systems"),
        latency_seconds=latency_seconds,
        logs=out / "logs",
        rounds=rounds,
        once=() if every_case else ("mm2-alo",),
    )
    clusters = [ClusterSpec(name=name, heap_mb=1024) for name in ("east", "west")]
    with console.status("starting two clusters") as status, Lab(clusters) as lab:
        result = run(plan, lab["east"].bootstrap, lab["west"].bootstrap, status.update)
    files = report.write(result, out)
    if output == "json":
        typer.echo(json.dumps(result.as_json(), indent=2))
        return
    report.show(result, console)
    console.print(f"Written: {', '.join(str(file) for file in files)}")


def _alone() -> dict[str, Callable[[Path, str, float], None]]:
    """Cases that are measured by themselves, because they compare something else."""
    return {
        "plan": _bench_plan,
        "groups": _bench_groups,
        "failover": _bench_failover,
        "tunnel": _bench_tunnel,
        "verify": _bench_verify,
        "decode": _bench_decode,
        "transform": _bench_transform,
        "distance": _bench_distance,
        "size": _bench_size,
        "status": _bench_status,
    }


def _calibrate(out: Path, output: str, scale: float) -> None:
    """What `isthmus size --constants` reads."""
    from isthmus.bench.calibrating import measure_constants

    with _two_clusters(output, {}) as (console, say, source, target):
        found = measure_constants(source, target, scale, say)
    _tell(console, output, "calibration", found.as_json(), out, lambda: console.print(found.as_json()))


def _bench_size(out: Path, output: str, scale: float) -> None:
    """Likewise: what `isthmus size` says of copies that its constants were not made of, and what they cost."""
    from isthmus.bench.foretelling import measure_foretelling, show

    with _two_clusters(output, {}) as (console, say, source, target):
        found = measure_foretelling(source, target, scale, say)
    _tell(console, output, "size", found.as_json(), out, lambda: show(found, console))


def _bench_plan(out: Path, output: str, _: float) -> None:
    """Needs no other system: a plan over 10,000 partitions, and what a round costs when nothing has changed."""
    from isthmus.bench.planning import measure_planning, show

    # A broker that opens thousands of logs on a small machine is late with its heartbeats, but not dead.
    with _two_clusters(output, {"broker.session.timeout.ms": "120000"}) as (console, say, source, target):
        found = measure_planning(source, target, PLANNED_PARTITIONS, say)
    _tell(console, output, "plan", found.as_json(), out, lambda: show(found, console))


def _bench_status(out: Path, output: str, scale: float) -> None:
    """Likewise: what it costs that a busy flow is watched, and how long `isthmus status` takes."""
    from isthmus.bench.watching import measure_watching, show

    with _two_clusters(output, {}) as (console, say, source, target):
        found = measure_watching(source, target, scale, say)
    _tell(console, output, "status", found.as_json(), out, lambda: show(found, console))


def _bench_groups(out: Path, output: str, scale: float) -> None:
    """Likewise: a round over 1,000 consumer groups, and what the index of offsets costs."""
    from isthmus.bench.grouping import measure_groups, show

    with _two_clusters(output, {}) as (console, say, source, target):
        found = measure_groups(source, target, GROUPS_AT_ONCE, scale, say)
    _tell(console, output, "groups", found.as_json(), out, lambda: show(found, console))


def _bench_failover(out: Path, output: str, scale: float) -> None:
    """Likewise: how long clients wait when they change sides, with 1,000 consumer groups."""
    from isthmus.bench.failing import measure_failing, show

    with _two_clusters(output, {}) as (console, say, source, target):
        found = measure_failing(source, target, GROUPS_AT_ONCE, scale, say)
    _tell(console, output, "failover", found.as_json(), out, lambda: show(found, console))


def _bench_tunnel(out: Path, output: str, scale: float) -> None:
    """Likewise: bytes, round trips and a replication through a tunnel and without it."""
    from isthmus.bench.tunnelling import measure_tunnel, show

    with _two_clusters(output, {}) as (console, say, source, target):
        found = measure_tunnel(source, target, scale, say)
    _tell(console, output, "tunnel", found.as_json(), out, lambda: show(found, console))


def _bench_verify(out: Path, output: str, scale: float) -> None:
    """Likewise: comparing both sides, against a loop over librdkafka."""
    from isthmus.bench.verifying import measure_verifying, show

    with _two_clusters(output, {}) as (console, say, source, target):
        found = measure_verifying(source, target, scale, say)
    _tell(console, output, "verify", found.as_json(), out, lambda: show(found, console))


def _bench_decode(out: Path, output: str, scale: float) -> None:
    """Likewise: records into columns, against a loop over librdkafka that makes the same columns."""
    from isthmus.bench.decoding import measure_decoding, show

    with _two_clusters(output, {}) as (console, say, source, _):
        found = measure_decoding(source, scale, say)
    _tell(console, output, "decode", found.as_json(), out, lambda: show(found, console))


def _bench_transform(out: Path, output: str, scale: float) -> None:
    """Likewise: a flow with a transform, against MirrorMaker 2 without any."""
    from isthmus.bench.transforming import measure_transforming, show

    with _two_clusters(output, {}) as (console, say, source, target):
        found = measure_transforming(source, target, scale, out / "logs", say)
    _tell(console, output, "transform", found.as_json(), out, lambda: show(found, console))


def _bench_distance(out: Path, output: str, scale: float) -> None:
    """Likewise: a source that is 100 ms away."""
    from isthmus.bench.distance import measure_distance, show

    console = Console(stderr=output == "json")
    with console.status("starting two clusters") as status:
        found = measure_distance(scale, status.update)
    _tell(console, output, "distance", found.as_json(), out, lambda: show(found, console))


@contextmanager
def _two_clusters(output: str, properties: dict[str, str]) -> Iterator[tuple[Console, Callable[[str], None], str, str]]:
    from isthmus.lab.brokers import ClusterSpec
    from isthmus.lab.cluster import Lab

    console = Console(stderr=output == "json")
    clusters = [ClusterSpec(name=name, heap_mb=1024, properties=properties) for name in ("east", "west")]
    with console.status("starting two clusters") as status, Lab(clusters) as lab:
        yield console, status.update, lab["east"].bootstrap, lab["west"].bootstrap


def _tell(console: Console, output: str, name: str, found: dict[str, Any], out: Path, show: Callable[[], None]) -> None:
    from isthmus.bench.run import write_found

    file = write_found(name, found, out)
    if output == "json":
        typer.echo(file.read_text())
        return
    show()
    console.print(f"Written: {file}")


def _chosen(text: str, known: tuple[str, ...], where: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in known:
            raise ConfigError(f"{name} is not known", where=where, hint=f"choose from {', '.join(known)}")
    if not names:
        raise ConfigError("Nothing was chosen", where=where, hint=f"choose from {', '.join(known)}")
    return names


def _require_lab_extras() -> None:
    for name in ("confluent_kafka", "matplotlib"):
        if importlib.util.find_spec(name) is None:
            raise MachineError(f"{name} is not installed", hint="pip install 'isthmus[lab]'", code="EXTRAS")
