"""What a tunnel must bear: strangers, bad networks, dead ends, its own limits. Ends run in threads of this process.

Content and certificates of brokers through a tunnel are tested in `test_security`, firewalls in `test_namespaces`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.faulty import FaultProxy
from tests.integration.tunnelled import (
    DIRECTIONS,
    HERE,
    PATIENT,
    SOON_S,
    Echo,
    Way,
    at,
    be_patient,
    greets,
    heard,
    spec,
    through,
    tunnel,
    until,
)

from isthmus.errors import BrokerUnreachable, ConfigError, SecurityRefused
from isthmus.security import Secret, Tunnel
from isthmus.tunnel import dialing
from isthmus.tunnel.allow import read_rule
from isthmus.tunnel.dialing import open_through, ping
from isthmus.tunnel.end import End, Place
from isthmus.tunnel.identity import identity
from isthmus.tunnel.listener import Limits
from isthmus.tunnel.secret import new_secret

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        yield server


@pytest.fixture
def way() -> Iterator[Way]:
    with tunnel("listens") as made:
        yield made


def failed(way: Way, reason: str) -> int:
    return way.exit.counters.get("handshakes_failed_total", reason=reason)


# --- strangers --------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_", DIRECTIONS)
def test_bytes_pass_in_both_directions_of_dialling(exit_: str, echo: Echo) -> None:
    with tunnel(exit_) as way:
        with through(way, echo.port) as sock:
            greets(sock)
        until(lambda: way.passages, "no audit line")
    (passage,) = way.passages
    assert (passage.result, passage.out, passage.back) == ("passed", 4, 10)
    assert passage.destination == f"127.0.0.1:{echo.port}"
    assert passage.key == identity(way.tunnel.secrets[0]).key_id[:8]


def test_a_wrong_secret_is_refused(way: Way) -> None:
    stranger = dataclasses.replace(way.tunnel, secrets=(Secret(new_secret()),))
    with pytest.raises(SecurityRefused) as caught:
        open_through(stranger, "127.0.0.1", 1)
    assert caught.value.code == "TUNNEL_SECRET"
    until(lambda: failed(way, "secret") == 1, "it is not counted")
    assert way.passages == []


def test_a_secret_is_rotated_while_connections_live(echo: Echo) -> None:
    old, new = Secret(new_secret()), Secret(new_secret())
    with End(spec("exit", old, listen=HERE)) as end:
        place = Tunnel(host=HERE.host, port=end.port, secrets=(old,))
        renewed = dataclasses.replace(place, secrets=(new, old))
        with open_through(renewed, "127.0.0.1", echo.port) as living:  # a side that is ahead falls back
            living.settimeout(SOON_S)
            greets(living)
            end.adopt(dataclasses.replace(end.spec, secrets=(new, old)))
            for each in (place, renewed):
                assert ping(each) > 0
            end.adopt(dataclasses.replace(end.spec, secrets=(new,)))
            with pytest.raises(SecurityRefused, match="does not know this shared secret"):
                ping(place)
            assert ping(renewed) > 0
            living.sendall(b"still")
            assert heard(living, 5) == b"still"


def test_a_listeners_own_certificate_does_not_pass_for_a_clients(way: Way) -> None:
    who = identity(way.tunnel.secrets[0])
    reflected = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    who._fill(reflected, dials=False)
    reflected.set_alpn_protocols(["isthmus-tunnel/1"])
    raw = socket.create_connection((HERE.host, way.exit.port), SOON_S)
    with contextlib.suppress(OSError), reflected.wrap_socket(raw, server_hostname=who.name) as sock:
        sock.sendall(b"PING\n")
        assert sock.recv(1) == b""
    until(lambda: failed(way, "secret") == 1, "it is not counted")


def test_a_recorded_session_is_of_no_use(way: Way, echo: Echo) -> None:
    with FaultProxy(way.exit.port) as proxy:
        with through(at(way, proxy.port), echo.port) as sock:
            greets(sock)
        until(lambda: len(way.passages) == 1, "no audit line")
        recorded = bytes(proxy.sent[0])
    connections = len(echo.living)
    with socket.create_connection((HERE.host, way.exit.port), SOON_S) as replay, contextlib.suppress(OSError):
        replay.sendall(recorded)
        while replay.recv(65_536):
            pass
    until(lambda: way.exit.counters.get("handshakes_open") == 0, "the replay still waits")
    assert len(way.passages) == 1
    assert len(echo.living) == connections


@pytest.mark.parametrize(
    "probe", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x14\0\x12\0\3", b"SSH-2.0-x\r\n", b"CONNECT a:1\n"]
)
def test_a_plaintext_probe_hears_nothing_of_use(way: Way, probe: bytes) -> None:
    answer = b""
    with socket.create_connection((HERE.host, way.exit.port), SOON_S) as sock, contextlib.suppress(OSError):
        sock.sendall(probe)
        sock.shutdown(socket.SHUT_WR)
        answer = heard(sock, 1_000)
    assert len(answer) <= 7  # a TLS alert, or nothing
    assert ping(way.tunnel) > 0


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(max_size=600), hello=st.booleans())
def test_garbage_at_the_handshake_costs_nobody_anything(way: Way, garbage: bytes, hello: bool) -> None:
    """With and without the head of a real ClientHello, so that some of it gets past the first look."""
    with socket.create_connection((HERE.host, way.exit.port), SOON_S) as sock, contextlib.suppress(OSError):
        sock.sendall((b"\x16\x03\x01" + struct.pack(">H", len(garbage)) if hello else b"") + garbage)
        sock.shutdown(socket.SHUT_WR)
        assert len(heard(sock, 1_000)) <= 7
    assert ping(way.tunnel) > 0


def test_garbage_inside_of_the_handshake_is_answered_with_a_refusal(way: Way) -> None:
    for line in (b"\n", b"HELLO\n", b"CONNECT \xff:1\n", b"OFFER\n", b"CONNECT a:1 b\n"):
        with dialing.opened(way.tunnel) as sock:
            sock.settimeout(SOON_S)
            sock.sendall(line)
            assert heard(sock, 1_000).startswith(b"NO BAD_LINE")
    with dialing.opened(way.tunnel) as sock:
        sock.settimeout(SOON_S)
        sock.sendall(b"x" * 5_000)
        with contextlib.suppress(OSError):
            assert sock.recv(1) == b""
    assert ping(way.tunnel) > 0


def slow_ones(stack: contextlib.ExitStack, way: Way, number: int) -> list[socket.socket]:
    """Connections that announce a hello, and never say it."""
    socks = [stack.enter_context(socket.create_connection((HERE.host, way.exit.port), SOON_S)) for _ in range(number)]
    for sock in socks:
        with contextlib.suppress(OSError):
            sock.sendall(b"\x16\x03\x01\x02\x00")
    return socks


def test_only_so_many_may_be_on_their_way_through_the_handshake() -> None:
    """The limit is four, and two of one address."""
    with tunnel("listens", limits=Limits(unauthenticated=4, handshake_seconds=SOON_S)) as way:
        with contextlib.ExitStack() as stack:
            slow_ones(stack, way, 4)
            until(lambda: failed(way, "crowded") == 2, "more were let in than the limit")
            assert way.exit.counters.get("handshakes_open") == 2
        until(lambda: way.exit.counters.get("handshakes_open") == 0, "places are not given back")
        assert ping(way.tunnel) > 0


def test_slow_ones_are_cut_off() -> None:
    limits = Limits(handshake_seconds=0.3)
    with tunnel("listens", limits=limits) as way, contextlib.ExitStack() as stack:
        for sock in slow_ones(stack, way, 2):
            with contextlib.suppress(OSError):
                assert sock.recv(1) == b""
        until(lambda: failed(way, "timeout") == 2, "slow ones are not cut off")
        way.exit.adopt(dataclasses.replace(way.exit.spec, limits=PATIENT))
        assert ping(way.tunnel) > 0


# --- where to ---------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_", DIRECTIONS)
def test_a_destination_that_is_not_allowed_is_refused_with_what_to_do(exit_: str, echo: Echo) -> None:
    with tunnel(exit_, allow=(read_rule("kafka.far:9092"),)) as way, pytest.raises(SecurityRefused) as caught:
        through(way, echo.port)
    assert caught.value.code == "TUNNEL_NOT_ALLOWED"
    assert "allow" in caught.value.hint
    assert echo.living == []
    assert [passage.result for passage in way.passages] == ["NOT_ALLOWED"]


def test_an_allowed_name_that_leads_back_to_the_exit_itself_is_refused(echo: Echo) -> None:
    with tunnel("listens", allow=(read_rule("localhost:*"), read_rule("*:*"))) as way:
        for host in ("localhost", "127.0.0.1", "127.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "0.0.0.0"):
            with pytest.raises(SecurityRefused) as caught:
                through(way, echo.port, host)
            assert caught.value.code == "TUNNEL_NOT_ALLOWED", host
    assert echo.living == []


def test_a_name_that_the_exit_cannot_resolve_is_told(way: Way) -> None:
    with pytest.raises(BrokerUnreachable) as caught:
        through(way, 9092, "no-such-host.invalid")
    assert caught.value.code == "TUNNEL_UNRESOLVED"


@pytest.mark.parametrize("exit_", DIRECTIONS)
def test_a_broker_that_is_down_is_told(exit_: str, echo: Echo) -> None:
    with Echo() as gone:
        port = gone.port
    with tunnel(exit_) as way:
        with pytest.raises(BrokerUnreachable, match="Connection refused") as caught:
            through(way, port)
        assert caught.value.code == "TUNNEL_UNREACHABLE"
        with through(way, echo.port) as sock:
            greets(sock)


# --- limits -----------------------------------------------------------------------------------


def test_a_pool_that_is_used_up_is_filled_again_at_once(echo: Echo) -> None:
    with tunnel("dials", pool=1) as way, contextlib.ExitStack() as stack:
        for _ in range(12):
            greets(stack.enter_context(through(way, echo.port)))
        assert way.exit.counters.get("connections_open") == 12


def test_a_meeting_without_an_exit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.tunnel.meeting.PATIENCE_S", 0.1)
    secret = Secret(new_secret())
    with End(spec("entry", secret, listen=HERE)) as meeting, pytest.raises(BrokerUnreachable) as caught:
        open_through(Tunnel(host=HERE.host, port=meeting.port, secrets=(secret,)), "kafka.far", 9092)
    assert caught.value.code == "TUNNEL_NO_EXIT"


@pytest.mark.parametrize("exit_", DIRECTIONS)
def test_no_more_connections_pass_than_the_limit(exit_: str, echo: Echo) -> None:
    with tunnel(exit_, limits=dataclasses.replace(PATIENT, connections=2)) as way:
        with through(way, echo.port) as one, through(way, echo.port) as two:
            greets(one)
            greets(two)
            with pytest.raises(BrokerUnreachable) as caught:
                through(way, echo.port)
            assert caught.value.code == "TUNNEL_BUSY"
        until(lambda: way.exit.counters.get("connections_open") == 0, "places are not given back")
        with through(way, echo.port) as three:
            greets(three)


def test_200_connections_at_once(echo: Echo) -> None:
    with (
        tunnel("listens", limits=dataclasses.replace(PATIENT, unauthenticated=500)) as way,
        contextlib.ExitStack() as stack,
    ):
        socks = [stack.enter_context(through(way, echo.port)) for _ in range(200)]
        for sock in socks:
            greets(sock)
        assert way.exit.counters.get("connections_open") == 200


# --- other programs ---------------------------------------------------------------------------


@pytest.fixture
def door(way: Way) -> Iterator[End]:
    dial = Place(way.tunnel.host, way.tunnel.port)
    with End(spec("entry", way.tunnel.secrets[0], dial=dial, local=HERE, metrics=HERE)) as end:
        yield end


def at_door(door: End) -> socket.socket:
    assert door.local is not None
    return socket.create_connection((HERE.host, door.local.port), SOON_S)


def test_socks5_and_http_connect_lead_through_the_tunnel(door: End, echo: Echo) -> None:
    with at_door(door) as sock:
        sock.sendall(b"\5\1\0")
        assert heard(sock, 2) == b"\5\0"
        name = b"localhost"
        sock.sendall(b"\5\1\0\3" + bytes([len(name)]) + name + struct.pack(">H", echo.port))
        assert heard(sock, 10)[:2] == b"\5\0"
        greets(sock)
    with at_door(door) as sock:
        sock.sendall(b"\5\2\0\2")
        assert heard(sock, 2) == b"\5\0"
        sock.sendall(b"\5\1\0\1" + socket.inet_aton("127.0.0.1") + struct.pack(">H", echo.port))
        assert heard(sock, 10)[:2] == b"\5\0"
        greets(sock)
    with at_door(door) as sock:
        sock.sendall(f"CONNECT 127.0.0.1:{echo.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert heard(sock, 39).startswith(b"HTTP/1.1 200")
        greets(sock)


def test_the_local_door_refuses_what_it_does_not_know(door: End) -> None:
    for request in (b"\4\1\0\1", b"\5\1\2", b"\5\1\0\5\2\0\1", b"GET / HTTP/1.1\r\n\r\n", b"CONNECT nowhere\r\n\r\n"):
        with at_door(door) as sock, contextlib.suppress(OSError):
            sock.sendall(request)
            sock.shutdown(socket.SHUT_WR)
            assert b"200" not in heard(sock, 1_000)
    with at_door(door) as sock:
        sock.sendall(b"CONNECT no-such-host.invalid:1 HTTP/1.1\r\n\r\n")
        assert heard(sock, 12) == b"HTTP/1.1 502"
    with pytest.raises(ConfigError, match="would listen on"):
        End(dataclasses.replace(door.spec, local=Place("0.0.0.0", 0)))


def test_numbers_are_told_on_loopback_to_whoever_asks_there(door: End, echo: Echo) -> None:
    with at_door(door) as sock:
        sock.sendall(f"CONNECT 127.0.0.1:{echo.port} HTTP/1.1\r\n\r\n".encode())
        assert heard(sock, 39).startswith(b"HTTP/1.1 200")
        greets(sock)
    until(lambda: door.counters.get("connections_total", result="passed"), "it is not counted")
    url = f"http://127.0.0.1:{door.metrics_port}"
    with urllib.request.urlopen(f"{url}/metrics", timeout=SOON_S) as answer:
        text = answer.read().decode()
    assert 'isthmus_tunnel_connections_total{result="passed"} 1\n' in text
    assert 'isthmus_tunnel_bytes_total{direction="back"} 10\n' in text
    rebound = urllib.request.Request(f"{url}/metrics", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(rebound, timeout=SOON_S)
