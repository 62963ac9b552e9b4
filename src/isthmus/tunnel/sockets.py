"""Sockets as both ends of a tunnel use them: addresses, options that find a dead peer, and closing for good."""

from __future__ import annotations

import contextlib
import socket

IDLE_S, INTERVAL_S, PROBES = 20, 10, 3
USER_TIMEOUT_MS = 60_000  # sent and never acknowledged: the way is dead


def tune(sock: socket.socket) -> None:
    """No delay; a peer that is gone without a word is found out within a minute."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_KEEPIDLE": IDLE_S, "TCP_KEEPINTVL": INTERVAL_S, "TCP_KEEPCNT": PROBES}
    for name, value in {**options, "TCP_USER_TIMEOUT": USER_TIMEOUT_MS}.items():
        if hasattr(socket, name):  # not every system has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def wake(sock: socket.socket) -> None:
    """End a connection that another thread waits for: it sees the end, and closes it.

    By the class, because `shutdown` of a TLS socket would make it speak in clear from there on.
    """
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def close(*socks: socket.socket | None) -> None:
    for sock in socks:
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()


def listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=256)


def spelled(address: object) -> str:
    """A peer's address for people."""
    match address:
        case (str(host), int(port), *_):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return "?"
