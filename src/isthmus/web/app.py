"""The page's server as an ASGI application: which address answers what. No state is changed by a GET.

What must stay true: everything passes the guard; what may change something has a route only where changes are allowed;
files are those of the package, found by name in a table, never by a path from outside; an error is told as everywhere
else: what, where, what to do, under its code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from isthmus import __version__
from isthmus.errors import ConfigError, IsthmusError, RivalError, SourceError, TargetError, WireError
from isthmus.model import Flow
from isthmus.web.access import Sessions
from isthmus.web.collector import Collector
from isthmus.web.deeds import Deeds, error_json
from isthmus.web.guard import Guard
from isthmus.web.looks import Looks, explained
from isthmus.web.pictures import COLUMNS, POINTS

MOST_VIEWERS = 32
_SLOW_S = 30.0  # a viewer who takes nothing for so long is dropped, and may come again
_STATUSES: dict[type[IsthmusError], int] = {
    ConfigError: 400,
    RivalError: 409,
    SourceError: 502,
    TargetError: 502,
    WireError: 502,
}
# Not by the machine's own table: a browser runs nothing that is called otherwise.
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the application serves. Without `deeds` it is read-only."""

    flows: Sequence[Flow]
    collector: Collector
    sessions: Sessions
    names: frozenset[str]
    by_address: bool = False
    deeds: Deeds | None = None
    cookie: str = "isthmus-session"


def application(site: Site) -> Guard:
    """The whole, behind its guard."""
    routes = _Routes(site)
    guard = Guard(Router(routes.all()), site.sessions, site.names, by_address=site.by_address, cookie=site.cookie)
    routes.guard = guard
    return guard


class _Routes:
    def __init__(self, site: Site) -> None:
        self.guard: Guard | None = None
        self._site = site
        self._looks = Looks(site.flows)

    def all(self) -> list[Route]:
        found = [
            *(Route(path, _file(name)) for path, name in _files().items()),
            Route("/api/hello", self._hello),
            Route("/api/session", _told(self._open), methods=["POST"]),
            Route("/api/session/end", _told(self._close), methods=["POST"]),
            Route("/api/stream", self._stream),
            Route("/api/explain", _told(self._explain)),
            *(Route(f"/api/{kind}", _told(self._look(kind))) for kind in ("plan", "groups", "gaps")),
        ]
        return [*found, *self._changing(self._site.deeds)] if self._site.deeds is not None else found

    def _changing(self, deeds: Deeds) -> list[Route]:
        async def plan(request: Request) -> Response:
            body = await _body(request)
            return JSONResponse(await deeds.plan(self._looks.flow(body.get("flow")), body))

        async def start(request: Request) -> Response:
            body = await _body(request)
            return JSONResponse(deeds.start(self._looks.flow(body.get("flow")), body, _from(request)), 202)

        async def course(_: Request) -> Response:
            return JSONResponse(deeds.shown())

        async def report(_: Request) -> Response:
            found = deeds.course.report if deeds.course is not None else None
            headers = {"content-disposition": 'attachment; filename="isthmus-report.json"'}
            return JSONResponse(found, headers=headers) if found else _not_there()

        return [
            *(Route(f"/api/{deed}", _told(self._wish(deeds, deed)), methods=["POST"]) for deed in _WISHES),
            Route("/api/sides/plan", _told(plan), methods=["POST"]),
            Route("/api/sides/start", _told(start), methods=["POST"]),
            Route("/api/sides/course", course),
            Route("/api/sides/report", report),
        ]

    async def _hello(self, request: Request) -> Response:
        """What the page needs to begin; of flows only for those who are let in."""
        site, guard = self._site, self.guard
        assert guard is not None  # noqa: S101 - it was put there before the first request
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        admitted = site.sessions.admits(request.scope["isthmus.session"], bearer)
        told: dict[str, Any] = {"csrf": guard.csrf, "admitted": admitted}
        if admitted:
            told |= {
                "version": __version__,
                "flows": [flow.name for flow in site.flows],
                "changes": site.deeds is not None,
                "closes": site.sessions.needs_token,
                "columns": COLUMNS,
                "points": POINTS,
            }
        return JSONResponse(told)

    async def _open(self, request: Request) -> Response:
        token = (await _body(request)).get("token")
        session = self._site.sessions.open(token) if isinstance(token, str) else None
        if session is None:
            raise ConfigError("this is not the token", hint="it stands in the file of --token-file", code="TOKEN")
        answer = JSONResponse({"admitted": True})
        answer.set_cookie(
            self._site.cookie,
            session,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
            path="/",
        )
        return answer

    async def _close(self, request: Request) -> Response:
        self._site.sessions.close(request.scope["isthmus.session"])
        answer = JSONResponse({"admitted": False})
        answer.delete_cookie(self._site.cookie, path="/", httponly=True, samesite="strict")
        return answer

    async def _stream(self, _: Request) -> Response:
        if self._site.collector.viewers >= MOST_VIEWERS:
            told = {"code": "BUSY", "error": f"{MOST_VIEWERS} people watch already", "where": "", "hint": ""}
            return JSONResponse(told, 503, headers={"retry-after": "10"})
        return _Stream(self._site.collector)

    async def _explain(self, _: Request) -> Response:
        return JSONResponse(explained())

    def _look(self, kind: str) -> _Handler:
        async def look(request: Request) -> Response:
            flow = self._looks.flow(request.query_params.get("flow"))
            return JSONResponse(await self._looks.ask(kind, flow))

        return look

    def _wish(self, deeds: Deeds, deed: str) -> _Handler:
        async def wish(request: Request) -> Response:
            body = await _body(request)
            return JSONResponse(await deeds.wish(deed, self._looks.flow(body.get("flow")), body, _from(request)))

        return wish


_WISHES = ("pause", "resume", "throttle")


class _Stream(Response):
    """Server-sent events for one viewer, until one of the two sides ends it, or nothing is taken for long."""

    def __init__(self, collector: Collector) -> None:
        super().__init__(media_type="text/event-stream")
        self._collector = collector

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    def init_headers(self, headers: Any = None) -> None:
        super().init_headers(headers)
        self.raw_headers = [each for each in self.raw_headers if each[0] != b"content-length"]

    async def _send(self, send: Send) -> None:
        async with contextlib.aclosing(self._collector.pictures()) as pictures:
            async for text in pictures:
                async with asyncio.timeout(_SLOW_S):
                    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _told(handler: _Handler) -> _Handler:
    """Errors of ours as answers."""

    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except IsthmusError as error:
            kinds = (status for kind, status in _STATUSES.items() if isinstance(error, kind))
            return JSONResponse(error_json(error), next(kinds, 500))

    return answered


async def _body(request: Request) -> dict[str, Any]:
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError("the request is no JSON object", where=request.url.path)
    return found


def _from(request: Request) -> str:
    return request.client.host if request.client else "somewhere"


def _not_there() -> Response:
    return JSONResponse({"code": "NOT_THERE", "error": "there is none", "where": "", "hint": ""}, 404)


def _files() -> dict[str, str]:
    """Addresses of the page's own files."""
    names = sorted(each.name for each in (resources.files("isthmus.web") / "static").iterdir() if each.is_file())
    return {"/": "index.html", **{f"/{name}": name for name in names}}


def _file(name: str) -> _Handler:
    content = (resources.files("isthmus.web") / "static" / name).read_bytes()
    media = _KINDS[Path(name).suffix]

    async def file(_: Request) -> Response:
        return Response(content, media_type=media)

    return file
