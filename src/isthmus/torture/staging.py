"""A storm on clusters that belong to somebody: topics of its own there, a flow of its own, doors before the brokers.

Brokers are not rewired: the flow under torture dials a tunnel's exit on this machine, behind a door for each side, so
every connection to every broker that they advertise passes a door. Where the file has a tunnel already, the door is
before that one. What must stay true: all that was created is removed when it is over, however it ends; secrets are in
files that nobody else may read, never on a command line. What is created is decided in `plan`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from isthmus.config import tunnels
from isthmus.config.load import Loaded
from isthmus.config.written import as_yaml
from isthmus.errors import IsthmusError, MachineError
from isthmus.lab import LabCluster
from isthmus.lab.brokers import HOST, free_ports
from isthmus.lab.network import Network, Weather
from isthmus.lab.reach import Reach
from isthmus.model import Cluster
from isthmus.security import Secret, Tunnel
from isthmus.torture.kept import Kept
from isthmus.torture.load import patiently
from isthmus.torture.plan import Plan
from isthmus.torture.stage import EAST, WEST
from isthmus.torture.sweeping import create, sweep
from isthmus.tunnel.dialing import ping
from isthmus.tunnel.secret import new_secret

_UP_S = 60.0
# Whoever has its secret is us, and could connect by himself: there is nobody to be kept out.
_ANYWHERE = ["0.0.0.0/0:*", "[::/0]:*"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A topic of torture that is still there."""

    cluster: str
    topic: str
    why: str


class Staging:
    """The ground of a storm (see `ground`). `left`, after it: what could not be removed."""

    def __init__(self, plan: Plan, clients: Mapping[str, Reach], folder: Path, say: Callable[[str], None]) -> None:
        self._plan, self._clients, self._say = plan, clients, say
        self.folder = folder
        self.topics: Mapping[str, int] = plan.topics
        self.exit: Kept | None = None  # one that is attacked itself: there is none
        self.left: list[Left] = []
        self._way = Secret(new_secret())
        self._own_exit: Kept | None = None

    def __enter__(self) -> Staging:
        self._network = Network().__enter__()
        try:
            self._doors = {side: self._network.door() for side in (EAST, WEST)}
            self._dig()
            create(self.reach(EAST), self.topics, self._plan.factor, self._plan.owner(EAST).alias)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._clean()
        finally:
            if self._own_exit is not None:
                self._own_exit.stop()
            self._network.__exit__(kind, error, trace)

    def _clean(self) -> None:
        """Topics first: the rest is gone with this process anyway."""
        for side in (EAST, WEST):
            alias, expected = self._plan.owner(side).alias, self._plan.created(side)
            self._say(f"removing the topics of torture from {alias}")
            try:
                left = sweep(self.reach(side), self._plan.is_ours, expected)
            except BaseException:
                self._say(f"stopped while topics are removed; there may be left on {alias}: {', '.join(expected)}")
                raise
            self.left += [Left(cluster=alias, topic=name, why=why) for name, why in left.items()]
        for each in self.left:
            self._say(f"NOT REMOVED from {each.cluster}: {each.topic}: {each.why}")

    # --- between program and brokers ------------------------------------------------------------

    def _dig(self) -> None:
        port = next(free_ports())
        for side, door in self._doors.items():
            given = self._plan.owner(side).security.tunnel
            door.host, door.target = (given.host, given.port) if given else (HOST, port)
        if all(self._plan.owner(side).security.tunnel for side in self._doors):
            return
        key, file = self._private("tunnel.key", self._way.reveal()), self.folder / "exit.yaml"
        end = {"role": "exit", "listen": f"{HOST}:{port}", "secret_file": str(key), "allow": _ANYWHERE}
        file.write_text(json.dumps(end))
        self._own_exit = Kept(["tunnel", "serve", str(file)], self.folder / "exit.log")
        if not patiently(lambda: _answers(port, self._way), _UP_S):
            raise MachineError(f"the way to the brokers does not open:\n{self._own_exit.tail()}", code="TORTURE")

    def _through(self, side: str, cluster: Cluster) -> Cluster:
        """The cluster by way of its door."""
        way = {tunnels.DIAL: f"{HOST}:{self._doors[side].port}"}
        if cluster.security.tunnel is None:
            way[tunnels.SECRET] = self._way.reveal()
        return replace(cluster, settings={**cluster.settings, **way})

    def _private(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        return path

    # --- the ground of a storm ------------------------------------------------------------------

    def reach(self, side: str) -> Reach:
        return self._clients[side]

    def copy(self, topic: str) -> str:
        return self._plan.copy(topic)

    def flow_file(self) -> Path:
        flow = self._plan.flow
        source, target = self._through(EAST, flow.source), self._through(WEST, flow.target)
        made = Loaded((replace(flow, source=source, target=target),), (), Path("torture"))
        return self._private("flow.yaml", as_yaml(made, include_secrets=True))

    def weather(self, side: str, weather: Weather | None = None) -> None:
        self._doors[side].weather = weather or Weather()

    def __getitem__(self, side: str) -> LabCluster:
        raise MachineError("these brokers are somebody's: nobody lays hands on them", where=side, code="TORTURE")

    def open_transactions(self) -> list[str]:
        return []  # somebody else's cluster: its transactions are not ours to list

    def set_password(self, side: str, password: str = "") -> None:
        raise MachineError("these logins are somebody's: nobody changes them", where=side, code="TORTURE")


def _answers(port: int, secret: Secret) -> bool:
    try:
        ping(Tunnel(host=HOST, port=port, secrets=(secret,)))
    except IsthmusError:
        return False
    return True
