"""What operators ask of a running flow, from anywhere: pause, resume, throttle, other settings.

A wish is a record in the control topic (`wish/...`), so it needs no server and reaches a driver that starts
later. The driver answers with `heard`. Pauses and throttles stay until they are taken back; settings (`isthmus
apply`) hold for the driver that is running, because at its next start the file counts.

What must stay true: a wish never holds a secret, and never changes where records go or how they are called.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.engine import control
from isthmus.engine.control import ControlView
from isthmus.engine.sides import refuse_transformed
from isthmus.errors import ConfigError
from isthmus.model import Flow, Groups, Growth, Mm2Topics, Sync, Topics, Tuning
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal

PAUSE, THROTTLE, SETTINGS = "wish/pause", "wish/throttle", "wish/settings"
RESOLVE = "wish/resolve/"  # one for each decision; taken away when it was heard
HEARD = "heard"
_LANE_SILENT_S = 10.0  # lanes report about once a second
_HEARD_WITHIN_S = 10.0
_RESOLVED_WITHIN_S = 180.0  # orders end first, and every id is fenced
_SURELY_DEAD_S = 20.0  # a driver on a machine that is busy may renew its lease late
# What may change under a running flow. Everything else decides where records go, or who we are.
LIVE = (
    "topics",
    "groups",
    "sync",
    "mm2_topics",
    "lanes",
    "growth",
    "on_gap",
    "on_too_large",
    "on_foreign_write",
    "compression",
    "throttle",
    "tuning",
)
_KINDS: dict[str, type[Any]] = {
    "topics": Topics,
    "groups": Groups,
    "sync": Sync,
    "mm2_topics": Mm2Topics,
    "tuning": Tuning,
    "growth": Growth,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """All of a flow, or some of its topics."""

    everything: bool = False
    topics: frozenset[str] = frozenset()

    def holds(self, topic: str) -> bool:
        return self.everything or topic in self.topics

    def told(self) -> str:
        return "all topics" if self.everything else ", ".join(sorted(self.topics)) or "nothing"


def paused(view: ControlView) -> Paused:
    value = view.values.get(PAUSE, {})
    return Paused(everything=bool(value.get("flow")), topics=frozenset(value.get("topics", ())))


def throttled(view: ControlView, otherwise: int) -> int:
    """The wished rate in bytes per second, or what the file says."""
    value = view.values.get(THROTTLE, {})
    return int(value["rate"]) if "rate" in value else otherwise


def throttled_topics(view: ControlView) -> dict[str, int]:
    """Bytes per second of single topics, within what the flow may have."""
    return {topic: int(rate) for topic, rate in view.values.get(THROTTLE, {}).get("topics", {}).items() if rate}


def fixed_differences(old: Flow, new: Flow) -> list[str]:
    """Names of what differs and cannot change while the flow runs."""
    names = [field.name for field in dataclasses.fields(Flow) if field.name not in (*LIVE, "cuts")]
    found = [name for name in names if getattr(old, name) != getattr(new, name)]
    # Which topics the flows back carry may change; that there are any needs registers, which a start sees to.
    origins = [{cut.origin for cut in flow.cuts} for flow in (old, new)]
    return [*found, "flows that lead back"] if origins[0] != origins[1] else found


def live_settings(flow: Flow) -> dict[str, Any]:
    """Everything of a flow that may change while it runs, as plain JSON."""
    found: dict[str, Any] = {}
    for name in LIVE:
        value = getattr(flow, name)
        found[name] = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]
    return found


def with_settings(flow: Flow, settings: Mapping[str, Any]) -> Flow:
    """The flow with live settings from JSON; unknown names are of a newer version and are left alone."""
    changes: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _KINDS:
            known = {field.name for field in dataclasses.fields(_KINDS[name])}
            fields = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items() if k in known}
            changes[name] = _KINDS[name](**fields)
        elif name in LIVE:
            changes[name] = value
    return dataclasses.replace(flow, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a wish."""

    value: dict[str, Any]
    heard_by: str  # host and process; empty: nobody runs the flow now


class Wishing:
    """The target of a flow, for as long as a wish is written and answered."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._target = Client(flow.target, timeout_s=flow.tuning.request_timeout_ms / 1000)
        self._journal = Journal(self._target, flow.control_topic)
        self._view = ControlView()

    async def __aenter__(self) -> Wishing:
        await self._target.start()
        await self._target.refresh([self.flow.control_topic])
        if self.flow.control_topic not in self._target.topics:
            raise control.never_run(self.flow, "start it with `isthmus run`; its file says what it does")
        end = await self._journal.end()
        await self._hear(await self._journal.beginning(), end)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._target.close()

    async def driver(self) -> str:
        """Who drives the flow now, told by a lease that is renewed while we look; empty: nobody."""
        seen, until = self._held(), time.monotonic() + control.LEASE_DEAD_AFTER_S
        cursor = await self._journal.end()
        while seen and time.monotonic() < until:
            await asyncio.sleep(0.2)
            end = await self._journal.end()
            await self._hear(cursor, end)
            cursor = end
            if not self._held():
                return ""  # let go while we looked
            if self._held() != seen:
                lease = self._view.values["lease"]
                return f"process {lease.get('pid')} on {lease.get('host')}"
        return ""

    def _held(self) -> str:
        lease = self._view.values.get("lease", {"released": True})
        return "" if lease.get("released") else f"{lease.get('driver')} {lease.get('count')}"

    def paused(self) -> Paused:
        return paused(self._view)

    async def until_left(self, topic: str, seconds: float) -> None:
        """Wait until no lane reports this source topic any more, or so long. A lane that carried nothing else falls
        silent."""
        cursor, until = await self._journal.end(), time.monotonic() + seconds
        reported, silent_at = self._reported(topic), time.monotonic() + _LANE_SILENT_S
        while reported and time.monotonic() < min(until, silent_at):
            await asyncio.sleep(0.2)
            end = await self._journal.end()
            await self._hear(cursor, end)
            cursor, now = end, self._reported(topic)
            if now != reported:
                reported, silent_at = now, time.monotonic() + _LANE_SILENT_S

    def _reported(self, topic: str) -> dict[str, int]:
        """Lanes whose last report has the topic, with when they wrote it."""
        reports = self._view.under("status/").items()
        lanes = [key for key, report in reports if any(row[0] == topic for row in report.get("positions", ()))]
        return {key: self._view.times_ms[key] for key in lanes}

    async def forget(self, topic: str) -> None:
        """Take the ids of a source topic off the record: of one that is gone for good, on both sides."""
        await control.write(self._journal, {f"topic/{topic}": None})

    async def pause(self, topics: frozenset[str]) -> Answer:
        now = paused(self._view)
        wanted = Paused(everything=now.everything or not topics, topics=now.topics | topics)
        return await self._wish(PAUSE, {"flow": wanted.everything, "topics": sorted(wanted.topics)})

    async def resume(self, topics: frozenset[str]) -> Answer:
        now = paused(self._view)
        if topics and now.everything:
            raise ConfigError(
                f"all of {self.flow.name} is paused, not single topics",
                where="--topic",
                hint="resume the whole flow",
            )
        left = now.topics - topics if topics else frozenset[str]()
        return await self._wish(PAUSE, {"flow": False, "topics": sorted(left)})

    async def throttle(self, rate: int | None, topics: frozenset[str] = frozenset()) -> Answer:
        """0: no limit. None: what the file says counts again, which says nothing of single topics."""
        refuse_transformed(self.flow, "throttled")
        was = self._view.values.get(THROTTLE, {})
        if topics:
            kept = {topic: each for topic, each in throttled_topics(self._view).items() if topic not in topics}
            value = was | {"topics": kept | (dict.fromkeys(sorted(topics), rate) if rate else {})}
        else:
            value = {} if rate is None else was | {"rate": rate}
        return await self._wish(THROTTLE, {name: each for name, each in value.items() if each != {}})

    async def apply(self, settings: Mapping[str, Any]) -> Answer:
        return await self._wish(SETTINGS, {"settings": settings})

    async def resolve(self, wish: dict[str, Any]) -> Answer:
        """A decision, for the driver to carry out; an answer without a name: nobody did."""
        key = f"{RESOLVE}{uuid.uuid4().hex[:12]}"
        answer = await self._wish(key, wish, is_decision=True)
        if not answer.heard_by:
            await control.write(self._journal, {key: None})  # or a driver that comes would find it
        return answer

    async def _wish(self, key: str, value: dict[str, Any], *, is_decision: bool = False) -> Answer:
        """Waits for an answer while somebody drives the flow. A decision takes longer to carry out, and its driver may
        die over it."""
        within_s, dead_after_s = (
            (_RESOLVED_WITHIN_S, _SURELY_DEAD_S) if is_decision else (_HEARD_WITHIN_S, control.LEASE_DEAD_AFTER_S)
        )
        written = await control.write(self._journal, {key: value})
        cursor, began = written.offset, time.monotonic()
        while (passed := time.monotonic() - began) < within_s:
            aged_ms = int(passed * 1000) if is_decision else 0
            if not self._is_driven(written.time_ms + aged_ms, dead_after_s):
                break
            await asyncio.sleep(0.2)
            end = await self._journal.end()
            answers, cursor = await self._hear(cursor, end), end
            if answer := next((each for each in answers if int(each.get("at", -1)) >= written.offset), None):
                self._refuse(answer)
                return Answer(value=value, heard_by=f"process {answer.get('pid')} on {answer.get('host')}")
        return Answer(value=value, heard_by="")

    def _refuse(self, answer: dict[str, Any]) -> None:
        if answer.get("refused"):
            raise ConfigError(
                f"the running flow refused it: {answer['refused']}",
                where=f"flow {self.flow.name}",
                hint=str(answer.get("hint", "")),
                code=str(answer.get("code", "")),
            )

    def _is_driven(self, now_ms: int, dead_after_s: float) -> bool:
        lease = self._view.values.get("lease")
        if lease is None or lease.get("released"):
            return False
        return now_ms - self._view.times_ms.get("lease", 0) < dead_after_s * 1000

    async def _hear(self, start: int, end: int) -> list[dict[str, Any]]:
        """Returns answers of drivers; the next one may come at once, so each is looked at."""
        return [
            self._view.values[HEARD]
            for record in await self._journal.read(start, end)
            if self._view.apply(record) == HEARD and HEARD in self._view.values
        ]
