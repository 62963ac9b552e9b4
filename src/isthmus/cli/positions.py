"""`isthmus positions FILE`: where a flow stands, and setting it to somewhere else, with a plan first.

Without --set or --reset it only reads. With them it prints what would change; `--yes` does it. Never changes
anything while a driver runs (the lease says so), and never a cluster's records.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from isthmus.cli.completing import flow_names
from isthmus.cli.config import Secrets, loaded_from
from isthmus.cli.render import Output
from isthmus.errors import ConfigError
from isthmus.model import Flow, TopicPartition

if TYPE_CHECKING:
    from isthmus.engine.positions import Position

_SET = re.compile(r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>\d+)=(?P<offset>\d+)")
_RESET = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)(:(?P<partition>\d+))?")
_Wanted = dict[TopicPartition, int | None]


def positions(
    file: Annotated[Path, typer.Argument(help="The file that the flow runs from.")],
    secrets: Secrets = None,
    flow: Annotated[
        str, typer.Option(help="Which flow of the file, as source->target.", autocompletion=flow_names)
    ] = "",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="TOPIC:PARTITION=OFFSET: go on at this source offset.")
    ] = None,
    reset: Annotated[
        list[str] | None, typer.Option("--reset", help="TOPIC or TOPIC:PARTITION: begin anew, as if never copied.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this the change is only shown.")] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")] = Output.text,
) -> None:
    """List stored positions of a flow; change them while it is not running."""
    chosen = choose_flows(loaded_from(file, secrets).flows, flow, changing=bool(set_ or reset))
    for each in chosen:
        asyncio.run(_one(each, set_ or [], reset or [], yes, output))


def choose_flows(flows: tuple[Flow, ...], name: str, *, changing: bool) -> list[Flow]:
    """The flows meant by --flow; one alone where something is changed."""
    found = [flow for flow in flows if name in ("", flow.name, flow.replicator)]
    if not found or (changing and len(found) > 1):
        names = ", ".join(flow.name for flow in flows)
        text = f"the file has no flow {name!r}" if not found else "the file has several flows"
        raise ConfigError(text, where="--flow", hint=f"choose one of {names}")
    return found


async def _one(flow: Flow, sets: list[str], resets: list[str], yes: bool, output: Output) -> None:
    from isthmus.engine.positions import Positions, checked_changes

    async with Positions(flow) as stored:
        before = await stored.read()
        changes = checked_changes(flow, before, {**_resets(resets, before), **_sets(sets)})
        if changes and yes:
            await stored.write(changes)
    if output is Output.json:
        sys.stdout.write(json.dumps(_as_json(flow, before, changes, done=yes)) + "\n")
    elif sets or resets:
        _show_changes(flow, before, changes, done=yes)
    else:
        _show(flow, before)


def _sets(texts: list[str]) -> _Wanted:
    wanted: _Wanted = {}
    for text in texts:
        found = _SET.fullmatch(text)
        if not found:
            raise ConfigError(
                f"{text!r} is not TOPIC:PARTITION=OFFSET", where="--set", hint="for example orders:0=1200"
            )
        wanted[TopicPartition(found["topic"], int(found["partition"]))] = int(found["offset"])
    return wanted


def _resets(texts: list[str], before: list[Position]) -> _Wanted:
    wanted: _Wanted = {}
    for text in texts:
        found = _RESET.fullmatch(text)
        if not found:
            raise ConfigError(f"{text!r} is not TOPIC or TOPIC:PARTITION", where="--reset", hint="for example orders:0")
        if found["partition"] is not None:
            wanted[TopicPartition(found["topic"], int(found["partition"]))] = None
            continue
        partitions = [p.partition for p in before if p.topic == found["topic"]]
        wanted |= {TopicPartition(found["topic"], number): None for number in partitions or [0]}
    return wanted


def _show(flow: Flow, before: list[Position]) -> None:
    table = Table(title=f"{flow.name}: stored positions", title_justify="left")
    table.add_column("topic")
    for name in ("partition", "next offset", "log start", "end", "lag"):
        table.add_column(name, justify="right")
    for p in before:
        stored = "-" if p.next < 0 else f"{p.next}"
        table.add_row(p.topic, str(p.partition), stored, str(p.log_start), str(p.end), str(p.lag))
    Console().print(table)


def _show_changes(flow: Flow, before: list[Position], changes: Mapping[TopicPartition, int | None], done: bool) -> None:
    console = Console()
    known = {TopicPartition(p.topic, p.partition): p for p in before}
    for tp, offset in changes.items():
        console.print(f"{flow.name} {tp}: {_told(known[tp], offset)}", highlight=False)
    if not changes:
        console.print("nothing changes", highlight=False)
    elif not done:
        console.print("Nothing was changed. Add --yes to do it.", highlight=False)


def _told(position: Position, offset: int | None) -> str:
    goal = position.log_start if offset is None else offset
    now = "not copied yet" if position.next < 0 else str(position.next)
    text = f"{now} -> {'forgotten: begins anew' if offset is None else offset}"
    if 0 <= goal < position.next:
        return f"{text}; {position.next - goal} offsets will be copied AGAIN: the target will hold them twice"
    if goal > max(position.next, position.log_start):
        return f"{text}; {goal - max(position.next, position.log_start)} offsets will NOT be copied"
    return text


def _as_json(
    flow: Flow, before: list[Position], changes: Mapping[TopicPartition, int | None], *, done: bool
) -> dict[str, object]:
    return {
        "flow": flow.name,
        "positions": [{**asdict(p), "lag": p.lag} for p in before],
        "changes": [{"topic": tp.topic, "partition": tp.partition, "to": offset} for tp, offset in changes.items()],
        "changed": bool(changes) and done,
    }
