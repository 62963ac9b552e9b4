"""Tokens for OAUTHBEARER, by the client credentials grant (RFC 6749, 4.4), and its SASL message (RFC 7628).

Must stay true: neither the client's secret nor a token appears in an error; a token is asked for once per process
and kept for four fifths of its life; https endpoints are verified always.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator
from typing import Any

from isthmus.errors import SecurityRefused
from isthmus.security import Login, Secret, Tls, TokenSource
from isthmus.wire.security.tls import context

_TIMEOUT_S = 10.0
_USED_FOR = 0.8  # of a token's life
_LARGEST = 1 << 20

_kept: dict[TokenSource, tuple[float, Secret]] = {}
_asking = threading.Lock()


def talk(login: Login, where: str) -> Generator[bytes, bytes, None]:
    """The one message with the token; a broker that refuses it says why, and is answered with a bare byte."""
    if login.tokens is None:
        raise SecurityRefused("OAUTHBEARER without a token endpoint", where=where, code="OAUTH")
    extensions = "".join(f"\x01{name}={value}" for name, value in login.tokens.extensions)
    bearer = token(login.tokens, where).reveal()
    answer = yield f"n,,{extensions}\x01auth=Bearer {bearer}\x01\x01".encode()
    if answer:
        forget(login.tokens)
        yield b"\x01"


def token(source: TokenSource, where: str) -> Secret:
    """A token that is still good for a while."""
    with _asking:
        until, kept = _kept.get(source, (0.0, Secret()))
        if time.monotonic() >= until:
            kept, seconds = _ask(source, where)
            _kept[source] = (time.monotonic() + seconds * _USED_FOR, kept)
        return kept


def forget(source: TokenSource) -> None:
    with _asking:
        _kept.pop(source, None)


def _ask(source: TokenSource, where: str) -> tuple[Secret, float]:
    place = f"{where}, token endpoint {_shown(source.url)}"
    try:
        with urllib.request.urlopen(  # noqa: S310 - `config` lets http and https pass only
            _request(source), timeout=_TIMEOUT_S, context=_tls(source, place)
        ) as answer:
            return _read(json.loads(answer.read(_LARGEST)))
    except urllib.error.HTTPError as error:
        code = error.code
        error.close()
        hint = "check the client id, its secret and the scope" if code in (400, 401, 403) else "check the URL"
        raise SecurityRefused(f"no token: HTTP status {code}", where=place, hint=hint, code="OAUTH") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise SecurityRefused(f"no token: {reason}", where=place, hint="check the URL", code="OAUTH") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        what = "what the token endpoint answers is no JSON object with an `access_token`"
        raise SecurityRefused(what, where=place, hint="check the URL", code="OAUTH") from None


def _request(source: TokenSource) -> urllib.request.Request:
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    both = f"{source.client_id}:{source.client_secret.reveal()}".encode()
    headers = {"Authorization": f"Basic {base64.b64encode(both).decode()}", "Accept": "application/json"}
    return urllib.request.Request(source.url, urllib.parse.urlencode(form).encode(), headers)  # noqa: S310 - as above


def _tls(source: TokenSource, where: str) -> ssl.SSLContext | None:
    return context(Tls(trust=source.trust), where) if source.url.startswith("https:") else None


def _read(answer: Any) -> tuple[Secret, float]:
    bearer = answer["access_token"]
    if not isinstance(bearer, str) or not bearer or "\x01" in bearer:
        raise ValueError
    return Secret(bearer), float(answer.get("expires_in", 60))


def _shown(url: str) -> str:
    """Without a query or a user's name: they may hold secrets."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
