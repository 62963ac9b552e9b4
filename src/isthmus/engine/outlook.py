"""How a flow stands, looked at from any machine: the control topic of the target, and where the source's logs end.

Only reads. What must stay true: a source that does not answer costs a few seconds and is said, and everything else is
told all the same; a driver counts as gone only by what the target's own clock says, or after its lease was watched for
a while; a second look costs the tail. Values are `observe.health`; verdicts are `observe.window`.
"""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace
from typing import NamedTuple, Self

from isthmus.engine import history
from isthmus.engine.control import LEASE_EVERY_S, ControlView
from isthmus.engine.history import History
from isthmus.engine.pictured import Scenery, pictured
from isthmus.engine.resolve.record import stops
from isthmus.engine.sides import reach, unconnected
from isthmus.engine.signs import Papers, Pulse
from isthmus.engine.wishes import paused
from isthmus.errors import IsthmusError, SourceError, TargetError, WireError
from isthmus.mm2.filters import choose
from isthmus.model import Flow, TopicPartition
from isthmus.observe.health import ClusterHealth, FlowHealth
from isthmus.observe.window import BLUR_MS
from isthmus.wire import codes
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import LATEST, READ_COMMITTED, list_offsets
from isthmus.wire.journal import Journal

_SOURCE_WITHIN_S = 4.0
_WATCHED_S = LEASE_EVERY_S + 1.0
_HEARD_WITHIN_S = BLUR_MS / 1000 + 1
_FAR_CLOCK_MS = 900_000  # clocks that are further apart break other things first


class _Ends(NamedTuple):
    """What the source said."""

    health: ClusterHealth
    ends: dict[TopicPartition, int]


class Outlook:
    """`async with` it, and `look` as often as wanted. A target that does not answer is an error of the look."""

    def __init__(self, flow: Flow, *, certificates: bool = False) -> None:
        self.flow = flow
        self._source, self._target = unconnected(flow)
        self._pulse = Pulse(flow, self._target)
        self._papers = (Papers(flow.source), Papers(flow.target)) if certificates else None
        self._journal = Journal(self._target, flow.control_topic)
        self._cursor = -1
        self._history = History()
        self._skew_ms = 0  # the target's clock, less ours
        self._gave_up: object = None  # the lease that was watched in vain
        self._has_looked = False
        self._stored: tuple[object, dict[TopicPartition, int]] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._source.close()
        self._target.close()

    async def look(self) -> FlowHealth:
        try:
            return await self._look()
        except WireError as error:
            raise TargetError(error.message, where=error.where, hint=error.hint, code=error.code) from error

    async def _look(self) -> FlowHealth:
        asking = asyncio.ensure_future(self._ask_source())
        try:
            there = await self._hear()
            if there:
                await self._watch_lease()
            stored = await self._positions() if there else {}
            beat_ms = await self._pulse.last_ms() if there else None
            source = await asking
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        if not source.health.answers:
            self._source.close()  # a link that does not answer would be asked again
        if there and self._is_driven():
            await self._doubt(source.ends)
        here, far = await self._certified(_well(self._target), source.health)
        scenery = Scenery(
            source=far,
            target=here,
            ends=source.ends,
            stored=stored,
            is_there=there,
            is_driven=there and self._is_driven(),
            now_ms=self._now_ms(),
            host=socket.gethostname(),
            beat_ms=beat_ms,
        )
        return pictured(self.flow, self._history, scenery)

    async def _certified(self, target: ClusterHealth, source: ClusterHealth) -> tuple[ClusterHealth, ClusterHealth]:
        if self._papers is None:
            return target, source
        theirs, ours = await asyncio.gather(*(papers.ends() for papers in self._papers))
        return replace(target, certificates=ours), replace(source, certificates=theirs)

    # -- the target ------------------------------------------------------------------------------

    async def _hear(self) -> bool:
        """Read what came since the last look; False: the flow never ran."""
        if not self._target.nodes:
            await reach(self._target, TargetError)
        if self.flow.control_topic not in self._target.topics:
            await self._target.refresh([self.flow.control_topic])
        if self.flow.control_topic not in self._target.topics:
            return False
        if self._cursor < 0:
            self._cursor = await self._journal.beginning()
        end = await self._journal.end()
        if end < self._cursor:  # made anew: its driver has said again what lasts
            self._history, self._cursor = History(), 0
        self._history.feed(await self._journal.read(self._cursor, end))
        self._cursor = max(self._cursor, end)
        self._skew_ms = max(self._skew_ms, self._history.newest_ms - _clock_ms())
        return True

    async def _watch_lease(self) -> None:
        """A lease that looks dead may be that of a driver whose broker's clock is behind ours: see whether it is
        renewed, once for each."""
        view = self._history.view
        age_ms = history.lease_age_ms(view, self._now_ms())
        seen = _held(view)
        if history.is_released(view) or not history.is_dead(view, self._now_ms()) or age_ms > _FAR_CLOCK_MS:
            return
        until = time.monotonic() + _WATCHED_S
        while seen != self._gave_up and time.monotonic() < until:
            await asyncio.sleep(0.1)
            await self._hear()
            if _held(view) != seen:
                self._skew_ms = self._history.newest_ms - _clock_ms()
                return
        self._gave_up = seen

    async def _positions(self) -> dict[TopicPartition, int]:
        """While somebody drives the flow its lanes tell; else what was committed last is read. It takes compiled code,
        and whoever only looks at a flow that runs need not wait for that."""
        view = self._history.view
        if self._is_driven():
            snapshot = view.values.get("snapshot", {})
            return {TopicPartition(topic, number): offset for topic, number, offset in snapshot.get("positions", ())}
        if self._stored is None or self._stored[0] != _held(view):
            from isthmus.engine.plan import stored_positions

            self._stored = _held(view), await stored_positions(self._target, self.flow, view)
        return self._stored[1]

    async def _doubt(self, ends: dict[TopicPartition, int]) -> None:
        """A log that has grown while its lane says nothing of it: written just now, or does the lane not see it? The
        first look waits for the lane's next word; later ones remember."""
        asked_ms = self._now_ms()
        unseen = {} if self._has_looked else self._history.unseen(asked_ms, self._carried(ends))
        self._has_looked = True
        until = time.monotonic() + _HEARD_WITHIN_S
        while unseen and not self._history.heard_of(unseen) and time.monotonic() < until:
            await asyncio.sleep(0.1)
            await self._hear()
        self._history.note_ends(asked_ms, ends)

    def _carried(self, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Without what lanes do not look at: what is stopped or paused."""
        view = self._history.view
        still, held = stops(view), paused(view)
        return {tp: end for tp, end in ends.items() if tp not in still and not held.holds(tp.topic)}

    def _is_driven(self) -> bool:
        view = self._history.view
        return not history.is_released(view) and not history.is_dead(view, self._now_ms())

    def _now_ms(self) -> int:
        """By the target's clock, as far as that is known."""
        return _clock_ms() + self._skew_ms

    # -- the source ------------------------------------------------------------------------------

    async def _ask_source(self) -> _Ends:
        try:
            async with asyncio.timeout(_SOURCE_WITHIN_S):
                return _Ends(_well(self._source), await self._ends())
        except TimeoutError:
            error: IsthmusError = SourceError(f"no answer within {_SOURCE_WITHIN_S:.0f} s", code="UNREACHABLE")
        except IsthmusError as found:
            error = found
        return _Ends(_ill(self._source, error), {})

    async def _ends(self) -> dict[TopicPartition, int]:
        if not self._source.nodes:
            await reach(self._source, SourceError)
        await self._source.refresh(None)
        partitions = [
            TopicPartition(name, number)
            for name in choose(self.flow, self._source.topics)
            for number in self._source.topics[name].partitions
        ]
        found = await list_offsets(self._source, partitions, LATEST, READ_COMMITTED)
        # A partition that has no leader at the moment has an end that is not known: -1.
        return {tp: offset if error == codes.NONE else -1 for tp, (offset, error) in found.items()}


def _clock_ms() -> int:
    return int(time.time() * 1000)


def _held(view: ControlView) -> tuple[object, ...]:
    lease = view.values.get("lease", {})
    return lease.get("driver"), lease.get("count"), lease.get("released")


def _well(client: Client) -> ClusterHealth:
    return ClusterHealth(alias=client.cluster.alias, answers=True, tunnel=_tunnel(client))


def _ill(client: Client, error: IsthmusError) -> ClusterHealth:
    return ClusterHealth(
        alias=client.cluster.alias, answers=False, code=error.code, error=str(error), tunnel=_tunnel(client)
    )


def _tunnel(client: Client) -> str:
    return str(client.cluster.security.tunnel or "")
