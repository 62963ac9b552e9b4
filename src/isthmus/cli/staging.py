"""`isthmus torture FILE`: what will be created on somebody's clusters is shown and confirmed before it is.

Must stay true: before the confirmation both clusters are only looked at. What is created, and how it is removed, is
left to `torture`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from isthmus.cli.config import loaded_from, warn
from isthmus.cli.positions import choose_flows
from isthmus.cli.render import Output
from isthmus.errors import ConfigError, SourceError, TargetError

if TYPE_CHECKING:
    from isthmus.model import Flow
    from isthmus.torture.outcome import Outcome
    from isthmus.torture.plan import Plan
    from isthmus.torture.scene import Kind
    from isthmus.torture.staging import Left
    from isthmus.torture.storm import Script

Say = Callable[[str], None]


def chosen_flow(file: Path, secrets: Path | None, name: str) -> Flow:
    loaded = loaded_from(file, secrets)
    warn(loaded)
    return choose_flows(loaded.flows, name, changing=True)[0]


def rehearsed(
    flow: Flow, kinds: Sequence[Kind], script: Script, say: Say, *, yes: bool, dry_run: bool, output: Output
) -> tuple[Outcome, list[Left]] | None:
    """The outcome, and what could not be removed; None if it was only a look."""
    from isthmus.torture.staging import Staging
    from isthmus.torture.storm import Storm

    with tempfile.TemporaryDirectory(prefix="isthmus-torture-") as folder:
        plan, clients = _planned(flow, Path(folder))
        if dry_run:
            _show(plan, kinds, output, Console(highlight=False, soft_wrap=True))
            return None
        _show(plan, kinds, Output.text, Console(stderr=True, highlight=False, soft_wrap=True))
        if not yes:
            _confirm(flow.source.alias)
        say(f"seed {script.seed}; topics are created, and the flow begins")
        with Staging(plan, clients, Path(folder), say) as staging:
            outcome = Storm(script, staging, kinds, say).rage()
        return outcome, staging.left


def _planned(flow: Flow, folder: Path) -> tuple[Plan, dict[str, dict[str, Any]]]:
    from isthmus.torture.clients import count_brokers, settings_of
    from isthmus.torture.plan import plan_for
    from isthmus.torture.stage import EAST, WEST

    clients = {EAST: settings_of(flow.source, folder), WEST: settings_of(flow.target, folder)}
    brokers = count_brokers(flow.source, clients[EAST], SourceError)
    count_brokers(flow.target, clients[WEST], TargetError)
    return plan_for(flow, brokers), clients


def _show(plan: Plan, kinds: Sequence[Kind], output: Output, console: Console) -> None:
    from isthmus.torture.plan import as_json
    from isthmus.torture.stage import EAST, WEST

    if output is Output.json:
        sys.stdout.write(json.dumps(as_json(plan, [kind.name for kind in kinds])) + "\n")
        return
    for side in (EAST, WEST):
        cluster = plan.owner(side)
        console.print(f"On {cluster.alias} ({', '.join(cluster.bootstrap)}) these topics are created, and removed:")
        for name in plan.created(side):
            console.print(f"  {name}")
    console.print(f"Faults: {', '.join(kind.name for kind in kinds)}. Other topics and flows are not touched.")


def _confirm(alias: str) -> None:
    refusal = ConfigError(
        "not confirmed; nothing was changed", hint=f"type {alias} when asked, or give --yes", code="NOT_CONFIRMED"
    )
    if not sys.stdin.isatty():
        raise refusal
    if typer.prompt(f"Type {alias} to go on", default="", show_default=False, err=True) != alias:
        raise refusal
