"""Where a storm happens: two clusters of three brokers, doors to them with weather, topics, a flow's file.

Replicas are three and two of them must hold a record, so any one broker may die without losing anything. The program
logs in by a password and may do what no rule forbids; who comes by the lab's own listener may do everything. What must
stay true: the program under torture reaches brokers through doors only, writers and the oracle never do.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from isthmus.lab import ClusterSpec, Lab, LabCluster, admin
from isthmus.lab.brokers import HOST, Listener, free_ports
from isthmus.lab.network import Door, Network, Weather
from isthmus.lab.reach import Reach
from isthmus.torture.kept import Kept
from isthmus.torture.tools import open_transactions
from isthmus.tunnel.secret import new_secret

EAST, WEST = "east", "west"
TUNNEL = "tunnel"  # the way to its exit, as a place for weather
PLAIN, TRANSACTIONS = "storm-plain", "storm-transactions"
TOPICS = {PLAIN: 4, TRANSACTIONS: 2}
ASIDE = "storm-aside-"  # how topics begin that single faults have to themselves
BROKERS = 3
TRANSACTION_S = 10.0
USER = "isthmus"
_DOOR = "DOOR"
_MECHANISM = "SCRAM-SHA-256"
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_DURABLE = {"min.insync.replicas": "2"}
# Brokers that are killed again and again never live to see what Java's second compiler is good for, and six of them
# that compile leave a small machine nothing for the program under torture.
_YOUNG = ("-XX:TieredStopAtLevel=1",)
_GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}


class Stage:
    """Both clusters, running, and what lies between them and the program. `tunnel`: the source is behind one."""

    def __init__(self, say: Callable[[str], None], *, tunnel: bool = False) -> None:
        self._network = Network()
        self._say = say
        self._password = secrets.token_hex(12)
        self.tunnelled = tunnel
        self.exit: Kept | None = None
        self.doors: dict[str, list[Door]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="isthmus-torture-")

    def __enter__(self) -> Stage:
        self._network.__enter__()
        self.doors = {side: [self._network.door() for _ in range(BROKERS)] for side in (EAST, WEST)}
        self._lab = Lab([self._spec(side) for side in (EAST, WEST)], say=self._say)
        try:
            self._set_up()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.exit is not None:
            self.exit.stop()
        self._lab.stop()
        self._network.__exit__(kind, error, trace)
        self._folder.cleanup()

    def _set_up(self) -> None:
        self._lab.start()
        for side in (EAST, WEST):
            self.set_password(side)
            for door, address in zip(self.doors[side], self._lab[side].bootstrap_of(_DOOR).split(","), strict=True):
                door.target = int(address.rpartition(":")[2])
        for topic, partitions in TOPICS.items():
            self._lab[EAST].create_topic(topic, partitions, BROKERS, _DURABLE)
        if self.tunnelled:
            self._dig()

    def _dig(self) -> None:
        """An exit of a tunnel before the source's doors, and one more door before the exit."""
        door = self._network.door()
        door.target = next(free_ports())
        key, file = self.folder / "tunnel.key", self.folder / "exit.yaml"
        key.touch(mode=0o600)
        key.write_text(new_secret())
        allowed = [f"{HOST}/32:{each.port}" for each in self.doors[EAST]]
        end = {"role": "exit", "listen": f"{HOST}:{door.target}", "secret_file": str(key), "allow": allowed}
        file.write_text(json.dumps(end))
        self.doors[TUNNEL] = [door]
        self.exit = Kept(["tunnel", "serve", str(file)], self.folder / "exit.log")

    def _spec(self, side: str) -> ClusterSpec:
        told = tuple(door.port for door in self.doors[side])
        login = {
            "sasl.enabled.mechanisms": _MECHANISM,
            f"{_MECHANISM.lower()}.sasl.jaas.config": f"{_LOGIN};",
        }
        properties = {"transaction.state.log.min.isr": "2", "default.replication.factor": str(BROKERS)}
        return ClusterSpec(
            name=side,
            brokers=BROKERS,
            controllers=BROKERS,
            listeners=(Listener(), Listener(name=_DOOR, protocol="SASL_PLAINTEXT", told=told, properties=login)),
            properties=properties | _DURABLE | _GUARDED,
            heap_mb=384,
            flags=_YOUNG,
        )

    def __getitem__(self, side: str) -> LabCluster:
        return self._lab[side]

    @property
    def folder(self) -> Path:
        return Path(self._folder.name)

    @property
    def topics(self) -> Mapping[str, int]:
        return TOPICS

    def reach(self, side: str) -> Reach:
        return self[side].bootstrap

    def open_transactions(self) -> list[str]:
        return open_transactions(self[WEST].bootstrap, f"isthmus.{EAST}.")

    def set_password(self, side: str, password: str = "") -> None:
        """The program's own again, or another."""
        admin.add_scram_user(self[side].bootstrap, USER, password or self._password, [_MECHANISM])

    def weather(self, side: str, weather: Weather | None = None) -> None:
        for door in self.doors[side]:
            door.weather = weather or Weather()

    def copy(self, topic: str) -> str:
        return f"{EAST}.{topic}"

    def flow_file(self) -> Path:
        """A file as a user would write it, with times that suit a storm of minutes."""
        clusters = {side: self._cluster(side) for side in (EAST, WEST)}
        if self.tunnelled:
            way = {"dial": f"{HOST}:{self.doors[TUNNEL][0].port}", "secret": f"${{dir:{self.folder}:tunnel.key}}"}
            clusters[EAST] |= {"tunnel": way}
        flow = {
            "from": EAST,
            "to": WEST,
            "topics": [*TOPICS, f"{ASIDE}.*"],
            "sync": {"config_exclude": ["max.message.bytes"]},
            "replication_factor": BROKERS,
            "tuning": {"transaction_timeout_ms": int(1000 * TRANSACTION_S), "request_timeout_ms": 8_000},
        }
        path = self.folder / "flow.yaml"
        path.touch(mode=0o600)
        path.write_text(json.dumps({"clusters": clusters, "flows": [flow]}, indent=1))
        return path

    def _cluster(self, side: str) -> dict[str, object]:
        login = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": _MECHANISM,
            "sasl.jaas.config": f'{_LOGIN} username="{USER}" password="{self._password}";',
        }
        return {"bootstrap": [f"{HOST}:{door.port}" for door in self.doors[side]], "properties": login}
