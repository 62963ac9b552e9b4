"""Bytes from one socket to another and back, until either side ends.

One thread for each pair: two threads on one TLS connection are not safe in OpenSSL, and one that waits for both sides
at once needs no second. Must stay true: nothing is kept across connections; when one side ends, what it sent is
passed on, and then both are closed, so that a client's own logic decides what to do.
"""

from __future__ import annotations

import select
import socket
import ssl
from dataclasses import dataclass, field

BUFFER = 256 << 10
_ROUNDS = 16  # of one direction before the other has its turn
_BLOCKED = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(slots=True)
class Passed:
    """Bytes so far; read by others while it grows."""

    out: int = 0  # from the first socket to the second
    back: int = 0
    why: str = ""


@dataclass(slots=True)
class _Direction:
    source: socket.socket
    sink: socket.socket
    total: int = 0
    ended: bool = False
    waits: tuple[int, int] = (-1, 0)  # descriptor, event
    begin: int = 0
    end: int = 0
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(BUFFER)))

    def move(self) -> bool:
        """Go on until a socket blocks or the source ends; True if it would still go on."""
        for _ in range(_ROUNDS):
            if self.begin == self.end and not self._fill():
                return False
            if not self._drain():
                return False
        return True

    def _fill(self) -> bool:
        """TLS gives 16 KB at a time: they are gathered, so that the other side is called once."""
        self.begin = self.end = 0
        try:
            while self.end < BUFFER:
                count = self.source.recv_into(self.buffer[self.end :])
                if count == 0:
                    self.ended = True
                    break
                self.end += count
                if not isinstance(self.source, ssl.SSLSocket):
                    break
        except _BLOCKED as blocked:
            self._wait(self.source, select.POLLIN, blocked)
        except OSError:
            # What came before the end was sent by a living peer: it is passed on first.
            if self.end == 0:
                raise
            self.ended = True
        return self.end > 0

    def _drain(self) -> bool:
        try:
            while self.begin < self.end:
                sent = self.sink.send(self.buffer[self.begin : self.end])
                self.begin += sent
                self.total += sent
        except _BLOCKED as blocked:
            self._wait(self.sink, select.POLLOUT, blocked)
            return False
        return not self.ended

    def _wait(self, sock: socket.socket, event: int, blocked: BaseException) -> None:
        if isinstance(blocked, ssl.SSLWantReadError):
            event = select.POLLIN
        elif isinstance(blocked, ssl.SSLWantWriteError):
            event = select.POLLOUT
        self.waits = (sock.fileno(), event)

    @property
    def done(self) -> bool:
        return self.ended and self.begin == self.end


def splice(first: socket.socket, second: socket.socket, passed: Passed) -> None:
    """Pass bytes on in both directions; returns when it is over, with the reason in `passed`. Closes nothing."""
    for sock in (first, second):
        sock.setblocking(False)
    there, back = _Direction(first, second), _Direction(second, first)
    try:
        while True:
            more = [each.move() for each in (there, back)]
            passed.out, passed.back = there.total, back.total
            if any(each.done for each in (there, back)):
                break
            _await(there, back, 0 if any(more) else None)
        passed.why = "the client ended" if there.done else "the other side ended"
    except OSError as error:
        passed.why = f"broken: {error.strerror or type(error).__name__}"
    passed.out, passed.back = there.total, back.total


def _await(there: _Direction, back: _Direction, timeout: int | None) -> None:
    wanted: dict[int, int] = {}
    for each in (there, back):
        number, event = each.waits
        if number >= 0:
            wanted[number] = wanted.get(number, 0) | event
    poll = select.poll()
    for number, events in wanted.items():
        poll.register(number, events)
    poll.poll(timeout)
