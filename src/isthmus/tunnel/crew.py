"""Threads of one end of a tunnel and the connections that they work on, so that all can be ended at once.

Must stay true: a connection has one owner, the thread that entered it here, and only that one closes it; whoever
wants it ended wakes the owner.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from isthmus.tunnel.counters import Counters, Passage
from isthmus.tunnel.sockets import close, wake
from isthmus.tunnel.splice import Passed, splice


class Crew:
    """`stopped` is set once, for good."""

    def __init__(self, counters: Counters) -> None:
        self.stopped = threading.Event()
        self.counters = counters
        self._held: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def start(self, work: Callable[..., None], *arguments: Any) -> bool:
        """False if the system has no more threads: then the connection is closed, and the end goes on."""
        thread = threading.Thread(target=self._run, args=(work, arguments), daemon=True)
        with self._lock:
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._threads.discard(thread)
            close(*(each for each in arguments if isinstance(each, socket.socket)))
            return False
        return True

    def _run(self, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            work(*arguments)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    @contextlib.contextmanager
    def holding(self, sock: socket.socket) -> Iterator[None]:
        """The calling thread owns the connection; it is closed in the end."""
        try:
            with self.watching(sock):
                yield
        finally:
            close(sock)

    @contextlib.contextmanager
    def watching(self, sock: socket.socket) -> Iterator[None]:
        """As `holding`, but the connection stays open."""
        with self._lock:
            self._held.add(sock)
        if self.stopped.is_set():
            wake(sock)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(sock)

    def stop(self, seconds: float = 10.0) -> None:
        """End every connection and wait for the threads."""
        self.stopped.set()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self._lock:
                held, threads = list(self._held), list(self._threads)
            for sock in held:
                wake(sock)
            if not threads:
                return
            threads[0].join(0.05)

    def carry(self, client: socket.socket, far: socket.socket, about: Passage) -> None:
        """Pass bytes on until it is over, count them and tell the audit. The caller owns both connections."""
        passed, began = Passed(), time.monotonic()
        self.counters.add("connections_open")
        try:
            splice(client, far, passed)
        finally:
            self.counters.add("connections_open", -1)
            seconds, why = round(time.monotonic() - began, 3), passed.why or "cut off"
            self.counters.ended(dataclasses.replace(about, out=passed.out, back=passed.back, seconds=seconds, why=why))
