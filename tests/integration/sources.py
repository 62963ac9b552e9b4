"""Writing odd data and looking at what a broker holds, for the tests of content, changes and protocols.

Everything here goes through librdkafka or Kafka's own Java tools: nothing of Isthmus' codec has a say in what
is written or in how it is judged.
"""

from __future__ import annotations

import functools
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    ResourceType,
)
from tests.crossing import flow_between

from isthmus.errors import MachineError
from isthmus.lab import Lab, LabCluster
from isthmus.lab.brokers import java_command
from isthmus.lab.jars import KAFKA
from isthmus.lab.oracle import Verdict, compare
from isthmus.mm2.formats import Heartbeat
from isthmus.model import Flow
from isthmus.observe.status import FlowStatus

PATIENCE_S = 60.0
START_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}  # records with old times must not be taken away while they are compared
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Row = dict[str, Any]  # what Producer.produce takes: value, key, partition, timestamp, headers


def unique(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:8]}"


def wait_until(happened: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)


# ---- writing -----------------------------------------------------------------------------------


def producer(bootstrap: str, **settings: Any) -> Producer:
    """A producer that keeps order; `batch_num_messages=1` stands for librdkafka's `batch.num.messages`."""
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    made = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "message.max.bytes": 8_000_000,
            "log_level": 2,
            **dotted,
        }
    )
    if "transactional.id" in dotted:
        made.init_transactions(PATIENCE_S)
    return made


def send(into: Producer, topic: str, rows: Iterable[Row]) -> None:
    """Produce and wait until the broker has them all; a record that is refused fails the test."""
    refused: list[object] = []

    def heard(error: object, _: object) -> None:
        if error is not None:
            refused.append(error)

    for row in rows:
        into.produce(topic, **{"partition": 0, "on_delivery": heard, **row})
        into.poll(0)
    assert into.flush(PATIENCE_S) == 0
    assert not refused, refused[0]


def write(bootstrap: str, topic: str, rows: Iterable[Row], **settings: Any) -> None:
    """Produce by a producer that others use as well; where it matters whose records they are, take `send`."""
    send(_shared_producer(bootstrap, tuple(settings.items())), topic, rows)


@functools.cache
def _shared_producer(bootstrap: str, settings: tuple[tuple[str, Any], ...]) -> Producer:
    return producer(bootstrap, **dict(settings))


def forget_clients() -> None:
    """Let go of clients that are kept; for the end of a module, when its clusters go."""
    _shared_producer.cache_clear()
    admin.cache_clear()


def numbered(count: int, first: int = 0, partitions: int = 1, **more: Any) -> list[Row]:
    """Plain records with keys, values and times by number."""
    return [
        {"key": b"k%d" % n, "value": b"v%d" % n, "timestamp": START_MS + n, "partition": n % partitions, **more}
        for n in range(first, first + count)
    ]


# ---- administration ----------------------------------------------------------------------------


@functools.cache
def admin(bootstrap: str) -> AdminClient:
    """One for each cluster, kept: a client that is dropped takes its unanswered questions along."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})


def delete_before(bootstrap: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Move the start of the log, as retention would."""
    asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    for future in admin(bootstrap).delete_records(asked).values():
        future.result(PATIENCE_S)


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    for future in admin(bootstrap).create_partitions([NewPartitions(topic, total)]).values():
        future.result(PATIENCE_S)
    wait_until(lambda: partition_count(bootstrap, topic) == total, "new partitions in the metadata")
    _shared_producer.cache_clear()  # those that exist learn of new partitions minutes later


def partition_count(bootstrap: str, topic: str) -> int:
    found = admin(bootstrap).list_topics(topic, timeout=PATIENCE_S).topics[topic]
    return 0 if found.error is not None else len(found.partitions)


def alter(bootstrap: str, topic: str, **settings: str) -> None:
    """Set some settings of a topic; the others stay."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in admin(bootstrap).incremental_alter_configs([resource]).values():
        future.result(PATIENCE_S)


def own_settings(bootstrap: str, topic: str) -> dict[str, str]:
    """What was set on the topic itself."""
    (future,) = admin(bootstrap).describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {
        name: entry.value
        for name, entry in future.result(PATIENCE_S).items()
        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }


# ---- reading -----------------------------------------------------------------------------------


def read(bootstrap: str, topic: str, *, committed: bool = True) -> list[tuple[int, bytes | None, bytes | None]]:
    """(partition, key, value) of everything there is, in order within each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "isthmus-test-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 20,
            "allow.auto.create.topics": False,
            "log_level": 2,
        }
    )
    try:
        waiting = set(range(partition_count(bootstrap, topic)))
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in waiting])
        found = []
        deadline = time.monotonic() + PATIENCE_S
        while waiting:
            assert time.monotonic() < deadline, f"{topic} cannot be read to its end"
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append((message.partition(), message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(message.partition())
        return sorted(found, key=lambda entry: entry[0])
    finally:
        consumer.close()


def values(bootstrap: str, topic: str, partition: int = 0) -> list[bytes | None]:
    return [value for number, _, value in read(bootstrap, topic) if number == partition]


# ---- Kafka's own tools -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """A batch as kafka-dump-log shows it."""

    base: int
    last: int
    count: int
    size: int
    codec: str
    magic: int
    is_transactional: bool
    is_control: bool

    @property
    def has_holes(self) -> bool:
        return self.count < self.last - self.base + 1


def java_tool(name: str, *words: str) -> str:
    """What one of Kafka's command line tools prints."""
    command = java_command(KAFKA, name, *words, heap_mb=256, tools=True)
    # Records may hold anything: what is no text must still be told apart.
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="backslashreplace", timeout=2 * PATIENCE_S, check=False
    )
    assert done.returncode == 0, f"{name}: {done.stdout}\n{done.stderr}"
    return done.stdout


def stored(cluster: LabCluster, *topics: str, node: int = 1) -> dict[str, list[StoredBatch]]:
    """The batches that lie in partition 0 of each topic on one broker, by kafka-dump-log."""
    files = [str(file) for topic in topics for file in sorted((cluster.log_dir(node) / f"{topic}-0").glob("*.log"))]
    text = java_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(files))
    found: dict[str, list[StoredBatch]] = {topic: [] for topic in topics}
    topic = ""
    for line in text.splitlines():
        if match := re.match(r"Dumping .*/(.+)-0/\d+\.log", line):
            topic = match[1]
        elif line.startswith(("baseOffset:", "offset:")):
            found[topic].append(_stored_batch(line))
    return found


def _stored_batch(line: str) -> StoredBatch:
    """Messages of the formats before batches have an offset and no count."""
    fields: dict[str, str] = dict(re.findall(r"(\w+): (\S+)", line))
    lone = fields.get("offset", "0")
    return StoredBatch(
        base=int(fields.get("baseOffset", lone)),
        last=int(fields.get("lastOffset", lone)),
        count=int(fields.get("count", 1)),
        size=int(fields["size"]),
        codec=fields["compresscodec"],
        magic=int(fields["magic"]),
        is_transactional=fields.get("isTransactional") == "true",
        is_control=fields.get("isControl") == "true",
    )


def console_consumer(bootstrap: str, topic: str, records: int) -> list[str]:
    """Every record in words (time, partition, headers, key, value), as Kafka's Java consumer sees it."""
    shown = ("timestamp", "partition", "headers", "key", "value")
    properties = [word for each in shown for word in ("--formatter-property", f"print.{each}=true")]
    text = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(records), "--isolation-level", "read_committed"),
        *properties,
    )
    # What kind of time it is may change on the way, the time itself may not; format 0 has none, which counts as -1.
    return [
        re.sub(r"^(LogAppendTime:|NO_TIMESTAMP)", lambda kind: "CreateTime:" + "-1" * (kind[0][0] == "N"), line)
        for line in text.splitlines()
    ]


# ---- a flow of one test ------------------------------------------------------------------------


def beats(bootstrap: str, topic: str) -> list[Heartbeat]:
    """Heartbeats that MirrorMaker 2's tools would see in a topic."""
    found = [Heartbeat.decode(key or b"", value or b"") for _, key, value in read(bootstrap, topic)]
    assert None not in found
    return [beat for beat in found if beat is not None]


class Pair:
    """A flow of one test between two clusters, with names that no other test uses."""

    def __init__(self, lab: Lab | Mapping[str, LabCluster], source: str = "east", target: str = "west") -> None:
        self.lab = lab
        self.alias = unique("e")
        self.prefix = unique("t")
        self._names = source, target

    @property
    def source(self) -> LabCluster:
        return self.lab[self._names[0]]

    @property
    def target(self) -> LabCluster:
        return self.lab[self._names[1]]

    def topic(
        self, name: str, partitions: int = 1, replicas: int = 1, settings: Mapping[str, str] | None = None
    ) -> str:
        topic = f"{self.prefix}-{name}"
        self.source.create_topic(topic, partitions, replicas, KEPT | dict(settings or {}))
        return topic

    def flow(self, **changes: object) -> Flow:
        source, target = self._names
        return flow_between(
            cast("Lab", self.lab), f"{self.prefix}-.*", source=source, target=target, alias=self.alias, **changes
        )

    def remote(self, topic: str) -> str:
        return f"{self.alias}.{topic}"

    def verdict(self, topic: str) -> Verdict:
        return compare(self.source.bootstrap, topic, self.target.bootstrap, self.remote(topic))

    def proven(self, topic: str, records: int) -> None:
        verdict = self.verdict(topic)
        assert verdict.equal, verdict
        assert verdict.records == records

    def write(self, topic: str, count: int, first: int = 0, partitions: int = 1) -> None:
        write(self.source.bootstrap, topic, numbered(count, first, partitions))

    def recreate(self, cluster: LabCluster, topic: str, partitions: int = 1) -> None:
        cluster.delete_topic(topic)
        wait_until(lambda: partition_count(cluster.bootstrap, topic) == 0, f"{topic} is gone")
        wait_until(partial(created, cluster, topic, partitions), f"{topic} may be made anew")


def created(cluster: LabCluster, topic: str, partitions: int = 1) -> bool:
    """With ZooKeeper a topic is gone from the metadata some time before its name is free."""
    try:
        cluster.create_topic(topic, partitions, 1, KEPT)
    except MachineError as error:
        assert "already exists" in error.message
        return False
    return True


def codes(status: FlowStatus) -> dict[tuple[str, int], str]:
    return {(stop.topic, stop.partition): stop.code for stop in status.stopped}


def position(status: FlowStatus, topic: str, partition: int = 0) -> int:
    return next((p.position for p in status.partitions if (p.topic, p.partition) == (topic, partition)), -1)


class Stream:
    """Writes a few hundred records a second in the background until the block ends."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.written = 0
        self._topic = topic
        self._partitions = partitions
        self._producer: Producer = producer(bootstrap, compression_type="lz4", message_timeout_ms=120_000)
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                send(self._producer, self._topic, numbered(30, self.written, self._partitions))
                self.written += 30
                time.sleep(0.05)
        except BaseException as error:  # noqa: BLE001 - handed to the test that waits
            self._error = error
