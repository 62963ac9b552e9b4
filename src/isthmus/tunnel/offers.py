"""An exit that dials: keeps connections ready at the meeting point, and serves those that are taken.

For networks that let nobody in. Must stay true: as many idle connections as `size` says are offered all the time (one
that is taken is replaced at once); one that was not pinged for a while is given up; after a failure the next attempt
waits, longer each time and never exactly as long as its neighbours'.
"""

from __future__ import annotations

import contextlib
import random
import ssl
import time
from collections.abc import Callable

from isthmus.errors import BrokerUnreachable
from isthmus.security import Tunnel
from isthmus.tunnel.crew import Crew
from isthmus.tunnel.dialing import ANSWER_S, opened
from isthmus.tunnel.exits import Exit
from isthmus.tunnel.identity import identity
from isthmus.tunnel.lines import OFFER, OK, PING, PONG, read_connect, read_line
from isthmus.tunnel.listener import Peer

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
SILENCE_S = 60.0  # the meeting pings four times as often
_LIVED_S = 1.0


class Offers:
    """`tunnel` says where to dial now: it may change while this runs."""

    def __init__(self, tunnel: Callable[[], Tunnel], exit_: Exit, size: int, crew: Crew) -> None:
        self._tunnel = tunnel
        self._exit = exit_
        self._crew = crew
        for _ in range(size):
            crew.start(self._keep_one)

    def _keep_one(self) -> None:
        failures = 0
        while not self._crew.stopped.is_set():
            began = time.monotonic()
            try:
                taken = self._offer()
            except (BrokerUnreachable, OSError) as error:
                taken = False
                self._crew.counters.note(f"no connection to the meeting point: {error}")
            failures = 0 if taken or time.monotonic() - began > _LIVED_S else failures + 1
            if not taken:
                self._crew.counters.add("redials_total")
                self._crew.stopped.wait(pause(failures))

    def _offer(self) -> bool:
        """Offer one connection until it is taken (True) or lost."""
        tunnel = self._tunnel()
        sock = opened(tunnel)
        taken = False
        try:
            with self._crew.watching(sock):
                sock.sendall(OFFER)
                if read_line(sock, ANSWER_S) != OK:
                    return False
                self._crew.counters.add("pool_idle")
                try:
                    line = self._awaited(sock)
                finally:
                    self._crew.counters.add("pool_idle", -1)
            if line:
                taken = True
                self._crew.start(self._serve, sock, line, Peer(f"meeting {tunnel}", identity(tunnel.secrets[0]).key_id))
            return taken
        finally:
            if not taken:
                with contextlib.suppress(OSError):
                    sock.close()

    def _awaited(self, sock: ssl.SSLSocket) -> bytes:
        while (line := read_line(sock, SILENCE_S)) == PING:
            sock.sendall(PONG)
        return line

    def _serve(self, sock: ssl.SSLSocket, line: bytes, peer: Peer) -> None:
        with self._crew.holding(sock), contextlib.suppress(OSError):
            wanted = read_connect(line)
            if wanted is not None:
                self._exit.serve(sock, wanted, peer)


def pause(failures: int) -> float:
    """Before the next attempt: doubling, with jitter, so that all do not come at once."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures, 10))
    return random.uniform(longest / 2, longest)  # noqa: S311 - nobody gains by guessing it
