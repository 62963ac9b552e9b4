"""`isthmus check FILE`: three live tests of a running flow, with a probe topic that is removed afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from isthmus.cli.completing import flow_names
from isthmus.cli.config import Secrets, loaded_from
from isthmus.cli.render import Output
from isthmus.errors import ConfigError, ProofError
from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.engine.probe import Checked, Verdict, Wanted

_STYLES = {True: ("passed", "green"), False: ("failed", "bold red"), None: ("not made", "yellow")}


def check(
    file: Annotated[Path, typer.Argument(help="The file that the flow runs from.")],
    secrets: Secrets = None,
    flow: Annotated[
        str,
        typer.Option(
            "--flow", help="Which flow of the file, as source->target; all if left out.", autocompletion=flow_names
        ),
    ] = "",
    prefix: Annotated[str, typer.Option(help="Begin the probe topic's name so, for the flow to take it.")] = "",
    partitions: Annotated[int, typer.Option(min=1, max=100, help="Of the probe topic.")] = 4,
    records: Annotated[int, typer.Option(min=1, max=100_000, help="To be sent, about.")] = 1_000,
    patience: Annotated[float, typer.Option(min=1, help="Seconds to wait for each thing.")] = 60.0,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")] = Output.text,
) -> None:
    """Test a running flow: does a topic appear, do partitions match, do events arrive? Removes its probe topic.

    The exit status is 0 if all three pass, 10 if not.
    """
    from isthmus.engine.probe import Wanted

    flows = [each for each in loaded_from(file, secrets).flows if flow in ("", each.name, each.replicator)]
    if not flows:
        raise ConfigError(f"the file has no flow {flow!r}", where="--flow", hint="write it as source->target")
    wanted = Wanted(prefix, partitions, records, patience)
    found = [asyncio.run(_check(each, wanted)) for each in flows]
    if output is Output.json:
        sys.stdout.write(json.dumps([as_json(each) for each in found]) + "\n")
    else:
        for each in found:
            _show(each)
    raise typer.Exit(0 if all(each.passed for each in found) else ProofError.exit_code)


async def _check(flow: Flow, wanted: Wanted) -> Checked:
    """SIGTERM ends it as Ctrl-C does: the topic is removed first."""
    from isthmus.engine.probe import check as run

    task = asyncio.ensure_future(run(flow, wanted))
    with contextlib.suppress(ValueError, RuntimeError):  # signals are heard by the main thread only
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        raise KeyboardInterrupt from None


def _show(found: Checked) -> None:
    table = Table(title=f"{found.flow} (run by {found.driver})", title_justify="left")
    for name in ("test", "verdict", "found"):
        table.add_column(name, overflow="fold")
    for verdict in found.verdicts:
        table.add_row(verdict.test, Text(*_STYLES[verdict.passed]), Text(verdict.text))
    console = Console()
    console.print(table)
    for text in found.left:
        console.print(Text(f"{text}: delete it by hand", style="yellow"))


def as_json(found: Checked) -> dict[str, Any]:
    """The documented JSON form (docs/json-output.md)."""
    return {
        "flow": found.flow,
        "topic": found.topic,
        "driver": found.driver,
        "passed": found.passed,
        "tests": [_verdict_json(verdict) for verdict in found.verdicts],
        "left": list(found.left),
    }


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    word = _STYLES[verdict.passed][0]
    return {"test": verdict.test, "verdict": word, "text": verdict.text, "figures": verdict.figures}
