"""`isthmus doctor [FILE]`: is everything fit for a run? Changes nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from isthmus.cli.config import File, Secrets, loaded_from
from isthmus.cli.render import Output
from isthmus.engine.plan_form import right_json
from isthmus.errors import ConfigError

if TYPE_CHECKING:
    from isthmus.engine.checks import Check

_ABOUT = 40
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    file: File = None,
    secrets: Secrets = None,
    master: Annotated[str, typer.Option(help="Spark master that a run would have.")] = "local[*]",
    measure_clock: Annotated[
        bool, typer.Option("--measure-clock", help="Write one record into the control topic, to read brokers' time.")
    ] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print it.")] = Output.text,
) -> None:
    """Check file, machine, brokers, TLS, transactions, logs, sizes, rights and clocks from here. Changes nothing.

    The exit status is 0, or what `isthmus run` would end with.
    """
    from isthmus.engine.checks import exit_status

    checks = asyncio.run(_checks(file, secrets, master, measure_clock))
    if output is Output.json:
        sys.stdout.write(json.dumps(as_json(checks)) + "\n")
    else:
        show(checks, Console())
    raise typer.Exit(exit_status(checks))


async def _checks(file: Path | None, secrets: Path | None, master: str, measure_clock: bool) -> list[Check]:
    from isthmus.engine.checks import failed, ok, warn
    from isthmus.engine.doctor import examine

    about = str(file or "the environment")
    try:
        loaded = loaded_from(file, secrets)
    except ConfigError as error:
        return [failed("file", about, error)]
    flows = ", ".join(flow.name for flow in loaded.flows)
    read = [ok("file", about, f"{loaded.format}: {flows}"), *(warn("file", about, text) for text in loaded.warnings)]
    return read + await examine(loaded.flows, master, measure_clock=measure_clock)


def show(checks: list[Check], console: Console) -> None:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("", "check", "about", "found, and what to do"):
        # A long path to the file would leave no room for what was found.
        table.add_column(name, overflow="fold", max_width=_ABOUT if name == "about" else None)
    for check in checks:
        mark = Text(check.outcome.value, style=_STYLES[check.outcome.value])
        found = Text.assemble(check.text, (f"\n→ {check.hint}", "italic") if check.hint else "")
        table.add_row(mark, check.check, Text(check.about), found)
    console.print(table)
    counts = {outcome: sum(check.outcome.value == outcome for check in checks) for outcome in _STYLES}
    verdict = "not fit to run as it is" if counts["fail"] else "fit to run"
    told = f"{verdict}: {counts['ok']} ok, {counts['warn']} warnings, {counts['fail']} failed"
    console.print(Text(told, style=_STYLES["fail" if counts["fail"] else "ok"]))


def as_json(checks: list[Check]) -> dict[str, Any]:
    """The documented JSON form (docs/json-output.md)."""
    from isthmus.engine.checks import overall

    return {"outcome": overall(checks).value, "checks": [_check_json(check) for check in checks]}


def _check_json(check: Check) -> dict[str, Any]:
    found: dict[str, Any] = {
        "check": check.check,
        "about": check.about,
        "outcome": check.outcome.value,
        "text": check.text,
        "hint": check.hint,
    }
    return found | ({"right": right_json(check.right)} if check.right else {})
