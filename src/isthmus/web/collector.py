"""One look at all flows for all who watch: taken again and again while somebody watches, and never otherwise.

What must stay true: looks come one after another, in a thread, and are rarer where they cost more, so that watching
takes less than a hundredth of a core; every viewer gets the newest picture, never a queue of old ones: who is slow
gets fewer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import NamedTuple, Protocol

from isthmus.engine.exporter import LOOKS_SHARE
from isthmus.errors import IsthmusError
from isthmus.observe.metrics import Looked
from isthmus.web.pictures import Json, Picture, Pictures

EVERY_S = 1.0
_SELDOM_S = 10.0
_FRESH_S = 12.0  # an older picture is not shown to somebody who has just come
_STILL_S = 15.0  # a word now and then, or what lies between would take the connection for dead


class Looker(Protocol):
    """Who looks: `engine.exporter.Exporter`."""

    failures: dict[str, IsthmusError]
    spent_s: float

    def look(self) -> Looked: ...


class _Taken(NamedTuple):
    """A picture as it is sent, whole and as what changed; made in a thread, so it changes hands as one value."""

    picture: Picture
    change: str
    at: float


class Collector:
    """Lives in the server's event loop. `more` adds what is not from clusters to each picture."""

    def __init__(self, looker: Looker, more: Callable[[], Json] = dict) -> None:
        self.viewers = 0
        self._looker = looker
        self._more = more
        self._pictures = Pictures()
        self._taken: _Taken | None = None
        self._spent_s = 0.0  # processor time of the last picture
        self._whole = (0, "")  # number of the picture, and its text
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._closing = False

    async def pictures(self) -> AsyncGenerator[str]:
        """Server-sent events: the whole, then changes; a whole again where a change was missed."""
        with self._watching():
            seen = 0
            yield "retry: 2000\n\n"
            while not self._closing:
                taken, news = self._taken, self._news
                if taken is None or taken.picture.number == seen or (seen == 0 and _is_old(taken)):
                    if not await _happens(news):
                        yield ": still here\n\n"
                    continue
                is_next = taken.change and taken.picture.number == seen + 1
                seen = taken.picture.number
                yield taken.change if is_next else self._text_of(taken.picture)

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        self.viewers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._collect())
        try:
            yield
        finally:
            self.viewers -= 1

    def _text_of(self, picture: Picture) -> str:
        """Made once for all who come at this moment."""
        if self._whole[0] != picture.number:
            self._whole = picture.number, _event("whole", picture.whole())
        return self._whole[1]

    async def _collect(self) -> None:
        while self.viewers and not self._closing:
            taken = await asyncio.to_thread(self._take)
            self._taken = taken or self._taken
            self._news.set()
            self._news = asyncio.Event()
            await self._pause(min(max(EVERY_S, self._spent_s / LOOKS_SHARE), _SELDOM_S))

    async def _pause(self, seconds: float) -> None:
        """Less, if nobody is left to look for: the next one who comes need not wait."""
        until = time.monotonic() + seconds
        while self.viewers and not self._closing and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.25))

    def _take(self) -> _Taken | None:
        """The next picture; None: nothing could be seen, which the page tells by the age of the last one."""
        try:
            looked = self._looker.look()
        except (IsthmusError, TimeoutError):
            return None
        began = time.thread_time()
        before = None if self._taken is None else self._taken.picture
        now = self._pictures.next(looked, self._looker.failures, time.time(), self._more())
        change = None if before is None else now.since(before)
        taken = _Taken(now, "" if change is None else _event("change", change), time.monotonic())
        self._spent_s = self._looker.spent_s + time.thread_time() - began
        return taken

    async def close(self) -> None:
        self._closing = True
        self._news.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


def _is_old(taken: _Taken) -> bool:
    return time.monotonic() - taken.at > _FRESH_S


async def _happens(news: asyncio.Event) -> bool:
    """False: nothing did for a while."""
    try:
        async with asyncio.timeout(_STILL_S):
            await news.wait()
    except TimeoutError:
        return False
    return True


def _event(name: str, value: Json) -> str:
    return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n"
