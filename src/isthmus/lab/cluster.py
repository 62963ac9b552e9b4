"""Real Kafka clusters on this machine, for tests, demos and benchmarks.

    with Lab([ClusterSpec(name="east"), ClusterSpec(name="west")]) as lab:
        lab["east"].bootstrap

All clusters of a lab start side by side. `start` and `restart` return when the cluster is usable:
every broker answers, each knows of all running ones, and a topic could be created. Whatever
happens to this process, the guard ends the brokers and removes their folder. What Kafka is made
of, and how one broker is set up, is left to `jars`, `warm`, `brokers` and `zookeeper`.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import TracebackType

from isthmus.errors import MachineError
from isthmus.lab import admin, brokers, warm, zookeeper
from isthmus.lab.brokers import ClusterSpec, JavaProcess, Node
from isthmus.lab.guard import Guard
from isthmus.lab.jars import KAFKA, Say, are_here, broker_jars

READY_SECONDS = 60.0
_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.05


class LabCluster:
    """One running cluster. Nodes are numbered from 1."""

    def __init__(self, spec: ClusterSpec, guard: Guard, folder: Path, flags: Sequence[str] = ()) -> None:
        self.spec = spec
        self.name = spec.name
        self._flags = flags
        self._guard = guard
        self._folder = folder
        self._nodes = {node.id: node for node in brokers.lay_out(spec, folder)}
        self._coordinator: JavaProcess | None = None
        self._processes = {node.id: self._process(node) for node in self._nodes.values()}

    @property
    def brokers(self) -> tuple[int, ...]:
        """The numbers of all nodes, running or not."""
        return tuple(self._nodes)

    @property
    def bootstrap(self) -> str:
        return self.bootstrap_of(self.spec.listeners[0].name)

    def bootstrap_of(self, listener: str) -> str:
        return ",".join(node.address(listener) for node in self._nodes.values())

    def pid(self, node_id: int) -> int | None:
        return self._processes[node_id].pid

    def start(self) -> None:
        """Prepare all nodes, start them together, and wait until the cluster is usable."""
        self._prepare()
        for process in self._processes.values():
            process.start()
        self.wait_ready()

    def stop(self) -> None:
        """End all processes at once; the data stay until the lab ends."""
        for process in (*self._processes.values(), *self._coordinators()):
            process.kill()

    def shut_down(self, node_id: int) -> None:
        """End one broker in good order, as an operator would."""
        self._processes[node_id].signal(signal.SIGTERM)
        with _patience(_STOP_SECONDS, lambda: f"{self.name}-{node_id} does not stop") as wait:
            while self._processes[node_id].alive():
                wait()
        self.kill(node_id)

    def kill(self, node_id: int) -> None:
        """kill -9, also of a stopped process."""
        self._processes[node_id].kill()

    def signal(self, node_id: int, number: signal.Signals) -> None:
        self._processes[node_id].signal(number)

    def restart(self, node_id: int) -> None:
        """Start a node again on its old port and data (after kill -9 if it runs)."""
        self._processes[node_id].start()
        self.wait_ready()

    def log_dir(self, node_id: int) -> Path:
        return self._nodes[node_id].data

    def logs(self, node_id: int, lines: int = 40) -> str:
        return self._processes[node_id].tail(lines)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until all its partitions have leaders."""
        with _patience(READY_SECONDS, lambda: f"no leaders for {name} of {self.name}") as wait:
            admin.create(self.bootstrap, name, partitions, replication_factor, configs or {})
            while not admin.has_leaders(self.bootstrap, name, partitions):
                wait()

    def delete_topic(self, name: str) -> None:
        admin.delete(self.bootstrap, name)

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until every running broker sees every other, and a topic could be created."""
        running = {each for each, process in self._processes.items() if process.pid is not None}
        with _patience(seconds, self._not_ready) as wait:
            for each in sorted(running):
                while not running <= _brokers_seen_at(self._port(each)):
                    self._fail_if_dead(running)
                    wait()
            while not admin.could_create(self.bootstrap, len(running)):
                self._fail_if_dead(running)
                wait()

    def _port(self, node_id: int) -> int:
        return self._nodes[node_id].ports[self.spec.listeners[0].name]

    def _not_ready(self) -> str:
        tails = (f"broker {each}:\n{self.logs(each, 10)}" for each in self.brokers)
        return "\n".join((f"cluster {self.name} is not ready", *tails))

    def _fail_if_dead(self, running: set[int]) -> None:
        for each in running:
            if not self._processes[each].alive():
                message = f"broker {each} of {self.name} ended:\n{self.logs(each)}"
                raise MachineError(message, code="LAB")

    def _process(self, node: Node) -> JavaProcess:
        words, flags = ("kafka.Kafka", str(node.folder / "server.properties")), (*self._flags, *self.spec.flags)
        command = brokers.java_command(self.spec.version, *words, heap_mb=self.spec.heap_mb, flags=flags)
        return JavaProcess(self._guard, command, node.log)

    def _prepare(self) -> None:
        nodes = tuple(self._nodes.values())
        if self.spec.kraft:
            cluster_id = brokers.kafka_uuid()
            checkpoint = warm.bootstrap_checkpoint(self.spec.version, self.spec.features)
            for node in nodes:
                brokers.format_storage(node, cluster_id, checkpoint)
                self._configure(node, brokers.kraft(self.spec, node, nodes))
        else:
            self._coordinator, place = zookeeper.start(self.spec, self._guard, self._folder)
            for node in nodes:
                self._configure(node, zookeeper.settings(node, place))

    def _configure(self, node: Node, coordination: Mapping[str, str]) -> None:
        properties = brokers.settings(self.spec, node, coordination)
        brokers.write_properties(node.folder / "server.properties", properties)

    def _coordinators(self) -> tuple[JavaProcess, ...]:
        return (self._coordinator,) if self._coordinator else ()


class Lab:
    """Clusters by name, started together and ended together.

    `folder` chooses where (which disk) the lab makes its own temporary folder.
    """

    def __init__(self, specs: Sequence[ClusterSpec], *, folder: Path | None = None, say: Say = lambda _: None) -> None:
        self._specs = tuple(specs)
        self._parent = folder
        self._say = say
        self._guard: Guard | None = None
        self.clusters: dict[str, LabCluster] = {}

    def __getitem__(self, name: str) -> LabCluster:
        return self.clusters[name]

    def __enter__(self) -> Lab:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        if self._guard is None:
            raise MachineError("the lab is not running", code="LAB")
        return self._guard.folder

    def start(self) -> None:
        versions = {spec.version for spec in self._specs}
        flags = {version: _flags(version, self._say) for version in versions}
        self._guard = Guard(Path(tempfile.mkdtemp(prefix="isthmus-lab-", dir=self._parent)))
        try:
            for spec in self._specs:
                place = self._guard.folder / spec.name
                self.clusters[spec.name] = LabCluster(spec, self._guard, place, flags[spec.version])
            _all_at_once(tuple(self.clusters.values()))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process and remove the folder; safe to call twice."""
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        self.clusters.clear()


def _flags(version: str, say: Say) -> tuple[str, ...]:
    if version != KAFKA or not are_here(version):
        # A newcomer has waited long enough for the download: the archive is recorded at the next start. Older releases
        # are started seldom: recording would take longer than it saves.
        broker_jars(version, say=say)
        return ()

    def rehearse(flags: Sequence[str]) -> None:
        say(f"Recording a class archive of Kafka {version}, for quick starts (once)")
        guard = Guard(Path(tempfile.mkdtemp(prefix="isthmus-lab-")))
        try:
            spec = ClusterSpec(name="rehearsal", version=version)
            cluster = LabCluster(spec, guard, guard.folder / spec.name, flags)
            cluster.start()
            cluster.create_topic("rehearsal")
            cluster.shut_down(1)
        finally:
            guard.close()

    return warm.archive_flags(version, rehearse)


def _all_at_once(clusters: Sequence[LabCluster]) -> None:
    """Start all; a failure, or Ctrl-C, does not wait for the others: the guard ends them."""
    pool = ThreadPoolExecutor(max_workers=len(clusters) or 1)
    try:
        for future in as_completed([pool.submit(cluster.start) for cluster in clusters]):
            future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def _patience(seconds: float, complaint: Callable[[], str]) -> Iterator[Callable[[], None]]:
    """A short pause to call between two looks, which fails when the time is up."""
    deadline = time.monotonic() + seconds

    def wait() -> None:
        if time.monotonic() > deadline:
            raise MachineError(f"after {seconds:.0f} s: {complaint()}", code="LAB")
        time.sleep(_LOOK_SECONDS)

    yield wait


def _brokers_seen_at(port: int) -> set[int]:
    """Whom this very broker believes to be up. A client library would ask any broker it learns of.

    Metadata v1: int32 size, int16 key 3, int16 version, int32 correlation, no client, no topics.
    """
    question = struct.pack(">ihhihi", 14, 3, 1, 0, -1, 0)
    try:
        with socket.create_connection((brokers.HOST, port), timeout=2) as connection:
            connection.sendall(question)
            with connection.makefile("rb") as answer:
                size, _, count = struct.unpack(">iii", answer.read(12))
                return _broker_ids(answer.read(size - 8), count)
    except (OSError, struct.error):
        return set()


def _broker_ids(rest: bytes, count: int) -> set[int]:
    """Entries are: int32 id, string host, int32 port, nullable string rack."""
    ids, at = set(), 0
    for _ in range(count):
        broker, host = struct.unpack_from(">ih", rest, at)
        at += 4 + 2 + host + 4
        (rack,) = struct.unpack_from(">h", rest, at)
        at += 2 + max(rack, 0)
        ids.add(broker)
    return ids
