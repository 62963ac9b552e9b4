"""A proxy that does to bytes what networks do: slices, delays, caps, swallows, resets, records.

with FaultProxy(port) as proxy:
    proxy.fault = Fault(slice=1)
    connect to proxy.port
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True)
class Fault:
    """What happens to connections that are made from now on."""

    slice: int = 0  # at most so many bytes at a time
    delay_s: float = 0.0  # before each piece goes on, in each direction; order stays
    bytes_per_s: int = 0
    swallow: bool = False  # accepted, and never passed on
    reset_after: int = -1  # bytes of both directions, then RST to both sides


class FaultProxy:
    """Listens on a port of its own; threads end with their connections."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.fault = Fault()
        self.sent: list[bytearray] = []  # what clients said, one entry per connection
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._socks: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End every connection."""
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._socks.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._socks.append(client)
                heard = bytearray()
                self.sent.append(heard)
                threading.Thread(target=self._join, args=(client, self.fault, heard), daemon=True).start()

    def _join(self, client: socket.socket, fault: Fault, heard: bytearray) -> None:
        if fault.swallow:
            with contextlib.suppress(OSError):
                while some := client.recv(65_536):
                    heard += some
            return
        try:
            far = socket.create_connection(("127.0.0.1", self.target), timeout=60)
        except OSError:
            client.close()
            return
        far.settimeout(None)
        self._socks.append(far)
        budget = [fault.reset_after]
        for source, sink, copy in ((client, far, heard), (far, client, bytearray())):
            threading.Thread(target=self._pump, args=(source, sink, fault, copy, budget), daemon=True).start()

    def _pump(
        self, source: socket.socket, sink: socket.socket, fault: Fault, copy: bytearray, budget: list[int]
    ) -> None:
        late: queue.Queue[tuple[float, bytes]] = queue.Queue()
        threading.Thread(target=self._deliver, args=(late, sink, fault, budget, source), daemon=True).start()
        with contextlib.suppress(OSError):
            while some := source.recv(fault.slice or 65_536):
                copy += some
                late.put((time.monotonic() + fault.delay_s, some))
        late.put((time.monotonic() + fault.delay_s, b""))

    def _deliver(
        self,
        late: queue.Queue[tuple[float, bytes]],
        sink: socket.socket,
        fault: Fault,
        budget: list[int],
        source: socket.socket,
    ) -> None:
        with contextlib.suppress(OSError):
            while True:
                at, some = late.get()
                time.sleep(max(0.0, at - time.monotonic()))
                if not some:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(some)
                if fault.bytes_per_s:
                    time.sleep(len(some) / fault.bytes_per_s)
                if fault.reset_after >= 0:
                    budget[0] -= len(some)
                    if budget[0] < 0:
                        reset(source)
                        reset(sink)
                        return


def reset(sock: socket.socket) -> None:
    """End a connection with RST; another thread may wait for it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RD)
    sock.close()
