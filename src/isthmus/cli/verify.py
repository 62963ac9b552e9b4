"""`isthmus verify FILE`: proves that source and target hold the same, record by record. Only reads."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from isthmus.cli.completing import topic_names
from isthmus.cli.config import File, Secrets, loaded_from, warn
from isthmus.cli.gaps import moment
from isthmus.cli.proof_page import page
from isthmus.cli.render import Output
from isthmus.cli.spark_words import pair
from isthmus.config.values import milliseconds
from isthmus.engine.resolve.form import gap_json
from isthmus.errors import ConfigError, ProofError

if TYPE_CHECKING:
    from isthmus.engine.resolve.record import Gap
    from isthmus.engine.verify.proof import Progress as SoFar
    from isthmus.engine.verify.proof import Report
    from isthmus.engine.verify.values import Compared

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SAY_EVERY_S = 10.0
_SHOWN = 20


def verify(
    file: File = None,
    secrets: Secrets = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Only source topics that match; may be repeated.", autocompletion=topic_names),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", help="Only records of this time or later: 2026-01-31T12:00:00Z.")
    ] = "",
    last: Annotated[str, typer.Option("--last", help="Only records of the last 30s, 15m, 1h, 2d.")] = "",
    parallel: Annotated[int, typer.Option(help="Tasks at a time; 0: one per core.", min=0)] = 0,
    master: Annotated[str, typer.Option(help="Spark master: local[*], spark://…, k8s://…, yarn.")] = "local[*]",
    conf: Annotated[list[str] | None, typer.Option("--conf", help="Spark setting key=value; may be repeated.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Also write the report as a page to this file.")] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")] = Output.text,
) -> None:
    """Prove that source and target are equal: every record, up to what is committed now. The flow may be running."""
    from isthmus.engine.verify.proof import Wanted
    from isthmus.engine.verify.run import Place
    from isthmus.engine.verify.run import verify as prove_all

    loaded = loaded_from(file, secrets)
    warn(loaded)
    wanted = Wanted(
        topics=tuple(topic or ()), since_ms=_since_ms(since, last), slots=parallel or max(2, os.cpu_count() or 2)
    )
    place = Place(master=master, spark_conf=dict(pair(text) for text in conf or ()))
    with _Screen() as screen:
        reports = prove_all(loaded.flows, wanted, place, screen.show)
    if html is not None:
        html.write_text(page([as_json(report) for report in reports]))
    if output is Output.json:
        sys.stdout.write(json.dumps([as_json(report) for report in reports]) + "\n")
    else:
        for report in reports:
            _print(report)
    _refuse_unequal(reports)


def _since_ms(since: str, last: str) -> int | None:
    if since and last:
        raise ConfigError("--since and --last contradict each other; give one of them")
    if last:
        found = re.fullmatch(r"(\d+)([smhd])", last)
        if found is None:
            raise ConfigError(f"--last {last}: not a time", hint="write 30s, 15m, 1h or 2d")
        return int((time.time() - int(found[1]) * _UNITS_S[found[2]]) * 1000)
    if not since:
        return None
    try:
        return milliseconds(since)
    except ValueError as error:
        raise ConfigError(f"--since {since}: {error}", hint="write 2026-01-31T12:00:00Z") from error


class _Screen:
    """A bar while it runs; a line now and then where there is no terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._said = time.monotonic()
        self._bars: dict[str, Any] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            MofNCompleteColumn(),
            TextColumn("offsets, left:"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )

    def __enter__(self) -> _Screen:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, so_far: SoFar) -> None:
        if self._console.is_terminal:
            if so_far.flow not in self._bars:
                self._bars[so_far.flow] = self._progress.add_task(so_far.flow, total=so_far.offsets)
            self._progress.update(self._bars[so_far.flow], completed=so_far.offsets_done)
        elif time.monotonic() - self._said > _SAY_EVERY_S:
            self._said = time.monotonic()
            done = f"{so_far.partitions_done} of {so_far.partitions} partitions"
            self._console.print(f"{so_far.flow}: compared {done}", highlight=False)


def as_json(report: Report) -> dict[str, Any]:
    """The documented form of a report."""
    return {
        "flow": report.flow,
        "equal": report.equal,
        "began": report.began,
        "seconds": round(report.seconds, 3),
        "since_ms": report.since_ms,
        "records": sum(each.records for each in report.compared),
        "bytes": sum(each.bytes for each in report.compared),
        "partitions": [_row(each) for each in report.compared],
        "settings": list(report.settings),
        "groups": report.groups,
        "gaps": [gap_json(gap) for gap in report.gaps],
        "dead_letters": report.dead_letters,
    }


def _row(each: Compared) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": each.source.topic,
        "partition": each.source.partition,
        "target_topic": each.target.topic,
        "equal": each.equal,
        "from": each.low,
        "until": each.until,
        "records": each.records,
        "bytes": each.bytes,
        "batches_alike": each.alike,
        "batches_opened": each.opened,
        "by_key": each.by_key,
        "dead_letters": each.dead_letters,
        "not_compared": each.reason,
        "difference": None,
    }
    if each.difference is not None:
        found = each.difference
        row["difference"] = {
            "kind": found.kind,
            "source_offset": found.source_offset,
            "target_offset": found.target_offset,
            "text": found.text,
        }
    return row


def _print(report: Report) -> None:
    console = Console()
    console.print(_table(report))
    for line in report.settings[:_SHOWN]:
        console.print(f"  settings: {line}", highlight=False)
    if report.groups:
        told = ", ".join(f"{count} {state}" for state, count in sorted(report.groups.items()))
        console.print(f"  places of consumer groups: {told} (`isthmus groups` lists them)", highlight=False)
    records = sum(each.records for each in report.compared)
    verdict = ("EQUAL" if report.equal else "NOT EQUAL") + but_for(report)
    console.print(
        f"{report.flow}: {verdict}; {records:,} records in {report.seconds:.1f} s", highlight=False, style="bold"
    )


def but_for(report: Report) -> str:
    """What is on record, and therefore not held against either side."""
    parts = []
    if report.gaps:
        count = "1 recorded gap" if len(report.gaps) == 1 else f"{len(report.gaps)} recorded gaps"
        parts.append(f"{count}: " + "; ".join(_gap_told(gap) for gap in report.gaps[:_SHOWN]))
    if report.dead_letters:
        parts.append(f"{report.dead_letters:,} dead letters" if report.dead_letters > 1 else "1 dead letter")
    return f", but for {' and '.join(parts)}" if parts else ""


def _gap_told(gap: Gap) -> str:
    accepted = f"accepted by {gap.accepted} {moment(gap.at)}" if gap.accepted else "not accepted yet"
    return f"{gap.told()} ({gap.code}, {accepted})"


def _table(report: Report) -> Table:
    table = Table(title=f"{report.flow}: source and target, record by record", title_justify="left")
    table.add_column("topic")
    for name in ("partitions", "records", "MB"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    topics: dict[str, list[Compared]] = {}
    for each in report.compared:
        topics.setdefault(each.source.topic, []).append(each)
    for name, parts in topics.items():
        unequal = sum(not each.equal for each in parts)
        kind = "equal by key" if parts[0].by_key else "equal"
        table.add_row(
            name,
            str(len(parts)),
            f"{sum(each.records for each in parts):,}",
            f"{sum(each.bytes for each in parts) / 1e6:.1f}",
            f"{unequal} not equal" if unequal else kind,
        )
    return table


def _refuse_unequal(reports: list[Report]) -> None:
    lines = [line for report in reports if not report.equal for line in _what(report)]
    if not lines:
        return
    shown = "\n  ".join(lines[:_SHOWN])
    more = f"\n  and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    compared = all(not each.reason for report in reports for each in report.compared)
    raise ProofError(
        f"source and target are not equal:\n  {shown}{more}" if compared else f"not proven:\n  {shown}{more}",
        hint="records: `isthmus run --forget TOPIC` copies a topic anew after its copy was deleted; settings: "
        "`isthmus plan` shows what a run would change",
        code="DIFFERENT" if compared else "NOT_PROVEN",
    )


def _what(report: Report) -> list[str]:
    lines = []
    for each in report.different:
        if each.difference is None:
            lines.append(f"{each.source}: not compared: {each.reason}")
        else:
            found = each.difference
            places = [
                f"source offset {found.source_offset}" if found.source_offset >= 0 else "the end of the source",
                f"target offset {found.target_offset}" if found.target_offset >= 0 else "the end of the target",
            ]
            lines.append(f"{each.source} at {', '.join(places)}: {found.kind}: {found.text}")
    return [*lines, *(f"settings: {line}" for line in report.settings)]
