"""How a cluster is to be talked to, as values: whom we trust, who we are, and the secrets in it.

All are frozen and picklable, because they travel to executors. What must stay true: a `Secret` shows its value
to nobody but the caller of `reveal`: not in repr, str, a format, an exception or a log. It is pickled sealed
(AES-GCM) when the process has a key, so that what Spark keeps of a task on disk holds no secret in clear. The key
is in the environment only, never in Spark's conf: processes that Spark starts on this machine inherit it.
Reading settings is left to `config`, using them to `wire`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import MutableMapping
from dataclasses import dataclass, fields, is_dataclass

from isthmus.errors import MachineError

SEAL_VARIABLE = "ISTHMUS_SEAL_KEY"
_NONCE = 12


class Secret:
    """A text that is not shown."""

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        return "***" if self._value else "''"

    def __reduce__(self) -> tuple[object, ...]:
        key = _key() if self._value else None
        if key is None:
            return Secret, (self._value,)
        return _opened, (_sealed(key, self._value),)


NO_SECRET = Secret()


def make_seal_key(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let this process, and those that it starts from now on, seal secrets; a key that is there is kept."""
    environ.setdefault(SEAL_VARIABLE, base64.b64encode(os.urandom(32)).decode())


def has_seal_key() -> bool:
    """MachineError if the environment has a key that is none."""
    return _key() is not None


def holds_secret(value: object) -> bool:
    """Whether a value, or any part of it, is a secret."""
    if isinstance(value, Secret):
        return bool(value)
    if is_dataclass(value):
        return any(holds_secret(getattr(value, each.name)) for each in fields(value))
    return isinstance(value, tuple) and any(map(holds_secret, value))


def _key() -> bytes | None:
    text = os.environ.get(SEAL_VARIABLE)
    if not text:
        return None
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != 32:
        hint = "`openssl rand -base64 32` makes one"
        raise MachineError(f"{SEAL_VARIABLE} is not 32 bytes in base64", hint=hint, code="SEAL")
    return key


def _sealed(key: bytes, value: str) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow to import, and mostly not needed

    nonce = os.urandom(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, value.encode(), None)


def _opened(sealed: bytes) -> Secret:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = _key()
    hint = f"give executors the driver's {SEAL_VARIABLE}, or none to both"
    if key is None:
        raise MachineError(f"secrets came sealed, and there is no {SEAL_VARIABLE} here", hint=hint, code="SEAL")
    try:
        return Secret(AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], None).decode())
    except InvalidTag:
        raise MachineError(f"secrets were sealed with another {SEAL_VARIABLE}", hint=hint, code="SEAL") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Certificates, or a key with its certificates: in a file (JKS, PKCS12, PEM), or as PEM texts."""

    path: str = ""
    password: Secret = NO_SECRET
    certificates: str = ""
    key: Secret = NO_SECRET
    key_password: Secret = NO_SECRET


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Chains are always verified; `verify_name` is off only where the file says so in as many words."""

    trust: Store | None = None  # None: what this system trusts
    own: Store | None = None
    verify_name: bool = True
    lowest: str = "TLSv1.2"
    highest: str = "TLSv1.3"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSource:
    """Where OAUTHBEARER tokens come from: the client credentials grant of a token endpoint."""

    url: str
    client_id: str
    client_secret: Secret
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    trust: Store | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who we are to a broker, by SASL."""

    mechanism: str  # "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512" | "OAUTHBEARER"
    user: str = ""
    password: Secret = NO_SECRET
    delegated: bool = False  # user and password are a delegation token's id and hmac
    tokens: TokenSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnel:
    """The way to brokers that cannot be reached directly: where to dial, and the secrets shared with the other end."""

    host: str
    port: int
    secrets: tuple[Secret, ...]  # the first that the other end knows is used

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Everything between a socket and the first request."""

    tls: Tls | None = None  # None: in clear
    login: Login | None = None
    tunnel: Tunnel | None = None  # None: brokers are reached directly

    @property
    def protocol(self) -> str:
        """Kafka's name for it."""
        kind = "PLAINTEXT" if self.tls is None else "SSL"
        return kind if self.login is None else f"SASL_{kind}"


IN_CLEAR = Security()
