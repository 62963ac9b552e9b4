"""`isthmus ui FILE`: the web page of flows, from any machine that reaches their clusters, or beside a run.

On loopback, and read-only, unless asked otherwise. What must stay true: a token is printed only when it was made up
here, once; the address goes to standard output as JSON if asked for, everything else to standard error.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.config import Secrets, loaded_from, warn
from isthmus.cli.positions import choose_flows
from isthmus.cli.render import Output
from isthmus.cli.spark_words import pair
from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.web.server import Served, Settings


def ui(
    file: Annotated[Path, typer.Argument(help="The file that the flows run from.")],
    secrets: Secrets = None,
    flow: Annotated[str, typer.Option("--flow", help="Only this flow of the file, as source->target.")] = "",
    listen: Annotated[
        str, typer.Option("--listen", metavar="[HOST:]PORT", help="Where to serve; on loopback if no host is given.")
    ] = "8484",
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let the page pause, resume, throttle and change sides.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with the token that lets people in; made up if one is needed."),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="Name under which a proxy serves the page; may be repeated.")
    ] = None,
    master: Annotated[str, typer.Option(help="Spark master, for what a change of sides has to copy.")] = "local[*]",
    conf: Annotated[list[str] | None, typer.Option("--conf", help="Spark setting key=value; may be repeated.")] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to say where it listens.")] = Output.text,
) -> None:
    """Serve the web page of flows, until Ctrl-C."""
    from isthmus.web.server import Settings

    loaded = loaded_from(file, secrets)
    warn(loaded)
    chosen = choose_flows(loaded.flows, flow, changing=False)
    settings = Settings(listen=listen, token_file=token_file, names=tuple(name or ()), say=_say)
    if allow_changes:
        settings = _changing(settings, master, conf)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _end(stop))
    with shown(chosen, settings, output):
        stop.wait()


def _changing(settings: Settings, master: str, conf: list[str] | None) -> Settings:
    import dataclasses

    from isthmus.dr.carrying import on_spark

    return dataclasses.replace(settings, carry=on_spark(master, dict(map(pair, conf or ())), lambda _: None))


def _end(stop: threading.Event) -> None:
    """A change of sides that is under way is waited for; who asks twice need not: it goes on when it is asked again."""
    if stop.is_set():
        os._exit(130)
    stop.set()


@contextlib.contextmanager
def shown(flows: Sequence[Flow], settings: Settings, output: Output | None = None) -> Iterator[None]:
    """The page is there as long as this is entered."""
    from isthmus.engine.exporter import Exporter
    from isthmus.web.server import serve

    with Exporter(flows) as exporter, serve(flows, exporter, settings) as served:
        _say_where(served, settings, output)
        yield


@contextlib.contextmanager
def beside(flows: Sequence[Flow], listen: str, token_file: Path | None) -> Iterator[None]:
    """Beside a run: read-only; without an address nothing is."""
    if not listen:
        yield
        return
    from isthmus.web.server import Settings

    with shown(flows, Settings(listen=listen, token_file=token_file, say=_say)):
        yield


def _say_where(served: Served, settings: Settings, output: Output | None) -> None:
    changes = settings.carry is not None
    if output is Output.json:
        print(json.dumps({"ui": served.url, "changes": changes, "token": served.token is not None}), flush=True)
    else:
        print(
            f"web page on {served.url} ({'changes allowed' if changes else 'read-only'})", file=sys.stderr, flush=True
        )
    if served.token is not None and served.token.generated:
        print(f"token, shown only now: {served.token.value}", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    """What the page was used for. Names come from outside: a terminal must not take them for orders."""
    plain = "".join(one if one.isprintable() else "?" for one in text)
    print(f"{time.strftime('%H:%M:%S')} {plain}", file=sys.stderr, flush=True)
