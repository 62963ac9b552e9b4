"""What the tunnel's bench talks to, as a process of its own: sends as many bytes as asked for, or sends them back.

Standard library only, and no import of ours: it starts at once and takes no CPU of the ends that are measured.
"""

from __future__ import annotations

import os
import socket
import struct
import threading

_CHUNK = 1 << 20


def main() -> None:
    """Prints its port. A client says how many bytes it wants, in 8 bytes; 0: whatever it sends comes back."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            sock, _ = server.accept()
            threading.Thread(target=_serve, args=(sock,), daemon=True).start()


def _serve(sock: socket.socket) -> None:
    with sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked = sock.recv(8, socket.MSG_WAITALL)
        if len(asked) < 8:  # somebody looked whether the port is open
            return
        (wanted,) = struct.unpack(">Q", asked)
        chunk = memoryview(os.urandom(_CHUNK))
        while wanted > 0:
            sock.sendall(chunk[:wanted])
            wanted -= min(wanted, _CHUNK)
            if wanted == 0:
                return
        while some := sock.recv(_CHUNK):
            sock.sendall(some)


if __name__ == "__main__":
    main()
