"""`isthmus torture [FILE]`: faults of every kind against a flow, and a proof that nothing was lost or doubled.

In the lab, or between the clusters of a file, for which see `staging`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from isthmus.cli.completing import flow_names
from isthmus.cli.config import Secrets
from isthmus.cli.drill import refuse_unwritable, require_reader
from isthmus.cli.render import Output
from isthmus.cli.staging import chosen_flow, rehearsed
from isthmus.errors import ConfigError, ProofError

if TYPE_CHECKING:
    from isthmus.torture.outcome import Outcome
    from isthmus.torture.scene import Kind
    from isthmus.torture.storm import Script


def torture(
    file: Annotated[
        Path | None,
        typer.Argument(help="A flow's file: torture between its clusters, in topics of its own; without, in the lab."),
    ] = None,
    secrets: Secrets = None,
    flow: Annotated[
        str, typer.Option(help="Which flow of the file, as source->target.", autocompletion=flow_names)
    ] = "",
    minutes: Annotated[float, typer.Option(min=0.1, help="How long faults are injected.")] = 10.0,
    faults: Annotated[int, typer.Option(min=1, help="How many at the most.")] = 100_000,
    seed: Annotated[int | None, typer.Option(help="Repeat the schedule of this seed.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Kinds that have this in their name; may be repeated.")] = None,
    rate: Annotated[int, typer.Option(min=20, help="Records per second that are written meanwhile.")] = 400,
    lanes: Annotated[int, typer.Option(min=1, help="Lanes of the flow.")] = 2,
    tunnel: Annotated[
        bool, typer.Option("--tunnel", help="In the lab: the source is behind a tunnel, which is attacked too.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With a FILE: do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With a FILE: only show what would be created.")] = False,
    list_kinds: Annotated[bool, typer.Option("--list", help="Only name the kinds of faults.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write all figures to this file, as JSON.")] = None,
    log: Annotated[Path | None, typer.Option(help="Keep in this file what the program says.")] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the outcome.")] = Output.text,
) -> None:
    """Torture a flow between two real clusters: kill, halt, cut, slow and move everything, and prove the result."""
    for written in (report, log):
        refuse_unwritable(written)
    require_reader()
    from isthmus.bench.run import machine
    from isthmus.torture.outcome import as_json
    from isthmus.torture.storm import Script

    _refuse_mixed(file, tunnel=tunnel, of_file=bool(flow or dry_run or yes or secrets))
    wanted = _wanted(only or (), tunnel, outside=file is not None)
    if list_kinds:
        sys.stdout.write("".join(f"{json.dumps(k.name) if output is Output.json else k.name}\n" for k in wanted))
        return
    chosen = random.randrange(1 << 31) if seed is None else seed  # noqa: S311 - it is told, to be repeated
    script = Script(seed=chosen, faults=faults, seconds=60 * minutes, per_second=rate, lanes=lanes, log=log)
    console = Console(stderr=True, highlight=False)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    if file is None:
        with _ended_by_sigterm():
            outcome = _in_the_lab(script, wanted, say, tunnel)
        found = as_json(outcome)
    else:
        asked = chosen_flow(file, secrets, flow)
        with _ended_by_sigterm():
            ended = rehearsed(asked, wanted, script, say, yes=yes, dry_run=dry_run, output=output)
        if ended is None:
            return
        outcome, left = ended
        found = as_json(outcome) | {"left": [dataclasses.asdict(each) for each in left]}
    if report is not None:
        report.write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")
    if output is Output.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        _show(outcome, found)
    if not outcome.proven:
        raise ProofError(
            "; ".join(outcome.faults),
            where=f"torture with seed {chosen}",
            hint=f"repeat it by --seed {chosen}, and please report it",
        )


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """As by Ctrl-C: what was started is ended, what was created is removed."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _refuse_mixed(file: Path | None, *, tunnel: bool, of_file: bool) -> None:
    if file is not None and tunnel:
        what, hint = "--tunnel is for the lab", "a FILE says by itself whether its clusters are behind tunnels"
        raise ConfigError(what, hint=hint)
    if file is None and of_file:
        raise ConfigError("--flow, --secrets, --dry-run and --yes need a FILE", hint="isthmus torture flow.yaml")


def _in_the_lab(script: Script, wanted: list[Kind], say: Callable[[str], None], tunnel: bool) -> Outcome:
    from isthmus.torture.stage import Stage
    from isthmus.torture.storm import Storm

    say(f"seed {script.seed}; starting two Kafka clusters of three brokers")
    with Stage(say, tunnel=tunnel) as stage:
        return Storm(script, stage, wanted, say).rage()


def _wanted(words: list[str] | tuple[str, ...], tunnel: bool, *, outside: bool) -> list[Kind]:
    from isthmus.torture.kinds import kinds, outside_kinds

    known = outside_kinds() if outside else kinds(tunnel=tunnel)
    found = [kind for kind in known if not words or any(word in kind.name for word in words)]
    if not found:
        raise ConfigError(f"no kind of fault has {' or '.join(words)} in its name", hint="isthmus torture --list")
    return found


def _show(outcome: Outcome, found: dict[str, object]) -> None:
    table = Table(title="Torture", title_justify="left", box=None)
    table.add_column("fault", no_wrap=True)
    for name in ("times", "median s", "worst s", "others s", "worst s"):
        table.add_column(name, justify="right")
    for row in outcome.rows():
        figures = ("-" if each is None else f"{each:.1f}" for each in row.seconds)
        table.add_row(row.kind, str(row.times), *figures)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"{found['injected']} faults, {outcome.records:,} records: {found['lost']} lost, {found['duplicated']} "
        f"duplicated, {found['reordered']} reordered, {found['altered']} altered",
        soft_wrap=True,
    )
