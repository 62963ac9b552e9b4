"""One picture of a flow out of what a look found: pure, so that everything that can be said of a flow can be tested.

What must stay true: whoever does not drive a flow cannot tell it moves; what is stopped, paused or frozen is said to be
so before anything that its positions suggest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from isthmus.engine import history
from isthmus.engine.control import damage
from isthmus.engine.history import History
from isthmus.engine.orders import Stop
from isthmus.engine.report import DRIVER
from isthmus.engine.resolve.record import Gap, gaps, stops
from isthmus.engine.switch import SWITCHED, switch_of
from isthmus.engine.wishes import paused, throttled
from isthmus.model import Flow, TopicPartition
from isthmus.observe import health
from isthmus.observe.health import ClusterHealth, FlowHealth, GapHealth, GroupsHealth, LaneHealth, PartitionHealth
from isthmus.observe.window import Course, Sample, Verdict, course, window


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenery:
    """What a look found beside the control topic. `stored`: positions by the progress topic, or a snapshot of it."""

    source: ClusterHealth
    target: ClusterHealth
    ends: Mapping[TopicPartition, int]
    stored: Mapping[TopicPartition, int]
    is_there: bool
    is_driven: bool
    now_ms: int
    host: str
    beat_ms: int | None = None  # of the last heartbeat


def pictured(flow: Flow, seen: History, scenery: Scenery) -> FlowHealth:
    view, now_ms = seen.view, scenery.now_ms
    lease, said = view.values.get("lease", {}), _said(seen)
    damaged = damage(flow, view)
    ended = {"message": str(damaged), "code": damaged.code} if damaged else said.get("error") or {}
    records, size = seen.rates(now_ms) if scenery.is_driven else (0.0, 0.0)
    return FlowHealth(
        flow=flow.name,
        replicator=flow.replicator,
        time=time.time(),
        state=_state(seen, scenery),
        source=scenery.source,
        target=scenery.target,
        driver=f"process {lease.get('pid')} on {lease['host']}" if lease.get("host") else "",
        here=lease.get("host") == scenery.host,
        silent_s=history.lease_age_ms(view, now_ms) / 1000 if lease else None,
        heartbeat_age_s=None if scenery.beat_ms is None else max(0, now_ms - scenery.beat_ms) / 1000,
        paused_topics=tuple(sorted(paused(view).topics)),
        throttle=throttled(view, flow.throttle),
        partitions=_Partitions(flow, seen, scenery).all(),
        lanes=_lanes(seen, said, now_ms),
        most_lanes=flow.lanes if flow.grows else 0,
        gaps=tuple(map(_gap, gaps(view))),
        groups=_groups(flow, said.get("groups") or {}),
        totals=seen.totals(),
        records_per_s=round(records, 1),
        bytes_per_s=round(size, 1),
        record_age=seen.ages("age"),
        latency=seen.ages("latency"),
        error=str(ended.get("message", "")),
        code=str(ended.get("code", "")),
        events=tuple(said.get("events", ())),
        spark_page=str(said.get("spark_page", "")),
    )


def _said(seen: History) -> dict[str, Any]:
    """The driver's own words, if they are of the one that is, or was the last."""
    said = seen.view.values.get(DRIVER, {})
    return said if said.get("driver") == history.driven_by(seen.view) else {}


def _state(seen: History, scenery: Scenery) -> str:
    if not scenery.is_there:
        return health.NEVER_RAN
    switch = switch_of(seen.view)
    if switch is not None and switch.is_halted:
        return health.FAILED_OVER if switch.phase == SWITCHED else health.CHANGING_SIDES
    if scenery.is_driven:
        return health.PAUSED if paused(seen.view).everything else health.RUNNING
    return health.NOT_RUNNING if history.is_released(seen.view) else health.NO_DRIVER


class _Partitions:
    """Every partition that the flow carries, as far as can be known now."""

    def __init__(self, flow: Flow, seen: History, scenery: Scenery) -> None:
        self._seen = seen
        self._scenery = scenery
        self._reports = history.reports(seen.view)
        self._lanes = {
            TopicPartition(row[0], row[1]): lane
            for lane, report in self._reports.items()
            for row in report.get("positions", ())
        }
        self._stops = stops(seen.view)
        self._paused = paused(seen.view)
        switch = switch_of(seen.view)
        self._is_frozen = switch is not None and switch.is_halted

    def all(self) -> tuple[PartitionHealth, ...]:
        known = self._scenery.ends if self._scenery.source.answers else self._scenery.stored
        return tuple(self._one(tp) for tp in sorted({*known, *self._lanes, *self._stops}))

    def _one(self, tp: TopicPartition) -> PartitionHealth:
        now_ms, end = self._scenery.now_ms, self._scenery.ends.get(tp, -1)
        samples = self._samples(tp)
        seen = window(samples or [Sample(now_ms, 0, end)], now_ms, end)
        found = course(seen)
        if not self._scenery.is_driven:
            found = replace(found, eta_s=0.0 if found.lag == 0 else None, copied_per_s=0.0, written_per_s=0.0)
        stop, lane = self._stops.get(tp), self._lanes.get(tp)
        return PartitionHealth(
            topic=tp.topic,
            partition=tp.partition,
            verdict=self._verdict(tp, found),
            position=samples[-1].position if samples else -1,
            end=seen[-1].end if seen else None,
            lag=found.lag,
            lag_bytes=self._bytes(found.lag, lane),
            lag_seconds=None if found.behind_s is None else round(found.behind_s, 1),
            lag_seconds_at_least=found.at_least,
            trend=found.trend,
            records_per_s=round(found.copied_per_s, 1),
            eta_seconds=None if found.eta_s is None else round(found.eta_s, 1),
            lane=lane if self._scenery.is_driven else None,
            **_told(stop),
        )

    def _samples(self, tp: TopicPartition) -> list[Sample]:
        """What lanes said; what was committed says more where none is at work."""
        samples, stored = self._seen.samples(tp, self._lanes.get(tp)), self._scenery.stored.get(tp, -1)
        if stored >= 0 and (not samples or not self._scenery.is_driven):
            at = max(self._seen.view.times_ms.get("lease", 0), samples[-1].time_ms if samples else 0)
            samples.append(Sample(at, stored, -1))
        return samples

    def _verdict(self, tp: TopicPartition, found: Course) -> Verdict:
        if tp in self._stops:
            return Verdict.stopped
        if self._is_frozen or self._paused.holds(tp.topic):
            return Verdict.paused
        if not self._scenery.is_driven and found.lag:
            return Verdict.stalled
        return found.verdict

    def _bytes(self, lag: int | None, lane: int | None) -> int | None:
        """By the mean size of what its lane, or else any, has copied."""
        report = self._reports.get(-1 if lane is None else lane, {})
        records, size = report.get("records", 0), report.get("bytes", 0)
        if not records:
            totals = self._seen.totals()
            records, size = totals.records, totals.bytes
        return None if lag is None or not (records or lag == 0) else lag * size // max(1, records)


def _told(stop: Stop | None) -> dict[str, str]:
    return {} if stop is None else {"code": stop.code, "error": stop.message, "hint": stop.hint}


def _lanes(seen: History, said: dict[str, Any], now_ms: int) -> tuple[LaneHealth, ...]:
    reports, known = history.reports(seen.view), said.get("lanes", [])
    found = []
    for number in sorted({*reports, *range(len(known))}):
        report = reports.get(number, {})
        own = known[number] if number < len(known) else {}
        at = seen.view.times_ms.get(f"status/{number}")
        found.append(
            LaneHealth(
                lane=number,
                state=str(own.get("state") or report.get("state", "")),
                host=str(report.get("host", "")),
                pid=int(report.get("pid", 0)),
                reported_ago_s=None if not report or at is None else round(max(0, now_ms - at) / 1000, 1),
                epochs=int(own.get("epochs", 0)),
                failures=int(own.get("failures", 0)),
                error=str(own.get("error", "")),
            )
        )
    return tuple(found)


def _gap(gap: Gap) -> GapHealth:
    return GapHealth(
        topic=gap.topic,
        partition=gap.partition,
        code=gap.code,
        what=gap.told(),
        lost=gap.lost,
        accepted=gap.accepted,
    )


def _groups(flow: Flow, said: dict[str, Any]) -> GroupsHealth:
    at = float(said.get("at", 0))
    return GroupsHealth(
        kept=flow.keeps_index and (flow.mm2_topics.checkpoints or flow.mm2_topics.group_offsets),
        ago_s=round(max(0.0, time.time() - at), 1) if at else None,
        seconds=float(said.get("seconds", 0)),
        groups=int(said.get("groups", 0)),
        states=dict(said.get("states", {})),
        error=str(said.get("error", "")),
    )
