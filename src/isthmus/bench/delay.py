"""A wire that is far away: everything that goes through arrives later, by half of a round trip in each direction.

Run as a process of its own (`python -m isthmus.bench.delay HOST PORT TO_HOST TO_PORT MILLISECONDS`), so that it takes
no time from whom it is measured with. Bytes are never slowed down apart from that: as much may be under way as fits
the window. Ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections import deque

_BUFFER = 256 << 10
_WINDOW = 128 << 20  # bytes under way in one direction


class _Way:
    """One direction of one connection."""

    def __init__(self, source: socket.socket, sink: socket.socket, delay_s: float) -> None:
        self._source, self._sink, self._delay_s = source, sink, delay_s
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        for work in (self._take, self._give):
            threading.Thread(target=work, daemon=True).start()

    def _take(self) -> None:
        data = b"."
        while data:
            try:
                data = self._source.recv(_BUFFER)
            except OSError:
                data = b""
            with self._changed:
                while self._bytes > _WINDOW:
                    self._changed.wait()
                self._under_way.append((time.monotonic() + self._delay_s, data))
                self._bytes += len(data)
                self._changed.notify_all()

    def _give(self) -> None:
        while True:
            with self._changed:
                while not self._under_way:
                    self._changed.wait()
                due, data = self._under_way.popleft()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                break
            try:
                self._sink.sendall(data)
            except OSError:
                break
            with self._changed:
                self._bytes -= len(data)
                self._changed.notify_all()
        for end in (self._sink, self._source):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def serve(listen: tuple[str, int], to: tuple[str, int], round_trip_s: float) -> None:
    """For ever."""
    with socket.create_server(listen, backlog=128) as door:
        while True:
            near, _ = door.accept()
            try:
                far = socket.create_connection(to)
            except OSError:
                near.close()
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Way(near, far, round_trip_s / 2)
            _Way(far, near, round_trip_s / 2)


def main(host: str, port: str, to_host: str, to_port: str, milliseconds: str) -> None:
    where = (host, int(port)), (to_host, int(to_port))
    threading.Thread(target=serve, args=(*where, float(milliseconds) / 1000), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
