"""Changing a flow while it runs: wishes from the control topic, edits of its file.

Lanes are told of a pause, and of its end, and go on with the rest of their order. Of other changes they learn by a new
order: their epoch ends early, in a tenth of a second, and nothing else does. Only another number of lanes needs more,
because partitions then change lanes (`shifting`). So does a decision about a stop, which changes progress: the orders
of its lanes end, and their ids are fenced.

What must stay true: a change that cannot be made leaves the flow as it is, and is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from isthmus.engine import control, wishes
from isthmus.engine.resolve.carry import read_ahead, resolve
from isthmus.engine.resolve.choices import Wanted
from isthmus.errors import ConfigError, IsthmusError, TargetError, WireError
from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.engine.driver import Driver


class Steering:
    """The settings that are in force, and how they change."""

    def __init__(self, driver: Driver, file: Flow) -> None:
        self.paused = wishes.Paused()
        self._rates: Mapping[str, int] = {}  # of single topics, as they are in force
        self._driver = driver
        self._file = file  # what the file, or `apply`, says: without wishes
        self._wished_at = -1  # offset of the newest wish that was seen
        self._settings_at = -1  # and of the newest that brings settings; those of before our start do not count
        self._steered_at = -1  # and of the newest pause or throttle
        self._done_at = -1
        self._resolves: dict[str, int] = {}  # decisions to be carried out, and where they stand
        self._ends_when_caught_up = False
        self._lock = asyncio.Lock()
        self._obeying: asyncio.Task[None] | None = None

    @property
    def allowed(self) -> Flow:
        """The settings without wishes: its `lanes` are the most that there may be."""
        return self._file

    @property
    def is_busy(self) -> bool:
        return self._lock.locked()

    @contextlib.asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """One change of the flow at a time."""
        async with self._lock:
            yield

    @property
    def topic_rates(self) -> dict[str, int]:
        """Bytes per second of single topics, as wished."""
        return wishes.throttled_topics(self._driver.view)

    def seen(self, key: str, offset: int) -> None:
        """A wish stands in the control topic at this offset."""
        if key.startswith(wishes.RESOLVE) and key not in self._driver.view.values:
            return  # taken away, because it was heard
        self._wished_at = max(self._wished_at, offset)
        if key == wishes.SETTINGS:
            self._settings_at = max(self._settings_at, offset)
        elif key.startswith(wishes.RESOLVE):
            self._resolves[key] = offset
        else:
            self._steered_at = max(self._steered_at, offset)

    def begin(self, *, until_caught_up: bool) -> None:
        """Pauses and throttles of earlier days hold from the start."""
        view = self._driver.view
        self._ends_when_caught_up = until_caught_up
        self.paused, self._rates = wishes.paused(view), self.topic_rates
        self._refuse_pause()
        self._driver.use(self._in_force(self._file))
        self._resolves.clear()
        if self.paused != wishes.Paused():
            self._driver.scene.note(f"paused: {self.paused.told()}; `isthmus resume` lets it go on")

    def begin_log(self) -> None:
        """Offsets of wishes are those of another log from here on; decisions on their way are gone with the old one."""
        self._wished_at = self._settings_at = self._steered_at = self._done_at = -1
        self._resolves.clear()

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
        at, refused, driver = self._wished_at, {"refused": ""}, self._driver
        try:
            if self._settings_at > self._done_at or self._steered_at > self._done_at:
                await self._enforce(self._wished_settings())
            await self._resolve_all()
        except (IsthmusError, TypeError, ValueError, KeyError) as error:
            refused = _told(error)
            driver.scene.note(f"a wish was refused: {refused['refused']}")
        self._done_at = at
        who = {"at": at, "host": socket.gethostname(), "pid": os.getpid(), **refused}
        try:
            await control.write(driver.journal, {wishes.HEARD: who})
        except WireError as error:
            driver.scene.note(f"an answer to a wish could not be written: {error}", once=True)

    def _wished_settings(self) -> Flow:
        if self._settings_at <= self._done_at:
            return self._file
        return wishes.with_settings(self._file, self._driver.view.values[wishes.SETTINGS]["settings"])

    async def _resolve_all(self) -> None:
        """Decisions of operators, in their order; one that is refused is refused alone."""
        pending, self._resolves = self._resolves, {}
        refused: list[Exception] = []
        for key in sorted(pending, key=pending.__getitem__):
            wish = self._driver.view.values.get(key)
            if wish is None:
                continue  # taken back
            try:
                await self._resolve(Wanted.parsed(wish))
            except (IsthmusError, TypeError, ValueError, KeyError) as error:
                refused.append(error)
            await control.write(self._driver.journal, {key: None})
        if refused:
            raise refused[0] if len(refused) == 1 else ConfigError("; ".join(map(str, refused)))

    async def _resolve(self, wanted: Wanted) -> None:
        """Only lanes that carry the topic are held: nobody else has written of it since the start, which fenced all."""
        driver = self._driver
        everyone = set(range(driver.flow.lanes))
        # A run that ends when all is copied looks anew where that is, for every lane.
        lanes = everyone if self._ends_when_caught_up else driver.roster.lanes_of(wanted.topic)
        ground = await read_ahead(driver.ground(), wanted)
        async with driver.fleet.held(lanes):
            async with driver.dispatch.at_rest(wanted.topic, lanes):
                done = await resolve(ground, wanted)
            driver.scene.note(f"resolved {wanted.topic}: {wanted.choice} for {len(done)} partition(s)")
            try:
                await driver.resolved(done, lanes)
            except WireError as error:  # it is done all the same; the next look plans it
                driver.scene.note(f"a cluster does not answer: {error}", once=True)

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
        if self._ends_when_caught_up:
            file = file.with_all_lanes()
        flow = self._in_force(file)
        is_other = flow != driver.flow
        try:
            self._refuse_pause()
            if flow.lanes != driver.flow.lanes:
                await driver.shifting.to(flow.lanes, {})
            driver.use(flow)
            await driver.replan(set(range(flow.lanes)) if is_other else self._touched(was))
        except BaseException:
            driver.fleet.take_back({lane for tp, lane in driver.roster.lanes.items() if self._differs(was, tp.topic)})
            self.paused = was
            raise
        self._file, self._rates = file, self.topic_rates
        if self.paused != was:
            driver.scene.note(f"paused: {self.paused.told()}" if self.paused != wishes.Paused() else "resumed")

    def _touched(self, was: wishes.Paused) -> set[int]:
        """Lanes that need new orders for a wish; the others never notice (I7).

        A pause needs none, nor its end where the order that runs has the topic: lanes are told which to leave alone.
        """
        before, now, held, fleet = self._rates, self.topic_rates, self.paused, self._driver.fleet
        return {
            lane
            for tp, lane in self._driver.roster.lanes.items()
            if before.get(tp.topic) != now.get(tp.topic)
            or (was.holds(tp.topic) and not held.holds(tp.topic) and not fleet.carries(tp))
        }

    def _differs(self, was: wishes.Paused, topic: str) -> bool:
        return was.holds(topic) != self.paused.holds(topic)

    def _in_force(self, file: Flow) -> Flow:
        """With standing wishes, and with the lanes that there are, as far as the settings allow them."""
        lanes = max(file.first_lanes, min(self._driver.flow.lanes, file.lanes))
        return replace(file, throttle=wishes.throttled(self._driver.view, file.throttle), lanes=lanes)

    def _refuse_pause(self) -> None:
        """Caught up means every partition: a run that ends then must not leave some behind and say so."""
        if self._ends_when_caught_up and self.paused != wishes.Paused():
            raise TargetError(
                f"{self._driver.flow.name} is paused ({self.paused.told()}), so it cannot catch up",
                where=f"cluster {self._driver.flow.target.alias}, topic {self._driver.flow.control_topic}",
                hint="let it go on with `isthmus resume`, or run it without --until-caught-up",
                code="PAUSED",
            )


def _told(error: Exception) -> dict[str, str]:
    """To whoever wished it: what they would have been told without a running flow."""
    if isinstance(error, ConfigError):
        return {"refused": str(error), "code": error.code, "hint": error.hint}
    return {"refused": str(error)}
