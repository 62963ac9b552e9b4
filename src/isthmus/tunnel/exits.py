"""The end that has the brokers: checks where a client wants to go, connects there, passes bytes on.

Must stay true: it is no open relay (`allow` decides, about the address that is then connected to), DNS is asked here
and nowhere else, and a client hears why it was refused. Who dialled whom makes no difference: `serve` takes a
connection that proved the secret and the destination that it asked for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import threading
import time
from collections.abc import Iterator

from isthmus.tunnel.allow import AllowList
from isthmus.tunnel.counters import Passage
from isthmus.tunnel.crew import Crew
from isthmus.tunnel.lines import OK, PING, PONG, Destination, Refused, no_line, read_connect
from isthmus.tunnel.listener import Peer
from isthmus.tunnel.sockets import tune

CONNECT_S = 10.0


class Exit:
    """`allow` may be replaced while it runs."""

    def __init__(self, allow: AllowList, crew: Crew, connections: int) -> None:
        self.allow = allow
        self.connections = connections
        self._crew = crew
        self._open = 0
        self._lock = threading.Lock()

    def handle(self, sock: ssl.SSLSocket, line: bytes, peer: Peer) -> None:
        """What a listener hands over."""
        with contextlib.suppress(OSError):
            wanted = read_connect(line)
            if wanted is not None:
                self.serve(sock, wanted, peer)
            else:
                sock.sendall(PONG if line == PING else no_line(Refused("BAD_LINE", "this end is an exit")))

    def serve(self, sock: ssl.SSLSocket, wanted: Destination, peer: Peer) -> None:
        about = Passage(peer=peer.address, key=peer.key[:8], destination=str(wanted))
        try:
            with self._place():
                self._pass(sock, wanted, about)
        except Refused as refused:
            self._crew.counters.ended(dataclasses.replace(about, result=refused.code, why=refused.text))
            sock.sendall(no_line(refused))

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        with self._lock:
            if self._open >= self.connections:
                raise Refused("BUSY", f"the exit has its {self.connections} connections already")
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1

    def _pass(self, sock: ssl.SSLSocket, wanted: Destination, about: Passage) -> None:
        broker, address = self._connected(wanted)
        with self._crew.holding(broker):
            sock.sendall(OK)
            self._crew.carry(sock, broker, dataclasses.replace(about, address=address))

    def _connected(self, wanted: Destination) -> tuple[socket.socket, str]:
        reasons = []
        deadline = time.monotonic() + CONNECT_S
        for address in self.allow.addresses(wanted):
            left = max(0.1, deadline - time.monotonic())
            try:
                broker = socket.create_connection((str(address), wanted.port), timeout=left)
            except OSError as error:
                reasons.append(f"{address}: {error.strerror or error}")
            else:
                tune(broker)
                return broker, str(address)
        raise Refused("UNREACHABLE", f"{wanted} does not answer the exit ({'; '.join(reasons)})")
