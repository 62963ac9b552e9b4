"""Values that every layer speaks in: clusters, flows, topics, partitions. Imports nothing of ours.

All are frozen and picklable, because orders built of them travel to executors. Nothing here does
I/O or knows the clock. What a flow *should* do lives here; what it *has done* lives in progress.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

NO_ID = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a topic, by the name that its own cluster uses."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """How to reach one cluster. `settings` are Kafka client properties (security, timeouts)."""

    alias: str
    bootstrap: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Which topics a flow carries: comma-list regexes already split; full match; excludes win."""

    include: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = (r".*[\-\.]internal", r".*\.replica", r"__.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """How a topic is called on the target: `<source alias><separator><topic>`, or unchanged."""

    policy: str = "default"  # "default" | "identity"
    separator: str = "."


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Knobs with measured defaults; none of them changes what is delivered, only when."""

    epoch_seconds: float = 300.0
    refresh_seconds: float = 3.0
    transaction_timeout_ms: int = 60_000
    commit_interval_ms: int = 500
    commit_bytes: int = 64 << 20
    fetch_bytes: int = 16 << 20
    fetch_partition_bytes: int = 2 << 20
    fetch_wait_ms: int = 500
    queue_bytes: int = 64 << 20
    merge_below_bytes: int = 32 << 10
    request_timeout_ms: int = 30_000
    progress_partitions: int = 1  # of a progress topic that is created: each that a commit touches costs a marker


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One direction of replication: everything wanted of it, nothing of how far it got."""

    source: Cluster
    target: Cluster
    topics: Topics = Topics()
    naming: Naming = Naming()
    lanes: int = 1
    replication_factor: int = -1
    internal_replication_factor: int = -1
    on_gap: str = "stop"  # "stop" | "skip": what to do when retention overtook us
    tuning: Tuning = Tuning()

    @property
    def name(self) -> str:
        return f"{self.source.alias}->{self.target.alias}"

    @property
    def progress_topic(self) -> str:
        """MirrorMaker 2's Connect offsets topic, on the target."""
        return f"mm2-offsets.{self.source.alias}.internal"

    @property
    def control_topic(self) -> str:
        return f"isthmus.{self.source.alias}.internal"

    def transactional_id(self, lane: int, turn: int) -> str:
        return f"isthmus.{self.source.alias}.{lane}.{'ab'[turn]}"
