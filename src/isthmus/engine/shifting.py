"""Partitions change hands while a flow runs: lanes come with lag, go when they are idle, heavy partitions are spread.

The order of things (I2): the new number of lanes is on record; lanes that give partitions away are held, and have ended
their orders; their ids are fenced, so that no lost attempt of theirs can commit any more; then, in one go, partitions
change lanes; then the lanes that take them get new orders, which fence and read progress before anything is copied.
What must stay true: whatever fails before the partitions change leaves everything as it was; lanes that neither give
nor take never notice. When to do it is `growth`'s to say.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from isthmus.engine import control
from isthmus.engine.growth import Limits, Load, Mind, Step, changed, spread, think
from isthmus.engine.loads import Loads
from isthmus.errors import IsthmusError, RivalError
from isthmus.model import TopicPartition

if TYPE_CHECKING:
    from isthmus.engine.driver import Driver

Room = Callable[[int], Awaitable[int]]  # lanes that a flow would like to have, to lanes that Spark can run of it now
_LOOK_EVERY_S = 1.0


async def boundless(lanes: int) -> int:
    """Where lanes are no tasks of a Spark cluster."""
    return lanes


class Shifting:
    """Gives partitions to lanes, and says how many of those there are."""

    def __init__(self, driver: Driver, room: Room) -> None:
        self.loads = Loads()
        self._driver = driver
        self._room = room
        self._mind = Mind()

    async def run(self) -> None:
        """Standing work of a flow whose lanes come and go."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                await self._look()
            except RivalError:
                raise
            except IsthmusError as error:
                self._driver.scene.note(f"lanes stay as they are: {error}", once=True)

    async def _look(self) -> None:
        driver = self._driver
        allowed = driver.steering.allowed
        if not allowed.grows or driver.fleet.stopping.is_set() or driver.flow.throttle or driver.steering.is_busy:
            self._mind = replace(self._mind, need_since=None, calm_since=None)
            return
        lanes, growth = driver.flow.lanes, allowed.growth
        limits = Limits(
            least=allowed.first_lanes,
            most=allowed.lanes,
            room=max(lanes, await self._room(allowed.lanes)) if self._mind.need_since is not None else lanes,
            after_s=growth.after_seconds,
            shrink_after_s=growth.shrink_after_seconds,
        )
        loads = self.loads.read(driver.roster.lanes, self._helpless(), growth.after_seconds)
        futile = self._mind.futile_until
        self._mind, step = think(self._mind, time.monotonic(), loads, lanes, limits)
        if self._mind.futile_until > futile:
            driver.scene.note(f"{lanes} lanes carry no more than fewer did: something else is the limit", once=True)
        if step is not None:
            await self._take(step, loads, limits)

    async def _take(self, step: Step, loads: list[Load], limits: Limits) -> None:
        driver, before = self._driver, self._driver.flow.lanes
        async with driver.steering.changing():
            moved = await self.to(step.lanes, {load.tp: load.wanted for load in loads})
        self._mind = changed(self._mind, time.monotonic(), loads, before, step.lanes, limits)
        if step.lanes != before:
            driver.scene.note(f"lanes {before} -> {step.lanes}: {step.why}")
        elif moved:
            driver.scene.note(f"{moved} partition{'s' if moved > 1 else ''} changed lanes: {step.why}")

    def _helpless(self) -> set[TopicPartition]:
        driver = self._driver
        held, slow = driver.steering.paused, driver.steering.topic_rates
        return {tp for tp in driver.roster.lanes if held.holds(tp.topic) or tp.topic in slow} | driver.scene.all_stopped

    # -- carrying it out -------------------------------------------------------------------------

    async def to(self, lanes: int, weights: Mapping[TopicPartition, float]) -> int:
        """So many lanes, with partitions spread by weight; tells how many changed hands. To be called while nothing
        else changes the flow (`steering.changing`)."""
        driver, roster = self._driver, self._driver.roster
        placed = spread(lanes, roster.lanes, weights, roster.leaders())
        moves = {tp: (roster.lanes[tp], lane) for tp, lane in placed.items() if roster.lanes[tp] != lane}
        ending = set(range(lanes, driver.flow.lanes))
        givers = {giver for giver, _ in moves.values()} | ending
        if not givers and lanes == driver.flow.lanes:
            return 0
        await driver.dispatch.enlist(driver.view, lanes)
        async with driver.fleet.held(givers):
            await driver.dispatch.fence_lanes(givers)
            # In one go: an order may be planned between any two awaits.
            driver.use(replace(driver.flow, lanes=lanes))
            driver.scene.set_lanes(lanes)
            takers = roster.move({tp: lane for tp, (_, lane) in moves.items()}, lanes)
            self.loads.clear()
        driver.fleet.start()
        if takers:
            await driver.fleet.publish_wants()
        await self._forget_reports(ending)
        return len(moves)

    async def _forget_reports(self, ended: set[int]) -> None:
        """What a lane that is no more said last would be taken for what is."""
        if ended:
            await control.write(
                self._driver.journal, {f"{word}/{n}": None for n in ended for word in ("status", "alive")}
            )
