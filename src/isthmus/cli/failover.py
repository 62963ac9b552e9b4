"""`isthmus failover` and `isthmus failback`: clients change sides, with a plan first and a report after.

Nothing is changed before the operator has typed the flow's name, or given --yes. `--dry-run` prints the plan and ends.
"""

from __future__ import annotations

import enum
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from isthmus.cli.completing import flow_names
from isthmus.cli.config import Secrets, loaded_from, warn
from isthmus.cli.positions import choose_flows
from isthmus.cli.render import Output, amount
from isthmus.cli.sides import show_plan, show_report
from isthmus.cli.spark_words import pair
from isthmus.dr.form import plan_json, report_json
from isthmus.errors import ConfigError
from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.dr.values import Carry, Options, Plan, Report, Step
    from isthmus.observe.status import FlowStatus

_SAY_EVERY_S = 5.0


class Kind(enum.StrEnum):
    switchover = "switchover"
    failover = "failover"


class NeverCrossed(enum.StrEnum):
    keep = "keep"
    discard = "discard"


FileArgument = Annotated[Path, typer.Argument(help="The file that the flow runs from.")]
FlowOption = Annotated[
    str, typer.Option("--flow", help="Which flow of the file, as source->target.", autocompletion=flow_names)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan, change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking for the flow's name.")]
Show = Annotated[bool, typer.Option("--show", help="Print the report of the last time again, and change nothing.")]
Quiet = Annotated[float, typer.Option(help="Seconds without a write after which writers count as stopped.", min=0.5)]
Patience = Annotated[float, typer.Option(help="Seconds to wait for writers, copies and consumers, each.", min=1)]
MoveActive = Annotated[
    bool, typer.Option("--move-active", help="Do not wait until consumers have left; they may read some records again.")
]
ReportFile = Annotated[
    Path | None, typer.Option("--report", help="Where the report goes; into this folder if left out.")
]
Master = Annotated[str, typer.Option(help="Spark master, for what has to be copied here.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="Spark setting key=value; may be repeated.")]
Form = Annotated[Output, typer.Option("-o", "--output", help="How to print plan and report.")]


def failover(
    file: FileArgument,
    secrets: Secrets = None,
    flow: FlowOption = "",
    kind: Annotated[
        Kind, typer.Option(help="switchover: planned, nothing is lost. failover: the source is gone.")
    ] = Kind.switchover,
    dry_run: DryRun = False,
    yes: Yes = False,
    show: Show = False,
    source_is_lost: Annotated[
        bool, typer.Option("--source-is-lost", help="Fail over although the source still answers.")
    ] = False,
    fence_writers: Annotated[
        bool, typer.Option("--fence-writers", help="Switchover: shut writers out of the source by access rules.")
    ] = False,
    abandon: Annotated[
        bool,
        typer.Option(
            "--abandon", help="Give up a switchover that began and was killed; lets writers in that it shut out."
        ),
    ] = False,
    quiet: Quiet = 3.0,
    patience: Patience = 600.0,
    move_active: MoveActive = False,
    report: ReportFile = None,
    master: Master = "local[*]",
    conf: Conf = None,
    output: Form = Output.text,
) -> None:
    """Move clients to the target of a flow: drained and exact (switchover), or without the source (failover)."""
    from isthmus.dr.failover import fail_over, last_failover, plan_failover
    from isthmus.dr.values import Options

    chosen, two_way = _chosen(file, secrets, flow)
    telling = Telling()
    options = Options(
        carry=telling.carry(master, conf),
        kind=kind.value,
        quiet_s=quiet,
        patience_s=patience,
        source_is_lost=source_is_lost,
        fence_writers=fence_writers,
        move_active=move_active,
        two_way=two_way,
    )
    if show:
        _tell(last_failover(chosen, options), chosen, report, output)
        return
    if abandon:
        _give_up(chosen, options, dry_run=dry_run, yes=yes, output=output)
        return
    plan = plan_failover(chosen, options)
    if _agreed(chosen, plan, dry_run=dry_run, yes=yes, output=output):
        _tell(fail_over(chosen, options, telling.step), chosen, report, output)


def failback(
    file: FileArgument,
    secrets: Secrets = None,
    flow: FlowOption = "",
    never_crossed: Annotated[
        NeverCrossed | None,
        typer.Option("--never-crossed", help="Records that the old source alone holds: keep in side topics, discard."),
    ] = None,
    rebuilt: Annotated[
        bool, typer.Option("--rebuilt", help="The source was built anew and is empty: all that was copied goes back.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    show: Show = False,
    quiet: Quiet = 3.0,
    patience: Patience = 600.0,
    move_active: MoveActive = False,
    report: ReportFile = None,
    master: Master = "local[*]",
    conf: Conf = None,
    output: Form = Output.text,
) -> None:
    """Bring clients back to the source after a failover: with everything that is new, and nothing twice."""
    from isthmus.dr.failback import fail_back, last_failback, plan_failback
    from isthmus.dr.values import Options

    chosen, two_way = _chosen(file, secrets, flow)
    telling = Telling()
    options = Options(
        carry=telling.carry(master, conf),
        quiet_s=quiet,
        patience_s=patience,
        move_active=move_active,
        never_crossed=never_crossed.value if never_crossed else "",
        two_way=two_way,
        rebuilt=rebuilt,
    )
    if show:
        _tell(last_failback(chosen, options), chosen, report, output)
        return
    plan = plan_failback(chosen, options)
    if _agreed(chosen, plan, dry_run=dry_run, yes=yes, output=output):
        _tell(fail_back(chosen, options, telling.step), chosen, report, output)


def _give_up(flow: Flow, options: Options, *, dry_run: bool, yes: bool, output: Output) -> None:
    from isthmus.dr.failover import abandon

    found = abandon(flow, options, only_look=True)
    shut = f", and writers that it shut out of {flow.source.alias} are let in" if found.shuts_out else ""
    if output is Output.text:
        sys.stdout.write(f"The switchover of {flow.name}, begun by {found.by}, is given up{shut}.\n")
    if not dry_run:
        if not yes:
            _confirm(flow)
        abandon(flow, options)
    if output is Output.json:
        told = {"flow": flow.name, "begun_by": found.by, "phase": found.phase, "writers_let_in": found.shuts_out}
        sys.stdout.write(json.dumps(told | {"changed": not dry_run}) + "\n")


def _chosen(file: Path, secrets: Path | None, name: str) -> tuple[Flow, bool]:
    """The flow meant, and whether the file has one in the other direction, too."""
    loaded = loaded_from(file, secrets)
    warn(loaded)
    (flow,) = choose_flows(loaded.flows, name, changing=True)
    ends = {(each.source.alias, each.target.alias) for each in loaded.flows}
    return flow, (flow.target.alias, flow.source.alias) in ends


def _agreed(flow: Flow, plan: Plan, *, dry_run: bool, yes: bool, output: Output) -> bool:
    """Show the plan; True when it is to be carried out."""
    if output is Output.json:
        if dry_run:
            sys.stdout.write(json.dumps(plan_json(plan)) + "\n")
    else:
        show_plan(flow, plan)
    if dry_run:
        return False
    if not yes:
        _confirm(flow)
    return True


def _confirm(flow: Flow) -> None:
    refusal = ConfigError(
        "not confirmed; nothing was changed",
        where=f"flow {flow.name}",
        hint=f"type {flow.name} when asked, or give --yes",
        code="NOT_CONFIRMED",
    )
    if not sys.stdin.isatty():
        raise refusal
    if typer.prompt(f"Type {flow.name} to go on", default="", show_default=False, err=True) != flow.name:
        raise refusal


def _tell(found: Report, flow: Flow, path: Path | None, output: Output) -> None:
    written = json.dumps(report_json(flow, found))
    if output is Output.json:
        sys.stdout.write(written + "\n")
    else:
        show_report(flow, found)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(found.ended_ms / 1000))
    place = path or Path(f"isthmus-{found.kind}-{flow.source.alias}-{flow.target.alias}-{stamp}.json")
    console = Console(stderr=True, highlight=False)
    try:
        place.write_text(written + "\n")
        console.print(f"report: {place}")
    except OSError as error:
        # Clients have moved: that must not look like a failure because of a file.
        console.print(f"the report could not be written to {place}: {error.strerror}", style="bold")


class Telling:
    """What happens, as lines with the time since the start."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._began = time.time()
        self._said_at = 0.0

    def step(self, step: Step) -> None:
        word = {"begun": "...", "waits": "waits:", "done": "done"}[step.state]
        style = "green" if step.state == "done" else "yellow" if step.state == "waits" else ""
        text = f"{step.name} {word} {step.text}".rstrip()
        self._console.print(f"{step.at - self._began:7.1f} s  {text}", style=style)

    def carry(self, master: str, conf: list[str] | None) -> Carry:
        from isthmus.dr.carrying import on_spark

        return on_spark(master, dict(pair(text) for text in conf or ()), self._copied)

    def _copied(self, status: FlowStatus) -> None:
        if status.time - self._said_at < _SAY_EVERY_S and status.state != "ended":
            return
        self._said_at = status.time
        told = f"{status.flow} {status.state}: {amount(status.records)} records, lag {amount(status.lag)}"
        self._console.print(f"{status.time - self._began:7.1f} s  {told}")
