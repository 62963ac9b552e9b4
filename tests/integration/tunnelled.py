"""Tunnels on this machine, in threads: both ends in either dial direction, what they lead to, and clients of them."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from isthmus.model import Cluster
from isthmus.security import Secret, Tunnel
from isthmus.tunnel.allow import Asking, read_rule
from isthmus.tunnel.counters import Passage
from isthmus.tunnel.dialing import open_through
from isthmus.tunnel.end import End, EndSpec, Place
from isthmus.tunnel.listener import Limits
from isthmus.tunnel.secret import new_secret

HERE = Place("127.0.0.1", 0)
LOOPBACK = ("127.0.0.0/8:*", "[::1/128]:*")  # what tests connect to is here, which nobody would allow elsewhere
DIRECTIONS = ("listens", "dials")
SOON_S = 120.0
PATIENT = Limits(handshake_seconds=SOON_S)  # a busy machine must not fail a test that is about something else


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For clients and exits what `PATIENT` is for listeners."""
    for name in ("dialing.CONNECT_S", "dialing.ANSWER_S", "exits.CONNECT_S", "meeting.PATIENCE_S", "meeting.ANSWER_S"):
        monkeypatch.setattr(f"isthmus.tunnel.{name}", SOON_S)


@dataclasses.dataclass
class Way:
    """A tunnel: its exit, what clients dial, and what passed."""

    exit: End
    tunnel: Tunnel
    passages: list[Passage]
    meeting: End | None = None

    def to(self, cluster: Cluster) -> Cluster:
        return dataclasses.replace(cluster, security=dataclasses.replace(cluster.security, tunnel=self.tunnel))


def spec(role: str, secret: Secret, **changes: object) -> EndSpec:
    allow = tuple(map(read_rule, LOOPBACK)) if role == "exit" else ()
    made = EndSpec(role=role, secrets=(secret,), allow=allow, limits=PATIENT)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


@contextlib.contextmanager
def tunnel(exit_: str, ask: Asking | None = None, **changes: object) -> Iterator[Way]:
    """A tunnel whose exit listens or dials; `changes` are of the exit."""
    secret, passages = Secret(new_secret()), list[Passage]()
    with contextlib.ExitStack() as stack:
        meeting = None
        if exit_ == "dials":
            meeting = stack.enter_context(End(spec("entry", secret, listen=HERE)))
            changes["dial"] = Place(HERE.host, meeting.port)
        else:
            changes["listen"] = HERE
        end = stack.enter_context(End(spec("exit", secret, **changes), ask=ask, audit=passages.append))
        port = meeting.port if meeting else end.port
        yield Way(end, Tunnel(host=HERE.host, port=port, secrets=(secret,)), passages, meeting)


class Echo:
    """A stand-in for a broker: sends back what it gets, after its name."""

    def __init__(self, greeting: bytes = b"hello ") -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.greeting = greeting
        self.living: list[socket.socket] = []
        self.ended = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Echo:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for sock in self.living:
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._server.accept()
                self.living.append(sock)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.sendall(self.greeting)
            while some := sock.recv(65_536):
                sock.sendall(some)
        sock.close()
        self.ended += 1


def through(way: Way, port: int, host: str = "127.0.0.1") -> ssl.SSLSocket:
    sock = open_through(way.tunnel, host, port)
    sock.settimeout(SOON_S)
    return sock


def heard(sock: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        some = sock.recv(size - len(found))
        if not some:
            break
        found += some
    return bytes(found)


def greets(sock: socket.socket) -> None:
    assert heard(sock, 6) == b"hello "
    sock.sendall(b"ping")
    assert heard(sock, 4) == b"ping"


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SOON_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def at(way: Way, port: int) -> Way:
    """The same tunnel, dialled at another port."""
    return dataclasses.replace(way, tunnel=dataclasses.replace(way.tunnel, port=port))
