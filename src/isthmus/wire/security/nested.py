"""TLS to a broker inside the TLS of a tunnel: what Python's `wrap_socket` cannot do, since it takes the bare socket.

Behaves as a non-blocking or blocking `SSLSocket` does, as far as `Link` and `dial` use one. Must stay true: the inner
context verifies the broker exactly as without a tunnel; `send` that could not pass everything on raises
SSLWantWriteError, keeps what is encrypted already, and wants the same bytes again, as OpenSSL does; a reader that is
told SSLWantReadError has nothing left in any buffer, so waiting for the socket is safe.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any, Literal, cast

_PIECE = 256 << 10
_READ = 64 << 10


class NestedTls:
    """One TLS connection inside another; owns both."""

    def __init__(self, outer: ssl.SSLSocket, context: ssl.SSLContext, host: str) -> None:
        self._outer = outer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._inner = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._scratch = memoryview(bytearray(_READ))
        self._unsent = memoryview(b"")  # encrypted, and not taken by the outer connection yet
        self._accepted = 0  # how many bytes of the caller that is

    def do_handshake(self) -> None:
        """Blocking; the outer connection's timeout counts for each wait."""
        while True:
            try:
                self._inner.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._fill()
            except ssl.SSLError:
                self._say_why()
                raise
            else:
                self._flush()
                return

    def send(self, data: Any) -> int:
        """Some of the bytes; SSLWantWriteError: nothing is lost, and the same bytes are wanted again."""
        if not self._accepted:
            self._accepted = self._inner.write(memoryview(data)[:_PIECE])
        self._flush()
        taken, self._accepted = self._accepted, 0
        return taken

    def sendall(self, data: Any) -> None:
        view = memoryview(data)
        while view:
            view = view[self.send(view) :]

    def recv_into(self, buffer: Any) -> int:
        """At least one byte; 0 when the broker ended the connection."""
        while True:
            try:
                return cast(int, self._inner.read(len(buffer), buffer))  # into a buffer: how many
            except ssl.SSLWantReadError:
                if not self._fill():
                    return 0
            except ssl.SSLZeroReturnError:
                return 0

    def recv(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.recv_into(buffer)])

    def _fill(self) -> bool:
        count = self._outer.recv_into(self._scratch)
        if count:
            self._incoming.write(self._scratch[:count])
        else:
            self._incoming.write_eof()
        return count > 0

    def _flush(self) -> None:
        if not self._unsent and self._outgoing.pending:
            self._unsent = memoryview(self._outgoing.read())
        while self._unsent:
            self._unsent = self._unsent[self._outer.send(self._unsent) :]

    def _say_why(self) -> None:
        """The alert that tells the broker why we hang up; it is not needed for anything else."""
        try:
            self._flush()
        except OSError:
            self._unsent = memoryview(b"")

    # -- whom it leads to ------------------------------------------------------------------------

    def getpeercert(self, *, binary_form: Literal[True]) -> bytes | None:
        """The broker's, not that of the tunnel."""
        return self._inner.getpeercert(binary_form=binary_form)

    def version(self) -> str | None:
        return self._inner.version()

    def selected_alpn_protocol(self) -> str | None:
        return self._inner.selected_alpn_protocol()

    # -- as a socket -----------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._outer.fileno()

    def setblocking(self, blocking: bool) -> None:
        self._outer.setblocking(blocking)

    def close(self) -> None:
        self._outer.close()


Connected = socket.socket | NestedTls  # what is left to speak Kafka's protocol over
