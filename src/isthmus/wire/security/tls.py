"""TLS to a broker: a context made of a `Tls` value, the handshake, and its failures in words.

Must stay true: the broker's chain is always verified, its name unless the file says otherwise; a context is made
anew when a file that it was made of has changed, so a certificate that was rotated on disk counts from the next
connection on. A private key touches the disk only encrypted under a password that lives for one call (Python's ssl
reads keys from files alone), in a folder that nobody else may enter.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import tempfile
import threading
from pathlib import Path

from isthmus.errors import SecurityRefused
from isthmus.security import Store, Tls
from isthmus.wire.security.nested import NestedTls
from isthmus.wire.security.stores import Identity, identity, trusted

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# Numbers of OpenSSL, which are stable.
_EXPIRED, _NOT_YET = (10,), (9,)
_UNKNOWN = (2, 18, 19, 20, 21)
_OTHER_NAME = (62, 64)

_Stamp = tuple[tuple[int, int, int], ...]
_made: dict[Tls, tuple[_Stamp, ssl.SSLContext]] = {}
_making = threading.Lock()


def context(tls: Tls, where: str) -> ssl.SSLContext:
    """The context of a Tls value as its files are now; SecurityRefused (STORE) if they cannot be used."""
    with _making:
        stamp = _stamp(tls)
        known = _made.get(tls)
        if known is None or known[0] != stamp:
            known = _made[tls] = (stamp, _context(tls, where))
        return known[1]


def _stamp(tls: Tls) -> _Stamp:
    """What changes when a file is replaced or written."""
    found = []
    for store in (tls.trust, tls.own):
        try:
            seen = Path(store.path).stat() if store and store.path else None
        except OSError:
            seen = None
        found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino) if seen else (0, 0, 0))
    return tuple(found)


def _context(tls: Tls, where: str) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = tls.verify_name
    made.minimum_version, made.maximum_version = _VERSIONS[tls.lowest], _VERSIONS[tls.highest]
    # As Java: whatever stands in a trust store is trusted, an intermediate certificate, too.
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if tls.trust is None:
        made.load_default_certs()
    else:
        _trust(made, tls.trust, where)
    if tls.own is not None:
        _load(made, identity(tls.own, where), where)
    return made


def _trust(made: ssl.SSLContext, store: Store, where: str) -> None:
    try:
        made.load_verify_locations(cadata=b"".join(trusted(store, where)))
    except (ssl.SSLError, ValueError):
        raise SecurityRefused(
            f"the trust store ({store.path or 'given as text'}) holds what is no certificate", where=where, code="STORE"
        ) from None


def _load(made: ssl.SSLContext, found: Identity, where: str) -> None:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    password = secrets.token_urlsafe(32)
    hidden = BestAvailableEncryption(password.encode())
    pem = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden).decode()
    with tempfile.TemporaryDirectory(prefix="isthmus-") as folder:  # mode 0700
        file = Path(folder) / "own.pem"
        file.touch(mode=0o600)
        file.write_text(pem + "".join(map(ssl.DER_cert_to_PEM_cert, found.chain)))
        try:
            made.load_cert_chain(file, password=password)
        except ssl.SSLError:
            what = "the key store's key does not belong to its first certificate"
            raise SecurityRefused(what, where=where, hint="check ssl.keystore.*", code="STORE") from None


def shake_hands(sock: socket.socket, host: str, tls: Tls, where: str) -> ssl.SSLSocket | NestedTls:
    """The socket inside TLS; SecurityRefused that says why not."""
    made = context(tls, where)
    try:
        if isinstance(sock, ssl.SSLSocket):  # of a tunnel
            nested = NestedTls(sock, made, host)
            nested.do_handshake()
            return nested
        return made.wrap_socket(sock, server_hostname=host)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise explained(error, tls, host, where) from None


def explained_late(error: Exception, tls: Tls, where: str) -> SecurityRefused:
    """An error at the first request: there TLS 1.3 refuses clients; its alert may be lost as the broker hangs up."""
    reason = str(getattr(error, "reason", "") or "")
    return _refused_by_broker(reason if "ALERT" in reason else "it hangs up, as for a CERTIFICATE", tls, where)


def explained(error: Exception, tls: Tls, host: str, where: str) -> SecurityRefused:
    """An error of the handshake, with its own code."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _not_verified(error, host, where)
    reason = str(getattr(error, "reason", "") or "")
    if "ALERT" in reason:
        return _refused_by_broker(reason, tls, where)
    if isinstance(error, ssl.SSLEOFError | ConnectionError) or "WRONG_VERSION" in reason or "HTTP_REQUEST" in reason:
        return SecurityRefused(
            "the broker does not answer as one that speaks TLS",
            where=where,
            hint="is it a listener without TLS? Then security.protocol is PLAINTEXT or SASL_PLAINTEXT, or the port "
            "is another",
            code="TLS_PLAIN_PORT",
        )
    if isinstance(error, TimeoutError):
        return SecurityRefused("no answer to the TLS handshake", where=where, hint="check the port", code="TLS")
    return SecurityRefused(
        f"the TLS handshake failed: {reason or type(error).__name__}",
        where=where,
        hint="check ssl.protocol and ssl.enabled.protocols on both sides",
        code="TLS",
    )


def _not_verified(error: ssl.SSLCertVerificationError, host: str, where: str) -> SecurityRefused:
    number = error.verify_code
    if number in _EXPIRED or number in _NOT_YET:
        what = "the broker's certificate has expired" if number in _EXPIRED else "the certificate is not valid yet"
        return SecurityRefused(
            what, where=where, hint="renew it there, and check the clocks of both machines", code="TLS_EXPIRED"
        )
    if number in _OTHER_NAME:
        return SecurityRefused(
            f"the broker's certificate is not for `{host}`",
            where=where,
            hint="use a name that stands in it; an empty ssl.endpoint.identification.algorithm would switch this check "
            "off, and with it the protection against impostors",
            code="TLS_NAME",
        )
    if number in _UNKNOWN:
        return SecurityRefused(
            "the broker's certificate is signed by nobody whom the trust store knows",
            where=where,
            hint="put the authority's certificate into ssl.truststore.location or ssl.truststore.certificates",
            code="TLS_UNTRUSTED",
        )
    return SecurityRefused(f"the broker's certificate is not accepted: {error.verify_message}", where=where, code="TLS")


def _refused_by_broker(reason: str, tls: Tls, where: str) -> SecurityRefused:
    if any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")):
        what = "the broker wants a certificate of ours, and there is none"
        hint = "set ssl.keystore.location (or .certificate.chain and .key)"
        if tls.own is not None:
            what, hint = "the broker does not accept our certificate", "has it expired, and does the broker trust it?"
        return SecurityRefused(f"{what} ({reason})", where=where, hint=hint, code="TLS_CLIENT")
    return SecurityRefused(
        f"the broker ended the TLS handshake: {reason}",
        where=where,
        hint="check ssl.protocol and ssl.enabled.protocols on both sides",
        code="TLS",
    )
