"""`isthmus adopt FILE --from mm2` and `isthmus release FILE --to mm2`: a flow changes hands, with a plan first.

Without --yes both only read. Records of clusters are never changed, only stored offsets.
"""

from __future__ import annotations

import asyncio
import enum
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from isthmus.cli.completing import flow_names
from isthmus.cli.config import Secrets, loaded_from
from isthmus.cli.positions import choose_flows
from isthmus.cli.render import Output

if TYPE_CHECKING:
    from isthmus.engine.adopt import Handover
    from isthmus.model import Flow

_STATES = {
    "exact": "the copy ends where the stored offset says",
    "further": "the copy is further than the stored offset says: nothing of that is copied again",
    "new": "nothing was copied yet",
    "uncertain": "it cannot be told which records after the stored offset are on the target already",
}


class Other(enum.StrEnum):
    mm2 = "mm2"


OffsetsTopic = Annotated[
    str, typer.Option("--offsets-topic", help="Connect's offset.storage.topic; found by itself with default names.")
]
Connector = Annotated[
    str, typer.Option("--connector", help="The name of the source connector, if it is not the default one.")
]
Group = Annotated[str, typer.Option("--group", help="Connect's group.id, if it is not the default one.")]
Chosen = Annotated[
    str, typer.Option("--flow", help="Which flow of the file, as source->target.", autocompletion=flow_names)
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this it is only shown.")]
Form = Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")]


def adopt(
    file: Annotated[Path, typer.Argument(help="The file that the flow will run from; mm2.properties as it is, too.")],
    other: Annotated[Other, typer.Option("--from", help="Who has copied so far.")],
    secrets: Secrets = None,
    flow: Chosen = "",
    offsets_topic: OffsetsTopic = "",
    connector: Connector = "",
    group: Group = "",
    accept_duplicates: Annotated[
        bool, typer.Option("--accept-duplicates", help="Where it is not certain, go on at the stored offset.")
    ] = False,
    yes: Yes = False,
    output: Form = Output.text,
) -> None:
    """Take a flow over from MirrorMaker 2: where it stopped, to the record."""
    for each in choose_flows(loaded_from(file, secrets).flows, flow, changing=yes):
        found = asyncio.run(_adopt(each, offsets_topic, connector, group, accept_duplicates, yes))
        _show(each, found, "adopt", output)


def release(
    file: Annotated[Path, typer.Argument(help="The file that the flow runs from.")],
    other: Annotated[Other, typer.Option("--to", help="Who will copy from now on.")],
    secrets: Secrets = None,
    flow: Chosen = "",
    offsets_topic: OffsetsTopic = "",
    connector: Connector = "",
    group: Group = "",
    yes: Yes = False,
    output: Form = Output.text,
) -> None:
    """Give a flow back to MirrorMaker 2: it goes on where Isthmus stopped."""
    for each in choose_flows(loaded_from(file, secrets).flows, flow, changing=yes):
        found = asyncio.run(_release(each, offsets_topic, connector, group, yes))
        _show(each, found, "release", output)


async def _adopt(
    flow: Flow, offsets_topic: str, connector: str, group: str, accept_duplicates: bool, yes: bool
) -> Handover:
    from isthmus.engine.adopt import Exchange

    async with Exchange(flow, offsets_topic=offsets_topic, connector=connector, group=group) as exchange:
        return await exchange.adopt(accept_duplicates=accept_duplicates) if yes else await exchange.plan()


async def _release(flow: Flow, offsets_topic: str, connector: str, group: str, yes: bool) -> Handover:
    from isthmus.engine.adopt import Exchange

    async with Exchange(flow, offsets_topic=offsets_topic, connector=connector, group=group) as exchange:
        return await exchange.release(write=yes)


def _show(flow: Flow, found: Handover, verb: str, output: Output) -> None:
    if output is Output.json:
        sys.stdout.write(json.dumps({"flow": flow.name, "command": verb, **asdict(found)}) + "\n")
        return
    console = Console()
    mm2 = found.mm2
    console.print(f"{flow.name}: {mm2.connector} in {mm2.offsets_topic}", highlight=False)
    console.print(_table(found, verb))
    if verb == "adopt":
        for state in sorted({row.state for row in found.rows}):
            console.print(f"  {state}: {_STATES[state]}", highlight=False)
    for name in found.elsewhere:
        console.print(f"  {name} has stored offsets, but this file does not carry it", highlight=False)
    for line in _verdict(found, verb):
        console.print(line, highlight=False)


def _verdict(found: Handover, verb: str) -> list[str]:
    if found.done:
        goes_on = "isthmus run" if verb == "adopt" else "MirrorMaker 2"
        return [f"Done. {goes_on} goes on from there."]
    lines = []
    if found.group_state:
        lines.append(f"MirrorMaker 2 still runs (Connect group {found.mm2.group}): stop it first.")
    if verb == "adopt" and found.uncertain:
        lines.append(
            f"{len(found.uncertain)} partitions need --accept-duplicates, if they still are uncertain by then."
        )
    if found.transactional_ids:
        lines.append("What MirrorMaker 2 left in open transactions is decided first.")
    return [*lines, "Nothing was changed. Add --yes to do it."]


def _table(found: Handover, verb: str) -> Table:
    table = Table()
    table.add_column("topic")
    for name in ("partition", "stored by MirrorMaker 2", "goes on at", "end"):
        table.add_column(name, justify="right")
    if verb == "adopt":
        table.add_column("state")
    for row in found.rows:
        numbers = [str(row.partition), *("-" if n < 0 else str(n) for n in (row.stored, row.next, row.end))]
        table.add_row(row.topic, *numbers, *([row.state] if verb == "adopt" else []))
    return table
