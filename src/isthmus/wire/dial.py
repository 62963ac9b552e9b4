"""Opens a connection to a broker: TCP, then TLS and SASL as the cluster's `security` says, then versions.

Dialling blocks, so it runs in a thread and hands over a finished `Link`: a broker that does not answer
must not hold up a lane's other brokers. This is also the one place where a tunnel joins in, because
everything else asks `dial` for links and never opens a socket. Through a tunnel, TLS to the broker runs inside the
tunnel's own, with the broker's real name.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
import time
from typing import NamedTuple

from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from isthmus import __version__
from isthmus.errors import BrokerUnreachable, ConfigError, SecurityRefused, WireError
from isthmus.model import Cluster
from isthmus.security import Login, Tunnel
from isthmus.tunnel.dialing import open_through
from isthmus.wire.link import CLIENT_ID, Answer, Link, Message, Offer, decode_answer
from isthmus.wire.security import sasl
from isthmus.wire.security.nested import Connected
from isthmus.wire.security.renewal import keep_logged_in
from isthmus.wire.security.tls import explained_late, shake_hands

CONNECT_TIMEOUT_S = 10.0
UNSUPPORTED_VERSION = 35
_ANSWER_S = 30.0  # for an answer as a whole: one byte every few seconds is no answer
_LONGEST = 1 << 20  # versions take a few KB, tokens less
_CORRELATION = 1
_TLS_ALERT = b"\x15\x03"  # the first bytes of what a listener with TLS answers to anything else


class _Opened(NamedTuple):
    sock: Connected
    offer: Offer
    lifetime_ms: int  # of the login; 0: for ever


async def dial(cluster: Cluster, host: str, port: int, timeout_s: float) -> Link:
    """A ready link to host:port, or BrokerUnreachable with the reason."""
    name = f"{cluster.alias} {host}:{port}"
    _refuse_unread(cluster)
    unwanted = threading.Event()
    try:
        opened = await asyncio.to_thread(_connect, cluster, host, port, name, unwanted)
    except asyncio.CancelledError:
        unwanted.set()
        raise
    link = Link(opened.sock, name, opened.offer, timeout_s)
    if cluster.security.login is not None and opened.lifetime_ms > 0:
        link.keep(asyncio.ensure_future(keep_logged_in(link, cluster.security.login, opened.lifetime_ms)))
    return link


def _refuse_unread(cluster: Cluster) -> None:
    """Nothing may be tried in clear, or past a tunnel, because settings were not read."""
    asked = cluster.settings.get("security.protocol", cluster.security.protocol).upper()
    if asked != cluster.security.protocol:
        what = f"cluster {cluster.alias}: security.protocol is {asked}, but {cluster.security.protocol} would be spoken"
        raise ConfigError(what, hint="this is a bug of Isthmus: please report it", code="SECURITY")
    if cluster.settings.get("tunnel.dial") and cluster.security.tunnel is None:
        what = f"cluster {cluster.alias}: it has a tunnel, but would be reached without"
        raise ConfigError(what, hint="this is a bug of Isthmus: please report it", code="SECURITY")


def _connect(cluster: Cluster, host: str, port: int, name: str, unwanted: threading.Event) -> _Opened:
    """`unwanted` is set by a caller who does not wait any more: then nobody else would close the connection."""
    sock: Connected | None = None
    try:
        sock = bare = _reached(cluster.security.tunnel, host, port)
        if cluster.security.tls is not None:
            sock = shake_hands(bare, host, cluster.security.tls, name)
        opened = _log_in(sock, cluster, name)
        if unwanted.is_set():
            raise ConnectionError("not wanted any more")
        return opened
    except (OSError, struct.error, ValueError) as error:
        _close(sock)
        in_clear = sock is not None and cluster.security.tls is None
        hint = "if this listener speaks TLS, set security.protocol to SSL or SASL_SSL" if in_clear else ""
        raise BrokerUnreachable(f"cannot connect: {error}", where=name, hint=hint) from error
    except WireError:
        _close(sock)
        raise


def _reached(tunnel: Tunnel | None, host: str, port: int) -> socket.socket:
    if tunnel is not None:
        sock: socket.socket = open_through(tunnel, host, port)
        sock.settimeout(CONNECT_TIMEOUT_S)
        return sock
    sock = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S)
    _tune(sock)
    return sock


def _close(sock: Connected | None) -> None:
    if sock is not None:
        sock.close()


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _log_in(sock: Connected, cluster: Cluster, name: str) -> _Opened:
    try:
        offer = _offer(sock, name)
    except (ssl.SSLError, ConnectionError) as error:
        if cluster.security.tls is None:
            raise
        # TLS 1.3 refuses a client only after its side of the handshake is over.
        raise explained_late(error, cluster.security.tls, name) from None
    if cluster.security.login is None:
        return _Opened(sock, offer, 0)
    lifetime_ms = _authenticate(sock, offer, cluster.security.login, name)
    return _Opened(sock, _offer(sock, name), lifetime_ms)


def _authenticate(sock: Connected, offer: Offer, login: Login, name: str) -> int:
    talk = sasl.conversation(login, name)
    message: bytes | None = next(talk)
    handshake = SaslHandshakeRequest(mechanism=login.mechanism)
    sasl.check_handshake(_ask(sock, handshake, sasl.HANDSHAKE_VERSION, name), login, name)
    version = offer.best(SaslAuthenticateRequest.API_KEY, sasl.AUTHENTICATE_CEILING)
    if version < 0:  # before 1.0, tokens were sent outside of the protocol
        what = "the broker is too old to log in to: it offers no SaslAuthenticate"
        raise SecurityRefused(what, where=name, hint="Kafka 1.0 or newer is needed with SASL", code="SASL")
    lifetime_ms = 0
    while message is not None:
        answer = _ask(sock, SaslAuthenticateRequest(auth_bytes=message), version, name)
        sasl.check_login(answer, login, name)
        lifetime_ms = getattr(answer, "session_lifetime_ms", 0)
        message = sasl.answered(talk, bytes(answer.auth_bytes), name)
    return lifetime_ms


def _offer(sock: Connected, name: str) -> Offer:
    answer = _ask_versions(sock, 3, name)
    if answer.error_code == UNSUPPORTED_VERSION:  # brokers before 2.4 know only the old form
        answer = _ask_versions(sock, 0, name)
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys or ()}
    features = {f.name: f.max_version_level for f in getattr(answer, "finalized_features", None) or ()}
    return Offer(ranges, features)


def _ask_versions(sock: Connected, version: int, name: str) -> Answer:
    message = ApiVersionsRequest[version](client_software_name=CLIENT_ID, client_software_version=__version__)
    return _ask(sock, message, version, name)


def _ask(sock: Connected, message: Message, version: int, name: str) -> Answer:
    message.API_VERSION = version
    message.with_header(correlation_id=_CORRELATION, client_id=CLIENT_ID)
    sock.sendall(message.encode(framed=True, header=True))
    deadline = time.monotonic() + _ANSWER_S
    head = _read_exactly(sock, 4, deadline)
    (size,) = struct.unpack(">i", head)
    if head.startswith(_TLS_ALERT):
        raise SecurityRefused(
            "this listener speaks TLS, and was spoken to in clear",
            where=name,
            hint="set security.protocol to SSL or SASL_SSL, or use the port of a listener without TLS",
            code="TLS_NEEDED",
        )
    if not 4 <= size <= _LONGEST:
        raise ConnectionError(f"an answer of {size} bytes was announced: is this a Kafka broker?")
    frame = _read_exactly(sock, size, deadline)
    if frame[:4] != struct.pack(">i", _CORRELATION):
        raise ConnectionError("an answer came that belongs to no question: is this a Kafka broker?")
    return decode_answer(message.header.get_response_class(), version, memoryview(frame))


def _read_exactly(sock: Connected, size: int, deadline: float) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = sock.recv(size - len(chunks))
        if not chunk:
            raise ConnectionError("the broker closed the connection during the handshake")
        chunks += chunk
        if time.monotonic() > deadline:
            raise TimeoutError("the broker took too long for an answer")
    return bytes(chunks)
