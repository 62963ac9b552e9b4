"""`isthmus metrics FILE`: flows as Prometheus metrics, served from any machine; also beside a run (`run --metrics`).

Only reads. On loopback unless a host is given: metrics name topics and hosts.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.completing import flow_names
from isthmus.cli.config import Secrets, loaded_from
from isthmus.cli.positions import choose_flows
from isthmus.cli.render import Output
from isthmus.errors import ConfigError
from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.observe.metrics import Page

_LOOPBACK = "127.0.0.1"


def metrics(
    file: Annotated[Path, typer.Argument(help="The file that the flow runs from.")],
    secrets: Secrets = None,
    flow: Annotated[
        str, typer.Option("--flow", help="Which flow of the file, as source->target.", autocompletion=flow_names)
    ] = "",
    listen: Annotated[
        str, typer.Option("--listen", metavar="[HOST:]PORT", help="Where to serve; on loopback if no host is given.")
    ] = "9404",
    once: Annotated[bool, typer.Option("--once", help="Print them once instead.")] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to say where it listens.")] = Output.text,
) -> None:
    """Serve the metrics of flows for Prometheus, until Ctrl-C."""
    chosen = choose_flows(loaded_from(file, secrets).flows, flow, changing=False)
    if once:
        _print_once(chosen, output)
        return
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with served(chosen, listen, output):
        stop.wait()


@contextlib.contextmanager
def served(flows: Sequence[Flow], listen: str, output: Output | None = None) -> Iterator[None]:
    """Metrics are there as long as this is entered; without an address nothing is."""
    if not listen:
        yield
        return
    host, port = address(listen)
    from isthmus.engine.exporter import Exporter
    from isthmus.observe.metrics import Page

    with Exporter(flows) as exporter, Page(host, port, exporter.look) as page:
        _say_where(host, page, output)
        yield


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{text!r} is not [HOST:]PORT", where="metrics", hint="for example 9404 or 0.0.0.0:9404")
    return host.strip("[]") or _LOOPBACK, int(port)


def _say_where(host: str, page: Page, output: Output | None) -> None:
    url = f"http://{f'[{host}]' if ':' in host else host}:{page.port}/metrics"
    if output is Output.json:
        print(json.dumps({"metrics": url}), flush=True)
    else:
        print(f"metrics on {url}", file=sys.stderr, flush=True)


def _print_once(flows: Sequence[Flow], output: Output) -> None:
    from isthmus.engine.exporter import Exporter
    from isthmus.observe.metrics import metrics_text

    with Exporter(flows) as exporter:
        looked = exporter.look()
    if output is Output.json:
        lost = [{"flow": name, "target": target} for name, target in looked.lost]
        print(json.dumps({"flows": [each.as_json() for each in looked.flows], "lost": lost}))
    else:
        sys.stdout.write(metrics_text(looked))
