"""`isthmus failback`: the old source is back; what clients wrote on the target crosses to it, then they follow.

What must stay true. The flow back begins at the freeze, exactly. What the old source holds beyond the freeze never
crossed: it is listed, and kept in side topics or left out by choice, never silently. The original flow goes on behind
everything that came back, so no record crosses twice. Until the last step clients work on the target, and every step
may be repeated; the state is on record in the target's control topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from isthmus.dr.groups import Lift, Movers, index_of
from isthmus.dr.leftover import leftovers, record_gaps, refuse_undecided
from isthmus.dr.mirror import SIDE, Border, mirror_of, reflect, seed, side_of
from isthmus.dr.rebuilding import rebase, rebased_places
from isthmus.dr.refusals import refuse_driven, refuse_failback, refuse_full
from isthmus.dr.scene import Scene, now_ms, opened, rows_back
from isthmus.dr.shutting import let_in
from isthmus.dr.values import FAILBACK, KEEP, Check, GroupPlace, Leftover, Options, Plan, Report, Tell
from isthmus.dr.waiting import (
    Ends,
    behind_of,
    busy_groups,
    driver_of,
    log_starts,
    patiently,
    quiet_ends,
    until_copied,
    until_left,
)
from isthmus.engine.hold import Hold
from isthmus.engine.offsets.translate import Standing
from isthmus.engine.switch import RETURNED, RETURNING, Place
from isthmus.errors import IsthmusError, RivalError, SourceError, TargetError
from isthmus.model import Flow, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import LATEST, READ_COMMITTED, settled_offsets

Places = dict[TopicPartition, Place]


def fail_back(flow: Flow, options: Options, tell: Tell = lambda _: None) -> Report:
    """Bring clients back to the source; goes on where an earlier attempt ended."""
    return asyncio.run(_fail_back(flow, options, tell))


def plan_failback(flow: Flow, options: Options) -> Plan:
    """What `fail_back` would do. Raises what it would refuse at once, and changes nothing."""
    return asyncio.run(_plan(flow, options))


async def _plan(flow: Flow, options: Options) -> Plan:
    async with opened(flow, options) as scene:
        refuse_failback(scene)
        await refuse_full(scene, scene.source)
        return Plan(
            flow=flow.name,
            kind=FAILBACK,
            phase=scene.state.phase,
            source_alive=True,
            driven_by=await driver_of(scene.hold),
            rows=await rows_back(scene, await rebased_places(scene) if options.rebuilt else scene.state.places),
            groups=await busy_groups(flow, scene.target, set(scene.remotes.values())),
            never_crossed=() if options.rebuilt else tuple(await leftovers(scene)),
        )


async def _fail_back(flow: Flow, options: Options, tell: Tell) -> Report:
    async with opened(flow, options, tell) as scene:
        refuse_failback(scene)
        await refuse_full(scene, scene.source)
        if options.two_way:
            return await _rejoin(scene)
        if options.rebuilt:
            await rebase(scene)
        return await _Return(scene).run()


def last_failback(flow: Flow, options: Options) -> Report:
    """The report of a failback that is done, for whoever lost it, or was interrupted."""
    return asyncio.run(_last(flow, options))


async def _last(flow: Flow, options: Options) -> Report:
    async with opened(flow, options) as scene:
        if scene.switch is None or scene.switch.phase != RETURNED or not scene.source_alive:
            raise RivalError(
                f"there is no report of a failback of {flow.name}, or the source does not answer",
                where=f"cluster {flow.target.alias}, topic {flow.control_topic}",
                hint="`isthmus failback --dry-run` shows what it would do",
                code="NOT_FAILED_OVER",
            )
        return await _Return(scene).last_report()


# -- the way back ----------------------------------------------------------------------------------


class _Return:
    """One failback, step by step."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._mirror = mirror_of(scene.flow, scene.remotes)
        self._back = Hold(self._mirror, scene.source)  # the mirror's record is on the cluster that we go back to
        self._left: list[Leftover] = []

    async def run(self) -> Report:
        await self._look()
        await self._aside()
        await self._prepare()
        async with self._scene.options.carry(self._mirror) as check:
            await self._carry(check)
            await self._drain(check)
        return await self._return()

    async def _look(self) -> None:
        scene = self._scene
        scene.begin("look")
        await refuse_driven(self._back, scene.source)
        if not scene.state.done("look"):
            # Old writers that came back with the cluster would write between what comes back.
            partitions, give_up = list(scene.state.places), self._old_writers()
            await quiet_ends(scene.source, partitions, scene.options, scene.tell, give_up, step="look")
            # Consumers that died with it keep their groups from being moved until their sessions have ended.
            await self._until_left(scene.source, set(scene.remotes), "look")
        self._left = await leftovers(scene)
        refuse_undecided(scene, self._left)
        if not scene.state.done("look"):
            await scene.stamp("look", phase=RETURNING, never_crossed=scene.options.never_crossed)
        await _let_in(scene)  # the rules would hold the flow back, too
        scene.end("look", f"{sum(one.records for one in self._left):,} records never crossed")

    async def _aside(self) -> None:
        scene = self._scene
        if scene.state.done("aside"):
            return
        if self._left and scene.state.never_crossed == KEEP:
            scene.begin("aside", "into side topics")
            names = {one.topic for one in self._left}
            side = side_of(scene.flow, {name: scene.remotes[name] for name in names})
            if not scene.state.done("aside begun"):
                starts = {TopicPartition(one.topic, one.partition): one.first for one in self._left}
                ends = await settled_offsets(scene.source, self._partitions(names), LATEST, READ_COMMITTED)
                await seed(side, scene.source, scene.target, {**ends, **starts})
                await scene.stamp("aside begun")
            await self._copy_aside(side, names)
            scene.end("aside", ", ".join(self._side_topics()))
        await scene.stamp("aside", places=await self._places_back())

    async def _copy_aside(self, side: Flow, names: set[str]) -> None:
        scene = self._scene
        goals = await settled_offsets(scene.source, self._partitions(names), LATEST, READ_COMMITTED)
        hold = Hold(side, scene.target)
        async with scene.options.carry(side) as check:
            give_up = self._not_copied("the old source, into side topics")
            await until_copied(
                hold, goals, goals, scene.options, scene.tell, give_up, log=scene.source, step="aside", check=check
            )

    def _partitions(self, names: set[str]) -> list[TopicPartition]:
        return [TopicPartition(name, n) for name in names for n in self._scene.source.topics[name].partitions]

    def _side_topics(self) -> list[str]:
        return sorted({f"{self._scene.remotes[one.topic]}.{SIDE}" for one in self._left})

    async def _places_back(self) -> Places:
        """With where the old source ends before anything comes back."""
        places = self._scene.state.places
        ends = await settled_offsets(self._scene.source, list(places), LATEST)
        return {tp: place._replace(back=ends[tp]) for tp, place in places.items()}

    async def _prepare(self) -> None:
        scene = self._scene
        if scene.state.done("prepare"):
            await self._back.read()
            return
        scene.begin("prepare")
        places, copies = scene.state.places, scene.copies()
        starts = {copies[tp]: place.target for tp, place in places.items()}
        await seed(self._mirror, scene.target, scene.source, starts)
        await self._back.read()
        if self._has_indexes():
            forth, back = index_of(scene.flow, scene.target), index_of(self._mirror, scene.source)
            await reflect(
                forth, back, [Border(tp, copies[tp], 0, -1, each.source, each.target) for tp, each in places.items()]
            )
        await scene.stamp("prepare")
        scene.end("prepare", f"flow {self._mirror.name} begins at the freeze")

    def _has_indexes(self) -> bool:
        here, there = self._scene.flow.index_topic, self._mirror.index_topic
        return here in self._scene.target.topics and there in self._scene.source.topics

    async def _carry(self, check: Check) -> None:
        scene = self._scene
        scene.begin("carry", f"flow {self._mirror.name} copies what is new")
        goals = await settled_offsets(scene.target, self._copies(), LATEST, READ_COMMITTED)
        await self._until_copied(goals, "carry", check)
        await scene.stamp("carry")
        scene.end("carry", "only what is written from now on is left")

    async def _drain(self, check: Check) -> None:
        scene = self._scene
        scene.begin("writers", f"stop whoever writes on {scene.flow.target.alias}")
        give_up = self._busy_writers()
        ends = await quiet_ends(scene.target, self._copies(), scene.options, scene.tell, give_up, check=check)
        await scene.stamp("writers back")
        scene.end("writers")
        scene.begin("drain")
        await self._until_copied(ends, "drain", check)
        scene.end("drain", f"everything is on {scene.flow.source.alias}")

    async def _until_copied(self, goals: Ends, step: str, check: Check) -> None:
        scene = self._scene
        begins = await log_starts(scene.target, list(goals))
        give_up = self._not_copied(scene.flow.target.alias)
        await until_copied(
            self._back, goals, begins, scene.options, scene.tell, give_up, log=scene.target, step=step, check=check
        )

    def _not_copied(self, what: str) -> Callable[[str], IsthmusError]:
        return lambda text: TargetError(
            f"not everything was copied from {what}: {text}",
            where=f"flow {self._mirror.name}",
            hint="run the command again with more --patience: it goes on here; clients stay where they are",
            code="NOT_DRAINED",
        )

    def _copies(self) -> list[TopicPartition]:
        names = sorted({copy.topic for copy in self._scene.copies().values()})
        return [TopicPartition(name, n) for name in names for n in sorted(self._scene.target.topics[name].partitions)]

    def _old_writers(self) -> Callable[[str], IsthmusError]:
        return lambda text: SourceError(
            f"somebody writes to the old source: {text}",
            where=f"cluster {self._scene.flow.source.alias}",
            hint="writers belong to the target until clients are back: stop these; nothing was changed",
            code="WRITERS",
        )

    def _busy_writers(self) -> Callable[[str], IsthmusError]:
        return lambda text: TargetError(
            f"writers did not stop: {text}",
            where=f"cluster {self._scene.flow.target.alias}",
            hint="stop them, then ask again: the failback goes on here; clients stay where they are",
            code="WRITERS",
        )

    # -- the last steps --------------------------------------------------------------------------

    async def _return(self) -> Report:
        scene = self._scene
        async with self._back.held("", take_over=False):
            await self._back.ledger.advance()
            await self._refuse_behind()
            groups, notes = await self._groups()
            async with scene.hold.held("", take_over=False):
                await self._go_on()
                await scene.stamp("return", phase=RETURNED)
        scene.end("return", f"clients may start on {scene.flow.source.alias}; start the flow with `isthmus run`")
        return self._report(groups, notes)

    async def _refuse_behind(self) -> None:
        scene = self._scene
        copies = self._copies()
        now = await settled_offsets(scene.target, copies, LATEST)
        behind = await behind_of(self._back, now, await log_starts(scene.target, copies), scene.target)
        if behind:
            tp = min(behind)
            raise TargetError(
                f"{tp} has {behind[tp]} offsets that have not come back: somebody writes again, or it has stopped",
                where=f"cluster {scene.flow.target.alias}, flow {self._mirror.name}",
                hint="stop all writers and run the command again: it goes on here",
                code="NOT_DRAINED",
            )

    async def _groups(self) -> tuple[list[GroupPlace], list[str]]:
        scene = self._scene
        scene.begin("groups")
        remotes = {remote: name for name, remote in scene.remotes.items()}
        movers = Movers(self._mirror, scene.target, scene.source, remotes, self._back.ledger.positions)
        if not self._has_indexes():
            return [], ["the flow keeps no index of offsets (mm2_topics): groups were not moved"]
        await self._until_left(scene.target, set(remotes), "groups")
        lift = await self._beyond_leftover()
        found = await patiently(lambda: movers.move(lift))
        await scene.stamp("groups")
        scene.end("groups", f"{len(found)} places of {len({one.group for one in found})} groups")
        return found, movers.notes

    async def _beyond_leftover(self) -> Lift:
        """A group that has read all copies goes on behind what never crossed, not in it."""
        scene, last = self._scene, index_of(self._scene.flow, self._scene.target)
        await last.catch_up()
        bounds: dict[TopicPartition, tuple[int, int]] = {}
        for tp, place in scene.state.places.items():
            found = await last.at_or_below(tp, place.source)
            bounds[tp] = (place.source if found is None else found[0], place.back)

        def lifted(one: Standing) -> int:
            low, back = bounds.get(one.target, (0, 0))
            return back if low <= one.translated < back else one.translated

        return lifted

    async def _until_left(self, on: Client, topics: set[str], step: str) -> None:
        scene = self._scene
        hint = "stop them and run the command again: it goes on here; or let them be with --move-active"
        kind = TargetError if on is scene.target else SourceError
        give_up = partial(kind, where=f"cluster {on.cluster.alias}", hint=hint, code="CONSUMERS")
        await until_left(scene.flow, on, topics, scene.options, scene.tell, give_up, step=step)

    async def _go_on(self) -> None:
        """The original flow goes on behind what came back, and knows where that is on the other side."""
        scene = self._scene
        partitions = self._partitions(set(scene.remotes) & set(scene.source.topics))
        once = replace(scene.options, quiet_s=0.0)  # nobody writes; but what is open could still be committed
        ends = await quiet_ends(scene.source, partitions, once, scene.tell, self._old_writers())
        await scene.hold.store(ends)
        await record_gaps(scene, self._left)
        if not self._has_indexes():
            return
        places, copies, back = scene.state.places, scene.copies(), self._back.ledger.positions
        forth, mirrored = index_of(scene.flow, scene.target), index_of(self._mirror, scene.source)
        borders = [
            Border(copies[tp], tp, each.target, each.source, back.get(copies[tp], 0), ends[tp])
            for tp, each in places.items()
            if tp in ends
        ]
        await reflect(mirrored, forth, borders)

    async def last_report(self) -> Report:
        """Of a failback that is done, from what is on record."""
        self._left = await leftovers(self._scene)
        return self._report([], ["places of groups: `isthmus groups` lists them"])

    def _report(self, groups: list[GroupPlace], notes: list[str]) -> Report:
        scene, switch = self._scene, self._scene.state
        places = switch.places
        times = dict(switch.steps)
        kept = self._left and switch.never_crossed == KEEP
        return Report(
            flow=scene.flow.name,
            kind=FAILBACK,
            began_ms=times["look"],
            ended_ms=times["return"],
            to=scene.flow.source.alias,
            bootstrap=scene.flow.source.bootstrap,
            rows=tuple(scene.rows({tp: place._replace(seen_end=place.back) for tp, place in places.items()})),
            groups=tuple(groups),
            steps=switch.steps,
            never_crossed=tuple(self._left),
            side_topics=tuple(self._side_topics()) if kept else (),
            notes=tuple(notes),
        )


async def _let_in(scene: Scene) -> None:
    if scene.state.shuts_out:
        await let_in(scene)
        await scene.record(replace(scene.state, fenced=False))


async def _rejoin(scene: Scene) -> Report:
    """Both directions have flows: the one back has run all the time, this one just goes on where it was frozen."""
    began = now_ms()
    left = await leftovers(scene)
    await scene.stamp("look", phase=RETURNING)
    await _let_in(scene)
    await scene.record(replace(scene.state.with_step("return", now_ms()), phase=RETURNED))
    scene.end("return", "the flow may run again; what never crossed crosses then")
    return Report(
        flow=scene.flow.name,
        kind=FAILBACK,
        began_ms=began,
        ended_ms=now_ms(),
        to=scene.flow.source.alias,
        bootstrap=scene.flow.source.bootstrap,
        rows=(),
        groups=(),
        steps=scene.state.steps,
        never_crossed=tuple(left),
        notes=(f"move clients with `isthmus failover` of flow {scene.flow.target.alias}->{scene.flow.source.alias}",),
    )
