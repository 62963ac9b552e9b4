"""Every request passes here first: the rules that keep other pages, other names and strangers out.

In order: the method, the Host header (against DNS rebinding), where the browser says that the request comes from, the
session or bearer token, and for requests that may change something (POST) the origin, the type, a value that only our
own page can have read (CSRF), and the size. What must stay true: an answer of any kind carries the headers that forbid
a browser everything the page does not need; no handler runs for a request that broke a rule.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from isthmus.web.access import Sessions

MOST_BODY = 16 << 10
_MOST_DIGITS = 9
CSRF_HEADER = "x-isthmus-csrf"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": "no-store",
}
_OPEN_TO_ALL = frozenset({"/api/hello", "/api/session"})  # before the token is known; they tell nothing of flows


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request goes no further."""

    status: int
    code: str
    text: str


class _TooLarge(Exception):
    """The body is longer than any that the page sends."""


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(
        self, app: ASGIApp, sessions: Sessions, names: Iterable[str], *, by_address: bool, cookie: str
    ) -> None:
        self.csrf = secrets.token_urlsafe(24)
        self.cookie = cookie
        self._app = app
        self._sessions = sessions
        self._names = frozenset(names)
        self._by_address = by_address  # any literal address is us: nobody can rebind those

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        scope["isthmus.session"] = self._session(headers)
        strict = _hardened(send)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await self._refuse(refusal)(scope, receive, strict)
            return
        answer = _Watched(strict)
        try:
            await self._app(scope, _bounded(receive), answer)
        except _TooLarge:
            if not answer.began:
                await self._refuse(Refusal(413, "TOO_LARGE", "the request is too large"))(scope, receive, strict)

    @staticmethod
    def _refuse(refusal: Refusal) -> JSONResponse:
        told = {"code": refusal.code, "error": refusal.text, "where": "", "hint": ""}
        return JSONResponse(told, refusal.status, headers={"connection": "close"})

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        method, path = scope["method"], scope["path"]
        if method not in ("GET", "HEAD", "POST"):
            return Refusal(405, "METHOD", "only GET, HEAD and POST are known")
        if not self._is_us(headers.getlist("host")):
            return Refusal(421, "HOST", "this page is not known under that name; see --name")
        if not path.startswith("/api/"):
            return None if method != "POST" else Refusal(405, "METHOD", "a page is not posted to")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return Refusal(403, "ORIGIN", "the request comes from another page")
        bearer = _bearer(headers)
        if path not in _OPEN_TO_ALL and not self._sessions.admits(scope["isthmus.session"], bearer):
            return Refusal(401, "TOKEN", "a token is needed")
        return self._change_refusal(headers, scope["scheme"], bearer) if method == "POST" else None

    def _is_us(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        name = _hostname(hosts[0].lower())
        return name in self._names or (self._by_address and _is_address(name))

    def _change_refusal(self, headers: Headers, scheme: str, bearer: str) -> Refusal | None:
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in _own(headers["host"].lower(), scheme):
            return Refusal(403, "ORIGIN", "the request comes from another page")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return Refusal(415, "TYPE", "only application/json is read")
        length = headers.get("content-length", "0")
        # Digits are counted first: Python refuses to make a number of thousands of them.
        if not (length.isascii() and length.isdigit()) or len(length) > _MOST_DIGITS or int(length) > MOST_BODY:
            return Refusal(413, "TOO_LARGE", "the request is too large")
        if bearer and self._sessions.needs_token:
            return None  # no browser adds it by itself, so nobody was led here
        if not hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), self.csrf.encode()):
            return Refusal(403, "CSRF", f"the header {CSRF_HEADER} is missing or of another start; load the page anew")
        return None

    def _session(self, headers: Headers) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value


def _own(host: str, scheme: str) -> tuple[str, ...]:
    """Behind a proxy with TLS the browser's scheme is not ours; the name, which was judged, is."""
    return f"{scheme}://{host}", f"https://{host}"


def _bearer(headers: Headers) -> str:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


def _hostname(host: str) -> str:
    if host.startswith("["):
        return host[1 : host.find("]")] if "]" in host else ""
    return host.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _hardened(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
        await send(message)

    return sent


class _Watched:
    """Remembers whether an answer has begun."""

    def __init__(self, send: Send) -> None:
        self.began = False
        self._send = send

    async def __call__(self, message: Message) -> None:
        self.began = True
        await self._send(message)


def _bounded(receive: Receive) -> Receive:
    """A length may be left out, or be a lie: what arrives is counted."""
    seen = 0

    async def received() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MOST_BODY:
            raise _TooLarge
        return message

    return received
