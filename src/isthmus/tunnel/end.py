"""One end of a tunnel as it runs: put together of its parts by what is asked for, and changed while it runs.

    role    listens                     dials
    exit    Listener -> Exit            Offers -> Exit
    entry   Listener -> Meeting         LocalDoor -> dialing

Must stay true: `adopt` changes secrets, rules and limits without ending a connection; `stop` ends all. Reading files
and asking a cluster for its brokers are left to others.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from isthmus.errors import ConfigError
from isthmus.security import Secret, Tunnel
from isthmus.tunnel.allow import Advertised, AllowList, Asking, Rule
from isthmus.tunnel.counters import Audit, Counters, Note, Page
from isthmus.tunnel.crew import Crew
from isthmus.tunnel.dialing import open_through
from isthmus.tunnel.exits import Exit
from isthmus.tunnel.identity import Keyring, identity
from isthmus.tunnel.lines import Destination
from isthmus.tunnel.listener import Limits, Listener
from isthmus.tunnel.local import LocalDoor
from isthmus.tunnel.meeting import Meeting
from isthmus.tunnel.offers import Offers

POOL = 8


class Place(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSpec:
    """What one end is to be. Either `listen` or `dial` is given."""

    role: str  # "exit" | "entry"
    secrets: tuple[Secret, ...]
    listen: Place | None = None
    dial: Place | None = None
    allow: tuple[Rule, ...] = ()
    pool: int = POOL
    local: Place | None = None
    metrics: Place | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def tunnel(self) -> Tunnel:
        if self.dial is None:
            raise ConfigError("this end of the tunnel does not dial", code="TUNNEL")
        return Tunnel(host=self.dial.host, port=self.dial.port, secrets=self.secrets)


class End:
    """Runs from the start; `ask` tells the brokers that the exit's cluster advertises, `known` are there anyway."""

    def __init__(
        self,
        spec: EndSpec,
        *,
        ask: Asking | None = None,
        known: Collection[tuple[str, int]] = (),
        audit: Audit | None = None,
        note: Note | None = None,
    ) -> None:
        self.spec = spec
        self.counters = Counters(audit, note)
        self._crew = Crew(self.counters)
        self._advertised = Advertised(ask, known) if ask is not None else None
        self._keyring: Keyring | None = None
        self._exit: Exit | None = None
        self._meeting: Meeting | None = None
        self._listener: Listener | None = None
        self._page: Page | None = None
        self.local: LocalDoor | None = None
        try:
            self._build()
        except BaseException:
            self.stop()
            raise

    def _build(self) -> None:
        spec = self.spec
        if spec.role == "exit":
            self._exit = Exit(AllowList(spec.allow, self._advertised), self._crew, spec.limits.connections)
        elif spec.listen is not None:
            self._meeting = Meeting(self._crew, spec.limits.connections)
        if spec.listen is not None:
            self._listen(spec.listen)
        elif self._exit is not None:
            _ = identity(spec.secrets[0]).dialer
            Offers(lambda: self.spec.tunnel, self._exit, spec.pool, self._crew)
        if spec.role == "entry" and spec.local is not None:
            self.local = LocalDoor(*spec.local, self._way, self._crew)
        if spec.metrics is not None:
            self._page = Page(*spec.metrics, self.counters)
        self.counters.set("secrets_valid", len(spec.secrets))

    def _listen(self, at: Place) -> None:
        self._keyring = Keyring(self.spec.secrets)
        handle = self._exit.handle if self._exit is not None else self._meeting.handle if self._meeting else None
        assert handle is not None  # noqa: S101 - `_build` made one of them
        self._listener = Listener(at.host, at.port, self._keyring, self.spec.limits, self._crew, handle)

    @property
    def port(self) -> int:
        """Where it listens; 0 if it does not."""
        return self._listener.port if self._listener is not None else 0

    @property
    def metrics_port(self) -> int:
        return self._page.port if self._page is not None else 0

    @contextlib.contextmanager
    def _way(self, wanted: Destination) -> Iterator[socket.socket]:
        if self._meeting is not None:
            with self._meeting.opened(wanted) as far:
                yield far
            return
        sock = open_through(self.spec.tunnel, wanted.host, wanted.port)
        with self._crew.holding(sock):
            yield sock

    def adopt(self, spec: EndSpec) -> None:
        """Take over what can change while it runs: secrets, rules, limits, where an exit dials."""
        self.spec = spec
        if self._keyring is not None:
            self._keyring.replace(spec.secrets)
        if self._listener is not None:
            self._listener.limits = spec.limits
        if self._exit is not None:
            self._exit.allow = AllowList(spec.allow, self._advertised)
            self._exit.connections = spec.limits.connections
        if self._meeting is not None:
            self._meeting.connections = spec.limits.connections
        self.counters.set("secrets_valid", len(spec.secrets))

    def stop(self) -> None:
        for port in (self._listener, self.local):
            if port is not None:
                port.close()
        if self._meeting is not None:
            self._meeting.close()
        self._crew.stop()
        if self._page is not None:
            self._page.close()

    def __enter__(self) -> End:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
