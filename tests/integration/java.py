"""Kafka's own Java classes, called from Python: what MirrorMaker 2 itself says of what we wrote.

`with kafka_java() as jvm:` gives py4j's view of a JVM with all jars of Kafka on its class path:
`jvm.org.apache.kafka.connect.mirror.Heartbeat(...)`. Dicts and lists go over as Java's. The JVM ends with the block.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from isthmus.lab.jars import KAFKA, classpath, jars
from isthmus.machine import java

_SMALL = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_SILENT = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]


@contextlib.contextmanager
def kafka_java(version: str = KAFKA) -> Iterator[Any]:
    """A JVM with the classes of this Kafka version."""
    (bridge,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port, token, process = launch_gateway(
        jarpath=str(bridge),
        classpath=classpath(jars(version)),
        javaopts=[*_SMALL, *_SILENT],
        java_path=str(java()),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        _ended(process)


def told_by_java(jvm: Any, bootstrap: str, alias: str, group: str) -> dict[tuple[str, int], int]:
    """Where a group goes on, as MirrorMaker 2's own `RemoteClusterUtils.translateOffsets` tells a consumer."""
    properties = {"bootstrap.servers": bootstrap}
    patience = jvm.java.time.Duration.ofSeconds(60)
    utilities = jvm.org.apache.kafka.connect.mirror.RemoteClusterUtils
    found = utilities.translateOffsets(properties, alias, group, patience)
    return {(tp.topic(), tp.partition()): offset.offset() for tp, offset in found.items()}


def mirror_answers(jvm: Any, bootstrap: str, source: str) -> dict[str, Any]:
    """All that MirrorMaker 2's own MirrorClient tells about one source, by the name of the question.

    The source is called SOURCE in it, so that answers beside different replicators can be compared; what concerns other
    sources is left out.
    """
    client = jvm.org.apache.kafka.connect.mirror.MirrorClient({"bootstrap.servers": bootstrap})
    try:
        answers = {
            "upstreamClusters": client.upstreamClusters(),
            "heartbeatTopics": client.heartbeatTopics(),
            "checkpointTopics": client.checkpointTopics(),
            "remoteTopics": client.remoteTopics(),
            "remoteTopics of the source": client.remoteTopics(source),
        }
        ours = {name: {each for each in found if source in each.split(".")} for name, found in answers.items()}
        hops = client.replicationHops(source)
    finally:
        client.close()
    return {name: {each.replace(source, "SOURCE") for each in found} for name, found in ours.items()} | {
        "replicationHops": hops
    }


class JavaReader:
    """Kafka's own consumer in a group: read_committed, commits what it has read, begins nowhere by itself but at
    committed places (or, with `anywhere`, at the start of a topic that it never read)."""

    def __init__(self, jvm: Any, bootstrap: str, group: str, *, anywhere: bool = False) -> None:
        text = "org.apache.kafka.common.serialization.StringDeserializer"
        self._jvm = jvm
        self._consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest" if anywhere else "none",
                "max.poll.records": "100",
                "key.deserializer": text,
                "value.deserializer": text,
            }
        )
        self.read: dict[int, list[str]] = {}

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe([topic])

    def seek(self, places: Mapping[tuple[str, int], int]) -> None:
        """Read exactly from there on, whatever is committed."""
        partition = self._jvm.org.apache.kafka.common.TopicPartition
        self._consumer.assign([partition(*where) for where in places])
        for where, offset in places.items():
            self._consumer.seek(partition(*where), offset)

    def poll(self) -> None:
        records = self._consumer.poll(self._jvm.java.time.Duration.ofMillis(200)).iterator()
        while records.hasNext():
            record = records.next()
            self.read.setdefault(record.partition(), []).append(record.value())
        self._consumer.commitSync()

    @property
    def count(self) -> int:
        return sum(map(len, self.read.values()))

    def is_at_end(self, partitions: int) -> bool:
        """Of everything that is assigned, which must be this many."""
        mine = list(self._consumer.assignment())
        ends = self._consumer.endOffsets(mine)
        return len(mine) == partitions and all(self._consumer.position(tp) >= ends[tp] for tp in mine)

    def close(self) -> None:
        self._consumer.close()


def _ended(process: subprocess.Popen[bytes]) -> None:
    """It ends when its standard input does."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
