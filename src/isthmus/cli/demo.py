"""`isthmus demo`: two real clusters, a real crossing, a real kill, an independent proof."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from isthmus.cli.render import Output, Screen
from isthmus.errors import ProofError

if TYPE_CHECKING:
    from isthmus.lab.oracle import Verdict


def demo(
    records: Annotated[int, typer.Option(help="Records produced before replication starts.", min=1000)] = 100_000,
    keep: Annotated[bool, typer.Option("--keep", help="Leave clusters and replication running until Ctrl-C.")] = False,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]",
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the proof.")] = Output.text,
) -> None:
    """Replicate between two real clusters, kill a worker on the way, and prove that nothing is missing."""
    from isthmus.demo.story import Stage, cross, fill, prove
    from isthmus.engine.run import Options, replicate
    from isthmus.lab import ClusterSpec, Lab

    console = Console(stderr=True)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {text}", highlight=False)

    say("starting two Kafka clusters, east and west")
    with Lab([ClusterSpec(name="east"), ClusterSpec(name="west")], say=say) as lab:
        stage = Stage(source=lab["east"].bootstrap, target=lab["west"].bootstrap)
        say(f"east is {stage.source}, west is {stage.target}; producing {records:,} records of a shop")
        topics = fill(stage, records)
        say("replicating east->west on Spark, while a producer goes on writing")
        with Screen(console) as screen:
            status = cross(stage, 5_000, screen.show, say, master)
        say(f"{status.records:,} records committed; now an independent reader (librdkafka) compares both sides")
        verdicts = prove(stage, topics, lambda verdict: None)
        _print(verdicts, output)
        _refuse_unproven(verdicts)
        say("proven: every record is there once, in order")
        if keep:
            say("leaving it running; Ctrl-C ends it")
            with Screen(console) as screen:
                replicate([stage.flow()], Options(master=master), screen.show)


def _print(verdicts: list[Verdict], output: Output) -> None:
    if output is Output.json:
        rows = [
            {
                "topic": v.topic,
                "partitions": v.partitions,
                "records": v.records,
                "bytes": v.bytes,
                "lost": v.lost,
                "duplicated": v.duplicated,
                "reordered": v.reordered,
                "altered": v.altered,
                "proven": v.equal,
            }
            for v in verdicts
        ]
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    Console().print(proof_table(verdicts))


def proof_table(verdicts: list[Verdict]) -> Table:
    """One row per topic, and their sum."""
    names = ("records", "bytes", "lost", "duplicated", "reordered")
    # No box: seven columns must fit into 80 characters, also in a log.
    table = Table(title="Proof by librdkafka, read_committed", title_justify="left", show_footer=True, box=None)
    table.add_column("topic", footer="all", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True, footer=f"{sum(getattr(v, name) for v in verdicts):,}")
    table.add_column("proven", footer="yes" if all(v.equal for v in verdicts) else "NO")
    for verdict in verdicts:
        cells = [f"{getattr(verdict, name):,}" for name in names]
        table.add_row(verdict.topic, *cells, "yes" if verdict.equal else "NO")
    return table


def _refuse_unproven(verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        if not verdict.equal:
            raise ProofError(f"{verdict.topic} differs: {verdict.first_difference}", where="east->west")
