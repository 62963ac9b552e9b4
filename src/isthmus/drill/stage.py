"""The stage of a drill: two clusters with topics, and a flow between them that keeps names.

What must stay true: killing east leaves its data, so that it can come back; nothing of the stage outlives it (the lab
sees to that). Who carries the flow is left to `carrying`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from isthmus.drill.writers import Place
from isthmus.errors import MachineError
from isthmus.lab import ClusterSpec, Lab
from isthmus.model import Cluster, Flow, Mm2Topics, Naming, Topics, Tuning

EAST, WEST = "east", "west"
TOPICS = {"drill-orders": 2, "drill-payments": 1}  # with their partitions
_PATIENCE_S = 240.0
_LOOK_S = 0.1


def patiently(
    happened: Callable[[], object], what: str, seconds: float = _PATIENCE_S, *, every_s: float = _LOOK_S
) -> None:
    """Look until it has happened."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise MachineError(f"not within {seconds:.0f} s: {what}", code="DRILL")
        time.sleep(every_s)


class Stage:
    """Two running clusters; east has the topics."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._lab = Lab([ClusterSpec(name=EAST), ClusterSpec(name=WEST)], say=say)

    def __enter__(self) -> Stage:
        self._lab.start()
        try:
            for topic, partitions in TOPICS.items():
                self._lab[EAST].create_topic(topic, partitions)
        except BaseException:
            self._lab.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lab.stop()

    def at(self, cluster: str) -> Place:
        return Place(cluster=cluster, bootstrap=self._lab[cluster].bootstrap)

    def flow(self) -> Flow:
        """Names are kept, groups come along; what is new is seen soon, because a drill is short."""
        return Flow(
            source=self._cluster(EAST),
            target=self._cluster(WEST),
            topics=Topics(include=tuple(TOPICS)),
            naming=Naming(policy="identity"),
            replication_factor=1,
            internal_replication_factor=1,
            mm2_topics=Mm2Topics(group_offsets=True, checkpoint_seconds=1.0, group_offsets_seconds=1.0),
            tuning=Tuning(refresh_seconds=1.0),
        )

    def _cluster(self, name: str) -> Cluster:
        return Cluster(alias=name, bootstrap=tuple(self._lab[name].bootstrap.split(",")))

    def kill(self, cluster: str) -> None:
        """kill -9 of all its brokers at once."""
        for node in self._lab[cluster].brokers:
            self._lab[cluster].kill(node)

    def restart(self, cluster: str) -> None:
        """Bring all its brokers back, on their old data."""
        for node in self._lab[cluster].brokers:
            self._lab[cluster].restart(node)
