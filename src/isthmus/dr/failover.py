"""`isthmus failover`: clients move from the source of a flow to its target, planned (switchover) or not (failover).

What must stay true. Switchover: the flow is frozen only when everything that the source holds is on the target, and
nothing was written since; so no record is lost. Failover: whoever might still copy is fenced before it is said what
has arrived. Both: groups get their places after the freeze, from a log that does not grow any more. Every step may be
repeated; the state on the target says which were done (`scene`).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import replace

from isthmus.dr.groups import Movers
from isthmus.dr.refusals import refuse_abandon, refuse_failover, refuse_full, refuse_leaderless
from isthmus.dr.scene import Scene, now_ms, opened, whoami
from isthmus.dr.shutting import let_in, shut_out
from isthmus.dr.values import SWITCHOVER, GroupPlace, Options, Plan, Report, Tell
from isthmus.dr.waiting import (
    Ends,
    behind_of,
    busy_groups,
    driver_of,
    eventually,
    log_starts,
    patiently,
    quiet_ends,
    until_copied,
    until_left,
)
from isthmus.engine.switch import DRAINING, FROZEN, SWITCHED, Place, Switch, unfinished
from isthmus.errors import IsthmusError, RivalError, SourceError, TargetError
from isthmus.model import Flow, TopicPartition
from isthmus.wire.fetch import LATEST, READ_COMMITTED, settled_offsets

_DRIVER_LEAVES_S = 25.0


def fail_over(flow: Flow, options: Options, tell: Tell = lambda _: None) -> Report:
    """Move clients to the target; goes on where an earlier attempt ended."""
    return asyncio.run(_fail_over(flow, options, tell))


def plan_failover(flow: Flow, options: Options) -> Plan:
    """What `fail_over` would do. Raises what it would refuse, and changes nothing."""
    return asyncio.run(_plan(flow, options))


async def _plan(flow: Flow, options: Options) -> Plan:
    async with opened(flow, options) as scene:
        refuse_failover(scene)
        await refuse_full(scene, scene.target)
        await refuse_leaderless(scene)
        places = await _places(scene)
        busy = await busy_groups(flow, scene.source, set(scene.remotes)) if scene.source_alive else {}
        return Plan(
            flow=flow.name,
            kind=options.kind,
            phase="" if scene.switch is None else scene.switch.phase,
            source_alive=scene.source_alive,
            driven_by=await driver_of(scene.hold),
            rows=tuple(scene.rows(places)),
            groups=busy,
            heard_ms=0 if scene.source_alive else await scene.heard_ms(),
        )


async def _fail_over(flow: Flow, options: Options, tell: Tell) -> Report:
    async with opened(flow, options, tell) as scene:
        refuse_failover(scene)
        await refuse_full(scene, scene.target)
        await refuse_leaderless(scene)
        switch = await _intended(scene)
        # One that died before its freeze was on record begins again: somebody may have written since.
        goals = await _drain(scene, replace(switch, phase=DRAINING)) if switch.is_open else {}
        groups, notes = await _freeze_and_move(scene, replace(switch, phase=FROZEN), goals)
        return _report(scene, groups, notes)


async def _intended(scene: Scene) -> Switch:
    """What an earlier attempt began, or the beginning of one."""
    options, switch = scene.options, scene.switch
    if switch is None or switch.phase not in (DRAINING, FROZEN) or switch.kind != options.kind:
        switch = Switch(
            phase=DRAINING if options.kind == SWITCHOVER else FROZEN,
            kind=options.kind,
            decided_ms=now_ms(),
            by=whoami(),
            # Access rules of an attempt that died stay on record, whatever is asked now.
            fenced=switch is not None and switch.shuts_out,
            heard_ms=0 if scene.source_alive else await scene.heard_ms(),
        )
    return replace(switch, fenced=True) if switch.is_open and options.fence_writers else switch


# -- switchover: nothing is left behind ------------------------------------------------------------


async def _drain(scene: Scene, switch: Switch) -> Ends:
    """Wait for writers, then until all is on the target; the ends of the source's logs by then."""
    await scene.record(switch)
    try:
        partitions = _carried(scene)
        scene.begin("writers", "stop whoever writes to the source's topics")
        if switch.fenced:
            await shut_out(scene)
        goals = await quiet_ends(scene.source, partitions, scene.options, scene.tell, _writers(scene))
        await scene.stamp("writers")
        scene.end("writers", f"{len(partitions)} partitions are quiet")
        scene.begin("drain")
        await _until_copied(scene, goals)
        await scene.stamp("drain")
        scene.end("drain", "everything is on the target")
    except BaseException:
        await _put_back(scene)
        raise
    return goals


async def _put_back(scene: Scene) -> None:
    """As if nothing had been asked."""
    if scene.state.shuts_out:
        await let_in(scene)
    await scene.put_back()


async def _until_copied(scene: Scene, goals: Ends) -> None:
    begins = await log_starts(scene.source, list(goals))
    wait = functools.partial(
        until_copied, scene.hold, goals, begins, scene.options, scene.tell, _undrained(scene), log=scene.source
    )
    if await behind_of(scene.hold, goals, begins, scene.source) and not await driver_of(scene.hold):
        scene.begin("drain", "nobody runs the flow: copying the rest here")
        async with scene.options.carry(scene.flow) as check:
            await wait(check=check)
    await wait()


def _carried(scene: Scene) -> list[TopicPartition]:
    """Every partition of the source's topics, also those that have no copy yet."""
    return [
        TopicPartition(name, number)
        for name in sorted(scene.remotes)
        if name in scene.source.topics
        for number in sorted(scene.source.topics[name].partitions)
    ]


def _writers(scene: Scene) -> Callable[[str], IsthmusError]:
    return lambda text: SourceError(
        f"writers did not stop: {text}",
        where=f"cluster {scene.flow.source.alias}",
        hint="stop them, then ask again; nothing was changed, the flow copies on",
        code="WRITERS",
    )


def _undrained(scene: Scene) -> Callable[[str], IsthmusError]:
    return lambda text: TargetError(
        f"not everything was copied: {text}",
        where=f"flow {scene.flow.name}",
        hint="does the flow run, has a partition stopped? `isthmus run` shows it; nothing was changed",
        code="NOT_DRAINED",
    )


# -- the freeze, and what follows ------------------------------------------------------------------


async def _freeze_and_move(scene: Scene, switch: Switch, goals: Ends) -> tuple[list[GroupPlace], list[str]]:
    scene.begin("freeze")
    await scene.record(switch)
    await eventually(_is_left(scene), _DRIVER_LEAVES_S)
    async with scene.hold.held("", take_over=True):
        await scene.hold.ledger.advance()
        if not switch.done("freeze"):
            await _refuse_growth(scene, goals)
            await scene.stamp("freeze", places=await _places(scene))
        scene.end("freeze", "nothing is copied any more")
        groups, notes = await _move_groups(scene)
        await scene.stamp("switch", phase=SWITCHED)
    scene.end("switch", f"clients may start on {scene.flow.target.alias}")
    return groups, notes


def _is_left(scene: Scene) -> Callable[[], Awaitable[bool]]:
    """A driver that hears of the freeze ends its lanes after their open transaction, then lets go."""

    async def left() -> bool:
        return not await driver_of(scene.hold)

    return left


async def _refuse_growth(scene: Scene, goals: Ends) -> None:
    """Somebody wrote between the drain and the freeze: the flow must go on, or those records would be lost."""
    if not goals:
        return
    ends = await settled_offsets(scene.source, list(goals), LATEST)
    grown = [tp for tp in goals if ends[tp] != goals[tp]]
    if grown:
        await _put_back(scene)
        raise SourceError(
            f"{grown[0]} was written to again, up to offset {ends[grown[0]]}: the switchover was given up",
            where=f"cluster {scene.flow.source.alias}",
            hint="start the flow again (`isthmus run`), stop all writers, and repeat; nothing was lost",
            code="WRITERS",
        )


async def _places(scene: Scene) -> dict[TopicPartition, Place]:
    copies, positions = scene.copies(), scene.hold.ledger.positions
    ends = await settled_offsets(scene.target, list(copies.values()), LATEST)
    if scene.source_alive:
        there = [tp for tp in copies if _has(scene, tp)]
        seen = await settled_offsets(scene.source, there, LATEST, READ_COMMITTED)
        begins = await log_starts(scene.source, there)
    else:
        seen, begins = scene.seen_ends(), {}
    return {
        tp: Place(positions.get(tp, begins.get(tp, 0)), ends[copy], seen.get(tp, -1)) for tp, copy in copies.items()
    }


def _has(scene: Scene, tp: TopicPartition) -> bool:
    topic = scene.source.topics.get(tp.topic)
    return topic is not None and tp.partition in topic.partitions


async def _move_groups(scene: Scene) -> tuple[list[GroupPlace], list[str]]:
    scene.begin("groups")
    movers = Movers(scene.flow, scene.source, scene.target, scene.remotes, scene.hold.ledger.positions)
    found: list[GroupPlace] = []
    if not movers.can_translate:
        movers.notes.append("the flow keeps no index of offsets (mm2_topics): groups were not moved")
    elif scene.options.kind == SWITCHOVER:
        names = set(scene.remotes)
        await until_left(scene.flow, scene.source, names, scene.options, scene.tell, _consumers(scene))
        found = await patiently(movers.move)
    else:
        found = await patiently(movers.move_blindly)
    await scene.stamp("groups")
    scene.end("groups", f"{len(found)} places of {len({one.group for one in found})} groups")
    return found, movers.notes


def _consumers(scene: Scene) -> Callable[[str], IsthmusError]:
    return lambda text: SourceError(
        text,
        where=f"cluster {scene.flow.source.alias}",
        hint="stop them and run the command again: it goes on here; or let them be with --move-active, then what they "
        "read from now on is read again",
        code="CONSUMERS",
    )


def _report(scene: Scene, groups: list[GroupPlace], notes: list[str]) -> Report:
    switch = scene.state
    return Report(
        flow=scene.flow.name,
        kind=switch.kind,
        began_ms=switch.decided_ms,
        ended_ms=dict(switch.steps)["switch"],
        to=scene.flow.target.alias,
        bootstrap=scene.flow.target.bootstrap,
        rows=tuple(scene.rows(dict(switch.places))),
        groups=tuple(groups),
        steps=switch.steps,
        heard_ms=switch.heard_ms,
        notes=tuple(notes),
    )


def last_failover(flow: Flow, options: Options) -> Report:
    """The report of a failover that is done, from what is on record: for whoever lost it, or was interrupted."""
    return asyncio.run(_last(flow, options))


async def _last(flow: Flow, options: Options) -> Report:
    async with opened(flow, options) as scene:
        left = unfinished(flow, scene.hold.view)
        if scene.switch is None or not scene.switch.done("switch"):
            raise RivalError(
                f"flow {flow.name} was not failed over" + (f": {left}" if left else ""),
                where=f"cluster {flow.target.alias}, topic {flow.control_topic}",
                hint="`isthmus failover --dry-run` shows what it would do",
                code="NOT_FAILED_OVER",
            )
        notes = ["places of groups: `isthmus groups` lists them", left]
        return _report(scene, [], list(filter(None, notes)))


# -- giving up -------------------------------------------------------------------------------------


def abandon(flow: Flow, options: Options, *, only_look: bool = False) -> Switch:
    """Take back a switchover that somebody began and nobody ends, as it was; as if nothing had been asked."""
    return asyncio.run(_abandon(flow, options, only_look))


async def _abandon(flow: Flow, options: Options, only_look: bool) -> Switch:
    async with opened(flow, options) as scene:
        refuse_abandon(scene)
        switch = scene.state
        if not only_look:
            await _put_back(scene)
        return switch
