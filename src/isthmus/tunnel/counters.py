"""What an end of a tunnel has done, as numbers and as lines: Prometheus text, a status, an audit line per connection.

The page is served on loopback only, to requests that ask for a loopback host (a page of somebody else's in a browser
cannot read it by way of a name of its own). Must stay true: no secret is ever counted or told; keys show as their ids.
"""

from __future__ import annotations

import collections
import http.server
import ipaddress
import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

_HELP = {
    "connections_total": ("counter", "Connections that were asked for, by how that ended."),
    "connections_open": ("gauge", "Connections that pass bytes now."),
    "bytes_total": ("counter", "Bytes passed on, by direction (out: towards brokers)."),
    "handshakes_failed_total": ("counter", "Connections that were refused before they could ask for anything."),
    "handshakes_open": ("gauge", "Connections that are not through their handshake yet."),
    "pool_idle": ("gauge", "Idle connections between an exit that dials and its meeting point."),
    "pool_waits_total": ("counter", "Times a client found no idle connection and had to wait."),
    "redials_total": ("counter", "Attempts of an exit that dials, after a failed one."),
    "secrets_valid": ("gauge", "Shared secrets that are valid now."),
}
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One connection that was asked for, from its beginning to its end."""

    peer: str
    key: str
    destination: str
    address: str = ""
    out: int = 0
    back: int = 0
    seconds: float = 0.0
    result: str = "passed"  # or the code of a refusal
    why: str = ""

    def line(self) -> str:
        return " ".join(f"{name}={json.dumps(value)}" for name, value in asdict(self).items())


Audit = Callable[[Passage], None]
Note = Callable[[str], None]
_NOTES, _WINDOW_S = 20, 10.0  # who knocks at the port all day must not fill a disk


class Counters:
    """Numbers by name and labels; any thread may add."""

    def __init__(self, audit: Audit | None = None, note: Note | None = None) -> None:
        self._numbers: collections.Counter[tuple[str, Labels]] = collections.Counter()
        self._lock = threading.Lock()
        self._audit = audit
        self._note = note
        self._noted: collections.deque[float] = collections.deque(maxlen=_NOTES)
        self._unsaid = 0
        self._began = time.time()

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        with self._lock:
            self._numbers[name, tuple(sorted(labels.items()))] += amount

    def set(self, name: str, value: int) -> None:
        with self._lock:
            self._numbers[name, ()] = value

    def get(self, name: str, **labels: str) -> int:
        with self._lock:
            return self._numbers[name, tuple(sorted(labels.items()))]

    def ended(self, passage: Passage) -> None:
        """A connection is over: counted, and told to the audit."""
        self.add("connections_total", result=passage.result)
        self.add("bytes_total", passage.out, direction="out")
        self.add("bytes_total", passage.back, direction="back")
        if self._audit is not None:
            self._audit(passage)

    def note(self, text: str) -> None:
        """Something that an operator should know: a few at a time, the rest are counted."""
        if self._note is None:
            return
        with self._lock:
            now = time.monotonic()
            if len(self._noted) == _NOTES and now - self._noted[0] < _WINDOW_S:
                self._unsaid += 1
                return
            self._noted.append(now)
            more, self._unsaid = self._unsaid, 0
        self._note(f"{text} (and {more} more things were not said)" if more else text)

    def text(self) -> str:
        """As Prometheus reads it."""
        with self._lock:
            numbers = sorted(self._numbers.items())
        lines = []
        for name, (kind, about) in _HELP.items():
            lines += [f"# HELP isthmus_tunnel_{name} {about}", f"# TYPE isthmus_tunnel_{name} {kind}"]
            found = [(labels, value) for (of, labels), value in numbers if of == name]
            lines += [f"isthmus_tunnel_{name}{_labels(labels)} {value}" for labels, value in found or [((), 0)]]
        return "\n".join(lines) + "\n"

    def status(self) -> dict[str, Any]:
        """As JSON has it."""
        with self._lock:
            numbers = sorted(self._numbers.items())
        named = {f"{name}{_labels(labels)}": value for (name, labels), value in numbers}
        return {"up_seconds": round(time.time() - self._began, 1), "numbers": named}


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels) + "}" if labels else ""


class Page:
    """`/metrics` and `/status` on loopback, in a thread of its own."""

    def __init__(self, host: str, port: int, counters: Counters) -> None:
        self._server = http.server.ThreadingHTTPServer((host, port), _handler(counters))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _handler(counters: Counters) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            asked = self.headers.get("Host", "")
            host = asked.rpartition(":")[0] if asked.rpartition(":")[2].isdigit() else asked
            if not is_loopback(host):
                self.send_error(403)
            elif self.path == "/metrics":
                self._send("text/plain; version=0.0.4; charset=utf-8", counters.text())
            elif self.path == "/status":
                self._send("application/json", json.dumps(counters.status()))
            else:
                self.send_error(404)

        def _send(self, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Whoever scrapes is not worth a line."""

    return Handler
