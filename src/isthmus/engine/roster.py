"""Which partitions a flow has, and which lane carries each: what `survey` sees, kept over the life of a driver.

What must stay true: a partition keeps its lane until `move`, which `shifting` calls when the old lane has ended its
order and was fenced, so that no two lanes can ever own it; topic ids are on record before a partition is in any order
(I5). A lane's revision rises when partitions come to it, which ends its epoch early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from isthmus.engine import control
from isthmus.engine.control import ControlView
from isthmus.engine.orders import Stop
from isthmus.engine.registrar import Registrar
from isthmus.engine.rights import Watch, hidden_topics
from isthmus.engine.scene import Scene
from isthmus.engine.starts import first_offsets
from isthmus.engine.survey import ANY_TARGET, LET_GO, Route, assign, gone_stop, survey
from isthmus.engine.wishes import paused
from isthmus.mm2.filters import choose
from isthmus.model import Flow, Start, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal

_TOLD_ONE_BY_ONE = 8


class Roster:
    """Routes by source topic, lanes by source partition, a revision per lane."""

    def __init__(
        self, flow: Flow, source: Client, target: Client, journal: Journal, scene: Scene, registrar: Registrar
    ) -> None:
        self.routes: dict[str, Route] = {}
        self.lanes: dict[TopicPartition, int] = {}
        self.ever: dict[
            TopicPartition, int
        ] = {}  # also of partitions that left: should they return, it is to their lane
        self._names: dict[str, str] = {}  # of every source topic that was ever carried, its name on the target
        self.revisions = [0] * flow.lanes
        self._found: dict[str, Route] = {}  # what the last look saw, not yet in force
        self.flow = flow
        self._source = source
        self._target = target
        self._journal = journal
        self._scene = scene
        self._registrar = registrar
        self._watch = Watch()
        self._waits = False  # for a right, or a topic that could not be created: not everything is in order
        self._settled: tuple[int, int, Flow] | None = None  # what was seen when everything was
        self._renewing = asyncio.Lock()

    async def renew(self, view: ControlView) -> bool:
        """Look at both clusters; True when lanes have something new to do."""
        async with self._renewing:
            await self._registrar.refuse_uncut()
            if await self._is_unchanged():
                return False
            await self.look(view)
            await self.record(view)
            changed = self.assign()
            self._settled = None if self._waits else self._state()
            return changed

    async def _is_unchanged(self) -> bool:
        """Whether both clusters are as they were when everything was in order: then a look costs two requests."""
        if self._settled is None:
            return False
        await self._source.refresh(None)
        await self._target.refresh(None)
        return self._settled == self._state()

    def _state(self) -> tuple[int, int, Flow]:
        return self._source.generation, self._target.generation, self.flow

    async def look(self, view: ControlView, starts: tuple[Start, ...] = ()) -> None:
        """The first step of `renew`; `record` must follow before lanes are assigned (I5)."""
        missed = {tp.topic for tp in self._scene.stopped({"TARGET_RECREATED"})}
        seen = await survey(self._source, self._target, self.flow, view, self._watch, missed)
        self._tell_created(seen.created)
        fresh = [route for route in seen.routes if f"topic/{route.source}" not in view.values]
        doubtful = await self._registrar.doubtful(fresh, starts)
        gone = await self._gone(view)
        for stop in (*seen.stops, *doubtful, *gone):
            self._scene.stop(stop)
        there = {route.source for route in seen.routes}  # and the ones that they were
        self._scene.lift([tp for tp in self._scene.stopped({"SOURCE_GONE"}) if tp.topic in there])
        self._waits = bool(seen.stops)
        known = {route.source for route in seen.routes} | {stop.source.topic for stop in seen.stops}
        for name in set(self.routes) - known:
            why = "is not carried any more" if name in self._source.topics else "is gone"
            self._scene.note(f"source topic {name} {why}; what was copied stays on the target")
        held = {stop.source.topic for stop in doubtful}
        self._found = {route.source: route for route in seen.routes if route.source not in held}

    async def _gone(self, view: ControlView) -> list[Stop]:
        """Topics that were copied and are not on the source any more. One that is paused may go: somebody saw to it."""
        recorded = [
            name
            for key, value in view.under("topic/").items()
            if (name := key.partition("/")[2]) not in self._source.topics and not value.get(LET_GO)
        ]
        held = paused(view)
        absent = [name for name in choose(self.flow, recorded) if not held.holds(name)] if recorded else []
        if not absent:
            return []
        hidden = set(await hidden_topics(self._source, self.flow))
        said = set(self._scene.stopped({"SOURCE_GONE"}))  # by a lane, or an earlier look
        return [
            gone_stop(tp, self._scene.position(tp))
            for name in absent
            if name not in hidden
            for tp in sorted(tp for tp in self.ever if tp.topic == name) or [TopicPartition(name, 0)]
            if tp not in said
        ]

    def look_anew(self) -> None:
        """The next look counts, whatever the last one saw."""
        self._settled = None

    def _tell_created(self, names: Sequence[str]) -> None:
        """Each by its name while they are few; a thousand lines would push out everything else that was told."""
        if len(names) <= _TOLD_ONE_BY_ONE:
            for name in names:
                self._scene.note(f"created {name}")
        else:
            self._scene.note(f"created {len(names):,} topics: {min(names)} to {max(names)}")

    async def record(self, view: ControlView, starts: tuple[Start, ...] = ()) -> None:
        """Put the ids of topics on record that are not there yet, and where they start.

        `starts` is for topics that a start of the driver finds; what appears while it runs begins at its beginning,
        or records written before it was noticed would be missed.
        """
        fresh = [r for r in self._found.values() if f"topic/{r.source}" not in view.values]
        moved = [
            r for r in self._found.values() if {ANY_TARGET, LET_GO} & set(view.values.get(f"topic/{r.source}", ()))
        ]
        if not fresh and not moved:
            return
        await self._registrar.mark_empty(fresh)
        begins = await first_offsets(self._source, starts, {r.source: r.partitions for r in fresh})
        values = {f"topic/{r.source}": _on_record(r, begins.get(r.source, {})) for r in fresh}
        for route in moved:
            began = view.values[f"topic/{route.source}"].get("starts", {})
            values[f"topic/{route.source}"] = _on_record(route, {int(n): int(at) for n, at in began.items()})
        await control.write(self._journal, values)
        view.values.update(values)

    def start_of(self, source: TopicPartition, view: ControlView) -> int:
        """Where a partition without progress begins; -1: at the start of its log."""
        record = view.values.get(f"topic/{source.topic}", {})
        return int(record.get("starts", {}).get(str(source.partition), -1))

    def assign(self) -> bool:
        """Give every partition that was found a lane; True when any lane's partitions changed.

        A lane that has only lost topics as a whole needs no new order: it is told to leave them alone (`fleet`).
        """
        self.routes = self._found  # together with the lanes: an order may be planned between any two awaits
        partitions = [TopicPartition(r.source, n) for r in self.routes.values() for n in range(r.partitions)]
        lanes = assign(partitions, self.leaders(partitions), self.flow.lanes, self.ever)
        self.ever |= lanes
        self._names |= self.remotes()
        came = dict(lanes.items() - self.lanes.items())
        left = {tp: lane for tp, lane in self.lanes.items() if tp not in lanes and tp.topic in self.routes}
        changed = lanes != self.lanes
        self.lanes = lanes
        self._scene.set_partitions(lanes)
        self.revise({*came.values(), *left.values()})
        return changed

    def leaders(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The broker that leads each one's copy."""
        return {
            tp: self._target.leader(self.target_of(tp)) for tp in (self.lanes if partitions is None else partitions)
        }

    def move(self, placed: Mapping[TopicPartition, int], lanes: int) -> set[int]:
        """Partitions change lanes, of which there are this many from now on; tells which lanes have more to carry.

        Only after the lanes that lose something have ended their orders and were fenced (`shifting`).
        """
        self.revisions += [0] * (lanes - len(self.revisions))
        now = {tp: placed.get(tp, lane) for tp, lane in self.lanes.items()}
        # What left, and what came since the deal was made, is on no lane that is no more.
        self.ever = {tp: lane for tp, lane in (self.ever | now).items() if lane < lanes}
        kept = {tp: lane for tp, lane in now.items() if lane < lanes}
        moved = kept | assign([tp for tp in now if tp not in kept], {}, lanes, {})
        takers = {lane for tp, lane in moved.items() if self.lanes[tp] != lane}
        self.ever |= moved
        self.lanes = moved
        self._scene.set_partitions(moved)
        self.revise(takers)
        return takers

    def ever_written_by(self, lanes: Collection[int]) -> list[TopicPartition]:
        """Partitions of the target that orders of these lanes had in this run, as far as they are still there."""
        known = self._target.topics
        targets = [TopicPartition(self._names[tp.topic], tp.partition) for tp, at in self.ever.items() if at in lanes]
        return [tp for tp in targets if tp.topic in known and tp.partition in known[tp.topic].partitions]

    def lanes_of(self, topic: str) -> set[int]:
        """Those whose orders had partitions of it in this run."""
        return {lane for tp, lane in self.ever.items() if tp.topic == topic}

    def revise(self, lanes: set[int]) -> None:
        for lane in lanes:
            self.revisions[lane] += 1

    def of_lane(self, lane: int) -> list[TopicPartition]:
        """Source partitions that the lane should carry: not those that stopped for good."""
        return sorted(tp for tp, number in self.lanes.items() if number == lane and not self._scene.is_final(tp))

    def target_of(self, source: TopicPartition) -> TopicPartition:
        return TopicPartition(self.routes[source.topic].target, source.partition)

    def copies(self) -> dict[TopicPartition, TopicPartition]:
        """The copy of every source partition that was found."""
        return {
            TopicPartition(route.source, number): TopicPartition(route.target, number)
            for route in self._found.values()
            for number in range(route.partitions)
        }

    def remotes(self) -> dict[str, str]:
        """The target's name of each source topic."""
        return {route.source: route.target for route in self.routes.values()}

    def all_targets(self) -> list[TopicPartition]:
        return [TopicPartition(r.target, number) for r in self._found.values() for number in range(r.partitions)]


def _on_record(route: Route, starts: dict[int, int]) -> dict[str, Any]:
    value: dict[str, Any] = {
        "source_id": str(route.source_id),
        "target": route.target,
        "target_id": str(route.target_id),
    }
    if starts:
        value["starts"] = {str(number): offset for number, offset in starts.items()}
    return value
