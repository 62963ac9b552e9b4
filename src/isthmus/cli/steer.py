"""`isthmus pause`, `resume`, `throttle`, `apply`: change a running flow from any machine that reaches its target.

The file names the clusters and their credentials; the wish goes through the target's control topic.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from isthmus.cli.completing import flow_names, topic_names
from isthmus.cli.config import Secrets, loaded_from
from isthmus.cli.render import Output
from isthmus.errors import ConfigError
from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.engine.wishes import Answer, Wishing

FileArgument = Annotated[Path, typer.Argument(help="The file that the flow runs from.")]
FlowOption = Annotated[
    str,
    typer.Option(
        "--flow", help="Which flow of the file, as source->target; all if left out.", autocompletion=flow_names
    ),
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", help="Only this source topic; may be repeated.", autocompletion=topic_names),
]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")]


def pause(
    file: FileArgument,
    secrets: Secrets = None,
    flow: FlowOption = "",
    topic: TopicOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Stop copying, after what is in flight is committed; stays so until `isthmus resume`."""
    _wish(
        file, secrets, flow, output, f"paused: {_named(topic)}", lambda wishing: wishing.pause(frozenset(topic or ()))
    )


def resume(
    file: FileArgument,
    secrets: Secrets = None,
    flow: FlowOption = "",
    topic: TopicOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Go on where it was paused."""
    _wish(
        file, secrets, flow, output, f"resumed: {_named(topic)}", lambda wishing: wishing.resume(frozenset(topic or ()))
    )


def _named(topics: list[str] | None) -> str:
    return ", ".join(sorted(set(topics or ()))) or "all topics"


def throttle(
    file: FileArgument,
    rate: Annotated[str, typer.Argument(help="Bytes per second (20MB), `none`, or `file`: what the file says.")],
    secrets: Secrets = None,
    flow: FlowOption = "",
    topic: TopicOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Cap the bytes per second that a flow reads, or that it reads of single topics."""
    wanted, topics = _rate(rate), frozenset(topic or ())
    what = f"throttle: {rate}" + (f" for each of {', '.join(sorted(topics))}" if topics else "")
    _wish(file, secrets, flow, output, what, lambda wishing: wishing.throttle(wanted, topics))


def apply(
    file: FileArgument, secrets: Secrets = None, flow: FlowOption = "", output: OutputOption = Output.text
) -> None:
    """Put the settings of this file into force in the running flow, wherever it runs."""
    from isthmus.engine.wishes import live_settings

    otherwise = "nobody runs it now, so nothing changed: the file counts at the next start"
    _wish(file, secrets, flow, output, "applied", lambda wishing: wishing.apply(live_settings(wishing.flow)), otherwise)


def _rate(text: str) -> int | None:
    from isthmus.config.values import amount

    if text in ("file", "none"):
        return None if text == "file" else 0
    try:
        return amount(text)
    except ValueError as error:
        raise ConfigError(f"{text!r}: {error}", where="RATE", hint="for example 20MB, none, or file") from None


def _wish(
    file: Path,
    secrets: Path | None,
    name: str,
    output: Output,
    done: str,
    ask: Callable[[Wishing], Awaitable[Answer]],
    otherwise: str = "nobody runs it now; holds when it starts",
) -> None:
    flows = [flow for flow in loaded_from(file, secrets).flows if name in ("", flow.name, flow.replicator)]
    if not flows:
        raise ConfigError(f"the file has no flow {name!r}", where="--flow", hint="write it as source->target")
    answers = [(flow, asyncio.run(_ask(flow, ask))) for flow in flows]
    if output is Output.json:
        told = [{"flow": flow.name, "wish": answer.value, "heard_by": answer.heard_by} for flow, answer in answers]
        sys.stdout.write(json.dumps(told) + "\n")
        return
    for flow, answer in answers:
        who = f"heard by {answer.heard_by}" if answer.heard_by else otherwise
        Console().print(f"{flow.name} {done} ({who})", highlight=False)


async def _ask(flow: Flow, ask: Callable[[Wishing], Awaitable[Answer]]) -> Answer:
    from isthmus.engine.wishes import Wishing

    async with Wishing(flow) as wishing:
        return await ask(wishing)
