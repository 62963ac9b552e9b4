"""Two or more clusters behind scripted doors: where tests of error codes play.

A flow of `Stage.flow` sees its clusters through the doors only; the lab's own addresses are left to librdkafka, which
fills topics and judges. What doors answer is the test's business (`scripted`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from confluent_kafka import Producer
from tests.crossing import flow_between
from tests.faults.scripted import Script, Scripted

from isthmus.lab import ClusterSpec, Lab
from isthmus.lab.brokers import Listener
from isthmus.lab.network import Network
from isthmus.lab.oracle import Verdict, compare
from isthmus.model import Cluster, Flow

EVERY_CODE = [-1, *range(1, 130)]


class Stage(NamedTuple):
    lab: Lab
    doors: dict[str, Scripted]

    @property
    def east(self) -> Scripted:
        return self.doors["east"]

    @property
    def west(self) -> Scripted:
        return self.doors["west"]

    def cluster(self, name: str, alias: str = "") -> Cluster:
        return Cluster(alias=alias or name, bootstrap=(f"127.0.0.1:{self.doors[name].port}",))

    def flow(self, topic: str, alias: str, target: str = "west", **changes: Any) -> Flow:
        flow = flow_between(self.lab, topic, alias=alias, target=target, **changes)
        return dataclasses.replace(flow, source=self.cluster("east", alias), target=self.cluster(target))

    def verdict(self, topic: str, alias: str, target: str = "west") -> Verdict:
        return compare(self.lab["east"].bootstrap, topic, self.lab[target].bootstrap, f"{alias}.{topic}")

    def calm(self) -> None:
        for door in self.doors.values():
            door.script, door.damage = (lambda *_: 0), None
            door.told.clear()


@contextlib.contextmanager
def staged(*specs: ClusterSpec) -> Iterator[Stage]:
    with Network(Scripted) as network:
        doors = {spec.name: cast(Scripted, network.door()) for spec in specs}
        doored = [
            dataclasses.replace(spec, listeners=(Listener(), Listener(name="DOOR", told=(doors[spec.name].port,))))
            for spec in specs
        ]
        with Lab(doored) as lab:
            for name, door in doors.items():
                door.target = int(lab[name].bootstrap_of("DOOR").rpartition(":")[2])
            yield Stage(lab, doors)


class InTurn:
    """A script that answers requests of one kind with one code after another; between two of them, some of the same
    name are answered as they are. So a flow meets each code alone, and has worked in between."""

    def __init__(self, api: int, wanted: Callable[[str], bool], answers: Sequence[int], *, every: int = 2) -> None:
        self.left = list(answers)
        self._api = api
        self._wanted = wanted
        self._every = every
        self._seen: dict[str, int] = {}

    def __call__(self, api: int, name: str, _: int) -> int:
        if api != self._api or not self._wanted(name):
            return 0
        self._seen[name] = self._seen.get(name, 0) + 1
        return self.left.pop(0) if self.left and self._seen[name] % self._every == 0 else 0


def together(*scripts: Script) -> Script:
    """The first that has something to say counts; every one hears of every request."""
    return lambda *asked: next((code for code in [script(*asked) for script in scripts] if code), 0)


@contextlib.contextmanager
def trickle(bootstrap: str, topic: str, partitions: int, pause_s: float = 0.05) -> Iterator[list[int]]:
    """Records come all the while; hands out how many there were, once the block is left."""
    done, count = threading.Event(), [0]

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0})
        while not done.wait(pause_s):
            for partition in range(partitions):
                producer.produce(topic, b"%d" % count[0], partition=partition)
                count[0] += 1
            producer.poll(0)
        producer.flush(60)

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    try:
        yield count
    finally:
        done.set()
        writing.join(60)


def wait_until(happened: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until, f"not within {seconds} s"
        time.sleep(0.05)
