"""A door on loopback for programs that are not ours: SOCKS5 and HTTP CONNECT, told apart by the first byte.

Must stay true: it listens on loopback only, since it asks nobody who they are; names are passed on, never resolved
here; a request has a length and a deadline. How a destination is reached is left to `way`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from isthmus.errors import ConfigError, IsthmusError
from isthmus.tunnel.counters import Passage, is_loopback
from isthmus.tunnel.crew import Crew
from isthmus.tunnel.lines import Destination, Refused, connect_line
from isthmus.tunnel.listener import accept_all, bound
from isthmus.tunnel.sockets import spelled, tune, wake

Way = Callable[[Destination], contextlib.AbstractContextManager[socket.socket]]
REQUEST_S = 10.0
_LONGEST = 8_192
_HTTP = re.compile(rb"CONNECT (?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):(\d{1,5}) HTTP/1\.[01]\r\n")
_SOCKS_OK, _SOCKS_FAILED, _SOCKS_FORBIDDEN, _SOCKS_REFUSED = 0, 1, 2, 5
_BOUND = b"\0\1\0\0\0\0\0\0"  # reserved, IPv4, 0.0.0.0:0: what we are bound to is nobody's business


class LocalDoor:
    """Listens from the start."""

    def __init__(self, host: str, port: int, way: Way, crew: Crew) -> None:
        if not is_loopback(host):
            hint = "it asks nobody who they are: 127.0.0.1 or ::1 is meant"
            raise ConfigError(f"the local door would listen on {host}", hint=hint, code="TUNNEL_LOCAL")
        self._server = bound(host, port)
        self.port = int(self._server.getsockname()[1])
        self._way = way
        self._crew = crew
        crew.start(self._accept)

    def close(self) -> None:
        wake(self._server)

    def _accept(self) -> None:
        accept_all(self._server, self._crew, self._take)

    def _take(self, sock: socket.socket, address: Any) -> None:
        self._crew.start(self._receive, sock, spelled(address))

    def _receive(self, sock: socket.socket, peer: str) -> None:
        with self._crew.holding(sock), contextlib.suppress(OSError, ValueError):
            tune(sock)
            request = _Request(sock, time.monotonic() + REQUEST_S)
            self._serve(sock, request.read(), request, peer)

    def _serve(self, sock: socket.socket, wanted: Destination, request: _Request, peer: str) -> None:
        try:
            connect_line(*wanted)
            with self._way(wanted) as far:
                request.answer(_SOCKS_OK)
                self._crew.carry(sock, far, Passage(peer=peer, key="local", destination=str(wanted)))
        except (Refused, IsthmusError) as error:
            code = error.code.removeprefix("TUNNEL_")
            self._crew.counters.ended(
                Passage(peer=peer, key="local", destination=str(wanted), result=code, why=str(error))
            )
            request.answer({"NOT_ALLOWED": _SOCKS_FORBIDDEN, "UNREACHABLE": _SOCKS_REFUSED}.get(code, _SOCKS_FAILED))


class _Request:
    """One request in either protocol; ValueError for what is neither."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline
        self._http = False

    def read(self) -> Destination:
        first = self._exactly(1)
        self._http = first == b"C"
        return self._read_http(first) if self._http else self._read_socks(first)

    def answer(self, code: int) -> None:
        if not self._http:
            self._sock.sendall(bytes([5, code]) + _BOUND)
        elif code == _SOCKS_OK:
            self._sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            said = b"403 Forbidden" if code == _SOCKS_FORBIDDEN else b"502 Bad Gateway"
            self._sock.sendall(b"HTTP/1.1 " + said + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def _read_http(self, first: bytes) -> Destination:
        text = bytearray(first)
        while not text.endswith(b"\r\n\r\n"):
            if len(text) > _LONGEST:
                raise ValueError("a request without end")
            text += self._exactly(1)
        found = _HTTP.match(text)
        if not found:
            raise ValueError("not a CONNECT")
        return Destination((found[1] or found[2]).decode(), int(found[3]))

    def _read_socks(self, first: bytes) -> Destination:
        if first != b"\5":
            raise ValueError("neither SOCKS5 nor HTTP CONNECT")
        methods = self._exactly(self._exactly(1)[0])
        if b"\0" not in methods:
            self._sock.sendall(b"\5\xff")
            raise ValueError("only clients that need no login here")
        self._sock.sendall(b"\5\0")
        version, command, _, kind = self._exactly(4)
        if version != 5 or command != 1 or kind not in (1, 3, 4):
            self.answer(7)
            raise ValueError("only CONNECT is known")
        size = self._exactly(1)[0] if kind == 3 else {1: 4, 4: 16}[kind]
        host = self._exactly(size)
        (port,) = struct.unpack(">H", self._exactly(2))
        return Destination(host.decode("ascii") if kind == 3 else str(ipaddress.ip_address(host)), port)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            self._sock.settimeout(max(0.001, self._deadline - time.monotonic()))
            some = self._sock.recv(size - len(found))
            if not some:
                raise ConnectionError("hung up")
            found += some
            if time.monotonic() > self._deadline:
                raise TimeoutError("a request took too long")
        return found
