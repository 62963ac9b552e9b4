"""`isthmus lab`: real Kafka clusters on this machine, for trying things out.

Thin: options in, one call, words or JSON out. JSON is a contract: `up` and `status` print one
object with `running`, `pid`, `folder` and `clusters` (name to bootstrap servers); `down` with
`stopped`; `jars` with `folder`. Progress goes to standard error, so JSON can be piped.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isthmus.lab import jars as kafka_jars
from isthmus.lab import state, supervisor
from isthmus.lab.state import RunningLab

app = typer.Typer(
    help="Run real Kafka clusters on this machine, for tests and demonstrations.",
    no_args_is_help=True,
)


class Output(StrEnum):
    text = "text"
    json = "json"


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")]
VersionOption = Annotated[str, typer.Option("--version", help="Version of Apache Kafka.")]


@app.command()
def up(
    clusters: Annotated[str, typer.Option(help="Names, separated by commas.")] = "east,west",
    brokers: Annotated[int, typer.Option(min=1, help="Brokers per cluster.")] = 1,
    version: VersionOption = kafka_jars.KAFKA,
    folder: Annotated[Path | None, typer.Option(help="Where the data go; removed at the end.", file_okay=False)] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it in the background.")] = False,
    output: OutputOption = Output.text,
) -> None:
    """Start clusters. Runs until Ctrl-C, or with --detach until `isthmus lab down`."""
    if detach:
        kafka_jars.broker_jars(version, say=_progress)
        lab = supervisor.detach(clusters, brokers=brokers, version=version, folder=folder)
        _show(lab, output, "Stop it with: isthmus lab down")
        return
    supervisor.supervise(
        supervisor.specs(clusters, brokers, version),
        folder=folder,
        say=_progress,
        announce=lambda lab: _show(lab, output, "Stop it with Ctrl-C"),
    )


@app.command()
def down(output: OutputOption = Output.text) -> None:
    """Stop the lab that runs here, and remove its data."""
    lab = supervisor.bring_down()
    if output is Output.json:
        _print_json({"stopped": lab is not None})
    else:
        typer.echo(f"Stopped the lab, process {lab.pid}" if lab else "No lab is running")


@app.command()
def status(output: OutputOption = Output.text) -> None:
    """Say whether a lab runs, and how to reach its clusters."""
    lab = state.recall()
    if lab is not None:
        _show(lab, output, "")
    elif output is Output.json:
        _print_json({"running": False, "pid": None, "folder": None, "clusters": {}})
    else:
        typer.echo("No lab is running")


@app.command()
def jars(version: VersionOption = kafka_jars.KAFKA, output: OutputOption = Output.text) -> None:
    """Print the folder with the jars of Apache Kafka; fetch them when missing."""
    folder = str(kafka_jars.jars(version, say=_progress))
    if output is Output.json:
        _print_json({"folder": folder, "version": version})
    else:
        typer.echo(folder)


def _show(lab: RunningLab, output: Output, advice: str) -> None:
    if output is Output.json:
        found = {"running": True, "pid": lab.pid, "folder": lab.folder}
        _print_json(found | {"clusters": dict(lab.clusters)})
        return
    width = max(map(len, lab.clusters), default=0)
    for name, bootstrap in lab.clusters.items():
        typer.echo(f"{name:<{width}}  {bootstrap}")
    typer.echo(f"process {lab.pid}, data in {lab.folder}")
    if advice:
        typer.echo(advice)


def _print_json(found: object) -> None:
    typer.echo(json.dumps(found))


def _progress(note: str) -> None:
    typer.echo(note, err=True)
