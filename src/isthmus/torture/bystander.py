"""Faults that hit one topic alone, and whose right answer is to ask a person: others must hardly feel it.

Each has a topic of its own, made for it and deleted afterwards. The flow has to stop it with the right code; then a
person decides, by the same commands as any operator, and it has to go on. What must stay true: what is judged by the
reader and the oracle is never one of these topics. That others go on meanwhile is for the reader to see.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from isthmus.errors import MachineError
from isthmus.lab import admin
from isthmus.torture.load import patiently
from isthmus.torture.scene import Kind, Scene
from isthmus.torture.stage import ASIDE, BROKERS, EAST, TOPICS, WEST

_PATIENCE_S = 60.0
_COMMAND_S = 60.0
_SOME = 20
_LARGE = 40_000
_OTHERS = sum(TOPICS.values())


class _Aside:
    """A topic of one partition, with a few records that were copied."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.name = f"{ASIDE}{uuid.uuid4().hex[:8]}"
        self.copy = scene.stage.copy(self.name)

    def create(self) -> None:
        self._scene.stage[EAST].create_topic(self.name, 1, BROKERS, {"min.insync.replicas": "2"})

    def delete(self) -> None:
        self._scene.stage[EAST].delete_topic(self.name)
        ends = admin.client(self._scene.stage[EAST].bootstrap)
        self._must(lambda: self.name not in ends.list_topics(timeout=_PATIENCE_S).topics, "is not deleted")

    def write(self, count: int = _SOME, size: int = 10) -> int:
        """The offset behind them."""
        bootstrap = self._scene.stage[EAST].bootstrap
        self._must(lambda: written(bootstrap, self.name, count, size) == count, "cannot be written to")
        return self._end(EAST, self.name)

    def _end(self, side: str, topic: str) -> int:
        return end_of(self._scene.stage[side].bootstrap, topic)

    def copied(self, records: int) -> None:
        """At least so many offsets are taken on the target: records, and the markers of their transactions."""
        seen = admin.client(self._scene.stage[WEST].bootstrap)
        self._must(lambda: self.copy in seen.list_topics(timeout=_PATIENCE_S).topics, "is not created on the target")
        self._must(lambda: self._end(WEST, self.copy) > records, f"{records} records do not arrive")

    def goes_on(self) -> None:
        """New records arrive."""
        before = self._end(WEST, self.copy)
        self.write(3)
        self._must(lambda: self._end(WEST, self.copy) > before, "does not go on")

    def stopped(self, code: str) -> None:
        """The flow has to say so by itself."""
        self._must(lambda: self._state() == code, f"has not stopped with {code}")

    def _state(self) -> str:
        states = self.said("resolve", "--topic", self.name)["states"]
        return str(states[0]["code"]) if states else ""

    def decide(self, choice: str) -> None:
        """What has gone on by itself meanwhile, because its cause is lifted, needs no decision."""
        try:
            self.said("resolve", "--topic", self.name, f"--{choice}", "--yes")
        except MachineError as error:
            if "NOT_STOPPED" not in error.message:
                raise

    def said(self, command: str, *words: str) -> Any:
        """As an operator would, in a process of its own."""
        line = [sys.executable, "-m", "isthmus", command, str(self._scene.stage.folder / "flow.yaml"), *words]
        done = subprocess.run(  # noqa: S603 - the program that is under torture
            [*line, "-o", "json"], capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
        if done.returncode:
            raise MachineError(f"{self.name}: isthmus {command} failed: {done.stderr.strip()[-600:]}", code="TORTURE")
        return json.loads(done.stdout)

    def _must(self, happened: Any, wrong: str) -> None:
        if not patiently(happened, _PATIENCE_S):
            raise MachineError(f"{self.name} {wrong}:\n{self._scene.program.tail()}", code="TORTURE")


def written(bootstrap: str, topic: str, count: int, size: int) -> int:
    """How many of so many records are in the topic; brokers that have not heard of it yet refuse them."""
    there = 0

    def landed(error: object, _message: object) -> None:
        nonlocal there
        there += error is None

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    with contextlib.suppress(KafkaException):
        for _ in range(count):
            producer.produce(topic, os.urandom(size), partition=0, on_delivery=landed)
        producer.flush(_PATIENCE_S)
    return there


def end_of(bootstrap: str, topic: str, within_s: float = _PATIENCE_S) -> int:
    """Where a topic of one partition ends; a broker may need a moment to hear of a new one."""
    until = time.monotonic() + within_s
    with contextlib.closing(
        Consumer({"bootstrap.servers": bootstrap, "group.id": "aside", "log_level": 0})
    ) as consumer:
        while True:
            try:
                return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_PATIENCE_S)[1])
            except KafkaException:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)


@contextlib.contextmanager
def _aside(scene: Scene) -> Iterator[_Aside]:
    """A new topic that flows; gone for good afterwards."""
    topic = _Aside(scene)
    topic.create()
    topic.write()
    topic.copied(_SOME)
    try:
        yield topic
    finally:
        topic.delete()
    topic.stopped("SOURCE_GONE")
    topic.decide("accept-gap")


def _made_anew(scene: Scene) -> Iterator[None]:
    with _aside(scene) as topic:
        topic.delete()
        topic.create()
        topic.write()
        yield
        topic.stopped("SOURCE_RECREATED")
        topic.decide("accept-gap")
        topic.copied(2 * _SOME)


def _overtaken(scene: Scene) -> Iterator[None]:
    """Records are deleted before they were copied."""
    with _aside(scene) as topic:
        topic.said("pause", "--topic", topic.name)
        end = topic.write()
        asked = admin.client(scene.stage[EAST].bootstrap)
        for future in asked.delete_records([TopicPartition(topic.name, 0, end)]).values():
            future.result(_PATIENCE_S)
        topic.said("resume", "--topic", topic.name)
        yield
        topic.stopped("GAP")
        topic.decide("accept-gap")
        topic.goes_on()


def _damaged(scene: Scene) -> Iterator[None]:
    """A bit of a batch falls over on the disks of its brokers, before it was copied."""
    with _aside(scene) as topic:
        topic.said("pause", "--topic", topic.name)
        topic.write(1, size=500)
        _damage_last_batch(scene, topic.name)
        topic.said("resume", "--topic", topic.name)
        yield
        topic.stopped("CORRUPT_BATCH")
        topic.decide("accept-gap")
        topic.goes_on()


def _damage_last_batch(scene: Scene, topic: str) -> None:
    cluster = scene.stage[EAST]
    for node in cluster.brokers:
        (log,) = cluster.log_dir(node).glob(f"{topic}-0/*0.log")
        with log.open("r+b") as file:
            file.seek(-100, os.SEEK_END)
            (was,) = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([was ^ 4]))


def _too_large(scene: Scene) -> Iterator[None]:
    """A record that the target does not take, until somebody raises its limit."""
    with _aside(scene) as topic:
        _limit(scene, topic.copy, str(_LARGE // 4))
        topic.write(1, size=_LARGE)
        yield
        topic.stopped("TARGET_REFUSED")
        _limit(scene, topic.copy, str(4 * _LARGE))
        topic.decide("retry")
        topic.goes_on()


def _limit(scene: Scene, topic: str, size: str) -> None:
    entry = ConfigEntry("max.message.bytes", size, incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    asked = admin.client(scene.stage[WEST].bootstrap)  # in a variable: one that is collected gives up its requests
    asked.incremental_alter_configs([wanted])[wanted].result(_PATIENCE_S)
    time.sleep(0.5)  # until every broker has heard of it


def kinds() -> list[Kind]:
    deeds = {
        "made anew": _made_anew,
        "overtaken by retention": _overtaken,
        "damaged on disk": _damaged,
        "too large for the target": _too_large,
    }
    return [Kind(name=f"one topic: {name}", deed=deed, others=_OTHERS) for name, deed in deeds.items()]
