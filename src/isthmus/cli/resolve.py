"""`isthmus resolve FILE --topic T`: how a partition that stopped goes on, by an explicit decision that stays on record.

Without a choice it shows the state, the range and what each choice would do. With one it shows what would be done, and
does it after a typed name or --yes: through the driver where the flow runs, else by itself. Saying the same again does
no harm: what is done already is said so.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from isthmus.cli.completing import flow_names, topic_names
from isthmus.cli.config import Secrets, loaded_from
from isthmus.cli.gaps import decision_told
from isthmus.cli.positions import choose_flows
from isthmus.cli.render import Output
from isthmus.engine.resolve.form import decision_json
from isthmus.errors import ConfigError
from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.engine.resolve.choices import Wanted
    from isthmus.engine.resolve.outside import Resolver
    from isthmus.engine.resolve.record import Decision
    from isthmus.engine.resolve.states import State


def resolve(
    file: Annotated[Path, typer.Argument(help="The file that the flow runs from.")],
    topic: Annotated[str, typer.Option("--topic", help="The source topic that stopped.", autocompletion=topic_names)],
    secrets: Secrets = None,
    flow: Annotated[
        str, typer.Option("--flow", help="Which flow of the file, as source->target.", autocompletion=flow_names)
    ] = "",
    partition: Annotated[
        int, typer.Option("--partition", help="Only this partition; all that stopped if left out.")
    ] = -1,
    accept_gap: Annotated[
        bool, typer.Option("--accept-gap", help="Go on behind what is lost; the range stays on record.")
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Copy the whole topic again from its start.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try again now.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking for the topic's name.")] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")] = Output.text,
) -> None:
    """Show why a partition stopped, and decide how it goes on; while the flow runs, or while it does not."""
    choice = _one_of(accept_gap=accept_gap, restart=restart, retry=retry)
    (one,) = choose_flows(loaded_from(file, secrets).flows, flow, changing=True)
    told = asyncio.run(_resolve(one, topic, partition, choice, _Way(dry_run=dry_run, yes=yes, output=output)))
    if output is Output.json:
        sys.stdout.write(json.dumps(told) + "\n")


class _Way:
    """How to go about it."""

    def __init__(self, *, dry_run: bool, yes: bool, output: Output) -> None:
        self.dry_run, self.yes = dry_run, yes
        self.text = output is Output.text

    def say(self, what: object) -> None:
        if self.text:
            Console(soft_wrap=True).print(what, highlight=False)


def _one_of(**choices: bool) -> str:
    meant = [name.replace("_", "-") for name, is_meant in choices.items() if is_meant]
    if len(meant) > 1:
        raise ConfigError(f"--{meant[0]} and --{meant[1]} contradict each other", hint="choose one of them")
    return meant[0] if meant else ""


async def _resolve(flow: Flow, topic: str, partition: int, choice: str, way: _Way) -> dict[str, Any]:
    from isthmus.engine.resolve.choices import Choice, wanted_here
    from isthmus.engine.resolve.outside import Resolver

    async with Resolver(flow) as resolver:
        await resolver.open()
        states = [state for state in await resolver.states(topic) if partition in (-1, state.source.partition)]
        told: dict[str, Any] = {"flow": flow.name, "topic": topic, "states": [_state_json(each) for each in states]}
        if not choice:
            _show_states(flow, states, way)
            return told
        wanted = wanted_here(topic, partition, Choice(choice))
        if (before := _done_before(resolver, states, wanted)) is not None:
            way.say(f"{topic} is not stopped: {decision_told(before)}. Nothing was changed.")
            return told | {"choice": choice, "decisions": [decision_json(before)], "changed": False, "heard_by": ""}
        return told | await _decide(resolver, wanted, way)


def _done_before(resolver: Resolver, states: list[State], wanted: Wanted) -> Decision | None:
    """The same, decided earlier, of a topic that flows by now."""
    if any(state.stop is not None for state in states):
        return None
    same = [each for each in resolver.decided(wanted.topic) if each.choice == wanted.choice]
    return next((each for each in reversed(same) if wanted.partition in (-1, each.partition)), None)


async def _decide(resolver: Resolver, wanted: Wanted, way: _Way) -> dict[str, Any]:
    from isthmus.engine.resolve.choices import meaning
    from isthmus.engine.resolve.outside import carry_out

    decided = await resolver.plan(wanted)
    for each in decided:
        does = meaning(each.code, wanted.choice).does
        way.say(f"{each.topic}-{each.partition}: {each.code}{_range_told(each)}\n  --{wanted.choice}: {does}")
    heard_by = ""
    if way.dry_run:
        way.say("Nothing was changed.")
    else:
        if not way.yes:
            _confirm(wanted.topic)
        heard_by = await carry_out(resolver, wanted)
        way.say(f"Done{f', by {heard_by}' if heard_by else '; nobody runs the flow now'}. It is on record.")
    return {
        "choice": wanted.choice,
        "decisions": [decision_json(each) for each in decided],
        "changed": not way.dry_run,
        "heard_by": heard_by,
    }


def _confirm(topic: str) -> None:
    sys.stderr.write(f"Type the name of the topic to do this: {topic}\n> ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != topic:
        raise ConfigError(
            "not confirmed: nothing was changed", hint="type the topic's name, or give --yes", code="NOT_CONFIRMED"
        )


def _range_told(decided: Decision) -> str:
    from isthmus.engine.resolve.record import spans_told

    source = f", source {spans_told([(decided.first, decided.past)])}" if decided.first >= 0 else ""
    return source + (f", target {spans_told(decided.foreign)}" if decided.foreign else "")


def _show_states(flow: Flow, states: list[State], way: _Way) -> None:
    from isthmus.engine.resolve.choices import Choice, meaning

    table = Table(title=f"{flow.name}: {states[0].source.topic if states else ''}", title_justify="left")
    for name in ("partition", "next offset", "state", "why"):
        table.add_column(name, justify="right" if name in ("partition", "next offset") else "left")
    for state in states:
        why = "" if state.stop is None else state.stop.message
        table.add_row(
            str(state.source.partition), "-" if state.position < 0 else str(state.position), state.code or "ok", why
        )
    way.say(table)
    for code in sorted({state.code for state in states} - {""}):
        for choice in Choice:
            found = meaning(code, choice)
            text = found.does or f"not for {code}: {found.refused} ({found.instead})"
            way.say(f"  --{choice}: {text}")


def _state_json(state: State) -> dict[str, Any]:
    from isthmus.engine.resolve.choices import Choice, meaning

    stop = state.stop
    return {
        "partition": state.source.partition,
        "position": state.position,
        "state": "ok" if stop is None else "stopped",
        "code": state.code,
        "error": "" if stop is None else stop.message,
        "lost": None if stop is None or stop.lost is None else list(stop.lost),
        "foreign": [] if stop is None else [list(each) for each in stop.foreign],
        "choices": {} if stop is None else {choice.value: meaning(stop.code, choice)._asdict() for choice in Choice},
    }
