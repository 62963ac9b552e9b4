"""`isthmus drill`: failover and failback rehearsed end to end in the lab, with live writers and readers."""

from __future__ import annotations

import dataclasses
import enum
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from isthmus.cli.render import Output
from isthmus.errors import ConfigError, MachineError, ProofError

if TYPE_CHECKING:
    from isthmus.drill.ledger import GroupVerdict
    from isthmus.drill.outcome import Outcome, Row
    from isthmus.drill.timeline import Event, Timeline

_PER_SECOND, _WORK_S = 500, 5.0
_QUICK_PER_SECOND, _QUICK_WORK_S = 150, 1.0


class Kinds(enum.StrEnum):
    all = "all"
    switchover = "switchover"
    failover = "failover"


def drill(
    kinds: Annotated[
        Kinds, typer.Option(help="What is rehearsed: a planned move and back, a disaster and back, or all of it.")
    ] = Kinds.all,
    quick: Annotated[bool, typer.Option("--quick", help="Less load, and less time between the moves.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write figures, events and rates to this file, as JSON.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Write a picture of it to this file, as SVG.")] = None,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]",
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the outcome.")] = Output.text,
) -> None:
    """Rehearse failover and failback between two real clusters, and prove what clients lost or read again."""
    refuse_unwritable(report, picture)
    require_reader()
    from isthmus.drill.carrying import Ferry
    from isthmus.drill.outcome import outcome_of
    from isthmus.drill.picture import picture as drawn
    from isthmus.drill.stage import Stage
    from isthmus.drill.story import Script, Story
    from isthmus.drill.timeline import Timeline

    console = Console(stderr=True, highlight=False)
    timeline = Timeline(lambda event: _tell(console, event))
    script = Script(
        per_second=_QUICK_PER_SECOND if quick else _PER_SECOND,
        work_s=_QUICK_WORK_S if quick else _WORK_S,
        planned=kinds is not Kinds.failover,
        unplanned=kinds is not Kinds.switchover,
    )

    def say(text: str) -> None:
        timeline.say(text)

    say("starting two Kafka clusters, east and west, and Spark")
    with Ferry(master, lanes=1) as ferry, Stage(say) as stage:
        played = Story(script, stage, ferry, timeline).play()
    outcome = outcome_of(played)
    found = as_json(outcome, timeline)
    if report is not None:
        report.write_text(json.dumps(found, indent=1) + "\n")
    if picture is not None:
        picture.write_text(drawn(outcome, timeline))
    _show(outcome, found, output)
    for what, file in (("report", report), ("picture", picture)):
        if file is not None:
            console.print(f"{what}: {file}")
    _refuse_unproven(outcome)


def _tell(console: Console, event: Event) -> None:
    console.print(Text.assemble((f"{event.at:6.1f} s  ", "dim"), event.text), soft_wrap=True)


def refuse_unwritable(*files: Path | None) -> None:
    """Before a drill of minutes, not after it."""
    for file in files:
        if file is not None and (file.is_dir() or not os.access(file.absolute().parent, os.W_OK)):
            raise ConfigError(f"{file} cannot be written", hint="name a file in a folder that exists")


def require_reader() -> None:
    if importlib.util.find_spec("confluent_kafka") is None:
        raise MachineError("confluent_kafka is not installed", hint="pip install 'isthmus[lab]'", code="EXTRAS")


def _show(outcome: Outcome, found: dict[str, Any], output: Output) -> None:
    if output is Output.json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    console = Console(highlight=False)
    console.print(outcome_table(outcome))
    console.print(
        f"{outcome.acknowledged:,} records were acknowledged; {len(outcome.groups)} groups read them", soft_wrap=True
    )


def outcome_table(outcome: Outcome) -> Table:
    """One row for each move, and their sum."""
    # No box: eight columns must fit into 80 characters, also in a log.
    table = Table(title="Drill: what clients saw", title_justify="left", show_footer=True, box=None)
    sums = outcome.total
    table.add_column("act", footer="all", no_wrap=True)
    for name, footer in (
        ("RPO", f"{sum(row.rpo_records for row in outcome.rows):,}"),
        ("RPO s", ""),
        ("RTO s", ""),
        ("lost", f"{sums.lost:,}"),
        ("re-read", f"{sums.reread:,}"),
        ("reordered", f"{sums.reordered:,}"),
    ):
        table.add_column(name, justify="right", no_wrap=True, footer=footer)
    for row in outcome.rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> tuple[str, ...]:
    count = row.count
    numbers = (count.lost, count.reread, count.reordered)
    return row.act, f"{row.rpo_records:,}", f"{row.rpo_s:.1f}", f"{row.rto_s:.1f}", *(f"{each:,}" for each in numbers)


def as_json(outcome: Outcome, timeline: Timeline) -> dict[str, Any]:
    """The documented form of an outcome (docs/json-output.md)."""
    return {
        "proven": outcome.proven,
        "faults": list(outcome.faults),
        "acknowledged": outcome.acknowledged,
        "acts": [_act(row) for row in outcome.rows],
        "groups": [_group(group) for group in outcome.groups],
        "phases": [dataclasses.asdict(phase) for phase in timeline.phases],
        "events": [dataclasses.asdict(event) for event in timeline.events],
        "rates": [
            {"kind": series.kind, "cluster": series.cluster, "who": series.who, "points": points}
            for series, points in timeline.rates().items()
        ],
    }


def _act(row: Row) -> dict[str, Any]:
    return {
        "act": row.act,
        "to": row.to,
        "stopped": round(row.stopped, 3),
        "resumed": round(row.resumed, 3),
        "rpo_records": row.rpo_records,
        "rpo_seconds": round(row.rpo_s, 3),
        "rto_seconds": round(row.rto_s, 3),
        "command_seconds": round(row.command_s, 3),
        **dataclasses.asdict(row.count),
    }


def _group(group: GroupVerdict) -> dict[str, Any]:
    found = {"group": group.group, "read": group.read, "phantoms": group.phantoms}
    return found | dataclasses.asdict(group.total)


def _refuse_unproven(outcome: Outcome) -> None:
    if not outcome.proven:
        raise ProofError("; ".join(outcome.faults), where="the drill", hint="this is a bug: please report it")
