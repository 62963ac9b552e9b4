"""Waiting for people and programs before clients change sides: writers that stop, copies that catch up, consumers
that leave.

What must stay true: writers count as stopped only when no log grew for the whole time asked for and no transaction is
open, because what an open one holds could still be committed. Nothing here changes a cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from isthmus.dr.values import WAITS, Check, Options, Step, Tell
from isthmus.engine import control
from isthmus.engine.hold import Hold
from isthmus.engine.offsets.align import read
from isthmus.errors import BrokerUnreachable, IsthmusError
from isthmus.mm2.filters import GroupFilter
from isthmus.model import Flow, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, READ_COMMITTED, settled_offsets
from isthmus.wire.groups import IDLE, committed_offsets, list_groups

_LOOK_EVERY_S = 0.2
_TELL_EVERY_S = 2.0
_SHOWN = 5
_FEW = 20
_COORDINATORS_S = 60.0

Ends = dict[TopicPartition, int]
T = TypeVar("T")


class Waiting:
    """Tells now and then what is being waited for, and gives up after the patience of the options."""

    def __init__(self, step: str, options: Options, tell: Tell, check: Check = lambda: None) -> None:
        self._step = step
        self._check = check
        self._tell = tell
        self._options = options
        self._until = time.monotonic() + options.patience_s
        self._told_at = time.monotonic() + _LOOK_EVERY_S  # what is there at once is not waited for

    async def pause(self, text: str, give_up: Callable[[str], IsthmusError]) -> None:
        now = time.monotonic()
        self._check()
        if now > self._until:
            raise give_up(f"not within {self._options.patience_s:.0f} s: {text}")
        if now >= self._told_at:
            self._told_at = now + _TELL_EVERY_S
            self._tell(Step(name=self._step, state=WAITS, text=text, at=time.time()))
        await asyncio.sleep(_LOOK_EVERY_S)


async def quiet_ends(
    client: Client,
    partitions: Sequence[TopicPartition],
    options: Options,
    tell: Tell,
    give_up: Callable[[str], IsthmusError],
    *,
    step: str = "writers",
    check: Check = lambda: None,
) -> Ends:
    """The ends of these logs, once nobody writes any more."""
    waiting = Waiting(step, options, tell, check)
    seen: Ends = {}
    since = time.monotonic()
    while True:
        ends = await settled_offsets(client, partitions, LATEST)
        stable = await settled_offsets(client, partitions, LATEST, READ_COMMITTED)
        grown = sorted(tp for tp in partitions if ends[tp] != seen.get(tp, ends[tp]))
        open_ = sorted(tp for tp in partitions if stable[tp] < ends[tp])
        if grown or open_ or not seen:
            since = time.monotonic()
        elif time.monotonic() - since >= options.quiet_s:
            return ends
        seen = ends
        told = f"{_named(grown)} still grow" if grown else f"open transactions in {_named(open_)}" if open_ else ""
        await waiting.pause(told or f"nothing was written for {time.monotonic() - since:.1f} s", give_up)


async def until_copied(
    hold: Hold,
    goals: Ends,
    begins: Ends,
    options: Options,
    tell: Tell,
    give_up: Callable[[str], IsthmusError],
    *,
    log: Client,
    step: str = "drain",
    check: Check = lambda: None,
) -> None:
    """Until progress says that every record below the goals is on the target. `log`: of the cluster that has them."""
    waiting = Waiting(step, options, tell, check)
    while behind := await behind_of(hold, goals, begins, log):
        left = sum(behind.values())
        await waiting.pause(f"{left:,} offsets to copy in {_named(sorted(behind))}", give_up)


async def behind_of(hold: Hold, goals: Ends, begins: Ends, log: Client) -> Ends:
    """Partitions whose copies lack something, and how many offsets. Markers at the end of a log are nothing to copy,
    and progress counts them only after some seconds: a few offsets are looked at instead of waited for."""
    await hold.read()
    stored = {tp: hold.ledger.positions.get(tp, begins[tp]) for tp in goals}
    behind = {tp: goal - stored[tp] for tp, goal in goals.items() if stored[tp] < goal}
    if max(behind.values(), default=0) > _FEW:
        return behind
    return {tp: left for tp, left in behind.items() if len(await read(log, tp, stored[tp], goals[tp], 1))}


async def log_starts(client: Client, partitions: Sequence[TopicPartition]) -> Ends:
    return await settled_offsets(client, partitions, EARLIEST)


async def driver_of(hold: Hold) -> str:
    """Who drives the flow now, told by a lease that is renewed while we look; empty: nobody."""
    await hold.hear()
    seen, until = _lease(hold), time.monotonic() + control.LEASE_DEAD_AFTER_S
    while seen and time.monotonic() < until:
        await asyncio.sleep(_LOOK_EVERY_S)
        await hold.hear()
        now = _lease(hold)
        if not now:
            return ""  # let go while we looked
        if now != seen:
            lease = hold.view.values["lease"]
            return f"process {lease.get('pid')} on {lease.get('host')}"
    return ""


def _lease(hold: Hold) -> str:
    lease = hold.view.values.get("lease", {"released": True})
    return "" if lease.get("released") else f"{lease.get('driver')} {lease.get('count')}"


async def until_left(
    flow: Flow,
    client: Client,
    topics: set[str],
    options: Options,
    tell: Tell,
    give_up: Callable[[str], IsthmusError],
    *,
    step: str = "groups",
) -> None:
    """Until nobody works in the groups that read these topics; not at all if the options say so."""
    waiting = Waiting(step, options, tell)
    while not options.move_active and (busy := await busy_groups(flow, client, topics)):
        await waiting.pause(f"consumers still work on {client.cluster.alias}: {_named(sorted(busy))}", give_up)


async def busy_groups(flow: Flow, client: Client, topics: set[str]) -> dict[str, str]:
    """Groups of the flow that have members and places in these topics, with their states."""
    return await patiently(lambda: _busy_groups(flow, client, topics))


async def _busy_groups(flow: Flow, client: Client, topics: set[str]) -> dict[str, str]:
    wanted = GroupFilter(flow.groups.include, flow.groups.exclude)
    states = {name: state for name, state in (await list_groups(client)).items() if wanted.matches(name)}
    busy = [name for name, state in states.items() if state not in IDLE]
    places = await committed_offsets(client, busy)
    return {name: states[name] for name in busy if any(tp.topic in topics for tp in places.get(name, {}))}


def _named(things: Sequence[object]) -> str:
    shown = ", ".join(str(each) for each in things[:_SHOWN])
    return shown + (f" and {len(things) - _SHOWN} more" if len(things) > _SHOWN else "")


async def eventually(asked: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not await asked():
        if time.monotonic() > until:
            return False
        await asyncio.sleep(_LOOK_EVERY_S)
    return True


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Coordinators of groups load for seconds, and move; what is asked of them here may be asked again."""
    until = time.monotonic() + _COORDINATORS_S
    while True:
        try:
            return await work()
        except BrokerUnreachable:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(_LOOK_EVERY_S)
