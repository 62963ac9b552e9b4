"""The page's server in a thread of its own: beside a run, or apart from any. `with` it.

What must stay true: the port is ours before anything is said about it; everything ends with the block, whoever still
watches; a page that cannot be served is an error before anything else begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from isthmus.dr.values import Carry
from isthmus.errors import MachineError
from isthmus.model import Flow
from isthmus.web.access import Sessions, Token, address, is_loopback, known_names, token_for
from isthmus.web.app import Site, application
from isthmus.web.collector import Collector, Looker
from isthmus.web.deeds import Deeds, Say

_STARTS_WITHIN_S = 30.0
_MOST_CONNECTIONS = 128
_LAST_WORDS_S = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the page is served. `carry`: given where changes are allowed."""

    listen: str
    token_file: Path | None = None
    names: tuple[str, ...] = ()  # under which a proxy knows it
    carry: Carry | None = None
    say: Say = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Where the page is. `token`: to be told once, if it was made up."""

    url: str
    port: int
    token: Token | None


@contextlib.contextmanager
def serve(flows: Sequence[Flow], looker: Looker, settings: Settings) -> Iterator[Served]:
    """The page is there as long as this is entered."""
    host, port = address(settings.listen)
    token = token_for(host, settings.token_file)
    with contextlib.closing(_listening(host, port)) as listener:
        port = int(listener.getsockname()[1])
        with _running(listener, lambda: _site(flows, looker, settings, host, port, token)):
            place = f"[{host}]" if ":" in host else host
            yield Served(url=f"http://{place}:{port}/", port=port, token=token)


def _site(flows: Sequence[Flow], looker: Looker, settings: Settings, host: str, port: int, token: Token | None) -> Site:
    deeds = None if settings.carry is None else Deeds(flows, settings.carry, settings.say)
    return Site(
        flows=flows,
        collector=Collector(looker, dict if deeds is None else deeds.shown),
        sessions=Sessions(token),
        names=known_names(host, settings.names),
        by_address=True,
        deeds=deeds,
        cookie=f"isthmus-{port}",  # browsers keep cookies by host alone, and there may be two pages on it
    )


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_MOST_CONNECTIONS)
    except OSError as error:
        raise MachineError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            where="web page",
            hint="another program has the port, or the address is none of this machine's",
            code="WEB_PORT",
        ) from None
    return listener


@contextlib.contextmanager
def _running(listener: socket.socket, make: Callable[[], Site]) -> Iterator[None]:
    started = threading.Event()
    thread = _Thread(listener, make, started)
    thread.start()
    try:
        if not started.wait(_STARTS_WITHIN_S) or thread.failure is not None:
            raise MachineError("the web page did not start", where="web page") from thread.failure
        yield
    finally:
        thread.end()


class _Thread(threading.Thread):
    def __init__(self, listener: socket.socket, make: Callable[[], Site], started: threading.Event) -> None:
        super().__init__(name="web page", daemon=True)
        self.failure: BaseException | None = None
        self._listener = listener
        self._make = make
        self._started_event = started
        self._server: uvicorn.Server | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the start
            self.failure = error
        finally:
            self._started_event.set()

    async def _serve(self) -> None:
        site = self._make()
        self._server = server = uvicorn.Server(_config(application(site)))
        serving = asyncio.ensure_future(server.serve(sockets=[self._listener]))
        while not (server.started or serving.done()):
            await asyncio.sleep(0.01)
        self._started_event.set()
        while not (server.should_exit or serving.done()):
            await asyncio.sleep(0.1)
        await site.collector.close()
        await serving

    def end(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self.join()


def _config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # its own types of ASGI messages are narrower than Starlette's
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=_LAST_WORDS_S,
    )


def is_open(settings: Settings) -> bool:
    """Whether others than this machine can reach it."""
    return not is_loopback(address(settings.listen)[0])
