"""SCRAM (RFC 5802) with SHA-256 or SHA-512, the client's side.

Must stay true: the password never leaves; the broker has to prove that it knows it, too, and one that does not is
refused. Fewer iterations than Kafka itself allows are refused, as they would make the proof easy to guess from.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Generator

from isthmus.security import Login

LEAST_ITERATIONS = 4096
_MOST_ITERATIONS = 1 << 22  # more would only be there to keep us busy


class Impostor(Exception):
    """The broker did not keep to the protocol, or does not know the password; in words."""


def talk(login: Login) -> Generator[bytes, bytes, None]:
    """What to send; what the broker answers is to be sent in. Ends when it has proven itself."""
    algorithm = "sha256" if login.mechanism == "SCRAM-SHA-256" else "sha512"
    nonce = secrets.token_urlsafe(24)
    extension = ",tokenauth=true" if login.delegated else ""
    bare = f"n={_escaped(login.user)},r={nonce}{extension}"
    challenge = (yield f"n,,{bare}".encode()).decode("utf-8", "replace")
    full_nonce, salt, iterations = _challenge(challenge, nonce)
    salted = hashlib.pbkdf2_hmac(algorithm, login.password.reveal().encode(), salt, iterations)
    without_proof = f"c=biws,r={full_nonce}"
    about = f"{bare},{challenge},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), about, algorithm)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    final = yield f"{without_proof},p={proof}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), about, algorithm)
    _check_final(final.decode("utf-8", "replace"), expected)


def _escaped(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _challenge(text: str, nonce: str) -> tuple[str, bytes, int]:
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        full_nonce, salt = fields["r"], base64.b64decode(fields["s"], validate=True)
        iterations = int(fields["i"])
    except (KeyError, ValueError, binascii.Error):
        raise Impostor("its SCRAM challenge cannot be read") from None
    if not full_nonce.startswith(nonce) or full_nonce == nonce:
        raise Impostor("its SCRAM challenge is not an answer to ours")
    if not LEAST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
        raise Impostor(f"it asks for {iterations} SCRAM iterations; {LEAST_ITERATIONS} is the least")
    return full_nonce, salt, iterations


def _check_final(text: str, expected: bytes) -> None:
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        shown = base64.b64decode(fields.get("v", ""), validate=True)
    except (ValueError, binascii.Error):
        shown = b""
    if not hmac.compare_digest(shown, expected):
        raise Impostor("it could not prove that it knows the password")
