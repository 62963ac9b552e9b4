"""Who may look: where the page may be bound, the token that lets people in, and the sessions that it is traded for.

What must stay true: on another address than loopback there is always a token; a token is compared in constant time and
never shown again; a session is a random value that says nothing. What requests must look like is left to `guard`.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from isthmus.errors import ConfigError

DEFAULT_PORT = 8484
_LOOPBACK = "127.0.0.1"
_LEAST_TOKEN = 16
_SESSION_S = 12 * 3600.0
_MOST_SESSIONS = 256


def address(text: str) -> tuple[str, int]:
    """`[HOST:]PORT`, on loopback if there is no host."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f"{text!r} is not [HOST:]PORT", where="web page", hint="for example 8484 or 0.0.0.0:8484")
    return host.strip("[]") or _LOOPBACK, int(port)


def is_loopback(host: str) -> bool:
    """Only by what is certain: a name may mean another address tomorrow."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What lets people in. `generated`: nobody knows it yet, so it has to be told once."""

    value: str = field(repr=False)
    generated: bool = False

    def __post_init__(self) -> None:
        if len(self.value) < _LEAST_TOKEN or not self.value.isascii() or not self.value.isprintable():
            raise ConfigError(
                f"the token is no line of at least {_LEAST_TOKEN} plain characters",
                where="--token-file",
                hint="make one: openssl rand -hex 24",
                code="TOKEN",
            )

    def fits(self, given: str) -> bool:
        return hmac.compare_digest(self.value.encode(), given.encode("utf-8", "replace"))


def token_for(host: str, file: Path | None) -> Token | None:
    """From the file; made up where one is needed and no file was given; none on loopback."""
    if file is not None:
        return Token(value=_read(file))
    return None if is_loopback(host) else Token(value=secrets.token_urlsafe(24), generated=True)


def _read(file: Path) -> str:
    try:
        if file.stat().st_mode & 0o077:
            raise ConfigError(
                f"others on this machine may read the token in {file}",
                where="--token-file",
                hint=f"chmod 600 {file}",
                code="TOKEN",
            )
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the token cannot be read from {file}: {error}", where="--token-file", code="TOKEN"
        ) from None


def known_names(host: str, more: tuple[str, ...] = ()) -> frozenset[str]:
    """Names of this page in a Host header. A name that somebody else gave to our address is none of them."""
    names = {"localhost", host, *more}
    if not is_loopback(host):
        names |= {socket.gethostname(), socket.getfqdn()}
    return frozenset(name.lower().rstrip(".") for name in names)


class Sessions:
    """Cookies that were handed out for the token."""

    def __init__(self, token: Token | None) -> None:
        self._token = token
        self._until: dict[str, float] = {}

    @property
    def needs_token(self) -> bool:
        return self._token is not None

    def open(self, token: str) -> str | None:
        """A new session, if the token is right."""
        if self._token is None or not self._token.fits(token):
            return None
        now = time.monotonic()
        self._until = {key: until for key, until in self._until.items() if until > now}
        while len(self._until) >= _MOST_SESSIONS:
            self._until.pop(next(iter(self._until)))
        session = secrets.token_urlsafe(32)
        self._until[session] = now + _SESSION_S
        return session

    def close(self, session: str) -> None:
        self._until.pop(session, None)

    def admits(self, session: str, bearer: str) -> bool:
        if self._token is None:
            return True
        if bearer:
            return self._token.fits(bearer)
        return self._until.get(session, 0.0) > time.monotonic()
