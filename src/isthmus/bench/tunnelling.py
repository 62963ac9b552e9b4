"""What a tunnel costs on one machine: throughput, CPU, latency, many connections, and a whole replication.

The exit is a process of its own (`isthmus tunnel serve`), and so is what it leads to; the client is this process.
Direct and tunnelled runs take turns, the better of each counts. `stunnel` is measured on the same work where it is
installed. What must stay true: bytes are counted at the client, CPU of both ends is reported beside the speed.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from isthmus.bench.cases import CASES, fill
from isthmus.bench.crossing import InThread
from isthmus.engine.driver import Driver
from isthmus.errors import WireError
from isthmus.lab.brokers import free_ports
from isthmus.lab.identities import Authority
from isthmus.model import Cluster, Flow, Mm2Topics, Sync, Topics
from isthmus.security import Secret, Security, Tunnel
from isthmus.tunnel.dialing import open_through, ping
from isthmus.tunnel.secret import new_secret

BAR_SHARE, BAR_MS = 0.8, 5.0
AT_ONCE = 200
_ROUNDS = 3
_TRIPS = 3_000
_HERE = "127.0.0.1"

Say = Callable[[str], None]
Dialled = Callable[[], socket.socket]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnelled:
    """MB are millions of bytes; CPU is in seconds per GB, of the client's thread and of the exit's process."""

    direct_mb_s: float
    tunnel_mb_s: float
    stunnel_mb_s: float | None
    client_cpu_per_gb: float
    exit_cpu_per_gb: float
    direct_p99_ms: float
    tunnel_p99_ms: float
    connections: int
    connections_s: float
    replicated_direct_per_s: float
    replicated_tunnel_per_s: float

    @property
    def share(self) -> float:
        return self.replicated_tunnel_per_s / self.replicated_direct_per_s

    @property
    def within_bars(self) -> bool:
        slower_than_stunnel = self.stunnel_mb_s is not None and self.tunnel_mb_s < self.stunnel_mb_s
        added = self.tunnel_p99_ms - self.direct_p99_ms
        return self.share >= BAR_SHARE and added < BAR_MS and not slower_than_stunnel

    def as_json(self) -> dict[str, Any]:
        bars = {"share_of_direct": BAR_SHARE, "added_p99_ms": BAR_MS}
        return {"bars": bars, "within_bars": self.within_bars, "share": round(self.share, 3), **asdict(self)}


def measure_tunnel(source: str, target: str, scale: float, say: Say) -> Tunnelled:
    """On two empty clusters."""
    size = int(2e9 * scale)
    with _peer() as port, _exit() as (tunnel, process), _stunnel(port) as theirs:

        def direct() -> socket.socket:
            return socket.create_connection((_HERE, port))

        def tunnelled() -> socket.socket:
            sock = open_through(tunnel, _HERE, port)
            sock.settimeout(None)
            return sock

        say("tunnel: bytes, direct and through it in turn")
        ways = {"direct": direct, "tunnel": tunnelled} | ({"stunnel": theirs} if theirs else {})
        speeds, cpu = _speeds(ways, size, process)
        say("tunnel: round trips")
        latencies = {name: _p99_ms(dialled) for name, dialled in (("direct", direct), ("tunnel", tunnelled))}
        say(f"tunnel: {AT_ONCE} connections")
        opening = _many(tunnelled)
        replicated = _replicated(source, target, tunnel, scale, say)
    return Tunnelled(
        direct_mb_s=round(speeds["direct"], 1),
        tunnel_mb_s=round(speeds["tunnel"], 1),
        stunnel_mb_s=round(speeds["stunnel"], 1) if "stunnel" in speeds else None,
        client_cpu_per_gb=round(cpu[0], 2),
        exit_cpu_per_gb=round(cpu[1], 2),
        direct_p99_ms=round(latencies["direct"], 3),
        tunnel_p99_ms=round(latencies["tunnel"], 3),
        connections=AT_ONCE,
        connections_s=round(opening, 2),
        replicated_direct_per_s=round(replicated["direct"]),
        replicated_tunnel_per_s=round(replicated["tunnel"]),
    )


# -- what is talked to -----------------------------------------------------------------------------


@contextlib.contextmanager
def _peer() -> Iterator[int]:
    command = [sys.executable, "-I", str(Path(__file__).with_name("peer.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline()) if process.stdout else 0
        finally:
            process.kill()


@contextlib.contextmanager
def _exit() -> Iterator[tuple[Tunnel, psutil.Process]]:
    secret, port = new_secret(), next(free_ports())
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        key, file = Path(folder) / "key", Path(folder) / "exit.yaml"
        key.touch(mode=0o600)
        key.write_text(secret)
        file.write_text(f'role: exit\nlisten: {_HERE}:{port}\nsecret_file: key\nallow: ["127.0.0.0/8:*"]\n')
        quiet = subprocess.DEVNULL
        command = [sys.executable, "-m", "isthmus", "tunnel", "serve", str(file)]
        with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
            try:
                tunnel = Tunnel(host=_HERE, port=port, secrets=(Secret(secret),))
                _await(tunnel)
                yield tunnel, psutil.Process(process.pid)
            finally:
                process.terminate()


def _await(tunnel: Tunnel) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            ping(tunnel)
        except WireError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


# -- bytes -----------------------------------------------------------------------------------------


def _speeds(
    ways: dict[str, Dialled], size: int, process: psutil.Process
) -> tuple[dict[str, float], tuple[float, float]]:
    """The best MB/s of each, and the least CPU per GB of client and exit."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    costs: list[tuple[float, float]] = []
    for _ in range(_ROUNDS):
        for name, dialled in ways.items():
            mine, theirs = time.thread_time(), _cpu(process)
            found[name].append(_pulled(dialled, size))
            if name == "tunnel":
                costs.append(((time.thread_time() - mine) / size * 1e9, (_cpu(process) - theirs) / size * 1e9))
    return {name: max(each) for name, each in found.items()}, min(costs, key=sum)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _pulled(dialled: Dialled, size: int) -> float:
    """MB/s of a download, from the first byte."""
    buffer, got = memoryview(bytearray(1 << 20)), 0
    with dialled() as sock:
        sock.sendall(struct.pack(">Q", size))
        began = time.monotonic()
        while count := sock.recv_into(buffer):
            got += count
    if got != size:
        raise WireError(f"{got} of {size} bytes came")
    return size / 1e6 / (time.monotonic() - began)


def _p99_ms(dialled: Dialled) -> float:
    """Of 100 bytes there and back."""
    times = []
    with dialled() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(struct.pack(">Q", 0))
        for _ in range(_TRIPS):
            began = time.monotonic()
            _there_and_back(sock, b"x" * 100)
            times.append(time.monotonic() - began)
    return 1000 * sorted(times)[int(0.99 * _TRIPS)]


def _there_and_back(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)
    got = 0
    while got < len(data):
        got += len(sock.recv(len(data) - got))


def _many(dialled: Dialled) -> float:
    """Seconds until so many connections are open, each of them used, all at the same time."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(dialled()) for _ in range(AT_ONCE)]
        for sock in socks:
            sock.sendall(struct.pack(">Q", 0))
            _there_and_back(sock, b"hello")
        return time.monotonic() - began


# -- stunnel ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _stunnel(port: int) -> Iterator[Dialled | None]:
    """A way through two `stunnel`, client and server; None where it is not installed."""
    program = shutil.which("stunnel") or shutil.which("stunnel4")
    if program is None:
        yield None
        return
    ports = free_ports()
    outer, inner = next(ports), next(ports)
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as name, contextlib.ExitStack() as stack:
        issued = Authority().issue("bench")
        (Path(name) / "own.pem").write_text(issued.key_pem() + issued.chain_pem())
        for side, own, accept, connect in (
            ("server", f"cert={name}/own.pem", outer, port),
            ("client", "client=yes", inner, outer),
        ):
            places = f"accept={_HERE}:{accept}\nconnect={_HERE}:{connect}\n"
            file = Path(name) / side
            file.write_text(f"foreground=yes\npid=\nsslVersion=TLSv1.3\n[bench]\n{places}{own}\n")
            quiet = subprocess.DEVNULL
            process = subprocess.Popen([program, str(file)], stdout=quiet, stderr=quiet)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        _await_port(inner)
        yield lambda: socket.create_connection((_HERE, inner))


def _await_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as sock:
            if sock.connect_ex((_HERE, port)) == 0:
                return
        time.sleep(0.1)


# -- a replication ---------------------------------------------------------------------------------


def _replicated(source: str, target: str, tunnel: Tunnel, scale: float, say: Say) -> dict[str, float]:
    """Records per second of a whole copy of `random`, the source reached directly and through the tunnel."""
    case = CASES["random"]
    say("tunnel: filling the source")
    filled = fill(source, case, scale)
    found: dict[str, list[float]] = {"direct": [], "tunnel": []}
    for number in range(_ROUNDS):
        for name, way in (("direct", None), ("tunnel", tunnel)):
            say(f"tunnel: a replication, {name}, {number + 1} of {_ROUNDS}")
            flow = _flow(source, target, case.topic, f"{name}{number}", way)
            began = time.monotonic()
            asyncio.run(Driver(flow, InThread(), until_caught_up=True).run())
            found[name].append(filled.records / (time.monotonic() - began))
    return {name: max(each) for name, each in found.items()}


def _flow(source: str, target: str, topic: str, alias: str, way: Tunnel | None) -> Flow:
    far = Cluster(alias=alias, bootstrap=tuple(source.split(",")))
    return Flow(
        source=replace(far, security=Security(tunnel=way)),
        target=Cluster(alias="west", bootstrap=tuple(target.split(","))),
        topics=Topics(include=(topic,)),
        sync=Sync(configs=False),
        mm2_topics=Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=False, checkpoints=False),
    )


# -- the report ------------------------------------------------------------------------------------


def show(found: Tunnelled, console: Console) -> None:
    table = Table(title="the tunnel, on loopback")
    for name in ("", "direct", "tunnel", "stunnel", "bar"):
        table.add_column(name, justify="left" if not name else "right")
    theirs = "not installed" if found.stunnel_mb_s is None else f"{found.stunnel_mb_s:,.0f}"
    table.add_row("MB/s, one connection", f"{found.direct_mb_s:,.0f}", f"{found.tunnel_mb_s:,.0f}", theirs, "stunnel")
    table.add_row(
        "CPU-s per GB, client + exit", "", f"{found.client_cpu_per_gb:.2f} + {found.exit_cpu_per_gb:.2f}", "", ""
    )
    added = f"+{BAR_MS:.0f}"
    table.add_row("round trip p99, ms", f"{found.direct_p99_ms:.2f}", f"{found.tunnel_p99_ms:.2f}", "", added)
    table.add_row(f"{found.connections} connections, s", "", f"{found.connections_s:.1f}", "", "")
    rates = f"{found.replicated_direct_per_s:,.0f}", f"{found.replicated_tunnel_per_s:,.0f}"
    table.add_row(f"records/s of `random` ({found.share:.0%})", *rates, "", f"{BAR_SHARE:.0%}")
    console.print(table)
