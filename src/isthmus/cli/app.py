"""The `isthmus` command: registers every sub-command and turns errors into messages and exit codes.

What must stay true: an expected error prints one message (what, where, what to do) and exits with its own code; a
stack trace appears only with --debug (or ISTHMUS_DEBUG=1), or for a bug of ours.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from isthmus import __version__
from isthmus.cli import config, lab, tunnel
from isthmus.cli.acls import acls
from isthmus.cli.adopt import adopt, release
from isthmus.cli.bench import bench
from isthmus.cli.bundle import bundle
from isthmus.cli.check import check
from isthmus.cli.demo import demo
from isthmus.cli.doctor import doctor
from isthmus.cli.drill import drill
from isthmus.cli.explain import explain
from isthmus.cli.failover import failback, failover
from isthmus.cli.gaps import gaps
from isthmus.cli.groups import groups
from isthmus.cli.metrics import metrics
from isthmus.cli.plan import plan
from isthmus.cli.positions import positions
from isthmus.cli.quicken import quicken
from isthmus.cli.records import consume, produce, topics
from isthmus.cli.resolve import resolve
from isthmus.cli.run import run
from isthmus.cli.size import size
from isthmus.cli.status import status
from isthmus.cli.steer import apply, pause, resume, throttle
from isthmus.cli.top import top
from isthmus.cli.torture import torture
from isthmus.cli.ui import ui
from isthmus.cli.verify import verify
from isthmus.errors import IsthmusError

app = typer.Typer(
    name="isthmus",
    help="Exactly-once replication of Kafka topics between clusters, on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command()(plan)
app.command()(doctor)
app.command()(acls)
app.command()(check)
app.command()(status)
app.command()(top)
app.command()(ui)
app.command()(metrics)
app.command()(positions)
app.command()(resolve)
app.command()(gaps)
app.command()(groups)
app.command()(verify)
app.command()(failover)
app.command()(failback)
app.command()(adopt)
app.command()(release)
app.command()(pause)
app.command()(resume)
app.command()(throttle)
app.command()(apply)
app.command()(topics)
app.command()(produce)
app.command()(consume)
app.command()(explain)
app.command()(bundle)
app.command()(demo)
app.command()(drill)
app.command()(torture)
app.command()(bench)
app.command()(size)
app.command()(quicken)
app.add_typer(config.app, name="config")
app.add_typer(lab.app, name="lab")
app.add_typer(tunnel.app, name="tunnel")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _common(
    debug: Annotated[bool, typer.Option("--debug", help="Show stack traces of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    if debug:
        os.environ["ISTHMUS_DEBUG"] = "1"


def show_error(error: IsthmusError) -> None:
    """What happened, where, what to do; under the error's code."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble((f"error [{error.code}] ", "bold red"), error.message))
    if error.where:
        console.print(Text(f"  where: {error.where}"))
    if error.hint:
        console.print(Text(f"  try:   {error.hint}"))


def main() -> None:
    """Entry point of the console script."""
    try:
        app()  # reports mistakes on the command line itself, and exits
    except IsthmusError as error:
        if os.environ.get("ISTHMUS_DEBUG"):
            traceback.print_exc()
        show_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
