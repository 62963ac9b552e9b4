"""Opens a connection to a broker: TCP, then (with later security settings) TLS and SASL, then versions.

Dialling blocks, so it runs in a thread and hands over a finished `Link`: a broker that does not answer
must not hold up a lane's other brokers. This is also the one place where a tunnel joins in, because
everything else asks `dial` for links and never opens a socket.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from kafka.protocol.metadata import ApiVersionsRequest

from isthmus import __version__
from isthmus.errors import BrokerUnreachable, ConfigError
from isthmus.model import Cluster
from isthmus.wire.link import CLIENT_ID, Answer, Link, Offer, decode_answer

CONNECT_TIMEOUT_S = 10.0
UNSUPPORTED_VERSION = 35


async def dial(cluster: Cluster, host: str, port: int, timeout_s: float) -> Link:
    """A ready link to host:port, or BrokerUnreachable with the reason."""
    name = f"{cluster.alias} {host}:{port}"
    refuse_security(cluster)
    sock, offer = await asyncio.to_thread(_connect, host, port, name)
    return Link(sock, name, offer, timeout_s)


def refuse_security(cluster: Cluster) -> None:
    """Only PLAINTEXT is spoken so far; anything else must not be tried half-way."""
    protocol = cluster.settings.get("security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise ConfigError(
            f"cluster {cluster.alias}: security.protocol {protocol} is not supported yet",
            hint="use a PLAINTEXT listener; TLS and SASL come with a later version",
            code="SECURITY",
        )


def _connect(host: str, port: int, name: str) -> tuple[socket.socket, Offer]:
    sock: socket.socket | None = None
    try:
        sock = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S)
        _tune(sock)
        return sock, _offer(sock)
    except (OSError, struct.error, ValueError) as error:
        if sock is not None:
            sock.close()
        raise BrokerUnreachable(f"cannot connect: {error}", where=name) from error


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _offer(sock: socket.socket) -> Offer:
    answer = _ask_versions(sock, 3)
    if answer.error_code == UNSUPPORTED_VERSION:  # brokers before 2.4 know only the old form
        answer = _ask_versions(sock, 0)
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    features = {f.name: f.max_version_level for f in getattr(answer, "finalized_features", None) or ()}
    return Offer(ranges, features)


def _ask_versions(sock: socket.socket, version: int) -> Answer:
    message = ApiVersionsRequest[version](client_software_name=CLIENT_ID, client_software_version=__version__)
    message.with_header(correlation_id=1, client_id=CLIENT_ID)
    sock.sendall(message.encode(framed=True, header=True))
    (size,) = struct.unpack(">i", _read_exactly(sock, 4))
    return decode_answer(message.header.get_response_class(), version, memoryview(_read_exactly(sock, size)))


def _read_exactly(sock: socket.socket, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = sock.recv(size - len(chunks))
        if not chunk:
            raise ConnectionError("the broker closed the connection during the handshake")
        chunks += chunk
    return bytes(chunks)
