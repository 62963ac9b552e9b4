"""`isthmus plan FILE`: what a run would do, without doing it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from isthmus.cli.config import Secrets, loaded_from, warn
from isthmus.cli.render import Output
from isthmus.engine.plan_form import plan_json
from isthmus.errors import IsthmusError
from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.engine.plan import Plan, TopicStart
    from isthmus.wire.admin import NewTopic

if TYPE_CHECKING:
    from isthmus.engine.rights import Right

_ROWS = 30  # of each table: the rest is in the JSON
_EXAMPLES = 5
_STYLES = {"blocks": "bold red", "limits": "yellow", "note": "dim"}  # by severity


def plan(
    file: Annotated[Path, typer.Argument(help="Isthmus YAML, or a MirrorMaker 2 mm2.properties.")],
    secrets: Secrets = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print it.")] = Output.text,
) -> None:
    """Show what `isthmus run` would create, grow, alter and skip, and where it begins. Changes nothing."""
    loaded = loaded_from(file, secrets)
    warn(loaded)
    try:
        plans = asyncio.run(_plans(loaded.flows))
    except IsthmusError as error:
        error.where = error.where or str(file)
        raise
    if output is Output.json:
        sys.stdout.write(json.dumps([plan_json(each) for each in plans]) + "\n")
        return
    console = Console()
    for each in plans:
        show(each, console)


async def _plans(flows: Sequence[Flow]) -> list[Plan]:
    from isthmus.engine.plan import make_plan

    return [await make_plan(flow) for flow in flows]


def show(plan: Plan, console: Console) -> None:
    """One section for each kind of change, and none for what there is none of."""
    console.print(Text.assemble((plan.flow, "bold"), f"  {plan.summary()}"))
    for title, names, rows in _sections(plan):
        if rows:
            console.print(_table(title, names, rows))
    for reason, topics in plan.skipped.items():
        more = f", … ({len(topics)} in all)" if len(topics) > _EXAMPLES else ""
        console.print(Text(f"skipped, {reason}: {', '.join(topics[:_EXAMPLES])}{more}"))
    for stop in plan.stopped:
        console.print(Text(f"would stop {stop.source.topic}: {stop.message}. {stop.hint}", style="bold red"))
    if plan.rights:
        console.print(_table("missing rights", RIGHTS_COLUMNS, [right_row(right) for right in plan.rights]))
    for problem in plan.problems:
        console.print(Text(f"problem: {problem}", style="red"))
    for each in plan.lacks:
        console.print(Text(f"{each.severity}: {each}", style=_STYLES[each.severity.value]))


def _sections(plan: Plan) -> list[tuple[str, tuple[str, ...], Sequence[tuple[str, ...]]]]:
    created = [(t.name, str(t.partitions), _factor(t), _settings(t)) for t in plan.create]
    internal = [
        (f"{t.name} on {getattr(plan, on)}", str(t.partitions), _factor(t), _settings(t)) for on, t, _ in plan.internal
    ]
    shape = ("topic", "partitions", "replicas", "settings")
    return [
        (f"create on {plan.target}", shape, created),
        ("create for the flow itself and for MirrorMaker 2's tools", shape, internal),
        (
            f"grow on {plan.target}",
            ("topic", "partitions"),
            [(g.target, f"{g.before} → {g.partitions}") for g in plan.grow],
        ),
        (
            f"alter on {plan.target}",
            ("topic", "setting", "change"),
            [(c.topic, c.name, f"{_shown(c.old)} → {_shown(c.new)}") for c in plan.alter],
        ),
        (f"add on {plan.target}", ("access rule",), [(str(acl),) for acl in plan.acls]),
        (
            "begin",
            ("source topic", "partitions", "at"),
            [(s.topic, str(s.partitions), _begins(s)) for s in plan.starts],
        ),
    ]


def _table(title: str, names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name, justify="right" if name in ("partitions", "replicas") else "left", overflow="fold")
    for row in rows[:_ROWS]:
        table.add_row(*map(Text, row))
    if len(rows) > _ROWS:
        table.add_row(f"… and {len(rows) - _ROWS:,} more (-o json shows all)", *[""] * (len(names) - 1))
    return table


def _factor(topic: NewTopic) -> str:
    return "default" if topic.replication_factor < 0 else str(topic.replication_factor)


def _settings(topic: NewTopic) -> str:
    return ", ".join(f"{name}={value}" for name, value in topic.configs.items())


def _shown(value: str | None) -> str:
    return "(not set)" if value is None else value


def _begins(start: TopicStart) -> str:
    """Offsets of a few partitions say enough; of many, how many have one."""
    known = len(start.positions)
    if not known:
        return start.at
    offsets = ", ".join(map(str, list(start.positions.values())[:_EXAMPLES])) + (", …" if known > _EXAMPLES else "")
    rest = start.partitions - known
    return f"goes on at {offsets}" + (f"; {rest} new at earliest" if rest > 0 else "")


RIGHTS_COLUMNS = ("cluster", "principal", "operation", "resource", "keeps back")


def right_row(right: Right) -> tuple[str, ...]:
    kept = {"topic": f"topic {right.topic}", "partitions": f"new partitions of {right.topic}"}
    held = kept.get(right.keeps_back, {"flow": "everything"}.get(right.keeps_back, "no record"))
    return right.cluster, right.principal, right.operation, f"{right.resource} {right.name}", held
