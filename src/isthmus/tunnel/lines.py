"""What both ends say before bytes are passed on: short lines inside TLS.

    client to whoever listens     CONNECT host:port    answered by  OK  or  NO <CODE> <text>
    exit that dials to a meeting  OFFER                answered by  OK; then the meeting sends PING or CONNECT
    anybody                       PING                 answered by  PONG

Must stay true: a line has a length and a deadline, is read byte by byte (what follows belongs to the stream), and is
either exactly one of these or refused. Nothing here opens connections.
"""

from __future__ import annotations

import re
import socket
import time
from typing import NamedTuple

LONGEST = 400
OK, PING, PONG, OFFER = b"OK\n", b"PING\n", b"PONG\n", b"OFFER\n"
# Codes of refusals, and what the client's user is told to do.
ADVICE = {
    "NOT_ALLOWED": "add it to `allow` in the file of the tunnel's exit",
    "UNRESOLVED": "the exit cannot resolve this name: check advertised.listeners, and DNS at the exit",
    "UNREACHABLE": "the exit cannot connect to it: is the broker up, and does its firewall let the exit in?",
    "BUSY": "raise `limits.connections` (or `pool`, where the exit dials) in the file of the tunnel",
    "NO_EXIT": "start the exit (`isthmus tunnel connect`), and check that it can reach this meeting point",
    "BAD_LINE": "bring both ends of the tunnel to one version",
}
_CONNECT = re.compile(rb"CONNECT (?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,253})):([0-9]{1,5})\n")
_NO = re.compile(rb"NO ([A-Z_]{1,20})(?: ([ -~]{0,300}))?\n")


class Destination(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Refused(Exception):
    """A destination that is not connected to: a code of `ADVICE`, and why."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def connect_line(host: str, port: int) -> bytes:
    """Refused (BAD_LINE) for what no line can carry."""
    line = f"CONNECT {Destination(host, port)}\n".encode("ascii", "replace")
    if read_connect(line) is None:
        raise Refused("BAD_LINE", "this is no host name and port")
    return line


def read_connect(line: bytes) -> Destination | None:
    """Where a line wants to go; None if it is no CONNECT."""
    found = _CONNECT.fullmatch(line)
    if found is None or not 0 < int(found[3]) < 65536:
        return None
    return Destination((found[1] or found[2]).decode(), int(found[3]))


def no_line(refused: Refused) -> bytes:
    text = "".join(c if " " <= c <= "~" else "?" for c in refused.text)[:300]
    return f"NO {refused.code} {text}\n".encode("ascii")


def read_answer(line: bytes) -> Refused | None:
    """None for OK; ConnectionError for what is no answer at all."""
    if line == OK:
        return None
    found = _NO.fullmatch(line)
    if found is None:
        raise ConnectionError("the other end of the tunnel answered what is no answer" if line else "it hung up")
    return Refused(found[1].decode(), (found[2] or b"").decode())


def read_line(sock: socket.socket, seconds: float) -> bytes:
    """One line with its end, within this time as a whole; empty if the other side hung up."""
    deadline = time.monotonic() + seconds
    line = bytearray()
    while not line.endswith(b"\n"):
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        byte = sock.recv(1)
        if not byte:
            return b""
        line += byte
        if len(line) > LONGEST:
            raise ConnectionError("a line without end")
        if time.monotonic() > deadline:
            raise TimeoutError("a line took too long")
    return bytes(line)
