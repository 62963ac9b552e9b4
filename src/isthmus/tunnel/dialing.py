"""From a client through a tunnel to a host that only the other end can reach.

Blocks; what comes back is a TLS connection whose next byte belongs to the destination. Must stay true: names are
resolved at the exit, so nothing is looked up here but the tunnel's own address; of several secrets the first that the
other end knows is used, and remembered.
"""

from __future__ import annotations

import socket
import ssl
import time

from isthmus.errors import BrokerUnreachable, SecurityRefused
from isthmus.security import Secret, Tunnel
from isthmus.tunnel.identity import check_version, identity
from isthmus.tunnel.lines import ADVICE, PING, PONG, Refused, connect_line, read_answer, read_line
from isthmus.tunnel.sockets import close, tune

CONNECT_S = 10.0
ANSWER_S = 30.0  # the exit resolves and connects, a meeting may first wait for an exit
_last_good: dict[Tunnel, Secret] = {}


def open_through(tunnel: Tunnel, host: str, port: int) -> ssl.SSLSocket:
    """A connection to host:port by way of the tunnel; BrokerUnreachable or SecurityRefused that says why not."""
    where = f"tunnel at {tunnel}"
    sock = opened(tunnel)
    try:
        sock.sendall(connect_line(host, port))
        refused = read_answer(read_line(sock, ANSWER_S))
    except Refused as error:
        refused = error
    except OSError as error:
        close(sock)
        raise _broken(error, where) from None
    if refused is not None:
        close(sock)
        raise _explained(refused, f"{host}:{port}", where)
    return sock


def ping(tunnel: Tunnel) -> float:
    """Seconds to the other end and back, over a connection that is through its handshake."""
    sock = opened(tunnel)
    try:
        began = time.monotonic()
        sock.sendall(PING)
        if read_line(sock, ANSWER_S) != PONG:
            raise ConnectionError("no answer to a PING")
        return time.monotonic() - began
    except OSError as error:
        raise _broken(error, f"tunnel at {tunnel}") from None
    finally:
        close(sock)


def opened(tunnel: Tunnel) -> ssl.SSLSocket:
    """A connection to the other end itself."""
    good = _last_good.get(tunnel)
    order = sorted(tunnel.secrets, key=lambda secret: secret != good)
    for number, secret in enumerate(order, 1):
        try:
            sock = _shaken(tunnel, secret)
        except SecurityRefused as error:
            if error.code != "TUNNEL_SECRET" or number == len(order):
                raise
        else:
            _last_good[tunnel] = secret
            return sock
    raise AssertionError("a tunnel has at least one secret")


def _shaken(tunnel: Tunnel, secret: Secret) -> ssl.SSLSocket:
    where, who = f"tunnel at {tunnel}", identity(secret)
    context = who.dialer  # before the connection: a pass-phrase takes longer than some listeners wait
    raw: socket.socket | None = None
    try:
        raw = socket.create_connection((tunnel.host, tunnel.port), timeout=CONNECT_S)
        tune(raw)
        raw = sock = context.wrap_socket(raw, server_hostname=who.name)
        check_version(sock, where)
    except ssl.SSLError as error:
        close(raw)
        raise _handshake_failed(error, where) from None
    except OSError as error:
        close(raw)
        what = f"the tunnel cannot be reached: {error.strerror or error}"
        hint = "is the other end up, and does the firewall let its port through?"
        raise BrokerUnreachable(what, where=where, hint=hint, code="TUNNEL") from None
    except SecurityRefused:
        close(raw)
        raise
    return sock


def _handshake_failed(error: ssl.SSLError, where: str) -> BrokerUnreachable:
    reason = str(error.reason or "")
    if isinstance(error, ssl.SSLCertVerificationError) or "ALERT" in reason or "UNRECOGNIZED_NAME" in reason:
        return _unknown_secret(where)
    if isinstance(error, ssl.SSLEOFError):
        what = "the other end hung up during the handshake: it may have too many connections that are not through yet"
        return BrokerUnreachable(what, where=where, hint="look at its log", code="TUNNEL")
    what = f"what answers there is no tunnel of Isthmus ({reason or error})"
    return SecurityRefused(what, where=where, hint="check address and port", code="TUNNEL_VERSION")


def _unknown_secret(where: str) -> SecurityRefused:
    what = "the other end of the tunnel does not know this shared secret"
    hint = "both sides need the same; after a rotation, the old one counts until it is taken out"
    return SecurityRefused(what, where=where, hint=hint, code="TUNNEL_SECRET")


def _broken(error: OSError, where: str) -> BrokerUnreachable:
    """TLS 1.3 refuses a client only after its side of the handshake is over."""
    if isinstance(error, ssl.SSLError) and "ALERT" in str(error.reason or ""):
        return _unknown_secret(where)
    what = f"the tunnel does not answer: {error.strerror or error}"
    return BrokerUnreachable(what, where=where, hint="look at the log of the other end", code="TUNNEL")


def _explained(refused: Refused, destination: str, where: str) -> BrokerUnreachable:
    kind = SecurityRefused if refused.code == "NOT_ALLOWED" else BrokerUnreachable
    what = f"the tunnel does not lead to {destination}: {refused.text or refused.code}"
    return kind(what, where=where, hint=ADVICE.get(refused.code, ""), code=f"TUNNEL_{refused.code}")
