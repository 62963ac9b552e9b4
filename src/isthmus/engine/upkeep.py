"""What a flow keeps in step beside records: settings of topics, access rules, heartbeats; while it runs.

Each has its own pace and its own task, so that none can hold up another, the lease, or the lanes. A round begins at
once when `wake` says that the flow's topics changed. What must stay true: a refusal is told once, with topic, what,
cluster and what to do, and everything else goes on; an unchanged round asks the source once and alters nothing.
Which changes are due is decided in `sync`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from isthmus.engine.heartbeats import Heartbeats
from isthmus.engine.scene import Scene
from isthmus.engine.sync import Change, SettingRules, missing_acls
from isthmus.errors import BrokerRefused, BrokerUnreachable, WireError
from isthmus.model import Flow
from isthmus.wire import codes
from isthmus.wire.access import create_acls, topic_acls
from isthmus.wire.cluster import Client
from isthmus.wire.settings import Alteration, Memory, Settings, alter_settings, describe_settings

_LOOK_AT_TARGET_EVERY_S = 60.0  # changes that were made there, or refused before; else only what the source changed
_IDLE_SHARE = 20  # with so many topics that a round takes long, rounds become rarer: at most 5 % of the time
_TOLD_AT_ONCE = 5
_NOT_ALLOWED = frozenset({codes.TOPIC_AUTHORIZATION_FAILED, codes.CLUSTER_AUTHORIZATION_FAILED})

Remotes = Mapping[str, str]  # target name by source topic


class Upkeep:
    """The standing work of one flow, apart from its lanes."""

    def __init__(
        self, flow: Flow, source: Client, target: Client, scene: Scene, remotes: Callable[[], Remotes]
    ) -> None:
        self._clients = source, target
        self._scene = scene
        self._remotes = remotes
        self._told: set[str] = set()
        self._wakes = [asyncio.Event(), asyncio.Event()]
        self._changed = asyncio.Event()
        self.use(flow)

    def use(self, flow: Flow) -> None:
        """Work under these settings from now on."""
        self._flow = flow
        self._settings = SettingsKeeper(flow, *self._clients, self._scene.note, self.tell)
        self._acls = AclKeeper(*self._clients, self._scene.note, self.tell)
        self._beats = Heartbeats(flow, *self._clients, self.tell)
        self._changed.set()

    async def first_round(self) -> None:
        """Settings as they ought to be before the first record: a larger record may be on its way already."""
        if self._flow.sync.configs:
            await self._round(self._settings.round)
        if self._flow.sync.acls:
            await self._round(self._acls.round)

    async def run(self) -> None:
        """Until cancelled; begins anew when the settings change. Everything has had its first round."""
        while True:
            self._changed.clear()
            works = [asyncio.create_task(self._work()), asyncio.create_task(self._changed.wait())]
            try:
                # With nothing to do the work ends at once; then only a change can bring some.
                done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
                for work in done:
                    work.result()
                await self._changed.wait()
            finally:
                for work in works:
                    work.cancel()
                await asyncio.gather(*works, return_exceptions=True)

    async def _work(self) -> None:
        sync = self._flow.sync
        async with asyncio.TaskGroup() as works:
            if sync.configs:
                works.create_task(self._repeat(sync.configs_seconds, self._settings.round, self._wakes[0]))
            if sync.acls:
                works.create_task(self._repeat(sync.acls_seconds, self._acls.round, self._wakes[1]))
            if self._flow.mm2_topics.heartbeats:
                works.create_task(self._beats.run())

    def wake(self) -> None:
        """The flow's topics have changed."""
        for event in self._wakes:
            event.set()

    async def _repeat(self, seconds: float, work: Callable[[Remotes], Awaitable[None]], wake: asyncio.Event) -> None:
        pause = seconds
        while True:
            try:
                async with asyncio.timeout(pause):
                    await wake.wait()
            except TimeoutError:
                pass
            wake.clear()
            began = time.monotonic()
            await self._round(work)
            pause = max(seconds, (time.monotonic() - began) * _IDLE_SHARE)

    async def _round(self, work: Callable[[Remotes], Awaitable[None]]) -> None:
        try:
            await work(self._remotes())
        except BrokerUnreachable as error:
            self._scene.note(f"a cluster does not answer: {error}", once=True)
        except WireError as error:  # refused as a whole, or the broker is too old for it
            self.tell(f"not kept in step: {error}")

    def tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._scene.note(text)


class _Outcome(NamedTuple):
    change: Change
    refused: BrokerRefused | None


class SettingsKeeper:
    """Settings of the target's topics follow those of the source."""

    def __init__(
        self, flow: Flow, source: Client, target: Client, note: Callable[[str], None], tell: Callable[[str], None]
    ) -> None:
        self._rules = SettingRules(flow.sync)
        self._source = source
        self._target = target
        self._note = note
        self._tell = tell
        self._seen: dict[str, Settings] = {}
        self._memory = Memory()
        self._look_at = 0.0

    async def round(self, remotes: Remotes) -> None:
        described = await describe_settings(self._source, remotes, self._memory)
        self._tell_unread(described.refused)
        if time.monotonic() >= self._look_at:
            self._seen, self._look_at = {}, time.monotonic() + _LOOK_AT_TARGET_EVERY_S
        seen = self._seen
        fresh = {n: now for n, now in described.topics.items() if seen.get(n) is not now and seen.get(n) != now}
        if fresh:
            await self._follow(fresh, {name: remotes[name] for name in fresh})
        self._seen = described.topics

    async def _follow(self, sources: Mapping[str, Settings], remotes: Remotes) -> None:
        due: dict[str, list[Change]] = {}
        for change in await self._due(sources, remotes):
            due.setdefault(change.topic, []).append(change)
        outcomes: list[_Outcome] = []
        refused = await alter_settings(self._target, {topic: _alterations(changes) for topic, changes in due.items()})
        for topic, changes in due.items():
            if topic in refused:
                outcomes += await self._one_by_one(changes, refused[topic])
            else:
                outcomes += [_Outcome(change, None) for change in changes]
        _some(self._note, [f"setting of {change}" for change, error in outcomes if error is None], "settings")
        _some(self._tell, [_refused(change, error) for change, error in outcomes if error], "settings not taken over")

    async def _due(self, sources: Mapping[str, Settings], remotes: Remotes) -> list[Change]:
        there = await describe_settings(self._target, remotes.values())
        self._tell_unread(there.refused)
        return [
            change
            for name, settings in sources.items()
            if (target := there.topics.get(remotes[name])) is not None
            for change in self._rules.changes(remotes[name], settings, target)
        ]

    async def _one_by_one(self, changes: Sequence[Change], error: BrokerRefused) -> list[_Outcome]:
        """A broker takes all changes of a topic or none: find the bad one, so that the others go through."""
        if len(changes) == 1 or error.kafka_code in _NOT_ALLOWED:
            return [_Outcome(change, error) for change in changes]
        found: list[_Outcome] = []
        for change in changes:
            refused = await alter_settings(self._target, {change.topic: _alterations([change])})
            found.append(_Outcome(change, refused.get(change.topic)))
        return found

    def _tell_unread(self, refused: Mapping[str, BrokerRefused]) -> None:
        # One that is gone, or not there yet, is the survey's to tell.
        bad = [error for error in refused.values() if error.kafka_code != codes.UNKNOWN_TOPIC]
        advice = "until it is allowed (DESCRIBE_CONFIGS), they do not follow the source"
        _some(self._tell, [f"{error}; {advice}" for error in bad], "topics whose settings cannot be read")


def _some(say: Callable[[str], None], texts: Sequence[str], what: str) -> None:
    """The first few one by one, the others as a number: a thousand topics must not hide everything else."""
    for text in texts[:_TOLD_AT_ONCE]:
        say(text)
    if len(texts) > _TOLD_AT_ONCE:
        say(f"and {len(texts) - _TOLD_AT_ONCE} more {what}")


def _alterations(changes: Sequence[Change]) -> list[Alteration]:
    return [Alteration(change.name, change.new) for change in changes]


def _refused(change: Change, error: BrokerRefused) -> str:
    hint = f"grant ALTER_CONFIGS on {change.topic}" if error.kafka_code in _NOT_ALLOWED else "set it there by hand"
    leave = f"exclude {change.name} (sync.config_exclude, or config.properties.exclude)"
    return f"setting not taken over: {change}: {error}; {hint}, or {leave}"


class AclKeeper:
    """Access rules of the source's topics are added on the target; none is ever taken away."""

    def __init__(
        self, source: Client, target: Client, note: Callable[[str], None], tell: Callable[[str], None]
    ) -> None:
        self._source = source
        self._target = target
        self._note = note
        self._tell = tell

    async def round(self, remotes: Remotes) -> None:
        try:
            here, there = await topic_acls(self._source), await topic_acls(self._target)
        except BrokerRefused as error:
            self._tell(f"no access rules are copied: {error}; {_access_advice(error)}")
            return
        missing = missing_acls(here, there, remotes)
        refused = await create_acls(self._target, missing)
        hint = "grant ALTER on the cluster, or switch the copying of access rules off"
        _some(self._tell, [f"{why}; {hint}" for why in refused.values()], "access rules not added")
        if done := len(missing) - len(refused):
            self._note(f"{done} access rule{'s' * (done > 1)} added on the target")


def _access_advice(error: BrokerRefused) -> str:
    if error.kafka_code == codes.SECURITY_DISABLED:
        return "the cluster has no authorizer: there is nothing to copy"
    return "grant DESCRIBE on the cluster, or switch the copying of access rules off"
