"""Changing a flow while it runs: wishes from the control topic, edits of its file.

Lanes learn of a change by a new order: their epoch ends early, in a tenth of a second, and nothing else does. Only
another number of lanes needs more, because a partition then changes lanes: all orders end, every id is fenced as at a
start, and partitions are dealt out anew.

What must stay true: a change that cannot be made leaves the flow as it is, and is told.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from isthmus.engine import control, wishes
from isthmus.errors import IsthmusError, WireError
from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.engine.driver import Driver

_IDLE_WITHIN_S = 30.0


class Steering:
    """The settings that are in force, and how they change."""

    def __init__(self, driver: Driver) -> None:
        self.paused = wishes.Paused()
        self._driver = driver
        self._file = driver.flow  # what the file, or `apply`, says: without wishes
        self._wished_at = -1  # offset of the newest wish that was seen
        self._done_at = -1
        self._began = time.time()
        self._lock = asyncio.Lock()
        self._obeying: asyncio.Task[None] | None = None

    def seen(self, offset: int) -> None:
        """A wish stands in the control topic at this offset."""
        self._wished_at = max(self._wished_at, offset)

    def begin(self) -> None:
        """Pauses and throttles of earlier days hold from the start."""
        view = self._driver.view
        self.paused = wishes.paused(view)
        self._driver.flow = replace(self._file, throttle=wishes.throttled(view, self._file.throttle))
        if self.paused != wishes.Paused():
            self._driver.scene.note(f"paused: {self.paused.told()}; `isthmus resume` lets it go on")

    def obey_soon(self) -> None:
        """Carry out wishes that were seen since the last time; beside the driver's standing work, not in its way."""
        if self._wished_at > self._done_at and (self._obeying is None or self._obeying.done()):
            self._obeying = asyncio.create_task(self._obey())

    async def end(self) -> None:
        if self._obeying is not None:
            self._obeying.cancel()
            await asyncio.gather(self._obeying, return_exceptions=True)

    async def _obey(self) -> None:
        async with self._lock:
            await self._carry_out()

    async def _carry_out(self) -> None:
        at, refused = self._wished_at, ""
        view, driver = self._driver.view, self._driver
        try:
            value = view.values.get(wishes.SETTINGS, {})
            if value.get("at", 0.0) > self._began:
                self._began = value["at"]
                self._file = wishes.with_settings(self._file, value["settings"])
            await self._enforce()
        except (IsthmusError, TypeError, ValueError, KeyError) as error:
            refused = str(error)
            driver.scene.note(f"a wish was refused: {refused}")
        self._done_at = at
        who = {"at": at, "refused": refused, "host": socket.gethostname(), "pid": os.getpid()}
        try:
            await control.write(driver.journal, {wishes.HEARD: who})
        except WireError as error:
            driver.scene.note(f"an answer to a wish could not be written: {error}", once=True)

    async def adopt(self, flow: Flow) -> None:
        """The file was changed; what can change at once does, the rest is told."""
        if differences := wishes.fixed_differences(self._file, flow):
            names = ", ".join(differences)
            self._driver.scene.note(f"the file was changed, but {names} cannot change while the flow runs: restart it")
        elif flow != self._file:
            async with self._lock:
                self._file = flow
                await self._enforce()
            self._driver.scene.note("the file was changed: its settings are in force")

    async def _enforce(self) -> None:
        driver, view = self._driver, self._driver.view
        was = self.paused
        self.paused = wishes.paused(view)
        flow = replace(self._file, throttle=wishes.throttled(view, self._file.throttle))
        if self.paused != was:
            driver.scene.note(f"paused: {self.paused.told()}" if self.paused != wishes.Paused() else "resumed")
        if flow.lanes != driver.flow.lanes:
            await self._regroup(flow)
        else:
            driver.use(flow)
            await driver.replan()

    async def _regroup(self, flow: Flow) -> None:
        driver = self._driver
        driver.gate.clear()
        try:
            await driver.end_orders()
            until = time.monotonic() + _IDLE_WITHIN_S
            while driver.busy:
                if time.monotonic() > until:
                    raise IsthmusError(f"lanes did not end within {_IDLE_WITHIN_S:.0f} s; there are as many as before")
                await asyncio.sleep(0.05)
            await driver.deal_anew(flow)
        finally:
            driver.gate.set()
