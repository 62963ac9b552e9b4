"""Tunnels on this machine, in threads: both ends in either dial direction, and a cluster seen through them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from isthmus.model import Cluster
from isthmus.security import Secret, Tunnel
from isthmus.tunnel.allow import Asking, read_rule
from isthmus.tunnel.counters import Passage
from isthmus.tunnel.end import End, EndSpec, Place
from isthmus.tunnel.secret import new_secret

HERE = Place("127.0.0.1", 0)
LOOPBACK = ("127.0.0.0/8:*", "[::1/128]:*")  # what tests connect to is here, which nobody would allow elsewhere
DIRECTIONS = ("listens", "dials")


@dataclasses.dataclass
class Way:
    """A tunnel: its exit, what clients dial, and what passed."""

    exit: End
    tunnel: Tunnel
    passages: list[Passage]
    meeting: End | None = None

    def to(self, cluster: Cluster) -> Cluster:
        return dataclasses.replace(cluster, security=dataclasses.replace(cluster.security, tunnel=self.tunnel))


def spec(role: str, secret: Secret, **changes: object) -> EndSpec:
    allow = tuple(map(read_rule, LOOPBACK)) if role == "exit" else ()
    made = EndSpec(role=role, secrets=(secret,), allow=allow)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


@contextlib.contextmanager
def tunnel(exit_: str, ask: Asking | None = None, **changes: object) -> Iterator[Way]:
    """A tunnel whose exit listens or dials; `changes` are of the exit."""
    secret, passages = Secret(new_secret()), list[Passage]()
    with contextlib.ExitStack() as stack:
        meeting = None
        if exit_ == "dials":
            meeting = stack.enter_context(End(spec("entry", secret, listen=HERE)))
            changes["dial"] = Place(HERE.host, meeting.port)
        else:
            changes["listen"] = HERE
        end = stack.enter_context(End(spec("exit", secret, **changes), ask=ask, audit=passages.append))
        port = meeting.port if meeting else end.port
        yield Way(end, Tunnel(host=HERE.host, port=port, secrets=(secret,)), passages, meeting)
