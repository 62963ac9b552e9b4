"""The page's server, by requests of any kind: never an error of its own, and never a deed without what a deed needs.

The whole application behind its guard, without a network: what a server would hand over is made up here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.pages import carries_nothing, flow, made_up

from isthmus.errors import TargetError
from isthmus.web import deeds
from isthmus.web.access import Sessions, Token
from isthmus.web.app import Site, application
from isthmus.web.collector import Collector
from isthmus.web.guard import MOST_BODY, Guard

fuzz = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TOKEN = "0123456789abcdef-not-guessed"
Headers = list[tuple[bytes, bytes]]
PATHS = [
    *("/", "/main.js", "/api/hello", "/api/session", "/api/session/end", "/api/explain", "/api/nowhere", "//api/hello"),
    *("/api/pause", "/api/resume", "/api/throttle", "/api/sides/plan", "/api/sides/start", "/api/sides/course"),
    *("/api/sides/report", "/api/../api/hello", "/%2e%2e/etc/passwd", "/api/plan", "/static/../guard.py", ""),
]


class Seen(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Page:
    """The application, and what it was made to do."""

    def __init__(self, token: Token | None) -> None:
        self.said: list[str] = []
        changing = deeds.Deeds([flow()], carries_nothing, self.said.append)
        self.sessions = Sessions(token)
        self.guard: Guard = application(
            Site(
                flows=[flow()],
                collector=Collector(made_up(), dict),
                sessions=self.sessions,
                names=frozenset({"localhost"}),
                by_address=True,
                deeds=changing,
            )
        )

    def ask(self, method: str, path: str, query: bytes, headers: Headers, body: bytes) -> Seen:
        return asyncio.run(self._ask(method, path, query, headers, body))

    async def _ask(self, method: str, path: str, query: bytes, headers: Headers, body: bytes) -> Seen:
        sent: list[dict[str, Any]] = []
        parts: list[dict[str, Any]] = [
            {"type": "http.request", "body": body, "more_body": False},
            {"type": "http.disconnect"},
        ]

        async def receive() -> dict[str, Any]:
            return parts.pop(0) if len(parts) > 1 else parts[0]

        async def send(message: Any) -> None:
            sent.append(message)

        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode("utf-8", "surrogatepass"),
            "root_path": "",
            "query_string": query,
            "headers": headers,
            "scheme": "http",
            "client": ("127.0.0.1", 5),
            "server": ("127.0.0.1", 8484),
            "http_version": "1.1",
        }
        async with asyncio.timeout(20):
            await self.guard(scope, receive, send)
        content = b"".join(each.get("body", b"") for each in sent[1:])
        return Seen(sent[0]["status"], {k.decode(): v.decode("latin-1") for k, v in sent[0]["headers"]}, content)


@pytest.fixture
def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would ask a cluster is told that there is none."""

    async def aside(_: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        raise TargetError("no cluster here")

    monkeypatch.setattr(deeds, "aside", aside)
    monkeypatch.setattr("isthmus.web.looks.aside", aside)
    monkeypatch.setattr(deeds, "_planned", lambda *_: (_ for _ in ()).throw(TargetError("no cluster here")))


raw = st.binary(max_size=12).map(lambda x: x.replace(b"\r", b"").replace(b"\n", b""))
hosts = st.sampled_from([b"localhost", b"127.0.0.1:9", b"[::1]", b"evil.example", b"[", b"", b"localhost:\xff"]) | raw
origins = st.sampled_from([b"http://localhost", b"http://evil.example", b"null", b"https://localhost"]) | raw
lengths = st.sampled_from([b"0", b"-1", b"9" * 5000, b"1e3", b"\xb2", b"99999", b"+5", b" 5"]) | raw
cookies = (
    st.sampled_from([b"isthmus-session=", b"isthmus-session=\xff", b'a="', b"=;=;", b"isthmus-session=x; " * 50]) | raw
)
bearers = (
    st.sampled_from([b"Bearer", b"Bearer ", b"bearer x", b"Bearer \xff", b"Basic eA==", b"Bearer " + b"x" * 9000]) | raw
)
kinds = st.sampled_from([b"application/json", b"APPLICATION/JSON; x", b"text/plain", b"\xff"]) | raw
extra = st.lists(
    st.tuples(st.just(b"origin"), origins)
    | st.tuples(st.just(b"content-length"), lengths)
    | st.tuples(st.just(b"cookie"), cookies)
    | st.tuples(st.just(b"authorization"), bearers)
    | st.tuples(st.just(b"sec-fetch-site"), st.sampled_from([b"cross-site", b"same-origin", b"none", b""]))
    | st.tuples(st.just(b"content-type"), kinds)
    | st.tuples(st.just(b"x-isthmus-csrf"), raw),
    max_size=4,
)
words = st.sampled_from(["flow", "topics", "rate", "token", "kind", "key", "confirm", "never_crossed", "rebuilt"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["east->west", "file"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=2),
    max_leaves=5,
)
objects = st.dictionaries(words, values, max_size=4)
bodies = (
    objects.map(lambda x: json.dumps(x | {"flow": "east->west"}).encode())
    | objects.map(lambda x: json.dumps(x).encode())
    | st.binary(max_size=40)
    | st.sampled_from([b"[" * 5000, b'{"a":' * 3000, b"x" * (MOST_BODY + 1), b'{"rate":' + b"9" * 5000 + b"}"])
)
paths = (
    st.sampled_from(PATHS)
    | st.text(max_size=12).map(lambda x: f"/{x}")
    | st.text(max_size=6).map(lambda x: f"/api/{x}")
)


@fuzz
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "OPTIONS", "TRACE", "get", ""]),
    path=paths.filter(lambda x: x != "/api/stream"),
    query=st.sampled_from([b"", b"flow=east-%3Ewest", b"flow=%ff", b"&&==", b"\xff"]),
    host=hosts,
    headers=extra,
    body=bodies,
    closed=st.booleans(),
)
def test_a_stranger_gets_an_answer_and_does_nothing(
    nobody_answers: None, method: str, path: str, query: bytes, host: bytes, headers: Headers, body: bytes, closed: bool
) -> None:
    """Without the value that only our own page has read, nothing is done, token or not."""
    page = Page(Token(value=TOKEN) if closed else None)
    seen = page.ask(method, path, query, [(b"host", host), *headers], body)
    assert seen.status < 500 or (seen.status == 502 and not closed), seen
    assert not page.said
    assert "default-src 'none'" in seen.headers["content-security-policy"]
    if closed and path != "/api/hello" and path.startswith("/api/"):
        assert seen.status >= 400, seen
        assert b"east" not in seen.body


@fuzz
@given(path=st.sampled_from([each for each in PATHS if each.startswith("/api/")]), body=bodies)
@example("/api/throttle", b'{"flow":"east->west","rate":"' + b"9" * 400 + b'"}')
@example("/api/throttle", b'{"flow":"east->west","rate":NaN}')
@example("/api/pause", b'{"flow":"east->west","topics":["\\ud800"]}')
@example("/api/pause", b'{"flow":"east->west","topics":["a\\n12:00 switchover of all, asked from nowhere"]}')
@example("/api/session", b'{"token":"\\ud800"}')
@example("/api/sides/plan", b'{"flow":"east->west","kind":["failover"]}')
def test_whoever_is_let_in_may_send_any_body(nobody_answers: None, path: str, body: bytes) -> None:
    page = Page(Token(value=TOKEN))
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())]
    seen = page.ask("POST", path, b"", [*headers, (b"content-type", b"application/json")], body)
    assert seen.status < 500 or b"no cluster here" in seen.body, seen
    assert all(said.isprintable() for said in page.said)
    assert not any(word in said for said in page.said for word in ("switchover of", "failover of", "failback of"))


@fuzz
@given(token=st.text(max_size=20) | st.just(TOKEN[:-1]), cookie=st.text('abc=;"\\ \x7f', max_size=20))
def test_no_other_token_and_no_made_up_cookie_opens_a_session(nobody_answers: None, token: str, cookie: str) -> None:
    page = Page(Token(value=TOKEN))
    own = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"x-isthmus-csrf", page.guard.csrf.encode()),
    ]
    seen = page.ask("POST", "/api/session", b"", own, json.dumps({"token": token}).encode())
    assert seen.status == 400
    assert "set-cookie" not in seen.headers
    made = (b"cookie", f"isthmus-session={cookie}".encode())
    assert page.ask("POST", "/api/pause", b"", [*own, made], b'{"flow":"east->west"}').status == 401
    assert not page.said


@pytest.mark.parametrize("length", [b"9" * 5000, b"0" * 5000, b"\xb2", b"-1", b"99999"])
def test_a_length_that_is_none_or_too_much_is_refused_before_anything_is_read(length: bytes) -> None:
    page = Page(None)
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", length)]
    assert page.ask("POST", "/api/pause", b"", headers, b"").status == 413


def test_with_everything_that_it_needs_a_deed_is_done(nobody_answers: None) -> None:
    """Or the tests above would prove nothing."""
    page = Page(None)
    own = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"x-isthmus-csrf", page.guard.csrf.encode()),
    ]
    seen = page.ask("POST", "/api/pause", b"", own, b'{"flow":"east->west","topics":["orders"]}')
    assert seen.status == 502
    assert page.said == ["pause east->west orders, asked from 127.0.0.1"]
