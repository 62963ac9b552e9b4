"""The tunnel's ports, by whoever reaches them: garbage, lines without end, slow ones and those that hang up in between.

Everybody is let go within the deadline, no thread falls over it, and whoever comes next is served.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from isthmus.security import Secret
from isthmus.tunnel import listener as listener_module
from isthmus.tunnel import local
from isthmus.tunnel.allow import AllowList
from isthmus.tunnel.counters import Counters
from isthmus.tunnel.crew import Crew
from isthmus.tunnel.exits import Exit
from isthmus.tunnel.identity import Identity, Keyring
from isthmus.tunnel.lines import LONGEST, Destination, Refused, read_answer, read_connect, read_line
from isthmus.tunnel.listener import Limits, Listener
from isthmus.tunnel.local import LocalDoor
from isthmus.tunnel.secret import new_secret

# Python's `wrap_socket` leaves a connection that was reset before it to the collector, which closes it at once.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
fuzz = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SECRET = Secret(new_secret())
ENDS = st.sampled_from(["hangs up", "half closed", "resets"])
garbage = st.binary(max_size=200) | st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\x16\x03\x01\xff\xff" + b"\0" * 500,
        b"CONNECT a:1\n",
    ]
)


@contextlib.contextmanager
def listening(seconds: float = 30.0) -> Iterator[Listener]:
    """An exit that lets nothing pass, and answers to a PING."""
    crew = Crew(Counters())
    limits = Limits(unauthenticated=4, handshake_seconds=seconds)
    listener = Listener("127.0.0.1", 0, Keyring([SECRET]), limits, crew, Exit(AllowList(), crew, 5).handle)
    try:
        yield listener
    finally:
        listener.close()
        crew.stop()


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


def sent_to(port: int, raw: bytes, end: str) -> bytes:
    """What comes back, to the end."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(raw)
        if end == "resets":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if end != "half closed":
            return b""
        with contextlib.suppress(OSError):  # it was hung up on already
            sock.shutdown(socket.SHUT_WR)
        return _all(sock)


def _all(sock: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while some := sock.recv(4096):
            found += some
    return found


def said_within(port: int, raw: bytes) -> bytes:
    """What an end answers to whoever knows the secret."""
    who = Identity(SECRET)
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    with who.dialer.wrap_socket(plain, server_hostname=who.name) as sock:
        sock.sendall(raw)
        return read_line(sock, 60)


@fuzz
@given(raw=garbage, end=ENDS)
def test_garbage_at_the_one_port_gets_no_word_and_costs_nobody_else_anything(
    listener: Listener, raw: bytes, end: str
) -> None:
    assert b"NO " not in sent_to(listener.port, raw, end)
    _settled(listener)


def _settled(listener: Listener) -> None:
    until = time.monotonic() + 60
    while listener._waiting.total():
        assert time.monotonic() < until, "somebody is never let go"
        time.sleep(0.001)


lines = st.binary(max_size=60).map(lambda x: x.replace(b"\n", b"") + b"\n") | st.sampled_from(
    [
        b"CONNECT a..b:1\n",
        b"CONNECT " + b"x" * 253 + b":1\n",
        b"CONNECT [::]:1\n",
        b"OFFER\n",
        b"PING \n",
        b"CONNECT a:99999\n",
    ]
)


@settings(fuzz, max_examples=15)
@given(line=lines)
def test_any_line_of_whoever_knows_the_secret_is_answered(listener: Listener, line: bytes) -> None:
    answer = read_answer(said_within(listener.port, line))
    assert answer is not None
    assert answer.code in ("BAD_LINE", "NOT_ALLOWED")


def test_a_line_without_end_is_cut_off_and_the_next_client_is_served(listener: Listener) -> None:
    assert said_within(listener.port, b"x" * (LONGEST + 100)) == b""
    assert said_within(listener.port, b"PING\n") == b"PONG\n"


def test_whoever_sends_a_byte_now_and_then_is_cut_off_at_the_deadline() -> None:
    with listening(0.3) as slow, socket.create_connection(("127.0.0.1", slow.port), timeout=60) as sock:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(1000):
                sock.sendall(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - began < 30
        _settled(slow)


# --- the local door ------------------------------------------------------------------------------


class Door:
    """A door whose way leads nowhere, and remembers where it should have led."""

    def __init__(self) -> None:
        self.wanted: list[Destination] = []
        self.crew = Crew(Counters())
        self.door = LocalDoor("127.0.0.1", 0, self._way, self.crew)

    def _way(self, wanted: Destination) -> contextlib.AbstractContextManager[socket.socket]:
        self.wanted.append(wanted)
        raise Refused("UNREACHABLE", "nowhere")


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    found = Door()
    yield found
    found.door.close()
    found.crew.stop()


socks = st.tuples(st.sampled_from([b"\5\1\0", b"\5\xff", b"\5\0", b"\4\1"]), st.binary(max_size=20)).map(b"".join)
asked = st.tuples(st.just(b"\5\1\0\5\1\0"), st.sampled_from([b"\1", b"\3", b"\4", b"\7"]), st.binary(max_size=40))
http = st.tuples(
    st.just(b"CONNECT "),
    st.binary(max_size=20),
    st.sampled_from([b":1", b":99999", b""]),
    st.just(b" HTTP/1.1\r\n\r\n"),
)


@fuzz
@given(raw=garbage | socks | asked.map(b"".join) | http.map(b"".join), end=ENDS)
@example(b"\5\1\0\5\1\0\3\0\0\0", "half closed")
@example(b"\5\1\0\5\1\0\3\2\xff\xff\0\1", "half closed")
@example(b"C" * 9000, "half closed")
@example(b"CONNECT a:99999 HTTP/1.1\r\n\r\n", "half closed")
def test_garbage_at_the_local_door_leads_nowhere(door: Door, raw: bytes, end: str) -> None:
    sent_to(door.door.port, raw, end)
    for wanted in door.wanted:
        line = f"CONNECT {wanted}\n".encode()
        assert read_connect(line) == wanted
    door.wanted.clear()


def test_the_local_door_serves_the_next_one_after_all_of_that(door: Door) -> None:
    assert b"502" in sent_to(door.door.port, b"CONNECT far:9092 HTTP/1.1\r\n\r\n", "half closed")
    assert sent_to(door.door.port, b"\5\1\0\5\1\0\3\3far\x23\x84", "half closed").startswith(b"\5\0\5\5")


def test_the_local_door_outlives_a_moment_without_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is gone before it is taken, or a machine that has no more files to open."""
    failures = [OSError(24, "Too many open files"), ConnectionAbortedError(), OSError(24, "Too many open files")]

    class Failing:
        def __init__(self, server: socket.socket) -> None:
            self._server = server

        def accept(self) -> object:
            if failures:
                raise failures.pop()
            return self._server.accept()

        def __getattr__(self, name: str) -> object:
            return getattr(self._server, name)

    monkeypatch.setattr(local, "bound", lambda *place: Failing(listener_module.bound(*place)))
    found = Door()
    try:
        assert b"502" in sent_to(found.door.port, b"CONNECT far:9092 HTTP/1.1\r\n\r\n", "half closed")
        assert not failures
    finally:
        found.door._server._server.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]
        found.crew.stop()


def test_a_slow_request_at_the_local_door_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch, door: Door) -> None:
    monkeypatch.setattr(local, "REQUEST_S", 0.3)
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", door.door.port), timeout=60) as sock:
        stop = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not stop.wait(0.05):
                    sock.sendall(b"C")

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert _all(sock) == b""
        stop.set()
        dripping.join()
    assert time.monotonic() - began < 30
