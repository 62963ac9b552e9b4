"""How many lanes a flow should have, and which carries what: decided from measured loads. Pure: no clock, no clusters.

A partition is in need when it falls behind, or when what waits would take longer than SOON_S to be copied. Need that
lasts makes lanes come, calm that lasts makes them go. What must stay true: never fewer lanes than asked for, never more
than allowed, than Spark has room for, or than there are partitions to carry; a change is followed by quiet, and a lane
goes only when the others would be half busy without it: the same load never makes lanes come and go in turn. Lanes that
came and carried nothing more are a sign that something else is the limit: then no more come for a while.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from isthmus.model import TopicPartition

SOON_S = 60.0  # what waits should be copied by then
_EASY = 0.5  # share of what lanes can carry that is asked of those that stay
_SETTLED = 2  # times `after_s`, after lanes came
_GAIN = 1.1  # so much more must be carried after lanes came
_MOST_PATIENCE = 8  # times `shrink_after_s`
_BETTER = {True: 0.98, False: 0.85}  # what a move must make of the heavier lane, at most; by whether lanes came or went
_FLOOR = 0.1  # what an idle partition counts, of the mean


class Load(NamedTuple):
    """One partition over the last seconds, in bytes per second."""

    tp: TopicPartition
    lane: int
    carried: float
    wanted: float  # what is written, and a share of what waits
    in_need: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is allowed. `most`: by the settings; `room`: lanes that Spark can run at once."""

    least: int
    most: int
    room: int
    after_s: float
    shrink_after_s: float

    def within(self, lanes: int, partitions: int) -> int:
        return max(self.least, min(lanes, self.most, self.room, max(1, partitions)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mind:
    """What is remembered from one look to the next. Times are seconds by one clock; None: not so."""

    need_since: float | None = None
    calm_since: float | None = None  # fewer lanes would be enough
    enough: int = 0  # the most lanes that were needed since
    changed_at: float | None = None
    grown_from: tuple[int, float] | None = None  # lanes and bytes per second before they grew last
    capacity: float = 0.0  # bytes per second of a lane that had more to carry than it could
    futile_until: float = 0.0
    shrunk_at: float | None = None
    patience: int = 1  # grows when lanes that went were missed


class Step(NamedTuple):
    """What to do: so many lanes, the same number for another deal of partitions; and what to tell."""

    lanes: int
    why: str


def think(mind: Mind, now: float, loads: Sequence[Load], lanes: int, limits: Limits) -> tuple[Mind, Step | None]:
    """One look at the loads; whoever carries out a step says so by `changed`."""
    bounded = limits.within(lanes, len(loads)) if lanes > limits.most or lanes < limits.least else lanes
    if bounded != lanes:
        return mind, Step(bounded, "the settings say so")
    if need := [load for load in loads if load.in_need]:
        mind = _needed(mind, now, loads, lanes)
        return _grow(mind, now, loads, need, lanes, limits)
    return _shrink(replace(mind, need_since=None), now, loads, lanes, limits)


def changed(mind: Mind, now: float, loads: Sequence[Load], before: int, after: int, limits: Limits) -> Mind:
    """After a step was carried out."""
    mind = replace(mind, need_since=None, calm_since=None, changed_at=now)
    if after < before:
        return replace(mind, shrunk_at=now, grown_from=None)
    if after == before:
        return mind
    missed = mind.shrunk_at is not None and now - mind.shrunk_at < 2 * limits.shrink_after_s * mind.patience
    patience = min(_MOST_PATIENCE, mind.patience * 2) if missed else 1
    return replace(mind, grown_from=(before, _carried(loads)), patience=patience)


def _needed(mind: Mind, now: float, loads: Sequence[Load], lanes: int) -> Mind:
    by_lane = [sum(load.carried for load in loads if load.lane == lane) for lane in range(lanes)]
    busy = [by_lane[load.lane] for load in loads if load.in_need and load.lane < lanes]
    since = now if mind.need_since is None else mind.need_since
    return replace(mind, need_since=since, calm_since=None, capacity=max(busy, default=mind.capacity))


def _grow(
    mind: Mind, now: float, loads: Sequence[Load], need: Sequence[Load], lanes: int, limits: Limits
) -> tuple[Mind, Step | None]:
    waited = now - (now if mind.need_since is None else mind.need_since)
    fresh = mind.grown_from is not None and mind.changed_at is not None
    if waited < limits.after_s or (fresh and now - (mind.changed_at or 0.0) < _SETTLED * limits.after_s):
        return mind, None  # lanes that came need a moment until it shows what they carry
    why = f"lag of {len(need)} partition{'s' if len(need) > 1 else ''} grew, or would last, for {waited:.0f} s"
    if mind.grown_from is not None and _carried(loads) < _GAIN * mind.grown_from[1]:
        mind = replace(mind, grown_from=None, futile_until=now + limits.shrink_after_s)
    wanted = limits.within(_asked(mind, loads, lanes), sum(1 for load in loads if load.wanted > 0))
    if wanted <= lanes or now < mind.futile_until:
        return mind, Step(lanes, why)  # perhaps a better deal helps
    return mind, Step(wanted, why)


def _asked(mind: Mind, loads: Sequence[Load], lanes: int) -> int:
    total = sum(load.wanted for load in loads)
    by_load = math.ceil(total / mind.capacity) if mind.capacity > 0 else 2 * lanes
    return max(lanes + 1, min(by_load, 4 * lanes))


def _shrink(mind: Mind, now: float, loads: Sequence[Load], lanes: int, limits: Limits) -> tuple[Mind, Step | None]:
    total = sum(load.wanted for load in loads)
    enough = math.ceil(total / (_EASY * mind.capacity)) if mind.capacity > 0 else lanes // 2
    enough = max(limits.least, enough)
    if enough >= lanes:
        return replace(mind, calm_since=None), None
    since = mind.calm_since
    if since is None:
        return replace(mind, calm_since=now, enough=enough), None
    mind, calm = replace(mind, enough=max(mind.enough, enough)), now - since
    if calm < limits.shrink_after_s * mind.patience:
        return mind, None
    return mind, Step(mind.enough, f"fewer were enough for {calm:.0f} s")


def _carried(loads: Sequence[Load]) -> float:
    return sum(load.carried for load in loads)


# -- which lane carries what ---------------------------------------------------------------------


def spread(
    lanes: int,
    now_at: Mapping[TopicPartition, int],
    weights: Mapping[TopicPartition, float],
    leaders: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """A lane below `lanes` for each partition, so that none is much heavier than another, with few moves.

    What has no lane any more goes where least is, heaviest first. Then the heaviest lane gives to the lightest, as long
    as that helps. Among partitions that would do, those go whose target leader the lane has already (I7).
    """
    has_changed = set(now_at.values()) != set(range(min(lanes, len(now_at))))
    deal = _Deal(lanes, now_at, _costs(now_at, weights), leaders, _BETTER[has_changed])
    for tp in deal.homeless():
        deal.put(tp, deal.lightest())
    for _ in range(len(now_at)):
        if not deal.improve():
            break
    return deal.lane_of


def _costs(
    now_at: Mapping[TopicPartition, int], weights: Mapping[TopicPartition, float]
) -> dict[TopicPartition, float]:
    """Idle partitions count a little, so that they are spread, too."""
    total = sum(weights.get(tp, 0.0) for tp in now_at)
    floor = _FLOOR * total / max(1, len(now_at)) if total > 0 else 1.0
    return {tp: max(floor, weights.get(tp, 0.0)) for tp in now_at}


class _Deal:
    """Partitions on lanes, while they are dealt."""

    def __init__(
        self,
        lanes: int,
        now_at: Mapping[TopicPartition, int],
        costs: Mapping[TopicPartition, float],
        leaders: Mapping[TopicPartition, int],
        better: float,
    ) -> None:
        self.lane_of = dict(now_at)
        self._better = better
        self._costs = costs
        self._leaders = leaders
        self._held: list[list[tuple[float, TopicPartition]]] = [[] for _ in range(lanes)]  # by cost, rising
        self._sums = [0.0] * lanes
        for tp, lane in now_at.items():
            if lane < lanes:
                self._held[lane].append((costs[tp], tp))
                self._sums[lane] += costs[tp]
        for held in self._held:
            held.sort()

    def homeless(self) -> list[TopicPartition]:
        """Heaviest first; of equal ones, those of one leader after another."""
        gone = [tp for tp, lane in self.lane_of.items() if lane >= len(self._held)]
        return sorted(gone, key=lambda tp: (-self._costs[tp], self._leaders.get(tp, -1), tp))

    def lightest(self) -> int:
        return min(range(len(self._sums)), key=lambda lane: (self._sums[lane], lane))

    def put(self, tp: TopicPartition, lane: int) -> None:
        bisect.insort(self._held[lane], (self._costs[tp], tp))
        self._sums[lane] += self._costs[tp]
        self.lane_of[tp] = lane

    def improve(self) -> bool:
        """Move one partition from the heaviest lane to the lightest; False when that is not worth it."""
        light = self.lightest()
        heavy = max(range(len(self._sums)), key=lambda lane: (self._sums[lane], -lane))
        gap = self._sums[heavy] - self._sums[light]
        if (tp := self._best(heavy, light, gap)) is None:
            return False
        self._held[heavy].remove((self._costs[tp], tp))
        self._sums[heavy] -= self._costs[tp]
        self.put(tp, light)
        return True

    def _best(self, heavy: int, light: int, gap: float) -> TopicPartition | None:
        held = self._held[heavy]
        at = bisect.bisect_left(held, (gap / 2,))
        near = held[max(0, at - 8) : at + 8]
        known = {self._leaders.get(tp, -1) for _, tp in self._held[light]}
        useful = [
            (abs(cost - gap / 2) > gap / 4, bool(known) and self._leaders.get(tp, -1) not in known, cost, tp)
            for cost, tp in near
            if self._sums[light] + cost < self._better * self._sums[heavy]
        ]
        if not useful:
            return None
        return min(useful, key=lambda each: (each[0], each[1], abs(each[2] - gap / 2), each[3]))[3]
