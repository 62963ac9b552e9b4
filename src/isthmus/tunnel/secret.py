"""Shared secrets as people keep them, and the 32 bytes that each stands for.

Owns which texts are random keys and which are pass-phrases, and what is too short. Must stay true: both sides get the
same bytes of the same text; no message holds any part of it. Whoever reaches the port gets a certificate that lets
guesses be tried offline, so a pass-phrase goes through scrypt, and a key has at least 32 bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
import threading
from collections.abc import Sequence

from isthmus.errors import ConfigError
from isthmus.security import Secret

KEY_BYTES = 32
SHORTEST_PHRASE = 16
_PREFIX = "isthmus-key-"
_HEX = re.compile(r"[0-9a-fA-F]{64,}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{43}=")  # what `openssl rand -base64 32` prints
_LABEL = b"isthmus tunnel pass-phrase, version 1"
_MEMORY = 1 << 16, 8, 1  # n, r, p: 64 MB and about a fifth of a second for each guess
_stretched: dict[bytes, bytes] = {}
_stretching = threading.Lock()


def new_secret() -> str:
    """A fresh random key, as text."""
    return _PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode().rstrip("=")


def several(text: str) -> tuple[Secret, ...]:
    """The secrets of a text, one a line, the first being the one to use; ConfigError if one is too short."""
    lines = [line.strip() for line in text.splitlines()]
    found = tuple(Secret(line) for line in lines if line and not line.startswith("#"))
    if not found:
        raise ConfigError("there is no shared secret", hint="`isthmus tunnel keygen` makes one", code="TUNNEL_SECRET")
    for each in found:
        _check(each)
    return found


def _check(secret: Secret) -> None:
    text = secret.reveal()
    if text.startswith(_PREFIX) and _random_key(text) is None:
        what = "the shared secret is a damaged key: some of its characters are missing or changed"
        raise ConfigError(what, hint="copy it again, as a whole", code="TUNNEL_SECRET")
    if _random_key(text) is None and len(text.encode()) < SHORTEST_PHRASE:
        raise ConfigError(
            f"the shared secret is too short: a pass-phrase has at least {SHORTEST_PHRASE} characters",
            hint="`isthmus tunnel keygen` makes a random key",
            code="TUNNEL_SECRET",
        )


def doubt(found: Sequence[Secret]) -> str:
    """What is to be said against these secrets; empty: nothing."""
    for each in found:
        text = each.reveal()
        if _random_key(text) is None and _weak(text):
            return (
                "the shared secret of the tunnel is a weak pass-phrase: whoever reaches the port can try guesses "
                "offline; six or more words by chance are meant, or a key of `isthmus tunnel keygen`"
            )
    return ""


def _weak(phrase: str) -> bool:
    words = set(phrase.lower().split())
    return len(words) < 6 and (len(phrase) < 24 or len(set(phrase)) < 12)


def key_of(secret: Secret) -> bytes:
    """The bytes that everything else is derived of."""
    text = secret.reveal()
    return _random_key(text) or _phrase_key(text)


def _random_key(text: str) -> bytes | None:
    try:
        if text.startswith(_PREFIX):
            rest = text.removeprefix(_PREFIX)
            key = base64.b64decode(rest + "=" * (-len(rest) % 4), altchars=b"-_", validate=True)
        elif _HEX.fullmatch(text):
            key = bytes.fromhex(text)
        elif _BASE64.fullmatch(text):
            key = base64.b64decode(text, validate=True)
        else:
            return None
    except (binascii.Error, ValueError):
        return None
    return key if len(key) >= KEY_BYTES else None


def _phrase_key(text: str) -> bytes:
    """The salt is a fixed label: both sides know nothing but the phrase, so there is nothing else to make it of. A
    table of guesses made in advance would serve against every tunnel; the cost of each guess is what is left."""
    phrase = text.encode()
    name = hashlib.sha256(phrase).digest()
    with _stretching:
        if name not in _stretched:
            n, r, p = _MEMORY
            _stretched[name] = hashlib.scrypt(
                phrase, salt=hashlib.sha256(_LABEL).digest(), n=n, r=r, p=p, maxmem=256 * n * r, dklen=KEY_BYTES
            )
        return _stretched[name]
