"""Ends of tunnels in the process of a command: run until told to stop, and looked at from outside.

An end that runs takes over its file and its key file when they change, without ending a connection; a file that
cannot be read then is told, and the end goes on with what it had.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.cli.config import say
from isthmus.cli.render import Output
from isthmus.config.tunnelfile import EndFile, read_end
from isthmus.errors import IsthmusError
from isthmus.security import Tunnel
from isthmus.tunnel.counters import Passage
from isthmus.tunnel.dialing import open_through, ping
from isthmus.tunnel.end import End

if TYPE_CHECKING:
    from isthmus.model import Cluster, Flow

_LOOK_S = 1.0
_PAGE_S = 5.0
_Stamp = tuple[tuple[int, int, int], ...]


def run_end(file: Path, found: EndFile, output: Output) -> None:
    """Until SIGINT or SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    cluster = found.cluster
    known = _servers(cluster) if cluster else ()
    ask = (lambda: _ask(cluster)) if cluster is not None else None
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core would hold the secret
    with End(found.spec, ask=ask, known=known, audit=lambda passage: _tell(passage, output), note=_note) as end:
        say_where(end)
        stamp = _stamp(found)
        while not stop.wait(_LOOK_S):
            if _stamp(found) != stamp:
                stamp = _stamp(found)
                _take_over(end, file)


def say_where(end: End) -> None:
    spec, parts = end.spec, []
    if spec.listen is not None:
        parts.append(f"listens on {spec.listen.host}:{end.port}")
    if spec.dial is not None:
        parts.append(f"dials {spec.dial}" + (f", {spec.pool} idle connections" if spec.role == "exit" else ""))
    if end.local is not None and spec.local is not None:
        parts.append(f"SOCKS5 and HTTP CONNECT on {spec.local.host}:{end.local.port}")
    if end.metrics_port and spec.metrics is not None:
        parts.append(f"metrics on http://{spec.metrics.host}:{end.metrics_port}/metrics")
    _note(f"tunnel {spec.role}: {'; '.join(parts)}")


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _tell(passage: Passage, output: Output) -> None:
    data = {"time": round(time.time(), 3), **asdict(passage)}
    print(json.dumps(data) if output is Output.json else passage.line(), flush=True)


def _servers(cluster: Cluster) -> tuple[tuple[str, int], ...]:
    parts = (server.rpartition(":") for server in cluster.bootstrap)
    return tuple((host.strip("[]"), int(port)) for host, _, port in parts)


def _ask(cluster: Cluster) -> set[tuple[str, int]]:
    from isthmus.wire.advertised import advertised  # slow to import, and not needed by ends without a cluster

    return advertised(cluster)


def _stamp(found: EndFile) -> _Stamp:
    stamps = []
    for path in found.watched:
        try:
            seen = path.stat()
            stamps.append((seen.st_mtime_ns, seen.st_size, seen.st_ino))
        except OSError:
            stamps.append((0, 0, 0))
    return tuple(stamps)


def _take_over(end: End, file: Path) -> None:
    try:
        found = read_end(file)
    except IsthmusError as error:
        say([f"the changed file is not taken over: {error}"])
        return
    end.adopt(found.spec)
    _note(f"tunnel {end.spec.role}: took over {file.name}; {len(found.spec.secrets)} secrets are valid")


# -- from outside ----------------------------------------------------------------------------------


def examine(*, end: EndFile | None = None, flows: Sequence[Flow] = ()) -> list[dict[str, Any]]:
    """What can be reached from here, one row each."""
    return list(_of_end(end) if end is not None else _of_flows(flows))


def _of_end(end: EndFile) -> Iterator[dict[str, Any]]:
    spec = end.spec
    if spec.listen is not None:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(spec.listen.host, spec.listen.host)  # noqa: S104 - compared
        yield _pinged(Tunnel(host=host, port=spec.listen.port, secrets=spec.secrets))
    else:
        yield _pinged(spec.tunnel)
    if spec.metrics is not None:
        yield _numbers(f"http://{spec.metrics}/status")


def _of_flows(flows: Sequence[Flow]) -> Iterator[dict[str, Any]]:
    for cluster in {side.alias: side for flow in flows for side in (flow.source, flow.target)}.values():
        tunnel = cluster.security.tunnel
        if tunnel is None:
            continue
        yield _pinged(tunnel)
        for host, port in _servers(cluster):
            yield _reached(tunnel, cluster.alias, host, port)


def _pinged(tunnel: Tunnel) -> dict[str, Any]:
    what = f"tunnel at {tunnel}"
    try:
        return _row(what, ok=True, ms=1000 * ping(tunnel))
    except IsthmusError as error:
        return _row(what, ok=False, detail=f"[{error.code}] {error.message}")


def _reached(tunnel: Tunnel, alias: str, host: str, port: int) -> dict[str, Any]:
    what, began = f"{alias} {host}:{port} through it", time.monotonic()
    try:
        open_through(tunnel, host, port).close()
    except IsthmusError as error:
        return _row(what, ok=False, detail=f"[{error.code}] {error.message}")
    return _row(what, ok=True, ms=1000 * (time.monotonic() - began))


def _numbers(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=_PAGE_S) as answer:  # noqa: S310 - http on loopback
            numbers: dict[str, Any] = json.load(answer)["numbers"]
    except (OSError, ValueError, urllib.error.URLError) as error:
        return _row(url, ok=False, detail=f"the end that runs does not tell: {error}")
    said = ", ".join(f"{name} {value}" for name, value in numbers.items())
    return _row(url, ok=True, detail=said) | {"numbers": numbers}


def _row(what: str, *, ok: bool, ms: float | None = None, detail: str = "") -> dict[str, Any]:
    return {"what": what, "ok": ok, "ms": None if ms is None else round(ms, 3), "detail": detail}
