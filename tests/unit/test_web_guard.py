"""The web page's door, by a real server on a loopback port: hostile names, origins, bodies, paths, and no token."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.pages import carries_nothing, flow, made_up

from isthmus.errors import ConfigError, MachineError
from isthmus.web.access import Sessions, Token, address, is_loopback, known_names, token_for
from isthmus.web.app import MOST_VIEWERS
from isthmus.web.guard import MOST_BODY
from isthmus.web.server import Settings, serve

TOKEN = "0123456789abcdef-not-guessed"
JSON = {"content-type": "application/json"}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Door:
    """Speaks HTTP with the server, with exactly the headers that are given."""

    port: int
    said: list[str] = field(default_factory=list)

    def ask(self, method: str, path: str, body: bytes | str = b"", **headers: str) -> Answer:
        sent = {"Host": f"127.0.0.1:{self.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            if value:
                connection.putheader(name, value)
        raw = body.encode() if isinstance(body, str) else body
        if raw or method == "POST":
            connection.putheader("Content-Length", str(len(raw)))
        connection.endheaders(raw)
        found = connection.getresponse()
        answer = Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        connection.close()
        return answer

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        """As the page itself would, unless headers say otherwise."""
        own = {"X_Isthmus_CSRF": self.get("/api/hello").json["csrf"], "Content_Type": "application/json"}
        return self.ask("POST", path, body if isinstance(body, bytes) else json.dumps(body), **(own | headers))


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    """Loopback, no token, changes allowed."""
    said: list[str] = []
    settings = Settings(listen="127.0.0.1:0", carry=carries_nothing, say=said.append)
    with serve([flow()], made_up(), settings) as served:
        yield Door(served.port, said)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """With a token; read-only."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    with serve([flow()], made_up(), Settings(listen="127.0.0.1:0", token_file=file)) as served:
        yield Door(served.port)


# --- names and origins ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.nip.io", "[", ""]
)
def test_a_name_that_is_not_ours_is_refused(door: Door, host: str) -> None:
    for path in ("/", "/api/hello", "/api/stream", "/main.js"):
        answer = door.get(path, Host=host)
        assert answer.status in (400, 421)
        assert b"csrf" not in answer.body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:1234", "[::1]:80", "localhost."])
def test_names_of_loopback_are_ours_on_any_port(door: Door, host: str) -> None:
    assert door.get("/api/hello", Host=host).status == 200


def test_two_hosts_in_one_request_are_refused(door: Door) -> None:
    with socket.create_connection(("127.0.0.1", door.port), timeout=60) as raw:
        raw.sendall(b"GET /api/hello HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert raw.recv(1000).split(b" ")[1] in (b"400", b"421")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1.evil.example"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"X_Isthmus_CSRF": ""}, 403),
        ({"X_Isthmus_CSRF": "made-up"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content_Type": ""}, 415),
    ],
)
def test_a_post_that_another_page_could_send_is_refused(door: Door, headers: dict[str, str], status: int) -> None:
    before = list(door.said)
    answer = door.post("/api/pause", {"flow": "east->west"}, **headers)
    assert answer.status == status
    assert door.said == before


def test_data_is_not_handed_to_other_pages(door: Door) -> None:
    for path in ("/api/hello", "/api/stream", "/api/explain", "/api/plan?flow=east->west"):
        assert door.get(path.replace(">", "%3E"), Sec_Fetch_Site="cross-site").status == 403
    assert "access-control-allow-origin" not in door.get("/api/hello", Origin="http://evil.example").headers


def test_every_answer_forbids_what_the_page_does_not_need(door: Door) -> None:
    answers = [door.get("/"), door.get("/api/hello"), door.get("/nowhere"), door.get("/", Host="evil.example")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers


# --- methods, paths, bodies -------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/pause", "/api/resume", "/api/throttle", "/api/sides/plan", "/api/sides/start"])
def test_nothing_is_changed_by_a_get(door: Door, path: str) -> None:
    before = list(door.said)
    assert door.get(f"{path}?flow=east-%3Ewest&confirm=east-%3Ewest").status == 405
    assert door.said == before


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_not_known(door: Door, method: str) -> None:
    assert door.ask(method, "/api/pause").status == 405


@pytest.mark.parametrize(
    "path",
    ["/../app.py", "/..%2fapp.py", "/%2e%2e/guard.py", "/static/../../app.py", "//etc/passwd", "/page.css%00.html"],
)
def test_only_the_pages_own_files_are_served(door: Door, path: str) -> None:
    answer = door.get(path)
    assert answer.status == 404
    assert b"import" not in answer.body


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"no json", b"\xff", b'"text"', b"[" * 9000, b'{"flow": 1}', b'{"flow": ["x"]}']
)
def test_a_body_that_makes_no_sense_is_refused(door: Door, body: bytes) -> None:
    answer = door.post("/api/pause", body)
    assert answer.status == 400
    assert answer.json["code"] == "CONFIG"


def test_a_body_that_is_too_large_is_refused_also_when_it_hides_its_length(door: Door) -> None:
    large = b'{"flow": "' + b"x" * MOST_BODY + b'"}'
    assert door.post("/api/pause", large).status == 413
    csrf = door.get("/api/hello").json["csrf"]
    head = (
        f"POST /api/pause HTTP/1.1\r\nHost: localhost\r\nX-Isthmus-CSRF: {csrf}\r\nContent-Type: application/json\r\n"
    )
    with socket.create_connection(("127.0.0.1", door.port), timeout=60) as raw:
        raw.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n{len(large):x}\r\n".encode() + large + b"\r\n0\r\n\r\n")
        assert raw.recv(1000).startswith(b"HTTP/1.1 413")


def test_a_change_of_sides_needs_its_plan_and_the_name_typed_out(door: Door) -> None:
    answer = door.post("/api/sides/start", {"flow": "east->west", "key": "x", "confirm": "east->west"})
    assert (answer.status, answer.json["code"]) == (409, "PLAN_OLD")
    refused = door.post("/api/sides/plan", {"flow": "east->west", "kind": "sideways"})
    assert (refused.status, refused.json["code"]) == (400, "CONFIG")
    assert door.post("/api/throttle", {"flow": "east->west", "rate": "much"}).status == 400


# --- tokens -----------------------------------------------------------------------------------


def test_without_the_token_nothing_is_told(closed: Door) -> None:
    for path in ("/api/stream", "/api/explain", "/api/plan?flow=east-%3Ewest", "/api/groups", "/api/gaps"):
        assert closed.get(path).status == 401
        assert closed.get(path, Authorization="Bearer wrong").status == 401
        assert closed.get(path, Cookie=f"isthmus-{closed.port}=made-up").status == 401
    hello = closed.get("/api/hello").json
    assert set(hello) == {"csrf", "admitted"}
    assert hello["admitted"] is False


def test_the_token_is_traded_for_a_cookie_that_scripts_cannot_read(closed: Door) -> None:
    assert closed.post("/api/session", {"token": "wrong"}).status == 400
    assert closed.post("/api/session", {"token": 7}).status == 400
    opened = closed.post("/api/session", {"token": TOKEN})
    cookie = opened.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    session = cookie.partition(";")[0]
    assert closed.get("/api/explain", Cookie=session).status == 200
    assert closed.post("/api/session/end", {}, Cookie=session).status == 200
    assert closed.get("/api/explain", Cookie=session).status == 401


def test_a_program_may_send_the_token_itself(closed: Door) -> None:
    assert closed.get("/api/hello", Authorization=f"Bearer {TOKEN}").json["flows"] == ["east->west"]
    assert closed.get("/api/explain", Authorization=f"bearer {TOKEN}").status == 200


def test_a_read_only_page_has_no_way_to_change_anything(closed: Door) -> None:
    for path in ("/api/pause", "/api/sides/plan", "/api/sides/start", "/api/sides/report"):
        answer = closed.ask("POST", path, "{}", Authorization=f"Bearer {TOKEN}", Content_Type="application/json")
        assert answer.status == 404
    assert closed.get("/api/hello", Authorization=f"Bearer {TOKEN}").json["changes"] is False


def test_a_token_is_a_must_on_other_addresses_and_never_short_or_open_to_others(tmp_path: Path) -> None:
    assert token_for("127.0.0.1", None) is None
    made = token_for("0.0.0.0", None)
    assert made is not None
    assert made.generated
    assert len(made.value) >= 16
    assert made.value not in repr(made)
    file = tmp_path / "token"
    for text, mode in ((TOKEN, 0o644), ("short", 0o600), ("", 0o600), ("ü" * 20, 0o600)):
        file.write_text(text)
        file.chmod(mode)
        with pytest.raises(ConfigError) as refused:
            token_for("0.0.0.0", file)
        assert refused.value.code == "TOKEN"
    with pytest.raises(ConfigError):
        token_for("127.0.0.1", tmp_path / "none")


def test_on_an_address_that_others_reach_a_token_is_made_up_and_needed() -> None:
    with serve([flow()], made_up(), Settings(listen="0.0.0.0:0")) as served:
        assert served.token is not None
        assert served.token.generated
        door = Door(served.port)
        assert door.get("/api/explain").status == 401
        assert door.get("/api/explain", Authorization=f"Bearer {served.token.value}").status == 200
        assert door.get("/api/hello", Host="evil.example").status == 421
        assert door.get("/api/hello", Host=socket.gethostname()).status == 200


def test_sessions_are_few_and_forgotten() -> None:
    sessions = Sessions(Token(value=TOKEN))
    first = sessions.open(TOKEN)
    assert first is not None
    assert sessions.admits(first, "")
    for _ in range(256):
        assert sessions.open(TOKEN)
    assert not sessions.admits(first, "")
    assert not sessions.admits("", "")
    assert sessions.open("x" * 30) is None


# --- addresses --------------------------------------------------------------------------------


def test_addresses_are_on_loopback_unless_they_say_otherwise() -> None:
    assert address("8484") == ("127.0.0.1", 8484)
    assert address("[::1]:1") == ("::1", 1)
    for wrong in ("", "x", "1:2:x", "127.0.0.1:99999", ":-1"):
        with pytest.raises(ConfigError):
            address(wrong)
    assert is_loopback("127.9.9.9")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("localhost.evil.example")
    assert known_names("127.0.0.1", ("Page.Example.",)) == {"localhost", "127.0.0.1", "page.example"}


def test_a_port_that_is_taken_is_an_error_before_anything_begins(door: Door) -> None:
    with (
        pytest.raises(MachineError) as refused,
        serve([flow()], made_up(), Settings(listen=f"127.0.0.1:{door.port}")),
    ):
        pass
    assert refused.value.code == "WEB_PORT"


def test_only_so_many_watch_and_all_are_let_go_at_the_end() -> None:
    with serve([flow()], made_up(), Settings(listen="127.0.0.1:0")) as served:
        streams = [_watching(served.port) for _ in range(MOST_VIEWERS)]
        assert Door(served.port).get("/api/stream").status == 503
        assert Door(served.port).get("/api/hello").status == 200
    for each in streams:
        each.settimeout(60)
        while each.recv(1 << 16):
            pass
        each.close()


def _watching(port: int) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", port), timeout=60)
    raw.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    received = b""
    while b"retry:" not in received:
        received += raw.recv(1 << 16)
    return raw
