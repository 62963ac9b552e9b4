"""Peers that know the tunnel's secret and say anything all the same, TLS inside of a tunnel, and raw bytes at the page.

Every call ends with bytes or an error of connections; whoever comes next is served.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.pages import flow, made_up

from isthmus.security import Secret, Tunnel
from isthmus.tunnel import meeting as meeting_module
from isthmus.tunnel import offers as offers_module
from isthmus.tunnel.allow import AllowList
from isthmus.tunnel.counters import Counters
from isthmus.tunnel.crew import Crew
from isthmus.tunnel.exits import Exit
from isthmus.tunnel.identity import Identity, Keyring
from isthmus.tunnel.lines import OFFER, OK, PING, PONG, Destination, Refused, read_line
from isthmus.tunnel.listener import Limits, Listener, Peer
from isthmus.tunnel.meeting import Meeting
from isthmus.tunnel.offers import Offers
from isthmus.tunnel.secret import new_secret
from isthmus.web.server import Settings, serve
from isthmus.wire.security.nested import NestedTls

fuzz = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SECRET = Secret(new_secret())
WHO = Identity(SECRET)
LINES = st.sampled_from([OK, PING, PONG, OFFER, b"NO BUSY x\n", b"NO  \n", b"OK", b"\n", b"x" * 500, b"NO \xff\n"])
said = LINES | st.binary(max_size=60)


@contextlib.contextmanager
def listening(handle: object, crew: Crew) -> Iterator[int]:
    limits = Limits(unauthenticated=4, handshake_seconds=30)
    listener = Listener("127.0.0.1", 0, Keyring([SECRET]), limits, crew, handle)  # type: ignore[arg-type]
    try:
        yield listener.port
    finally:
        listener.close()
        crew.stop()


def dialled(port: int) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    return WHO.dialer.wrap_socket(plain, server_hostname=WHO.name)


@fuzz
@given(answer=said, hangs_up=st.booleans())
def test_an_exit_that_answers_anything_costs_a_client_a_word_and_nobody_else_anything(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, hangs_up: bool
) -> None:
    monkeypatch.setattr(meeting_module, "PATIENCE_S", 0.1)
    monkeypatch.setattr(meeting_module, "ANSWER_S", 0.1)
    crew = Crew(Counters())
    meeting = Meeting(crew, 4)
    with listening(meeting.handle, crew) as port:
        with dialled(port) as bad:
            bad.sendall(OFFER)
            assert read_line(bad, 30) == OK
            bad.sendall(answer)
            if hangs_up:
                bad.close()
            with contextlib.suppress(Refused), meeting.opened(Destination("a", 1)):
                assert answer.startswith(OK)
        with dialled(port) as good, dialled(port) as client:
            good.sendall(OFFER)
            assert read_line(good, 30) == OK
            client.sendall(b"CONNECT a:1\n")
            assert read_line(good, 30) == b"CONNECT a:1\n"
            good.sendall(OK)
            assert read_line(client, 30) == OK
        meeting.close()


@fuzz
@given(answers=st.lists(said, min_size=1, max_size=3))
def test_a_meeting_point_that_answers_anything_is_dialled_again(
    monkeypatch: pytest.MonkeyPatch, answers: list[bytes]
) -> None:
    monkeypatch.setattr(offers_module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(offers_module, "SILENCE_S", 0.1)
    monkeypatch.setattr(offers_module, "ANSWER_S", 0.1)
    came, left = threading.Semaphore(0), list(answers)

    def handle(sock: ssl.SSLSocket, line: bytes, _: Peer) -> None:
        came.release()
        assert line == OFFER
        if left:
            sock.sendall(left.pop())

    outside, inside = Crew(Counters()), Crew(Counters())
    with listening(handle, outside) as port:
        Offers(lambda: Tunnel(host="127.0.0.1", port=port, secrets=(SECRET,)), Exit(AllowList(), inside, 4), 1, inside)
        try:
            for _ in range(len(answers) + 2):
                assert came.acquire(timeout=30), "it gave up"
        finally:
            inside.stop()


# --- TLS inside of a tunnel ----------------------------------------------------------------------


@fuzz
@given(raw=st.binary(max_size=300) | st.just(b"\x16\x03\x03\xff\xff" + b"\0" * 70_000), is_cut=st.booleans())
@example(b"\x15\x03\x03\x00\x02\x02\x28", True)
def test_what_is_no_handshake_inside_of_a_tunnel_ends_with_an_error_of_tls(raw: bytes, is_cut: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.3)
        nested = NestedTls(ours, WHO.dialer, WHO.name)  # type: ignore[arg-type]
        threading.Thread(target=_send, args=(theirs, raw, is_cut), daemon=True).start()
        with pytest.raises(OSError):
            nested.do_handshake()


def _send(sock: socket.socket, raw: bytes, is_cut: bool) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(raw)
        if is_cut:
            sock.shutdown(socket.SHUT_WR)


class Far:
    """A broker's end of TLS, whose bytes pass through our hands."""

    def __init__(self) -> None:
        self._in, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = Keyring([SECRET]).context.wrap_bio(self._in, self.out, server_side=True)

    def shake(self, sock: socket.socket) -> None:
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(self.out.read())
                self._in.write(sock.recv(65536))
        sock.sendall(self.out.read())

    def sealed(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self.out.read()


@fuzz
@given(
    data=st.binary(min_size=1, max_size=200),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=3),
    kept=st.integers(0, 300),
    size=st.integers(1, 64),
)
@example(b"all of it", [], 300, 4)
def test_damaged_bytes_inside_of_a_tunnel_are_never_taken_for_the_brokers(
    data: bytes, edits: list[tuple[int, int]], kept: int, size: int
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(10)
        theirs.settimeout(10)
        nested, far = NestedTls(ours, WHO.dialer, WHO.name), Far()  # type: ignore[arg-type]
        shaking = threading.Thread(target=far.shake, args=(theirs,), daemon=True)
        shaking.start()
        nested.do_handshake()
        shaking.join(10)
        sealed = bytearray(far.sealed(data))
        for at, mask in edits:
            sealed[at % len(sealed)] ^= mask
        _send(theirs, bytes(sealed[:kept]), is_cut=True)
        got = b""
        with contextlib.suppress(OSError):
            while some := nested.recv(size):
                got += some
        assert data.startswith(got)
        assert not got or bytes(sealed[:kept]) == bytes(sealed), "half of a record was let through"


# --- the page, as bytes --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> Iterator[int]:
    with serve([flow()], made_up(), Settings(listen="127.0.0.1:0")) as served:
        yield served.port


REQUESTS = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/pause HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"POST /api/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhello",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ]
)
CHANGES = st.lists(st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=3)), max_size=3)


@fuzz
@given(raw=REQUESTS | st.binary(max_size=200), changes=CHANGES)
def test_raw_bytes_at_the_page_end_and_the_next_one_is_served(
    page: int, raw: bytes, changes: list[tuple[int, bytes]]
) -> None:
    for at, new in changes:
        at %= len(raw) + 1
        raw = raw[:at] + new + raw[at + len(new) :]
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", page), timeout=30) as sock:
        sock.sendall(raw)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while some := sock.recv(65536):
            answer += some
        assert not answer or answer.startswith(b"HTTP/1.1 ")
        assert b" 500 " not in answer.partition(b"\r\n")[0]
    asking = http.client.HTTPConnection("127.0.0.1", page, timeout=30)
    asking.request("GET", "/")
    assert asking.getresponse().status == 200
    asking.close()
