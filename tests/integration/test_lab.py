"""The lab keeps its promises with real brokers: usable, restartable, and gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from kafka.admin import KafkaAdminClient

from isthmus.errors import MachineError
from isthmus.lab import ClusterSpec, Lab, LabCluster, Listener
from isthmus.lab.jars import jars
from isthmus.machine import java

pytestmark = pytest.mark.integration

TV1 = {"transaction.version": 1}


@pytest.fixture(scope="module")
def trio() -> Iterator[LabCluster]:
    """Three brokers, an older transaction protocol, and a second listener."""
    spec = ClusterSpec(
        name="trio",
        brokers=3,
        features=TV1,
        listeners=(Listener(), Listener(name="SECOND")),
        properties={"min.insync.replicas": "2"},
    )
    with Lab([spec]) as lab:
        yield lab["trio"]


def produce(bootstrap: str, topic: str, values: list[bytes], **settings: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **settings})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def finalized(bootstrap: str, feature: str) -> int:
    """The level that ApiVersions tells; asked by another library than the lab's own."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    try:
        return admin.describe_features()[feature]["finalized"][1]
    finally:
        admin.close()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_until_gone(*processes: psutil.Process, folder: Path) -> None:
    wait_for(lambda: not folder.exists() and not any(each.is_running() for each in processes))


def test_jars_hold_broker_mirror_maker_and_tools():
    names = {jar.name for jar in jars("4.3.1").iterdir()}
    wanted = ("kafka_2.13-4.3.1.jar", "connect-mirror-4.3.1.jar", "kafka-tools-4.3.1.jar")
    assert set(wanted) <= names


def test_missing_java_is_explained(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MachineError) as caught:
        java.__wrapped__()
    assert caught.value.code == "JAVA"
    assert "JAVA_HOME" in caught.value.hint


def test_two_clusters_carry_records_and_are_separate(lab, topic_name):
    for name in ("east", "west"):
        lab[name].create_topic(topic_name)
        produce(lab[name].bootstrap, topic_name, [name.encode()])
    for name in ("east", "west"):
        assert consume(lab[name].bootstrap, topic_name, 1) == [name.encode()]


def test_a_topic_is_not_created_by_accident_and_can_be_deleted(lab, topic_name):
    with pytest.raises(MachineError):
        lab["east"].delete_topic(topic_name)
    lab["east"].create_topic(topic_name, 3, configs={"cleanup.policy": "compact"})
    with pytest.raises(MachineError, match="exists"):
        lab["east"].create_topic(topic_name)
    lab["east"].delete_topic(topic_name)


def test_a_new_cluster_has_the_newest_transaction_protocol(lab):
    assert finalized(lab["east"].bootstrap, "transaction.version") == 2


def test_an_older_transaction_protocol_can_be_asked_for(trio):
    assert finalized(trio.bootstrap, "transaction.version") == 1


def test_every_listener_serves_clients(trio, topic_name):
    trio.create_topic(topic_name, replication_factor=3)
    produce(trio.bootstrap_of("SECOND"), topic_name, [b"by the second door"])
    assert consume(trio.bootstrap, topic_name, 1) == [b"by the second door"]


def test_a_killed_broker_comes_back_with_its_port_and_data(trio, topic_name):
    trio.create_topic(topic_name, partitions=3, replication_factor=3)
    values = [str(number).encode() for number in range(300)]
    produce(trio.bootstrap, topic_name, values)
    address, before = trio.bootstrap, trio.pid(3)
    trio.kill(3)
    trio.restart(3)
    assert trio.bootstrap == address
    assert trio.pid(3) != before
    assert sorted(consume(trio.bootstrap, topic_name, 300)) == sorted(values)


def test_the_cluster_serves_on_while_a_broker_is_stopped_and_killed(trio, topic_name):
    trio.create_topic(topic_name, replication_factor=3)
    process = psutil.Process(trio.pid(2))
    trio.signal(2, signal.SIGSTOP)
    wait_for(lambda: process.status() == psutil.STATUS_STOPPED)
    trio.kill(2)
    assert not process.is_running()
    produce(trio.bootstrap, topic_name, [b"two of three"])
    trio.restart(2)
    assert consume(trio.bootstrap, topic_name, 1) == [b"two of three"]


def test_the_only_controller_can_be_killed_and_restarted(trio, topic_name):
    trio.kill(1)
    trio.restart(1)
    trio.create_topic(topic_name, replication_factor=3)


def test_a_broker_that_cannot_start_says_why():
    broken = ClusterSpec(name="broken", properties={"log.retention.ms": "never"})
    with pytest.raises(MachineError, match=r"log\.retention\.ms"), Lab([broken]):
        pass


def test_a_broker_of_the_zookeeper_age_keeps_old_messages(topic_name):
    old = ClusterSpec(name="old", version="2.8.2")
    with Lab([old]) as lab:
        formats = {"message.format.version": "0.10.2"}
        lab["old"].create_topic(topic_name, configs=formats)
        produce(lab["old"].bootstrap, topic_name, [b"v1"])
        assert consume(lab["old"].bootstrap, topic_name, 1) == [b"v1"]
        segment = lab["old"].log_dir(1) / f"{topic_name}-0" / f"{0:020}.log"
        magic = segment.read_bytes()[16]
    assert magic == 1


PARENT = """
import json, time
from isthmus.lab import ClusterSpec, Lab
lab = Lab([ClusterSpec(name="short", brokers=1)])
lab.start()
print(json.dumps({"pid": lab["short"].pid(1), "folder": str(lab.folder)}), flush=True)
time.sleep(600)
"""


def test_kill_nine_of_the_parent_leaves_nothing_behind():
    source = str(Path(sys.modules["isthmus"].__path__[0]).parent)
    environment = dict(os.environ, PYTHONPATH=source)
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        told = json.loads(parent.stdout.readline())
        broker, folder = psutil.Process(told["pid"]), Path(told["folder"])
        guards = [each for each in psutil.Process(parent.pid).children() if each != broker]
        assert len(guards) == 1
        assert folder.exists()
        broker.suspend()  # a stopped process must go as well
        parent.kill()
    wait_until_gone(broker, *guards, folder=folder)


def test_the_end_of_a_lab_removes_its_folder(tmp_path):
    with Lab([ClusterSpec(name="brief")], folder=tmp_path) as lab:
        processes = [psutil.Process(lab["brief"].pid(1))]
        folder = lab.folder
        assert folder.parent == tmp_path
    assert not folder.exists()
    assert not any(each.is_running() for each in processes)


def run_lab(*words: str, cache: Path) -> dict[str, Any]:
    program = "from isthmus.cli.lab import app; app()"
    source = str(Path(sys.modules["isthmus"].__path__[0]).parent)
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "-o", "json"],
        env=dict(os.environ, PYTHONPATH=source, ISTHMUS_CACHE=str(cache)),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout)


def test_a_detached_lab_can_be_found_and_brought_down(tmp_path):
    # A cache of its own, so that a lab which the developer runs is left alone.
    for made in jars().parent.glob("kafka-*"):
        (tmp_path / made.name).symlink_to(made)
    up = run_lab("up", "--clusters", "solo", "--detach", cache=tmp_path)
    try:
        assert up["clusters"] == run_lab("status", cache=tmp_path)["clusters"]
        supervisor = psutil.Process(up["pid"])
    finally:
        stopped = run_lab("down", cache=tmp_path)
    assert stopped == {"stopped": True}
    wait_until_gone(supervisor, folder=Path(up["folder"]))
    assert run_lab("status", cache=tmp_path)["running"] is False
    assert run_lab("down", cache=tmp_path) == {"stopped": False}
