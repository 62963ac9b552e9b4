"""Trust and key stores as Java, OpenSSL and Kafka write them: JKS, PKCS12, PEM in a file or as text.

Owns their formats: what a file holds is told by its first bytes, as Java does, not by its name. Must stay true:
nothing here writes, and no message holds a password or a key; a wrong password is told apart from a broken file where
the format allows it. JKS is read by hand: it is simple, and no other Python package that we need reads it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.errors import SecurityRefused
from isthmus.security import Secret, Store

_JKS, _JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_SHA1 = 20
_SALTED_WITH = b"Mighty Aphrodite"  # part of the format


class Identity(NamedTuple):
    """A private key (an object of `cryptography`) and its certificate chain as DER, our own first."""

    key: Any
    chain: list[bytes]


class _Unfit(Exception):
    """What is wrong with a store, in words."""


def trusted(store: Store, where: str) -> list[bytes]:
    """The certificates of a trust store, as DER."""
    try:
        found = _certificates(store)
        if not found:
            raise _Unfit("it holds no certificate")
    except _Unfit as unfit:
        raise _refused("trust", store, unfit, where) from None
    return found


def identity(store: Store, where: str) -> Identity:
    """The key and the chain of a key store."""
    try:
        found = _identity(store)
        if not found.chain:
            raise _Unfit("the key has no certificate")
    except _Unfit as unfit:
        raise _refused("key", store, unfit, where) from None
    return found


def _refused(kind: str, store: Store, unfit: _Unfit, where: str) -> SecurityRefused:
    place = store.path or "given as text"
    hint = f"check ssl.{kind}store.location, ssl.{kind}store.password" + (", ssl.key.password" if kind == "key" else "")
    return SecurityRefused(f"the {kind} store ({place}) cannot be used: {unfit}", where=where, hint=hint, code="STORE")


def _certificates(store: Store) -> list[bytes]:
    if store.certificates:
        return _pem_certificates(store.certificates)
    data = _read(store.path)
    if data.startswith(_JKS):
        # Also without a password, as Java: certificates are no secret.
        return [certificate for entry in _jks(data, store.password) for certificate in entry.chain]
    if _is_pem(data):
        return _pem_certificates(data.decode("latin-1"))
    found = _pkcs12(data, store.password)
    return [] if found is None else [*([found.own] if found.own else []), *found.others]


def _identity(store: Store) -> Identity:
    key_password = store.key_password or store.password
    if store.key:
        return Identity(_pem_key(store.key.reveal(), store.key_password), _pem_certificates(store.certificates))
    data = _read(store.path)
    if data.startswith(_JKS):
        entries = [entry for entry in _jks(data, store.password) if entry.key]
        if not entries:
            raise _Unfit("it holds no private key")
        return Identity(_der_key(_unprotected(entries[0].key, key_password), None), entries[0].chain)
    if _is_pem(data):
        text = data.decode("latin-1")
        return Identity(_pem_key(text, key_password), _pem_certificates(text))
    found = _pkcs12(data, store.password)
    if found is None or found.key is None:
        raise _Unfit("it holds no private key")
    return Identity(found.key, [*([found.own] if found.own else []), *found.others])


def _read(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise _Unfit(error.strerror or str(error)) from None
    if data.startswith(_JCEKS):
        raise _Unfit("JCEKS is not read here; `keytool -importkeystore -deststoretype PKCS12` turns it into PKCS12")
    if not data.startswith((_JKS, b"\x30")) and not _is_pem(data):
        raise _Unfit("it is neither JKS nor PKCS12 nor PEM")
    return data


# --- PEM --------------------------------------------------------------------------------------


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _blocks(text: str) -> list[tuple[str, bytes]]:
    """Also of a text whose line ends became spaces, as it happens in properties files."""
    try:
        return [(kind, base64.b64decode("".join(body.split()), validate=True)) for kind, body in _PEM.findall(text)]
    except ValueError:
        raise _Unfit("a PEM part is not base64") from None


def _pem_certificates(text: str) -> list[bytes]:
    return [der for kind, der in _blocks(text) if kind in ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE")]


def _pem_key(text: str, password: Secret) -> Any:
    for kind, der in _blocks(text):
        if kind.endswith("PRIVATE KEY"):
            return _der_key(der, password.reveal().encode() if kind.startswith("ENCRYPTED") else None)
    raise _Unfit("it holds no private key")


def _der_key(der: bytes, password: bytes | None) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    try:
        return load_der_private_key(der, password)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        wrong = "the password of the key is wrong" if password is not None else "its private key cannot be read"
        raise _Unfit(wrong) from None


# --- PKCS12 -----------------------------------------------------------------------------------


class _Pkcs12(NamedTuple):
    key: Any
    own: bytes | None
    others: list[bytes]


def _pkcs12(data: bytes, password: Secret) -> _Pkcs12 | None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

    try:
        found = pkcs12.load_pkcs12(data, password.reveal().encode() if password else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _Unfit("its password is wrong, or it is damaged" if password else "it needs a password") from None
    own = found.cert.certificate.public_bytes(Encoding.DER) if found.cert else None
    return _Pkcs12(found.key, own, [each.certificate.public_bytes(Encoding.DER) for each in found.additional_certs])


# --- JKS --------------------------------------------------------------------------------------


class _Entry(NamedTuple):
    key: bytes  # protected; empty: a trusted certificate
    chain: list[bytes]


def _jks(data: bytes, password: Secret) -> list[_Entry]:
    if password:
        digest = hashlib.sha1(password.reveal().encode("utf-16-be") + _SALTED_WITH + data[:-_SHA1])  # noqa: S324 - the format's
        if not hmac.compare_digest(digest.digest(), data[-_SHA1:]):
            raise _Unfit("its password is wrong, or it is damaged")
    try:
        return _Jks(data).entries()
    except (struct.error, IndexError):
        raise _Unfit("it is damaged") from None


class _Jks:
    """Big-endian numbers, texts and byte strings with their length, one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 4
        self._version = self._number(">I")

    def entries(self) -> list[_Entry]:
        return [self._entry() for _ in range(self._number(">I"))]

    def _entry(self) -> _Entry:
        tag = self._number(">I")
        self._bytes(">H")  # alias
        self._number(">q")  # when it was made
        if tag == _CERTIFICATE_ENTRY:
            return _Entry(b"", [self._certificate()])
        if tag != _KEY_ENTRY:
            raise _Unfit(f"it holds an entry of an unknown kind ({tag})")
        key = self._bytes(">I")
        return _Entry(key, [self._certificate() for _ in range(self._number(">I"))])

    def _certificate(self) -> bytes:
        if self._version == 2:
            self._bytes(">H")  # "X.509"
        return self._bytes(">I")

    def _number(self, form: str) -> int:
        (number,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(number)

    def _bytes(self, form: str) -> bytes:
        size = self._number(form)
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise IndexError
        self._at += size
        return found


def _unprotected(protected: bytes, password: Secret) -> bytes:
    """Sun's own protection of keys: SEQUENCE { algorithm, OCTET STRING { salt, key XOR stream, digest } }."""
    _, start, _ = _der(protected, 0)
    _, _, past_algorithm = _der(protected, start)
    _, start, end = _der(protected, past_algorithm)
    sealed, secret = protected[start:end], password.reveal().encode("utf-16-be")
    salt, body, check = sealed[:_SHA1], sealed[_SHA1:-_SHA1], sealed[-_SHA1:]
    stream, block = bytearray(), salt
    while len(stream) < len(body):
        block = hashlib.sha1(secret + block).digest()  # noqa: S324 - the format's
        stream += block
    key = bytes(a ^ b for a, b in zip(body, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):  # noqa: S324 - the format's
        raise _Unfit("the password of the key is wrong")
    return key


def _der(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, begin and end of the content of one DER value."""
    try:
        tag, size, begin = data[at], data[at + 1], at + 2
        if size & 0x80:
            more = size & 0x7F
            size, begin = int.from_bytes(data[begin : begin + more], "big"), begin + more
    except IndexError:
        raise _Unfit("it is damaged") from None
    return tag, begin, begin + size
