"""`isthmus run [FILE]`: replicate the flows of a file, or of the environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from isthmus.cli.config import File, Secrets, loaded_from, warn
from isthmus.cli.metrics import served
from isthmus.cli.render import Output, Screen, summary
from isthmus.cli.spark_words import pair
from isthmus.cli.ui import beside
from isthmus.errors import IsthmusError, PartitionStopped
from isthmus.model import Flow
from isthmus.observe.status import FlowStatus

if TYPE_CHECKING:
    from isthmus.engine.orders import LaneRunner
    from isthmus.engine.spark import Spark


def run(
    file: File = None,
    secrets: Secrets = None,
    master: Annotated[str, typer.Option(help="Spark master: local[*], spark://…, k8s://…, yarn.")] = "local[*]",
    lanes: Annotated[int, typer.Option(help="Lanes per flow, none comes or goes; overrides the file.", min=0)] = 0,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="End when every partition reached the end offset seen at the start."),
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence another replicator that drives this flow.")
    ] = False,
    forget: Annotated[
        list[str] | None,
        typer.Option("--forget", help="Copy this source topic anew from its start (it, or its target, was recreated)."),
    ] = None,
    conf: Annotated[list[str] | None, typer.Option("--conf", help="Spark setting key=value; may be repeated.")] = None,
    metrics: Annotated[
        str, typer.Option("--metrics", metavar="[HOST:]PORT", help="Serve Prometheus metrics there; on loopback.")
    ] = "",
    ui: Annotated[
        str, typer.Option("--ui", metavar="[HOST:]PORT", help="Serve the web page there, read-only; on loopback.")
    ] = "",
    ui_token_file: Annotated[
        Path | None, typer.Option("--ui-token-file", help="File with the token for the web page.")
    ] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print at the end.")] = Output.text,
) -> None:
    """Replicate topics exactly once, until Ctrl-C (or until caught up)."""
    from isthmus.engine.run import Options, replicate

    loaded = loaded_from(file, secrets)
    flows = [_with_lanes(flow, lanes) for flow in loaded.flows]
    options = Options(
        master=master,
        until_caught_up=until_caught_up,
        take_over=take_over,
        forget=tuple(forget or ()),
        spark_conf=dict(pair(text) for text in conf or ()),
        edited=_Edits(file, secrets, lanes),
        transforming=transforming,
    )
    console = Console(stderr=True)
    warn(loaded)
    try:
        with served(flows, metrics), beside(flows, ui, ui_token_file), Screen(console) as screen:
            ended = replicate(flows, options, screen.show)
    except IsthmusError as error:
        # A cluster that does not answer, for one: its address is from there.
        error.where = error.where or str(loaded.origin)
        raise
    summary(ended, output)
    _refuse_stopped(ended)


class _Edits:
    """Asked now and then: the flows of the file, if it was changed since the last time. An environment never is."""

    def __init__(self, file: Path | None, secrets: Path | None, lanes: int) -> None:
        self._file = file
        self._secrets = secrets
        self._lanes = lanes
        self._seen = self._look()

    def __call__(self) -> list[Flow] | None:
        if (now := self._look()) == self._seen or now is None:
            return None  # also while an editor has it away for a moment
        self._seen = now
        return [_with_lanes(flow, self._lanes) for flow in loaded_from(self._file, self._secrets).flows]

    def _look(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def _with_lanes(flow: Flow, lanes: int) -> Flow:
    if flow.transform is not None:
        return dataclasses.replace(flow, transform=dataclasses.replace(flow.transform, tasks=lanes)) if lanes else flow
    return dataclasses.replace(flow, lanes=lanes).with_all_lanes() if lanes else flow


def transforming(spark: Spark, flows: Sequence[Flow], note: Callable[[str], None]) -> LaneRunner:
    """Who runs flows with a transform; imported when there are any."""
    from isthmus.frames.runner import Transforming

    return Transforming(spark, flows, note)


def _refuse_stopped(ended: list[FlowStatus]) -> None:
    stopped = [(status.flow, partition) for status in ended for partition in status.stopped]
    if stopped:
        flow, first = stopped[0]
        raise PartitionStopped(
            f"{len(stopped)} partition(s) of {flow} stopped; the first: {first.topic}-{first.partition}: {first.error}",
            where=f"offset {first.position}",
            code=first.code,
        )
