"""`isthmus status FILE`: how flows stand, from any machine: the verdict first, then what needs attention. Only reads.

The exit status tells the cause (docs/errors.md), also with -o json, which is printed whatever it is. With --watch the
same, again and again, on a terminal as a live view, until Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group

from isthmus.cli.completing import flow_names
from isthmus.cli.config import Secrets, loaded_from
from isthmus.cli.positions import choose_flows
from isthmus.cli.render import Output

if TYPE_CHECKING:
    from isthmus.engine.outlook import Outlook
    from isthmus.model import Flow
    from isthmus.observe.health import FlowHealth

_WATCH_EVERY_S = 1.0
# What to say if several flows are not well: partitions that need a decision first, then as in `FlowHealth.cause`.
_GRAVEST_FIRST = (9, 8, 5, 6, 4, 0)


def status(
    file: Annotated[Path, typer.Argument(help="The file that the flow runs from.")],
    secrets: Secrets = None,
    flow: Annotated[
        str, typer.Option("--flow", help="Which flow of the file, as source->target.", autocompletion=flow_names)
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every partition, not only those to look at.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again every second, until Ctrl-C.")] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")] = Output.text,
) -> None:
    """How flows stand: verdict, lag, what needs attention. The exit status says the same."""
    chosen = choose_flows(loaded_from(file, secrets).flows, flow, changing=False)
    if watch:
        with contextlib.suppress(KeyboardInterrupt):  # how it ends
            asyncio.run(watching(chosen, everything, output))
        return
    found = asyncio.run(_look(chosen))
    if output is Output.json:
        _print_json(found)
    else:
        _print_text(Console(), found, everything)
    raise typer.Exit(exit_status(found))


def exit_status(found: list[FlowHealth]) -> int:
    return min((each.cause.exit_code for each in found), key=_GRAVEST_FIRST.index, default=0)


@contextlib.asynccontextmanager
async def _outlooks(flows: list[Flow]) -> AsyncIterator[list[Outlook]]:
    from isthmus.engine.outlook import Outlook

    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Outlook(flow)) for flow in flows]


async def _look(flows: list[Flow]) -> list[FlowHealth]:
    async with _outlooks(flows) as outlooks:
        return await asyncio.gather(*(outlook.look() for outlook in outlooks))


async def watching(flows: list[Flow], everything: bool, output: Output) -> None:
    """Look again and again, until cancelled."""
    console = Console()
    async with _outlooks(flows) as outlooks:
        with _shown(console, everything, output) as show:
            while True:
                show(await asyncio.gather(*(outlook.look() for outlook in outlooks)))
                await asyncio.sleep(_WATCH_EVERY_S)


@contextlib.contextmanager
def _shown(console: Console, everything: bool, output: Output) -> Iterator[Callable[[list[FlowHealth]], None]]:
    """A live view on a terminal; else one picture after another."""
    if output is Output.json:
        yield _print_json
    elif not console.is_terminal:
        yield lambda found: _print_text(console, found, everything)
    else:
        from rich.live import Live

        from isthmus.cli.health import flow_view

        with Live(console=console, auto_refresh=False, screen=True) as live:
            yield lambda found: live.update(Group(*(flow_view(each, everything) for each in found)), refresh=True)


def _print_json(found: list[FlowHealth]) -> None:
    sys.stdout.write(json.dumps([each.as_json() for each in found]) + "\n")
    sys.stdout.flush()


def _print_text(console: Console, found: list[FlowHealth], everything: bool) -> None:
    from isthmus.cli.health import flow_view

    for each in found:
        console.print(flow_view(each, everything), soft_wrap=True)
