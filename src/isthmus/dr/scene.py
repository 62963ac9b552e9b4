"""What a change of sides works with: clients of both clusters, the flow's record on its target, the state.

What must stay true: the state is on record before what it announces is done, so that whoever runs the command again,
on any machine, goes on where the last one ended. A refusal puts the state back to what it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from isthmus.dr.values import BEGUN, DONE, Options, Row, Step, Tell
from isthmus.engine.control import never_run
from isthmus.engine.control import write as write_control
from isthmus.engine.hold import Hold
from isthmus.engine.sides import clients, reach, refuse_transformed
from isthmus.engine.switch import SWITCH, Place, Switch, switch_of
from isthmus.errors import SourceError, TargetError, WireError
from isthmus.machine import user
from isthmus.mm2.policy import is_heartbeats
from isthmus.model import Flow, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import LATEST, READ_COMMITTED, settled_offsets
from isthmus.wire.journal import Journal


class Scene:
    """One flow whose clients change sides."""

    def __init__(self, flow: Flow, options: Options, tell: Tell, source: Client, target: Client) -> None:
        self.flow = flow
        self.options = options
        self.source = source
        self.target = target
        self.hold = Hold(flow, target)
        self.source_alive = False
        self._tell = tell
        self._before: Switch | None = None

    async def open(self) -> None:
        """Reach the target, and the source if it is there; read what is on record."""
        await reach(self.target, TargetError)
        await self.target.refresh(None)
        if self.flow.control_topic not in self.target.topics:
            raise never_run(self.flow, "there is nothing to fail over: start it with `isthmus run`")
        await self.hold.read()
        before = self.switch
        # A switchover that was cut short before its freeze is taken back to nothing: it has changed nothing.
        self._before = None if before is not None and before.is_open else before
        self.source_alive = await self._reach_source()

    async def _reach_source(self) -> bool:
        try:
            async with asyncio.timeout(self.options.reach_s):
                await reach(self.source, SourceError)
                await self.source.refresh(None)
        except (SourceError, WireError, TimeoutError, OSError):
            return False
        return True

    @property
    def switch(self) -> Switch | None:
        return switch_of(self.hold.view)

    @property
    def state(self) -> Switch:
        """Once something is on record."""
        if (switch := self.switch) is None:
            raise TargetError(
                "the state of the failover is gone from the control topic",
                where=f"cluster {self.flow.target.alias}, topic {self.flow.control_topic}",
                hint="was the topic deleted? `isthmus positions` shows where the flow stands",
                code="STATE_LOST",
            )
        return switch

    @property
    def remotes(self) -> dict[str, str]:
        """Copies by the names of their source topics, as they are on record; heartbeats are nobody's clients'."""
        records = self.hold.view.under("topic/").items()
        names = {key.partition("/")[2]: str(value["target"]) for key, value in records}
        return {name: remote for name, remote in names.items() if not is_heartbeats(self.flow.naming, name)}

    def copies(self) -> dict[TopicPartition, TopicPartition]:
        """Source partitions that have a copy, by what the target has."""
        return {
            TopicPartition(name, number): TopicPartition(remote, number)
            for name, remote in sorted(self.remotes.items())
            if remote in self.target.topics
            for number in sorted(self.target.topics[remote].partitions)
        }

    def begin(self, step: str, text: str = "") -> None:
        self._tell(Step(name=step, state=BEGUN, text=text, at=time.time()))

    def end(self, step: str, text: str = "") -> None:
        self._tell(Step(name=step, state=DONE, text=text, at=time.time()))

    @property
    def tell(self) -> Tell:
        return self._tell

    # -- the state -----------------------------------------------------------------------------

    async def record(self, switch: Switch) -> None:
        """TargetError where the target does not take it; nothing was changed then."""
        try:
            await write_control(self.hold.journal, {SWITCH: switch.as_value()})
        except WireError as error:
            raise TargetError(
                f"the state of the failover cannot be written: {error.message}",
                where=error.where or f"cluster {self.flow.target.alias}, topic {self.flow.control_topic}",
                hint="the target must take writes before clients can move to it; nothing was changed by this step",
                code="TARGET_READ_ONLY",
            ) from error
        await self.hold.hear()

    async def put_back(self) -> None:
        """As if nothing had been asked."""
        value = None if self._before is None else self._before.as_value()
        await write_control(self.hold.journal, {SWITCH: value})

    async def stamp(self, step: str, **changes: object) -> Switch:
        """Put on record that a step is done, and what else has changed by it."""
        switch = replace(self.state, **changes).with_step(step, now_ms())  # type: ignore[arg-type]
        await self.record(switch)
        return switch

    # -- what was last heard of the source -----------------------------------------------------

    def seen_ends(self) -> dict[TopicPartition, int]:
        """Ends of the source's logs, as lanes last reported them."""
        found: dict[TopicPartition, int] = {}
        for report in self.hold.view.under("status/").values():
            for topic, partition, _, end in report.get("positions", ()):
                tp = TopicPartition(topic, partition)
                found[tp] = max(end, found.get(tp, -1))
        return found

    async def heard_ms(self) -> int:
        """When the source was last heard of: by a lane's report, or by a heartbeat that crossed."""
        view = self.hold.view
        times = [view.times_ms[key] for key in view.under("status/")]
        records = view.under("topic/").items()
        for key, value in records:
            if is_heartbeats(self.flow.naming, key.partition("/")[2]) and value["target"] in self.target.topics:
                times.append(await self._last_time(str(value["target"])))
        return max(times, default=0)

    async def _last_time(self, topic: str) -> int:
        journal = Journal(self.target, topic)
        end = await journal.end()
        found = await journal.read(max(await journal.beginning(), end - 10), end)
        return max((record.timestamp for record in found), default=0)

    def rows(self, places: dict[TopicPartition, Place]) -> list[Row]:
        copies = self.copies()
        return [
            Row(
                topic=tp.topic,
                partition=tp.partition,
                target_topic=copies[tp].topic,
                copied=place.source,
                source_end=place.seen_end,
                target_end=place.target,
            )
            for tp, place in sorted(places.items())
            if tp in copies
        ]


def now_ms() -> int:
    return int(time.time() * 1000)


def whoami() -> str:
    return f"{user()} on {socket.gethostname()}"


@contextlib.asynccontextmanager
async def opened(flow: Flow, options: Options, tell: Tell = lambda _: None) -> AsyncIterator[Scene]:
    """A scene on connected clients, with what is on record."""
    refuse_transformed(flow, "failed over")
    async with clients(flow) as (source, target):
        scene = Scene(flow, options, tell, source, target)
        await scene.open()
        yield scene


async def rows_back(scene: Scene, places: Mapping[TopicPartition, Place]) -> tuple[Row, ...]:
    """Copies, and what is in them beyond these places."""
    copies = scene.copies()
    ends = await settled_offsets(scene.target, [copies[tp] for tp in places if tp in copies], LATEST, READ_COMMITTED)
    return tuple(
        Row(
            topic=copies[tp].topic,
            partition=tp.partition,
            target_topic=tp.topic,
            copied=place.target,
            source_end=ends[copies[tp]],
            target_end=place.back,
        )
        for tp, place in sorted(places.items())
        if tp in copies
    )
