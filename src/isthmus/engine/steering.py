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
from isthmus.engine.switch import in_force
from isthmus.errors import IsthmusError, TargetError, WireError
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
        self._settings_at = -1  # and of the newest that brings settings; those of before our start do not count
        self._done_at = -1
        self._ends_when_caught_up = False
        self._lock = asyncio.Lock()
        self._obeying: asyncio.Task[None] | None = None

    @property
    def topic_rates(self) -> dict[str, int]:
        """Bytes per second of single topics, as wished."""
        return wishes.throttled_topics(self._driver.view)

    def seen(self, key: str, offset: int) -> None:
        """A wish stands in the control topic at this offset."""
        self._wished_at = max(self._wished_at, offset)
        if key == wishes.SETTINGS:
            self._settings_at = max(self._settings_at, offset)

    def begin(self, *, until_caught_up: bool) -> None:
        """Pauses and throttles of earlier days hold from the start."""
        view = self._driver.view
        self._ends_when_caught_up = until_caught_up
        self.paused = wishes.paused(view)
        self._refuse_pause()
        self._driver.use(replace(in_force(self._file, view), throttle=wishes.throttled(view, self._file.throttle)))
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
            flow = self._file
            if self._settings_at > self._done_at:
                flow = wishes.with_settings(flow, view.values[wishes.SETTINGS]["settings"])
            await self._enforce(flow)
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
                await self._enforce(flow)
            self._driver.scene.note("the file was changed: its settings are in force")

    async def _enforce(self, file: Flow) -> None:
        """Put these settings and all standing wishes into force; on an error everything stays as it was."""
        driver, view = self._driver, self._driver.view
        was, self.paused = self.paused, wishes.paused(view)
        flow = replace(in_force(file, view), throttle=wishes.throttled(view, file.throttle))
        try:
            self._refuse_pause()
            if flow.lanes != driver.flow.lanes:
                await self._regroup(flow)
            else:
                driver.use(flow)
                await driver.replan()
        except BaseException:
            self.paused = was
            raise
        self._file = file
        if self.paused != was:
            driver.scene.note(f"paused: {self.paused.told()}" if self.paused != wishes.Paused() else "resumed")

    def _refuse_pause(self) -> None:
        """Caught up means every partition: a run that ends then must not leave some behind and say so."""
        if self._ends_when_caught_up and self.paused != wishes.Paused():
            raise TargetError(
                f"{self._driver.flow.name} is paused ({self.paused.told()}), so it cannot catch up",
                where=f"cluster {self._driver.flow.target.alias}, topic {self._driver.flow.control_topic}",
                hint="let it go on with `isthmus resume`, or run it without --until-caught-up",
                code="PAUSED",
            )

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
