"""What a read_committed reader could get from a target topic by now, without reading it.

The last stable offsets of all partitions are asked for twenty times a second. They count transaction
markers too, so their sum says *when* something was committed and how far the copy is, not how many
records there are; that everything arrived is settled by `count`, which reads.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from kafka import KafkaAdminClient

from isthmus.lab.oracle import read_topic

ASK_EVERY_S = 0.05
PATIENCE_S = 10.0


@dataclass(slots=True)
class TargetWatch:
    """The progress of one target topic: `(moment, sum of last stable offsets)`, rising."""

    bootstrap: str
    topic: str
    partitions: int
    steps: list[tuple[float, int]] = field(default_factory=list)
    _admin: AdminClient | None = None
    _exists: bool = False

    def ask(self) -> int:
        """Note the sum if it rose; return it."""
        total = self._stable_offsets()
        if total > (self.steps[-1][1] if self.steps else 0):
            self.steps.append((time.monotonic(), total))
        return total

    @property
    def quiet_s(self) -> float:
        """Since when nothing new was committed; zero before the first commit."""
        return time.monotonic() - self.steps[-1][0] if self.steps else 0.0

    def count(self) -> int:
        """Committed records, by reading all of them."""
        return sum(len(each.digests) for each in read_topic(self.bootstrap, self.topic).values())

    def _stable_offsets(self) -> int:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        if not self._exists:
            # Asked for all topics: a question for one would make librdkafka wait for it to appear.
            self._exists = self.topic in self._admin.list_topics(timeout=PATIENCE_S).topics
            return 0
        return sum(end_offsets(self._admin, self.topic, self.partitions) or [0])


def end_offsets(admin: AdminClient, topic: str, partitions: int) -> list[int] | None:
    """What read_committed readers can reach in each partition; None while one has no leader."""
    latest = OffsetSpec.latest()
    wanted = {TopicPartition(topic, each): latest for each in range(partitions)}
    answers = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=PATIENCE_S)
    try:
        return [answer.result(PATIENCE_S).offset for answer in answers.values()]
    except KafkaException:
        return None


def stored_bytes(bootstrap: str, topic: str) -> int:
    """What the topic's logs take on the brokers' disks, all replicas."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        answers = admin.describe_log_dirs([topic])
    finally:
        admin.close()
    return sum(
        partition["partition_size"]
        for answer in answers
        for folder in answer["log_dirs"]
        for each in folder["topics"]
        for partition in each["partitions"]
    )


def delete_all(bootstrap: str) -> None:
    """Remove every topic but the broker's own: the next system starts on an empty target."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    ours = [topic for topic in admin.list_topics(timeout=PATIENCE_S).topics if not topic.startswith("__")]
    if not ours:
        return
    for deletion in admin.delete_topics(ours, operation_timeout=60.0).values():
        deletion.result(60.0)
