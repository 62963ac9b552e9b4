"""Who may speak: certificates that both ends make of the shared secret, each for itself.

    secret -> HKDF -> Ed25519 authority, the same bytes on both sides -> a leaf of this process for its role

Must stay true: TLS 1.3 only, both ends show a certificate of the authority, a leaf is good for one role (whoever
listens cannot be answered with its own certificate), no session is ever resumed, so nothing recorded is of use later.
The leaf's key lives in this process only, so a secret that leaks opens no recording. Several secrets may be valid at
once: the one that a client means is named by its id, a hash, in the SNI.
"""

from __future__ import annotations

import datetime
import functools
import secrets as random
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isthmus.errors import SecurityRefused
from isthmus.security import Secret
from isthmus.tunnel.secret import key_of

PROTOCOL = "isthmus-tunnel/1"  # offered by ALPN: another version is told apart before the first byte
# Clocks that differ must not cut the link, so certificates are valid for ever; secrets end by rotation.
_BEGIN, _END = datetime.datetime(2000, 1, 1), datetime.datetime(9999, 12, 31)  # noqa: DTZ001 - x509 wants it bare
_SERIAL = 1


class Identity:
    """One secret: its id, and contexts for both roles, made when they are asked for."""

    def __init__(self, secret: Secret) -> None:
        key = key_of(secret)
        self.key_id = _derived(key, b"id", 16).hex()
        self._seed = _derived(key, b"authority", 32)

    @property
    def name(self) -> str:
        """What stands in the SNI and in the listener's certificate."""
        return f"{self.key_id}.isthmus-tunnel"

    @functools.cached_property
    def authority(self) -> bytes:
        """The authority's certificate, DER: the same on both sides."""
        return _authority(self._seed)

    @functools.cached_property
    def dialer(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _strict(made)
        self._fill(made, dials=True)
        return made

    @functools.cached_property
    def listener(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _strict(made)
        self._fill(made, dials=False)
        return made

    def _fill(self, made: ssl.SSLContext, *, dials: bool) -> None:
        made.load_verify_locations(cadata=self.authority)
        key_pem, leaf_pem, password = _leaf(self._seed, self.name, dials=dials)
        # Python's ssl reads keys from files alone: it lies there encrypted, in a folder of ours, for one call.
        with tempfile.TemporaryDirectory(prefix="isthmus-") as folder:
            file = Path(folder) / "leaf.pem"
            file.touch(mode=0o600)
            file.write_text(key_pem + leaf_pem)
            made.load_cert_chain(file, password=password)


class Keyring:
    """The secrets that a listener takes. `replace` counts for connections that come later."""

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._known: dict[str, Identity] = {}
        self.replace(secrets)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _strict(self.context)
        self.context.sni_callback = self._choose

    def replace(self, secrets: Sequence[Secret]) -> None:
        made = [identity(secret) for secret in secrets]
        for each in made:
            _ = each.listener  # not at the first handshake, which has a deadline
        self._known = {each.name: each for each in made}

    @property
    def key_ids(self) -> tuple[str, ...]:
        return tuple(each.key_id for each in self._known.values())

    def _choose(self, sock: Any, name: str | None, _: ssl.SSLContext) -> int | None:
        chosen = self._known.get(name or "")
        if chosen is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        sock.context = chosen.listener
        return None

    def key_id_of(self, sock: ssl.SSLSocket) -> str:
        """By whose secret a connection that is through its handshake was taken."""
        return next((each.key_id for each in self._known.values() if each.listener is sock.context), "gone")


@functools.lru_cache(maxsize=64)
def identity(secret: Secret) -> Identity:
    """Made once in a process: a pass-phrase costs time."""
    return Identity(secret)


def check_version(sock: ssl.SSLSocket, where: str) -> None:
    """SecurityRefused unless both ends speak this version."""
    if sock.selected_alpn_protocol() != PROTOCOL:
        what = "the other end of the tunnel speaks another version of it"
        raise SecurityRefused(what, where=where, hint="bring both ends to one version", code="TUNNEL_VERSION")


def _strict(made: ssl.SSLContext) -> None:
    made.minimum_version = made.maximum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.set_alpn_protocols([PROTOCOL])
    if not made.check_hostname:  # of a listener
        made.num_tickets = 0


def _derived(key: bytes, purpose: bytes, size: int) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=size, salt=None, info=b"isthmus tunnel 1 " + purpose).derive(key)


def _signing_key(seed: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed)


def _authority(seed: bytes) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    key = _signing_key(seed)
    made = (
        _blank(key.public_key(), "isthmus tunnel authority", _SERIAL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, None)
    )
    return bytes(made.public_bytes(Encoding.DER))


def _leaf(seed: bytes, name: str, *, dials: bool) -> tuple[str, str, str]:
    """Key (encrypted) and certificate as PEM, and the key's password."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key, password = ec.generate_private_key(ec.SECP256R1()), random.token_urlsafe(32)
    role = ExtendedKeyUsageOID.CLIENT_AUTH if dials else ExtendedKeyUsageOID.SERVER_AUTH
    made = (
        _blank(key.public_key(), "dials" if dials else "listens", x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([role]), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(_signing_key(seed), None)
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
    return pem.decode(), made.public_bytes(Encoding.PEM).decode(), password


def _blank(public: Any, name: str, serial: int) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named("isthmus tunnel authority"))
        .public_key(public)
        .serial_number(serial)
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
    )
