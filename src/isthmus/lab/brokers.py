"""One broker of a lab cluster: what is wanted of it, its settings on disk, its process.

Node 1 is broker and controller, further nodes are brokers (`controllers` moves that line), so any
node that is not a controller can be killed freely. A node keeps its ports and its data from start
to start; only the lab's end removes them. Storage is formatted by writing the two small files that
`kafka-storage format` would write. Waiting until a cluster is usable is left to `cluster`; the
death of the whole lab to `guard`.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from isthmus.errors import ConfigError, MachineError
from isthmus.lab.guard import Guard
from isthmus.lab.jars import KAFKA, broker_jars, classpath, jars, release
from isthmus.machine import java

HOST = "127.0.0.1"
_CONTROLLER = "CONTROLLER"
# Below the range that the kernel gives to outgoing connections: a port that is free while its
# broker is down must still be free when the broker comes back.
_PORTS = range(20_000, 32_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One door of every broker; `properties` are set for this listener only. `advertised`: the host to tell clients,
    in which `{node}` is the broker's number; `told`: the ports to tell them, of each broker in turn, in place of its
    own; `bound`: the address to listen on."""

    name: str = "PLAINTEXT"
    protocol: str = "PLAINTEXT"
    advertised: str = HOST
    bound: str = HOST
    told: tuple[int, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def told_at(self, node: Node) -> str:
        port = self.told[node.id - 1] if self.told else node.ports[self.name]
        return f"{self.name}://{self.advertised}:{port}".replace("{node}", str(node.id))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster as wanted. `properties` win over every setting of the lab."""

    name: str
    brokers: int = 1
    version: str = KAFKA
    properties: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    listeners: tuple[Listener, ...] = (Listener(),)
    controllers: int = 1
    heap_mb: int = 512
    flags: tuple[str, ...] = ()  # of each JVM

    def __post_init__(self) -> None:
        if not 1 <= self.controllers <= self.brokers:
            raise ConfigError(
                f"{self.brokers} brokers cannot hold {self.controllers} controllers",
                where=self.name,
            )
        if not self.listeners or self.listeners[0].protocol != "PLAINTEXT":
            raise ConfigError("the first listener is the lab's own, PLAINTEXT", where=self.name)

    @property
    def kraft(self) -> bool:
        """Whether this version runs without ZooKeeper (production-ready since 3.3)."""
        return release(self.version) >= (3, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The fixed facts of one broker."""

    id: int
    folder: Path
    ports: Mapping[str, int]  # listener name -> port

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def address(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"


def lay_out(spec: ClusterSpec, folder: Path) -> tuple[Node, ...]:
    """The nodes of a cluster, each with a folder and free ports."""
    names = [*(listener.name for listener in spec.listeners), _CONTROLLER]
    free = free_ports()
    return tuple(
        Node(id=number, folder=folder / str(number), ports={name: next(free) for name in names})
        for number in range(1, spec.brokers + 1)
    )


_handed_out: set[int] = set()  # by this process: between here and a broker that listens, nobody else sees it taken


def free_ports() -> Iterator[int]:
    """Free ports in random order, none twice: two labs that start together hardly ever choose the same."""
    for port in random.sample(_PORTS, len(_PORTS)):
        if port in _handed_out:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.connect_ex((HOST, port)) == 0:
                continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        _handed_out.add(port)
        yield port


def settings(spec: ClusterSpec, node: Node, coordination: Mapping[str, str]) -> dict[str, str]:
    """All of server.properties for one node."""
    replicas = str(min(3, spec.brokers))
    quick = {
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.ms": "-1",  # records with old timestamps are wanted as long as the lab lives
        "auto.create.topics.enable": "false",
        "delete.topic.enable": "true",  # the default since 1.0
        "num.partitions": "1",
        "default.replication.factor": "1",
        "log.dirs": str(node.data),
        "log.cleaner.backoff.ms": "1000",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
    return quick | _doors(spec, node) | dict(coordination) | _own(spec, node)


def _own(spec: ClusterSpec, node: Node) -> dict[str, str]:
    """The settings that were asked for; `{node}` in a value is the broker's number."""
    return {name: value.replace("{node}", str(node.id)) for name, value in spec.properties.items()}


def _doors(spec: ClusterSpec, node: Node) -> dict[str, str]:
    doors = [f"{each.name}://{each.bound}:{node.ports[each.name]}" for each in spec.listeners]
    protocols = [f"{each.name}:{each.protocol}" for each in spec.listeners]
    found = {
        "advertised.listeners": ",".join(each.told_at(node) for each in spec.listeners),
        "inter.broker.listener.name": spec.listeners[0].name,
    }
    for each in spec.listeners:
        prefix = f"listener.name.{each.name.lower()}."
        found |= {prefix + key: value for key, value in each.properties.items()}
    if spec.kraft:
        protocols.append(f"{_CONTROLLER}:PLAINTEXT")
        if node.id <= spec.controllers:
            doors.append(f"{_CONTROLLER}://{node.address(_CONTROLLER)}")
    return found | {
        "listeners": ",".join(doors),
        "listener.security.protocol.map": ",".join(protocols),
    }


def kraft(spec: ClusterSpec, node: Node, nodes: Sequence[Node]) -> dict[str, str]:
    """The settings by which the nodes of a cluster without ZooKeeper find each other."""
    voters = (f"{each.id}@{each.address(_CONTROLLER)}" for each in nodes[: spec.controllers])
    return {
        "node.id": str(node.id),
        "process.roles": "broker,controller" if node.id <= spec.controllers else "broker",
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": _CONTROLLER,
        # A new broker may take part only after its next heartbeat (default 2 s), and one that was
        # killed may register again only when its old session has expired (default 9 s).
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "4000",
    }


def format_storage(node: Node, cluster_id: str, checkpoint: Path) -> None:
    """What `kafka-storage format` does, without the second that its JVM takes."""
    node.data.mkdir(parents=True)
    properties = {"version": "1", "node.id": str(node.id), "cluster.id": cluster_id}
    write_properties(node.data / "meta.properties", properties | {"directory.id": kafka_uuid()})
    (node.data / "bootstrap.checkpoint").write_bytes(checkpoint.read_bytes())


def kafka_uuid() -> str:
    """A random id in Kafka's own spelling. One that begins with a dash reads as an option."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def java_command(version: str, *words: str, heap_mb: int, flags: Sequence[str] = (), tools: bool = False) -> list[str]:
    """A quiet JVM of modest size with this Kafka on its class path; `tools` and MirrorMaker 2 need more jars."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    stamped = "-Dorg.slf4j.simpleLogger.showDateTime=true"
    sizes = (f"-Xms{min(heap_mb, 128)}m", f"-Xmx{heap_mb}m", "-XX:+UseParallelGC")
    # ZooKeeper would look for log4j classes to show in JMX, and die of those that are not there.
    zookeeper = "-Dzookeeper.jmx.log4j.disable=true"
    fixed = (*sizes, "-XX:-UsePerfData", "-Djava.awt.headless=true", quiet, stamped, zookeeper)
    return [str(java()), *fixed, *flags, "-cp", classpath(jars(version) if tools else broker_jars(version)), *words]


class JavaProcess:
    """A guarded JVM that can be started again; its output is appended to one log."""

    def __init__(self, guard: Guard, command: Sequence[str], log: Path) -> None:
        self._guard = guard
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self.log = log

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def alive(self) -> bool:
        # Popen.poll would wait for a dead child, and its number could pass to a stranger while the
        # guard still has it on the list; so look without waiting.
        if self._process is None:
            return False
        try:
            return psutil.Process(self._process.pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False  # the whole lab has ended meanwhile

    def start(self) -> None:
        self.kill()
        self._process = self._guard.spawn(self._command, log=self.log)

    def signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is None or not self.alive():
            raise MachineError("no such process is running", where=str(self.log), code="LAB")
        os.kill(pid, number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone; nothing when it does not run."""
        if self._process is not None:
            self._guard.reap(self._process)
            self._process = None

    def tail(self, lines: int = 40) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])
