"""The one port: takes connections, lets them prove the secret, and hands over those that did, with their first line.

Must stay true: nothing is sent before the client's hello; whoever is not through within the deadline is cut off, and
only so many may be on their way at once, of one address half as many; what fails is counted by reason and costs
nobody else anything. What a line means is left to the handler.
"""

from __future__ import annotations

import collections
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from isthmus.errors import MachineError, SecurityRefused
from isthmus.tunnel.crew import Crew
from isthmus.tunnel.identity import Keyring, check_version
from isthmus.tunnel.lines import read_line
from isthmus.tunnel.sockets import close, listening, spelled, tune, wake


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    connections: int = 1_000
    unauthenticated: int = 64
    handshake_seconds: float = 10.0


class Peer(NamedTuple):
    address: str
    key: str  # id of the secret


Handler = Callable[[ssl.SSLSocket, bytes, Peer], None]


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens; MachineError if it cannot."""
    try:
        return listening(host, port)
    except OSError as error:
        what = f"cannot listen on {host}:{port}: {error.strerror or error}"
        hint = "another program has the port, or the address is none of this machine's"
        raise MachineError(what, hint=hint, code="TUNNEL_PORT") from None


def accept_all(server: socket.socket, crew: Crew, take: Callable[[socket.socket, Any], None]) -> None:
    """Hand over every connection that comes, until the port is closed or the crew stops; then it is closed."""
    try:
        while not crew.stopped.is_set():
            try:
                sock, address = server.accept()
            except OSError:
                # No descriptors left, or the port was closed: the first passes.
                if crew.stopped.wait(0.05) or server.fileno() < 0 or not _listens(server):
                    return
                continue
            take(sock, address)
    finally:
        close(server)


class Listener:
    """Listens from the start; `close` ends the port, connections belong to the crew."""

    def __init__(self, host: str, port: int, keyring: Keyring, limits: Limits, crew: Crew, handle: Handler) -> None:
        self._server = bound(host, port)
        self.port = int(self._server.getsockname()[1])
        self.limits = limits
        self._keyring = keyring
        self._crew = crew
        self._handle = handle
        self._waiting: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()
        crew.start(self._accept)

    def close(self) -> None:
        wake(self._server)

    def _accept(self) -> None:
        accept_all(self._server, self._crew, self._take)

    def _take(self, sock: socket.socket, address: Any) -> None:
        peer, host = spelled(address), str(address[0])
        with self._lock:
            full = self._waiting.total() >= self.limits.unauthenticated
            crowding = self._waiting[host] >= max(1, self.limits.unauthenticated // 2)
            if not full and not crowding:
                self._waiting[host] += 1
        if full or crowding:
            self._crew.counters.add("handshakes_failed_total", reason="crowded")
            close(sock)
            return
        self._crew.counters.add("handshakes_open")
        if not self._crew.start(self._receive, sock, peer, host):
            self._let_go(host)

    def _let_go(self, host: str) -> None:
        self._crew.counters.add("handshakes_open", -1)
        with self._lock:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]  # who knocks once is not remembered for ever

    def _receive(self, raw: socket.socket, peer: str, host: str) -> None:
        deadline = time.monotonic() + self.limits.handshake_seconds
        sock: ssl.SSLSocket | None = None
        line = b""
        try:
            tune(raw)
            raw.settimeout(self.limits.handshake_seconds)
            sock = self._keyring.context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
            with self._crew.watching(sock):
                sock.do_handshake()
                check_version(sock, peer)
                line = read_line(sock, max(0.001, deadline - time.monotonic()))
        except (OSError, ValueError, SecurityRefused) as error:
            reason = _reason(error)
            self._crew.counters.add("handshakes_failed_total", reason=reason)
            self._crew.counters.note(f"refused {peer}: {_WORDS[reason]}")
        finally:
            self._let_go(host)
        if sock is None or not line:
            close(sock, raw)
            return
        self._hand_over(sock, line, Peer(peer, self._keyring.key_id_of(sock)))

    def _hand_over(self, sock: ssl.SSLSocket, line: bytes, peer: Peer) -> None:
        with self._crew.holding(sock):
            self._handle(sock, line, peer)


_WORDS = {
    "version": "it speaks another version of the tunnel",
    "timeout": "it was not through its handshake in time",
    "secret": "it does not know a secret that is valid here, or has a certificate for another role",
    "hung_up": "it hung up during the handshake",
    "not_a_tunnel": "it does not speak TLS 1.3 as a tunnel does",
    "broken": "the connection broke during the handshake",
}


def _listens(server: socket.socket) -> bool:
    return bool(server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _reason(error: Exception) -> str:
    reason = str(getattr(error, "reason", "") or "")
    if isinstance(error, SecurityRefused):
        return "version"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ssl.SSLCertVerificationError) or "CALLBACK_FAILED" in reason or "CERTIFICATE" in reason:
        return "secret"
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return "hung_up"
    return "not_a_tunnel" if isinstance(error, ssl.SSLError) else "broken"
