"""The real `isthmus` command as a child process, and what tests need around it.

`isthmus(...)` runs a command to its end; `Running` starts one in the background, knows its process tree, and
leaves nothing behind when its block ends, however the test went. `called(...)` is the same command without a process
of its own, for tests in which the process is not what matters: Python and its libraries take seconds to start.
Topics are filled and read by librdkafka.
Only processes that were started here are ever signalled.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.crossing import cross

from isthmus.cli.app import main
from isthmus.config.load import load
from isthmus.lab import LabCluster
from isthmus.lab.oracle import Verdict, compare

COMMAND = (sys.executable, "-m", "isthmus")
PLAIN = {"COLUMNS": "200", "NO_COLOR": "1"}
NOISE = ("Traceback", "Py4J", "py4j", "java.lang", "org.apache.spark", "SparkContext", "Exception in thread", "WARN ")


# --- the command ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a command left: exit status (negative: the signal that ended it), output, how long it took."""

    code: int
    out: str
    err: str
    seconds: float

    def json(self) -> Any:
        return json.loads(self.out)

    def quiet(self) -> None:
        """No stack trace and nothing of Java or Py4J on the console."""
        for word in NOISE:
            assert word not in self.out + self.err, f"{word!r} on the console:\n{self}"

    def __str__(self) -> str:
        return f"exit {self.code} after {self.seconds:.1f} s\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def isthmus(*words: object, seconds: float = 120, env: Mapping[str, str] | None = None) -> Ended:
    """Run a command to its end; its whole process tree is ended if it takes longer."""
    with Running(*words, env=env) as running:
        return running.ended(seconds)


def called(*words: object, fed: bytes = b"") -> Ended:
    """The command's entry point, called here: the same words in, `fed` as standard input, the same things out."""
    out, err, began = io.StringIO(), io.StringIO(), time.monotonic()
    before = dict(os.environ)
    os.environ.update(PLAIN)
    try:
        with pytest.MonkeyPatch.context() as here, redirect_stdout(out), redirect_stderr(err):
            here.setattr(sys, "argv", ["isthmus", *map(str, words)])
            here.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(fed)))
            code = _exit_status(main)
    finally:
        os.environ.clear()
        os.environ.update(before)
    return Ended(code=code, out=out.getvalue(), err=err.getvalue(), seconds=time.monotonic() - began)


def _exit_status(entry: Callable[[], None]) -> int:
    try:
        entry()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


class Running:
    """A command in the background, in a process group of its own as a shell would start it."""

    def __init__(self, *words: object, env: Mapping[str, str] | None = None) -> None:
        self._words = [*COMMAND, *map(str, words)]
        self._env = os.environ | PLAIN | dict(env or {})
        self._family: dict[int, psutil.Process] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="command-")
        self._began = time.monotonic()

    def __enter__(self) -> Running:
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                self._words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self._env, start_new_session=True
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.told())
        self.family()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL) if self._process.poll() is None else None
        for process in self._family.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()  # checks that the number still is the same process
        self._process.wait()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def _out(self) -> Path:
        return Path(self._folder.name) / "out"

    @property
    def _err(self) -> Path:
        return Path(self._folder.name) / "err"

    def told(self) -> str:
        return f"--- stdout\n{self._out.read_text()}\n--- stderr\n{self._err.read_text()}"

    def says(self, text: str) -> bool:
        """Whether it said so on standard error, or ended without."""
        if text in self._err.read_text():
            return True
        assert self._process.poll() is None, f"ended before it said {text!r}:\n{self.told()}"
        return False

    def interrupt(self) -> None:
        """Ctrl-C: the terminal sends SIGINT to the whole process group."""
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def alive(self) -> bool:
        return self._process.poll() is None

    def ended(self, seconds: float = 60) -> Ended:
        """Wait for the end."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {seconds} s\n{self.told()}") from None
        return Ended(
            code=code,
            out=self._out.read_text(),
            err=self._err.read_text(),
            seconds=time.monotonic() - self._began,
        )

    # -- its processes -------------------------------------------------------------------------

    def family(self) -> list[psutil.Process]:
        """Every child, grandchild... that was ever seen and still runs."""
        with contextlib.suppress(psutil.NoSuchProcess):
            found = psutil.Process(self._process.pid).children(recursive=True)
            self._family |= {process.pid: process for process in found}
        return [process for process in self._family.values() if is_running(process)]

    def jvm(self) -> psutil.Process:
        return next(process for process in self.family() if process.name() == "java")

    def daemon(self) -> psutil.Process:
        """Spark's Python daemon: the child of the JVM that forks the lanes."""
        return next(process for process in self.jvm().children() if process.name().startswith("python"))

    def lanes(self) -> list[psutil.Process]:
        """The Python workers that lanes run in; none before Spark has begun."""
        try:
            return self.daemon().children()
        except (StopIteration, psutil.NoSuchProcess):
            return []


def is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(happened: Callable[[], object], seconds: float = 120, what: str = "") -> None:
    """Poll until it is true; the machine may be busy, so be generous."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or happened}"
        time.sleep(0.1)


# --- files ------------------------------------------------------------------------------------


def unique(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4().hex[:8]}"


def yaml_file(
    folder: Path,
    source: str,
    target: str,
    *,
    alias: str,
    topics: Sequence[str],
    lanes: int = 1,
    more: Sequence[str] = (),
) -> Path:
    """A flow of our own format; `more` are lines at the level of the flow's keys."""
    lines = [
        "clusters:",
        f"  {alias}: {{bootstrap: '{source}'}}",
        f"  west: {{bootstrap: '{target}'}}",
        "flows:",
        f"  - from: {alias}",
        "    to: west",
        f"    topics: {json.dumps(list(topics))}",
        f"    lanes: {lanes}",
        *(f"    {line}" for line in more),
    ]
    path = folder / f"{alias}.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


# --- topics, by librdkafka --------------------------------------------------------------------


def fill(cluster: LabCluster, topic: str, records: int, partitions: int = 2) -> None:
    """A new topic with this many numbered records."""
    cluster.create_topic(topic, partitions)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "lz4", "linger.ms": 20})
    for number in range(records):
        producer.produce(topic, b"value %d" % number, b"key %d" % number, partition=number % partitions)
    assert producer.flush(60) == 0


class Writing(threading.Thread):
    """A producer that goes on writing numbered records until its block ends."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int = 500) -> None:
        super().__init__(daemon=True)
        self.produced = 0
        self._settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0}
        self._topic, self._partitions, self._per_second = topic, partitions, per_second
        self._over = threading.Event()

    def __enter__(self) -> Writing:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self.join(60)
        assert not self.is_alive()

    def run(self) -> None:
        producer = Producer(self._settings)
        began = time.monotonic()
        while not self._over.is_set():
            while self.produced < (time.monotonic() - began) * self._per_second:
                value = b"written %d %s" % (self.produced, b"x" * 200)
                producer.produce(self._topic, value, partition=self.produced % self._partitions)
                self.produced += 1
            producer.poll(0.01)
        producer.flush(60)


@functools.cache
def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def topics_of(bootstrap: str) -> set[str]:
    return set(_admin(bootstrap).list_topics(timeout=30).topics)


def committed(bootstrap: str, topic: str) -> list[int]:
    """The last stable offset of each partition; empty when the topic is not there (yet)."""
    metadata = _admin(bootstrap).list_topics(timeout=30).topics.get(topic)
    if metadata is None:
        return []
    wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in metadata.partitions}
    answers = _admin(bootstrap).list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
    try:
        return [future.result().offset for _, future in sorted(answers.items(), key=lambda pair: pair[0].partition)]
    except KafkaException:
        return []  # created just now, and not led yet


def grows(bootstrap: str, topic: str, seconds: float = 180) -> None:
    """Wait until every partition of a topic has more committed records than now."""
    before = committed(bootstrap, topic)

    def more() -> bool:
        now = committed(bootstrap, topic)
        return bool(now) and all(a > b for a, b in zip(now, before or [0] * len(now), strict=True))

    wait_for(more, seconds, f"{topic} grows beyond {before}")


def statuses(bootstrap: str, alias: str) -> dict[int, dict[str, Any]]:
    """The last status that each lane wrote to the control topic, by lane."""
    return {
        int(key.removeprefix("status/")): value
        for key, value in _control(bootstrap, f"mm2-isthmus.{alias}.internal")
        if key.startswith("status/") and value
    }


def _control(bootstrap: str, topic: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
    if topic not in topics_of(bootstrap):
        return
    settings = {"bootstrap.servers": bootstrap, "group.id": "command", "enable.partition.eof": True}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(20)) is not None and message.error() is None:
            value = message.value()
            yield (message.key() or b"").decode(), json.loads(value) if value else None
    finally:
        consumer.close()


def crossed(source: LabCluster, target: LabCluster, alias: str, topic: str, seconds: float = 120) -> Verdict:
    """Wait until lanes report everything that is there now as committed, then prove it."""
    ends = committed(source.bootstrap, topic)

    def reached() -> bool:
        rows = [row for value in statuses(target.bootstrap, alias).values() for row in value["positions"]]
        now = {partition: position for name, partition, position, _ in rows if name == topic}
        return all(now.get(number, -1) >= end for number, end in enumerate(ends))

    wait_for(reached, seconds, f"{topic} reaches {ends}")
    return prove(source, target, alias, topic)


def prove(source: LabCluster, target: LabCluster, alias: str, topic: str) -> Verdict:
    """Equal by an independent reader: nothing lost, doubled, reordered or altered."""
    verdict = compare(source.bootstrap, topic, target.bootstrap, f"{alias}.{topic}")
    assert verdict.equal, verdict
    return verdict


def finished(file: Path) -> None:
    """What a later run does with the rest: the same driver and lanes, in this process and without Spark."""
    for flow in load(file).flows:
        assert cross(flow).stopped == ()
