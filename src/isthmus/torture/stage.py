"""Where a storm happens: two clusters of three brokers, doors to them with weather, topics, a flow's file.

Replicas are three and two of them must hold a record, so any one broker may die without losing anything. What must stay
true: the program under torture reaches brokers through doors only, writers and the oracle never do.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from isthmus.lab import ClusterSpec, Lab, LabCluster
from isthmus.lab.brokers import Listener
from isthmus.lab.network import Door, Network, Weather

EAST, WEST = "east", "west"
PLAIN, TRANSACTIONS = "storm-plain", "storm-transactions"
TOPICS = {PLAIN: 4, TRANSACTIONS: 2}
BROKERS = 3
TRANSACTION_S = 10.0
_DOOR = "DOOR"
_DURABLE = {"min.insync.replicas": "2"}


class Stage:
    """Both clusters, running, and what lies between them and the program."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._network = Network()
        self._say = say
        self.doors: dict[str, list[Door]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="isthmus-torture-")

    def __enter__(self) -> Stage:
        self._network.__enter__()
        self.doors = {side: [self._network.door() for _ in range(BROKERS)] for side in (EAST, WEST)}
        self._lab = Lab([self._spec(side) for side in (EAST, WEST)], say=self._say)
        try:
            self._lab.start()
            for side, doors in self.doors.items():
                for door, address in zip(doors, self._lab[side].bootstrap_of(_DOOR).split(","), strict=True):
                    door.target = int(address.rpartition(":")[2])
            for topic, partitions in TOPICS.items():
                self._lab[EAST].create_topic(topic, partitions, BROKERS, _DURABLE)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lab.stop()
        self._network.__exit__(kind, error, trace)
        self._folder.cleanup()

    def _spec(self, side: str) -> ClusterSpec:
        told = tuple(door.port for door in self.doors[side])
        properties = {"transaction.state.log.min.isr": "2", "default.replication.factor": str(BROKERS)} | _DURABLE
        return ClusterSpec(
            name=side,
            brokers=BROKERS,
            controllers=BROKERS,
            listeners=(Listener(), Listener(name=_DOOR, told=told)),
            properties=properties,
            heap_mb=384,
        )

    def __getitem__(self, side: str) -> LabCluster:
        return self._lab[side]

    @property
    def folder(self) -> Path:
        return Path(self._folder.name)

    def weather(self, side: str, weather: Weather | None = None) -> None:
        for door in self.doors[side]:
            door.weather = weather or Weather()

    def copy(self, topic: str) -> str:
        return f"{EAST}.{topic}"

    def flow_file(self) -> Path:
        """A file as a user would write it, with times that suit a storm of minutes."""
        clusters = {
            side: {"bootstrap": [f"127.0.0.1:{door.port}" for door in doors]} for side, doors in self.doors.items()
        }
        flow = {
            "from": EAST,
            "to": WEST,
            "topics": list(TOPICS),
            "replication_factor": BROKERS,
            "tuning": {"transaction_timeout_ms": int(1000 * TRANSACTION_S), "request_timeout_ms": 8_000},
        }
        path = self.folder / "flow.yaml"
        path.write_text(json.dumps({"clusters": clusters, "flows": [flow]}, indent=1))
        return path
