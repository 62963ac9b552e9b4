"""One snapshot model of a running flow, shared by the terminal view, JSON output and the web page.

Pure values: no sockets, no clock (time is a field). The engine fills them in from what lanes write
to the control topic; faces only read them. Counters (`records`, `bytes`, `transactions`) only rise
within one run of a driver; rates are the reader's business, from two snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """Where one source partition stands. `position` is the next offset to copy, committed."""

    topic: str
    partition: int
    position: int
    end: int  # what a read_committed reader could get by now (last stable offset), -1: unknown yet
    state: str = "ok"  # "ok" | "stopped"
    code: str = ""  # error code when stopped
    error: str = ""

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position) if self.end >= 0 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatus:
    """One lane: what it has committed in this run of the driver, and where it runs."""

    lane: int
    state: str  # "starting" | "running" | "recovering" | "ended"
    records: int = 0
    bytes: int = 0
    transactions: int = 0
    dead_letters: int = 0  # records too large for their topic, written to the dead-letter topic
    epochs: int = 0
    failures: int = 0
    host: str = ""
    pid: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """Sum over the partitions of one source topic."""

    topic: str
    partitions: int
    copied: int  # offsets passed since the start of the log as first seen by this run
    lag: int
    stopped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    """A flow at one moment."""

    flow: str
    time: float  # seconds since the epoch, by the driver's clock
    state: str  # "starting" | "running" | "stopping" | "ended"
    partitions: tuple[PartitionStatus, ...] = ()
    lanes: tuple[LaneStatus, ...] = ()
    events: tuple[str, ...] = ()  # what happened lately, newest last
    earlier_events: int = 0  # how many more there were before these
    gaps: int = 0  # on record: ranges of the source that are not, or no more, on the target
    lost: int = 0  # offsets in them, as far as known

    @property
    def records(self) -> int:
        return sum(lane.records for lane in self.lanes)

    @property
    def dead_letters(self) -> int:
        return sum(lane.dead_letters for lane in self.lanes)

    @property
    def bytes(self) -> int:
        return sum(lane.bytes for lane in self.lanes)

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.partitions)

    @property
    def stopped(self) -> tuple[PartitionStatus, ...]:
        return tuple(p for p in self.partitions if p.state == "stopped")

    def topics(self) -> tuple[TopicStatus, ...]:
        """Partitions summed by topic, in name order."""
        by_topic: dict[str, list[PartitionStatus]] = {}
        for partition in self.partitions:
            by_topic.setdefault(partition.topic, []).append(partition)
        return tuple(_sum_topic(topic, parts) for topic, parts in sorted(by_topic.items()))


def _sum_topic(topic: str, parts: list[PartitionStatus]) -> TopicStatus:
    return TopicStatus(
        topic=topic,
        partitions=len(parts),
        copied=sum(max(0, p.position) for p in parts),
        lag=sum(p.lag for p in parts),
        stopped=sum(p.state == "stopped" for p in parts),
    )
