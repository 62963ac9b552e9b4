"""`isthmus top FILE`: flows live on a whole screen, from any machine. Only reads.

Looks and keys come independently of each other: a cluster that is slow to answer never holds up a key. Where standard
output is no terminal it prints one picture after another, as text or as a line of JSON. What must stay true: a target
that does not answer is shown, and looked at again; however it ends, the terminal is as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group

from isthmus.cli.completing import flow_names
from isthmus.cli.config import Secrets, loaded_from
from isthmus.cli.positions import choose_flows
from isthmus.cli.render import Output
from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.cli.topview import Course, Seen, View
    from isthmus.engine.outlook import Outlook
    from isthmus.model import Flow
    from isthmus.observe.health import FlowHealth


def top(
    file: Annotated[Path, typer.Argument(help="The file that the flow runs from.")],
    secrets: Secrets = None,
    flow: Annotated[
        str, typer.Option("--flow", help="Which flow of the file, as source->target.", autocompletion=flow_names)
    ] = "",
    every: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between looks.")] = 1.0,
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many looks; 0: never.")] = 0,
    output: Annotated[Output, typer.Option("-o", "--output", help="json: a line for each look.")] = Output.text,
) -> None:
    """Flows live on the whole terminal: verdicts, rates, lag, the worst partitions first. `?` shows the keys."""
    flows = choose_flows(loaded_from(file, secrets).flows, flow, changing=False)
    with contextlib.suppress(KeyboardInterrupt):  # how it may end
        asyncio.run(_shown(flows, every, count, output))


async def _shown(flows: Sequence[Flow], every: float, count: int, output: Output) -> None:
    console = Console()
    lookout = Lookout(flows, every, count)
    try:
        if output is Output.json:
            async for seen in lookout.looks():
                _print_json(seen)
        elif not console.is_terminal or console.is_dumb_terminal or not sys.stdin.isatty():
            async for seen in lookout.looks():
                _print_text(console, seen)
        else:
            await _Screen(console, lookout).run()
    finally:
        lookout.close()


class Lookout:
    """Looks at flows again and again; what was seen before is kept for the lines that show it."""

    def __init__(self, flows: Sequence[Flow], every: float, count: int) -> None:
        self._flows = flows
        self._every, self._count = every, count
        self._outlooks: dict[str, Outlook] = {}
        self._courses: dict[str, Course] = {}

    async def looks(self) -> AsyncIterator[Seen]:
        done = 0
        while True:
            yield await self._look()
            done += 1
            if done == self._count:
                return
            await asyncio.sleep(self._every)

    async def _look(self) -> Seen:
        from isthmus.cli.topview import Course, Seen

        found = await asyncio.gather(*(self._one(flow) for flow in self._flows))
        for each in found:
            if not isinstance(each, IsthmusError):
                self._courses.setdefault(each.flow, Course()).note(each)
        pairs = zip(self._flows, found, strict=True)
        return Seen(
            flows=[each for each in found if not isinstance(each, IsthmusError)],
            lost={flow.name: each for flow, each in pairs if isinstance(each, IsthmusError)},
            clock=time.strftime("%H:%M:%S"),
            courses=self._courses,
        )

    async def _one(self, flow: Flow) -> FlowHealth | IsthmusError:
        """A target that is away may come back as another one: then the look begins anew."""
        from isthmus.engine.outlook import Outlook

        outlook = self._outlooks.get(flow.name) or Outlook(flow)
        self._outlooks[flow.name] = outlook
        try:
            return await outlook.look()
        except IsthmusError as error:
            outlook.close()
            del self._outlooks[flow.name]
            return error

    def close(self) -> None:
        for outlook in self._outlooks.values():
            outlook.close()


class _Screen:
    """The view on a terminal: drawn anew after each look and each key."""

    def __init__(self, console: Console, lookout: Lookout) -> None:
        from isthmus.cli.topview import Seen, View

        self._console, self._lookout = console, lookout
        self._view: View = View()
        self._seen: Seen = Seen()
        self._page = 1
        self._over = asyncio.Event()

    async def run(self) -> None:
        from rich.live import Live

        from isthmus.cli.keys import Keys

        loop = asyncio.get_running_loop()
        with Live(console=self._console, auto_refresh=False, screen=True) as self._live, Keys(self._press):
            loop.add_signal_handler(signal.SIGWINCH, self._draw)
            loop.add_signal_handler(signal.SIGTERM, self._over.set)
            self._draw()
            looking = asyncio.ensure_future(self._follow())
            looking.add_done_callback(lambda _: self._over.set())
            try:
                await self._over.wait()
            finally:
                looking.cancel()
                ended = await asyncio.gather(looking, return_exceptions=True)
        if isinstance(ended[0], Exception):
            raise ended[0]

    async def _follow(self) -> None:
        async for seen in self._lookout.looks():
            if not self._view.is_still:
                self._seen = seen
                self._draw()

    def _press(self, key: str) -> None:
        from isthmus.cli.topview import pressed

        self._view = pressed(self._view, key, self._seen.names, self._page)
        if self._view.is_over:
            self._over.set()
        self._draw()

    def _draw(self) -> None:
        from isthmus.cli.topview import picture

        drawn = picture(self._view, self._seen, *self._console.size)
        self._view, self._page = drawn.view, drawn.page
        self._live.update(Group(*drawn.lines), refresh=True)


def _print_json(seen: Seen) -> None:
    sys.stdout.write(json.dumps(_as_json(seen)) + "\n")
    sys.stdout.flush()


def _as_json(seen: Seen) -> list[dict[str, Any]]:
    """As `status` has it; a flow whose target does not answer says why."""
    lost = [
        {"flow": name, "state": "unknown", "cause": error.code, "exit_status": error.exit_code, "error": str(error)}
        for name, error in seen.lost.items()
    ]
    return [*(each.as_json() for each in seen.flows), *lost]


def _print_text(console: Console, seen: Seen) -> None:
    from isthmus.cli.health import flow_view

    for name, error in seen.lost.items():
        console.print(f"{name} target does not answer [{error.code}]: {error}", soft_wrap=True, markup=False)
    for each in seen.flows:
        console.print(flow_view(each, False), soft_wrap=True)
