"""The meeting point: where an exit that dials offers its connections, and clients take them.

Runs beside the clients, on the one port. Must stay true: an offered connection serves one client; one that turns out
to be dead costs the client nothing but the next one; when there is none, the client waits a little and then hears
why. An idle one is pinged, so that firewalls on the way do not forget it and a dead one is found out.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import ssl
import threading
import time
from collections.abc import Iterator

from isthmus.tunnel.counters import Passage
from isthmus.tunnel.crew import Crew
from isthmus.tunnel.lines import (
    OFFER,
    OK,
    PING,
    PONG,
    Destination,
    Refused,
    connect_line,
    no_line,
    read_answer,
    read_connect,
    read_line,
)
from isthmus.tunnel.listener import Peer
from isthmus.tunnel.sockets import close

PING_EVERY_S = 15.0
PONG_WITHIN_S = 10.0
ANSWER_S = 20.0
PATIENCE_S = 8.0


class _Offered:
    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock = sock
        self.busy = threading.Lock()  # held while it is pinged, and by whoever took it
        self.gone = threading.Event()  # taken or dead


class Meeting:
    """`handle` is what a listener hands connections to; `opened` is for clients in this process."""

    def __init__(self, crew: Crew, connections: int) -> None:
        self.connections = connections
        self._crew = crew
        self._idle: collections.deque[_Offered] = collections.deque()
        self._changed = threading.Condition()
        self._had_exit = False
        self._open = 0

    def handle(self, sock: ssl.SSLSocket, line: bytes, peer: Peer) -> None:
        with contextlib.suppress(OSError):
            wanted = read_connect(line)
            if line == OFFER:
                self._keep(sock)
            elif wanted is not None:
                self._serve(sock, wanted, peer)
            else:
                sock.sendall(PONG if line == PING else no_line(Refused("BAD_LINE", "this end is a meeting point")))

    def close(self) -> None:
        """Let go of what is idle; the crew must be told to stop first or at once."""
        self._crew.stopped.set()
        with self._changed:
            for offered in self._idle:
                offered.gone.set()
            self._changed.notify_all()

    # -- what is offered -----------------------------------------------------------------------

    def _keep(self, sock: ssl.SSLSocket) -> None:
        """The thread of an offered connection stays with it: it pings, and closes it when all is over."""
        if len(self._idle) >= self.connections:
            sock.sendall(no_line(Refused("BUSY", "more idle connections than may ever be used")))
            return
        sock.sendall(OK)
        offered = _Offered(sock)
        with self._changed:
            self._had_exit = True
            self._idle.append(offered)
            self._count()
            self._changed.notify()
        while not offered.gone.wait(PING_EVERY_S) and not self._crew.stopped.is_set():
            with offered.busy:
                if offered.gone.is_set() or not _answers(sock):
                    break
        self._drop(offered)
        with offered.busy:  # until the client that took it is done
            return

    def _drop(self, offered: _Offered) -> None:
        with self._changed:
            if offered in self._idle:
                self._idle.remove(offered)
            self._count()

    def _count(self) -> None:
        self._crew.counters.set("pool_idle", len(self._idle))

    def _taken(self, deadline: float) -> _Offered:
        """The newest idle one, which holds its lock from now on; Refused when there is none for too long."""
        with self._changed:
            if not self._idle:
                self._crew.counters.add("pool_waits_total")
            while not self._idle:
                left = deadline - time.monotonic()
                if left <= 0 or self._crew.stopped.is_set():
                    raise Refused("BUSY", "no idle connection to the exit") if self._had_exit else _no_exit()
                self._changed.wait(min(left, 0.5))
            offered = self._idle.pop()
            self._count()
        offered.busy.acquire()
        offered.gone.set()
        return offered

    # -- who takes it --------------------------------------------------------------------------

    def _serve(self, sock: ssl.SSLSocket, wanted: Destination, peer: Peer) -> None:
        about = Passage(peer=peer.address, key=peer.key[:8], destination=str(wanted))
        try:
            with self.opened(wanted) as far:
                sock.sendall(OK)
                self._crew.carry(sock, far, about)
        except Refused as refused:
            self._crew.counters.ended(dataclasses.replace(about, result=refused.code, why=refused.text))
            sock.sendall(no_line(refused))

    @contextlib.contextmanager
    def opened(self, wanted: Destination) -> Iterator[ssl.SSLSocket]:
        """A connection to the destination by way of an exit; Refused if there is none."""
        with self._changed:
            if self._open >= self.connections:
                raise Refused("BUSY", f"the meeting point has its {self.connections} connections already")
            self._open += 1
        offered: _Offered | None = None
        try:
            offered = self._asked(wanted)
            yield offered.sock
        finally:
            with self._changed:
                self._open -= 1
            if offered is not None:
                offered.busy.release()

    def _asked(self, wanted: Destination) -> _Offered:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            offered = self._taken(deadline)
            try:
                offered.sock.sendall(connect_line(*wanted))
                refused = read_answer(read_line(offered.sock, ANSWER_S))
            except OSError:
                offered.busy.release()
                continue
            if refused is None:
                return offered
            offered.busy.release()
            raise refused


def _no_exit() -> Refused:
    return Refused("NO_EXIT", "no exit has come to the meeting point yet")


def _answers(sock: ssl.SSLSocket) -> bool:
    try:
        sock.sendall(PING)
        return read_line(sock, PONG_WITHIN_S) == PONG
    except OSError:
        close(sock)
        return False
