"""`isthmus gaps FILE`: what of a flow stands still, what was lost, and who decided what about it. Only reads.

It asks the target alone, so it works while the source is away.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from isthmus.cli.completing import flow_names
from isthmus.cli.config import Secrets, loaded_from
from isthmus.cli.positions import choose_flows
from isthmus.cli.render import Output
from isthmus.engine.resolve.form import record_json
from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.engine.control import ControlView
    from isthmus.engine.resolve.record import Decision, Gap


def gaps(
    file: Annotated[Path, typer.Argument(help="The file that the flow runs from.")],
    secrets: Secrets = None,
    flow: Annotated[
        str, typer.Option("--flow", help="Which flow of the file, as source->target.", autocompletion=flow_names)
    ] = "",
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")] = Output.text,
) -> None:
    """List what stopped, what was lost, and what was decided about it."""
    from isthmus.engine.resolve.outside import recorded

    chosen = choose_flows(loaded_from(file, secrets).flows, flow, changing=False)
    views = [(each, asyncio.run(recorded(each))) for each in chosen]
    if output is Output.json:
        sys.stdout.write(json.dumps([record_json(each.name, view) for each, view in views]) + "\n")
        return
    for each, view in views:
        _show(each, view)


def moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def decision_told(decision: Decision) -> str:
    return f"--{decision.choice} for {decision.code} was decided at {moment(decision.at)} by {_who(decision)}"


def _who(decision: Decision) -> str:
    return f"{decision.user} on {decision.host}"


def _show(flow: Flow, view: ControlView) -> None:
    from isthmus.engine.resolve import record

    console = Console(soft_wrap=True)
    stops, lost, decided = record.stops(view), record.gaps(view), record.decisions(view)
    for tp, stop in sorted(stops.items()):
        console.print(f"{flow.name} {tp} stands still: {stop.code}: {stop.message}", highlight=False, style="bold red")
    if lost:
        console.print(_gap_table(flow, lost))
    for each in decided:
        where = each.topic if each.partition < 0 else f"{each.topic}-{each.partition}"
        console.print(f"{flow.name} {where}: {decision_told(each)}", highlight=False)
    if not (stops or lost or decided):
        console.print(f"{flow.name}: no gaps, no stops, no decisions", highlight=False)


def _gap_table(flow: Flow, lost: list[Gap]) -> Table:
    table = Table(title=f"{flow.name}: gaps on record", title_justify="left")
    for name in ("code", "what", "offsets", "accepted by", "when"):
        table.add_column(name, justify="right" if name == "offsets" else "left")
    for gap in lost:
        count = str(gap.lost) if gap.first >= 0 and gap.past >= 0 else "?" if gap.first >= 0 else "-"
        table.add_row(gap.code, gap.told(), count, gap.accepted or "nobody yet", moment(gap.at))
    return table
