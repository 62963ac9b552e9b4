"""The source cluster of `test_namespaces`, run inside of its namespace: answers lines of JSON.

Its brokers are reached by names and an address that only the namespace has, with TLS and a login. The second broker
is started when it is asked for.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from isthmus.lab.brokers import ClusterSpec, Listener
from isthmus.lab.cluster import LabCluster, _flags
from isthmus.lab.guard import Guard
from isthmus.lab.identities import Authority

NAMES = tuple(f"b{node}.far.internal" for node in (1, 2))
USER, PASSWORD = "isthmus", "made-up-for-tests"
DOOR = "SASLTLS"


def spec(folder: Path, address: str, authority: Authority) -> ClusterSpec:
    store = authority.issue("broker", NAMES).pkcs12(folder / "broker.p12", "hush-hush")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "hush-hush",
        "ssl.key.password": "hush-hush",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{module} required user_{USER}="{PASSWORD}";',
    }
    door = Listener(
        name=DOOR, protocol="SASL_SSL", advertised="b{node}.far.internal", bound=address, properties=properties
    )
    return ClusterSpec(name="far", brokers=2, listeners=(Listener(), door))


def fill(bootstrap: str, topic: str, node: int, records: int) -> None:
    """A topic of two partitions that are on one broker."""
    new = NewTopic(topic, num_partitions=2, replica_assignment=[[node], [node]])
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it has to live until the answer is there
    admin.create_topics([new])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
    for number in range(records):
        key, value = b"k%d" % number, b"value %d" % number * 20
        producer.produce(topic, value, key, number % 2, headers=[("n", b"%d" % number)])
    assert producer.flush(60) == 0


def digest(bootstrap: str, topic: str) -> dict[str, list[Any]]:
    """By partition: how many records a consumer reads, and a hash over all that it sees of them, in order."""
    settings = {"group.id": "digest", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    found = {str(partition): _digest(consumer, topic, partition) for partition in (0, 1)}
    consumer.close()
    return found


def _digest(consumer: Consumer, topic: str, partition: int) -> list[Any]:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    hashed, count, deadline = hashlib.sha256(), 0, time.monotonic() + 120
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            return [count, hashed.hexdigest()]
        if error is None:
            seen = (message.key(), message.value(), message.headers(), message.timestamp()[1])
            hashed.update(repr(seen).encode())
            count += 1
    raise AssertionError(f"no end of {topic}-{partition}")


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def main(address: str) -> None:
    with tempfile.TemporaryDirectory(prefix="isthmus-far-") as name:
        authority = Authority()
        made = spec(Path(name), address, authority)
        guard = Guard(Path(tempfile.mkdtemp(prefix="isthmus-lab-")))
        try:
            cluster = LabCluster(made, guard, guard.folder / "far", _flags(made.version, lambda _: None))
            cluster._prepare()
            cluster.restart(1)
            ports = [int(each.rpartition(":")[2]) for each in cluster.bootstrap_of(DOOR).split(",")]
            say(ports=ports, authority=authority.pem())
            for line in sys.stdin:
                answer(cluster, json.loads(line))
        finally:
            guard.close()


def answer(cluster: LabCluster, asked: dict[str, Any]) -> None:
    bootstrap = cluster.bootstrap.split(",")[0]
    match asked["do"]:
        case "fill":
            fill(bootstrap, asked["topic"], asked["node"], asked["records"])
            say(done=True)
        case "add":
            cluster.restart(2)
            say(done=True)
        case "read":
            say(**digest(bootstrap, asked["topic"]))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(sys.argv[1])
