"""What a tunnel must bear of networks, and ends as processes: slow, cut, reset, swallowed, killed, rotated."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import random
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faulty import Fault, FaultProxy, reset
from tests.integration.tunnelled import (
    DIRECTIONS,
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
from typer.testing import CliRunner

from isthmus.cli.app import app
from isthmus.errors import BrokerUnreachable
from isthmus.lab.brokers import free_ports
from isthmus.security import Secret, Tunnel
from isthmus.tunnel import dialing
from isthmus.tunnel.dialing import open_through, ping
from isthmus.tunnel.end import End, Place
from isthmus.tunnel.secret import new_secret, several

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


# --- bad networks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "size"),
    [
        (Fault(slice=1), 3_000),
        (Fault(delay_s=0.1), 200_000),  # 200 ms there and back
        (Fault(bytes_per_s=2_000_000), 400_000),
    ],
    ids=["one byte at a time", "200 ms", "2 MB/s"],
)
@pytest.mark.parametrize("leg", ["client", "broker"])
def test_content_survives_bad_networks(way: Way, echo: Echo, fault: Fault, size: int, leg: str) -> None:
    content = random.Random(size).randbytes(size)
    with FaultProxy(way.exit.port if leg == "client" else echo.port) as proxy:
        proxy.fault = fault
        sock = through(at(way, proxy.port), echo.port) if leg == "client" else through(way, proxy.port)
        with sock:
            assert heard(sock, 6) == b"hello "
            _exchanged(sock, content)


def _exchanged(sock: ssl.SSLSocket, content: bytes) -> None:
    """In turns: one thread must not read a TLS connection while another writes it."""
    back = bytearray()
    for start in range(0, len(content), 50_000):
        piece = content[start : start + 50_000]
        sock.sendall(piece)
        back += heard(sock, len(piece))
    assert hashlib.sha256(back).digest() == hashlib.sha256(content).digest()


def test_much_at_once_in_both_directions_does_not_block(way: Way) -> None:
    """Both sides send before they read: what one buffer cannot hold must not stop the other direction."""
    size = 8 << 20
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock = through(way, server.getsockname()[1])
        broker, _ = server.accept()
        with sock, broker:
            sender = threading.Thread(target=broker.sendall, args=(b"b" * size,))
            sender.start()
            assert heard(sock, size // 2) == b"b" * (size // 2)
            sock.sendall(b"c" * 1_000_000)
            assert heard(broker, 1_000_000) == b"c" * 1_000_000
            assert heard(sock, size // 2) == b"b" * (size // 2)
            sender.join(SOON_S)


@pytest.mark.parametrize("exit_", DIRECTIONS)
def test_a_reset_in_the_middle_ends_the_other_side_too(exit_: str, echo: Echo) -> None:
    with tunnel(exit_) as way, FaultProxy(echo.port) as proxy:
        proxy.fault = Fault(reset_after=50_000)
        with through(way, proxy.port) as sock:
            with contextlib.suppress(OSError):
                while True:
                    sock.sendall(b"x" * 10_000)
                    if not heard(sock, 10_000):
                        break
            with contextlib.suppress(OSError):
                assert sock.recv(1) in (b"", b"x")
        until(lambda: way.passages, "the exit still holds it")
        assert way.exit.counters.get("connections_open") == 0


def test_a_client_that_is_reset_frees_its_broker(way: Way, echo: Echo) -> None:
    sock = through(way, echo.port)
    greets(sock)
    reset(sock)
    until(lambda: way.passages, "the exit still holds it")
    until(lambda: echo.ended == 1, "the broker still has it")


def test_an_end_that_swallows_everything_is_given_up(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half open: accepted, and no answer ever. The client's own patience decides."""
    monkeypatch.setattr(dialing, "CONNECT_S", 0.5)
    with FaultProxy(way.exit.port) as proxy:
        proxy.fault = Fault(swallow=True)
        with pytest.raises(BrokerUnreachable) as caught:
            ping(at(way, proxy.port).tunnel)
    assert caught.value.code == "TUNNEL"


@pytest.mark.parametrize("exit_", DIRECTIONS)
def test_a_broker_that_swallows_everything_is_let_go_when_the_client_does(exit_: str, echo: Echo) -> None:
    with tunnel(exit_) as way, FaultProxy(echo.port) as proxy:
        proxy.fault = Fault(swallow=True)
        with through(way, proxy.port) as sock:
            sock.sendall(b"anybody there?")
            sock.settimeout(0.2)
            with pytest.raises(TimeoutError):
                sock.recv(1)
        until(lambda: way.passages, "the exit still holds it")


def test_keepalive_and_user_timeout_are_set_on_every_leg(way: Way, echo: Echo) -> None:
    with through(way, echo.port) as sock:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        held = [each for each in way.exit._crew._held if each.fileno() >= 0]
        assert len(held) == 2
        for each in held:
            assert each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


# --- dead ends --------------------------------------------------------------------------------


ENDS = """
import sys, time
from isthmus.config.tunnelfile import read_end
from isthmus.tunnel.end import End
from pathlib import Path
end = End(read_end(Path(sys.argv[1])).spec)
print(end.port, flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def end_process(folder: Path, text: str, secret: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_text(secret)
    file = folder / "end.yaml"
    file.write_text(f"secret_file: key\n{text}")
    with subprocess.Popen([sys.executable, "-c", ENDS, str(file)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_an_exit_that_is_killed_ends_its_connections_at_the_client(tmp_path: Path, echo: Echo) -> None:
    secret = new_secret()
    text = 'role: exit\nlisten: "127.0.0.1:PORT"\nallow: ["127.0.0.0/8:*"]\n'.replace("PORT", str(free_port()))
    with end_process(tmp_path, text, secret) as (process, port):
        place = Tunnel(host="127.0.0.1", port=port, secrets=(Secret(secret),))
        with open_through(place, "127.0.0.1", echo.port) as sock:
            sock.settimeout(SOON_S)
            greets(sock)
            sock.sendall(os.urandom(1_000_000))
            process.kill()
            process.wait()
            with contextlib.suppress(OSError):
                while sock.recv(65_536):
                    pass
    with pytest.raises(BrokerUnreachable, match="cannot be reached"):
        ping(place)


def free_port() -> int:
    """Below the range of outgoing connections, so it is still free a moment later."""
    return next(free_ports())


def test_an_exit_that_dials_comes_back_to_a_meeting_that_was_killed(tmp_path: Path, echo: Echo) -> None:
    """Both ends in turn: the meeting is killed and started again at its port, and clients get through again."""
    secret, port = new_secret(), free_port()
    text = f'role: entry\nlisten: "127.0.0.1:{port}"\n'
    place = Tunnel(host="127.0.0.1", port=port, secrets=(Secret(secret),))
    with End(spec("exit", Secret(secret), dial=Place("127.0.0.1", port), pool=2)) as end:
        for _ in range(2):
            with end_process(tmp_path, text, secret), open_when_up(place, echo.port) as sock:
                greets(sock)
            until(lambda: end.counters.get("pool_idle") == 0, "the exit did not see the end")
        assert end.counters.get("redials_total") > 0


def open_when_up(place: Tunnel, port: int) -> ssl.SSLSocket:
    deadline = time.monotonic() + SOON_S
    while True:
        try:
            sock = open_through(place, "127.0.0.1", port)
            sock.settimeout(SOON_S)
            return sock
        except BrokerUnreachable:
            assert time.monotonic() < deadline
            time.sleep(0.1)


# --- as a process -----------------------------------------------------------------------------


def told(*words: object) -> Any:
    result = CliRunner().invoke(app, ["tunnel", *map(str, words), "-o", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_command_takes_a_rotated_key_over_while_connections_live(tmp_path: Path, echo: Echo) -> None:
    key, file, port = tmp_path / "key", tmp_path / "exit.yaml", free_port()
    told("keygen", key)
    file.write_text(f"role: exit\nlisten: 127.0.0.1:{port}\nsecret_file: key\nallow: ['127.0.0.0/8:*']\n")
    old = Tunnel(host="127.0.0.1", port=port, secrets=several(key.read_text()))
    command = [sys.executable, "-m", "isthmus", "tunnel", "serve", str(file), "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            until(lambda: pings(old), "it does not start")
            (row,) = told("status", file)
            assert row["ok"]
            with open_through(old, "127.0.0.1", echo.port) as living:
                living.settimeout(SOON_S)
                greets(living)
                told("rotate", file)
                new = dataclasses.replace(old, secrets=several(key.read_text())[:1])
                until(lambda: pings(new), "the new key is not taken over")
                assert pings(old)
                told("rotate", file, "--finish")
                until(lambda: not pings(old), "the old key still counts")
                assert pings(new)
                living.sendall(b"still")
                assert heard(living, 5) == b"still"
        finally:
            process.terminate()
        output = process.communicate(timeout=SOON_S)[0]
    assert process.returncode == 0
    assert "isthmus-key" not in output
    (passage,) = (json.loads(line) for line in output.splitlines() if line.startswith("{"))
    assert (passage["destination"], passage["out"], passage["back"]) == (f"127.0.0.1:{echo.port}", 9, 15)


def pings(tunnel: Tunnel) -> bool:
    try:
        return ping(tunnel) > 0
    except BrokerUnreachable:
        return False
