"""`isthmus size`: what a load needs, from constants that `isthmus bench --calibrate` measured. Touches no cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from isthmus.cli.render import Output, amount, duration
from isthmus.errors import ConfigError

if TYPE_CHECKING:
    from isthmus.sizing.constants import Constants
    from isthmus.sizing.needs import Load, Need

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m)?")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, None: 1e-3}
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?(?:/s)?")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def size(
    rate: Annotated[str, typer.Option(help="Keys and values that are written, per second: 200MB/s.")] = "",
    partitions: Annotated[int, typer.Option(help="Over which they are spread.")] = 0,
    record: Annotated[str, typer.Option(help="Mean size of a record: 1kB.")] = "1kB",
    batch: Annotated[str, typer.Option(help="Mean size of a batch as the source stores it.")] = "16KiB",
    codec: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "lz4",
    rtt: Annotated[str, typer.Option(help="Round trip to the side that is far: 40ms.")] = "1ms",
    far: Annotated[str, typer.Option(help="The side that is far from the lanes: source or target.")] = "source",
    tls: Annotated[bool, typer.Option("--tls", help="TLS to both clusters.")] = False,
    tunnel: Annotated[bool, typer.Option("--tunnel", help="The far side is reached through a tunnel.")] = False,
    latency: Annotated[str, typer.Option(help="Wished, from a write to the commit: 50ms.")] = "",
    cores_per_executor: Annotated[int, typer.Option(help="Lanes that share an executor.")] = 2,
    brokers: Annotated[int, typer.Option(help="Of each cluster.")] = 3,
    constants: Annotated[Path | None, typer.Option(help="Of `isthmus bench --calibrate`; ours if not given.")] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="What breaks first from here to 100 GB/s and a million partitions.")
    ] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print.")] = Output.text,
) -> None:
    """Lanes, cores, memory, executors and network that a load needs, with the constants behind each figure."""
    from isthmus.sizing.constants import load as read
    from isthmus.sizing.needs import Load
    from isthmus.sizing.needs import size as sized

    known = read(constants)
    if simulate:
        _simulate(known, output)
        return
    if not rate or not partitions:
        raise ConfigError("--rate and --partitions are needed", hint="isthmus size --rate 200MB/s --partitions 500")
    load = Load(
        rate=read_bytes(rate, "--rate"),
        partitions=partitions,
        record=read_bytes(record, "--record"),
        batch=read_bytes(batch, "--batch"),
        codec=codec,
        rtt_s=read_seconds(rtt, "--rtt"),
        far=far,
        tls=tls,
        tunnel=tunnel,
        latency_s=read_seconds(latency, "--latency") if latency else 0.0,
        cores_per_executor=cores_per_executor,
        brokers=brokers,
    )
    need = sized(load, known)
    if output is Output.json:
        typer.echo(json.dumps({"need": need.as_json(), "constants": known.as_json()}, indent=2))
        return
    _show(load, need, known)


def read_bytes(text: str, where: str) -> float:
    """`200MB/s`, `1kB`, `16KiB`: powers of 1000, or with an i of 1024."""
    found = _BYTES.fullmatch(text.strip())
    if not found:
        raise ConfigError(f"{text!r} is no amount of bytes", where=where, hint="write 200MB or 16KiB")
    unit: int = (1024 if found[3] else 1000) ** _POWERS[found[2]]
    return float(found[1]) * unit


def read_seconds(text: str, where: str) -> float:
    """`40ms`, `2s`; a number alone is milliseconds."""
    found = _TIME.fullmatch(text.strip())
    if not found:
        raise ConfigError(f"{text!r} is no time", where=where, hint="write 40ms or 2s")
    return float(found[1]) * _SECONDS[found[2]]


def _show(load: Load, need: Need, known: Constants) -> None:
    console = Console()
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, told in _rows(load, need):
        table.add_row(name, told)
    console.print(table)
    machine = f"{known.machine.get('cores')} cores, {known.machine.get('time')}, load {known.machine.get('load_1m')}"
    console.print(f"\nConstants (measured on {machine}; `-o json` has all, and where each came from):", style="dim")
    for name in ("merged_s_per_gb", "passed_s_per_gb", "batch_s", "transaction_s", "touch_s", "lane_mb"):
        value: Any = getattr(known, name)
        shown = value[load.codec] if isinstance(value, dict) else value
        console.print(f"  {name} = {shown:g}: {known.origins[name]}", style="dim", highlight=False)


def _rows(load: Load, need: Need) -> list[tuple[str, str]]:
    way = f"{need.network_in_mbit:,.0f} Mbit/s in, {need.network_out_mbit:,.0f} Mbit/s out"
    rows = [
        ("load", f"{amount(need.records_per_s)} records/s, {need.stored_mb_per_s:,.1f} MB/s as stored ({load.codec})"),
        ("lanes", f"{need.lanes:,}; one carries {need.lane_mb_per_s:,.1f} MB/s at 60 %, bound by {need.limited_by}"),
        ("cores", f"{need.cores:,} of executors, and one of the driver; {need.cpu_s_per_gb} CPU-s per GB"),
        ("executors", f"{need.executors:,} of {load.cores_per_executor} cores and {need.executor_mb:,} MB"),
        ("driver", f"{need.driver_mb:,} MB"),
        ("network", f"{way}, at the lanes"),
        ("transactions", f"{need.transactions_per_s:,.0f} per second"),
        ("one partition", f"at most {need.partition_mb_per_s:,.1f} MB/s"),
        (
            "latency",
            f"p50 {need.latency_p50_s * 1000:,.0f} ms, p99 {need.latency_p99_s * 1000:,.0f} ms, when it keeps up",
        ),
        ("lag", f"about {amount(need.lag_records)} records in steady state"),
        ("catching up", f"{duration(need.catch_up_s)} after ten minutes of standing still"),
        ("brokers", f"about {need.broker_cores:,.1f} cores of both clusters, without replicas"),
    ]
    if load.tunnel:
        rows.append(("tunnel", f"{need.tunnel_exit_cores:,.2f} cores at its exit"))
    return rows


def _simulate(known: Constants, output: Output) -> None:
    from isthmus.bench.scaling import COLUMNS, simulate

    steps = simulate(known)
    if output is Output.json:
        typer.echo(json.dumps([step.as_json() for step in steps], indent=2))
        return
    console = Console()
    table = Table(title="What breaks first", box=None, pad_edge=False, title_justify="left")
    table.add_column(COLUMNS[0], no_wrap=True)
    rows = list(zip(COLUMNS, *(step.cells() for step in steps), strict=True))
    for cell in rows[0][1:]:
        table.add_column(cell, justify="right", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)
    for step in steps:
        rate, partitions, flows = step.cells()[:3]
        for what in step.broken:
            console.print(f"  {rate} GB/s, {partitions} partitions, {flows} flow: {what}", highlight=False)
