"""`isthmus groups FILE`: where consumer groups stand on the source, and where that is on the target. Only reads."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from isthmus.cli.config import Secrets, loaded_from
from isthmus.cli.render import Output

if TYPE_CHECKING:
    from isthmus.engine.offsets.view import GroupRow, GroupsView
    from isthmus.model import Flow

_STATES = {
    "exact": "the next record is the same on both sides",
    "at least": "some records would be read again, none left out",
    "ahead": "what the group wants next is not copied yet",
    "expired": "below the start of the source's log",
    "beyond": "past the end of the source's log",
    "skipped": "before the first record that this flow has copied",
    "unknown": "copied, but it cannot be told where it landed",
}


def groups(
    file: Annotated[Path, typer.Argument(help="The file that the flow runs from.")],
    secrets: Secrets = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")] = Output.text,
) -> None:
    """Consumer groups on both sides: offsets, what they are on the target, lag."""
    views = [(flow, asyncio.run(_read(flow))) for flow in loaded_from(file, secrets).flows]
    if output is Output.json:
        sys.stdout.write(json.dumps([{"flow": flow.name, **asdict(view)} for flow, view in views]) + "\n")
        return
    for flow, view in views:
        _show(flow, view)


async def _read(flow: Flow) -> GroupsView:
    from isthmus.engine.offsets.view import GroupsReader

    async with GroupsReader(flow) as reader:
        return await reader.read()


def _show(flow: Flow, view: GroupsView) -> None:
    console = Console()
    if view.rows:
        console.print(_table(flow, view.rows))
    else:
        console.print(f"{flow.name}: no group of the source has offsets in topics of this flow", highlight=False)
    for state in sorted({row.state for row in view.rows} - {"exact"}):
        console.print(f"  {state}: {_STATES[state]}", highlight=False)
    for group, topics in view.elsewhere.items():
        console.print(
            f"  {group} also reads topics that this flow does not carry: {', '.join(topics)}", highlight=False
        )
    if view.gone:
        console.print(f"  gone from the source, checkpoints remain: {', '.join(view.gone)}", highlight=False)
    if view.skipped:
        console.print(f"  {view.skipped} foreign or damaged records were left out", highlight=False)


def _table(flow: Flow, rows: tuple[GroupRow, ...]) -> Table:
    table = Table(title=f"{flow.name}: consumer groups", title_justify="left")
    table.add_column("group")
    table.add_column("topic")
    for name in ("partition", "offset", "lag", "on the target", "committed there", "lag there"):
        table.add_column(name, justify="right")
    table.add_column("state")
    for row in rows:
        numbers = [row.source_offset, row.source_lag, row.translated, row.target_offset, row.target_lag]
        state = f"{row.state}, active there" if row.active_on_target else row.state
        table.add_row(row.group, row.topic, str(row.partition), *map(_number, numbers), state)
    return table


def _number(value: int) -> str:
    return "-" if value < 0 else str(value)
