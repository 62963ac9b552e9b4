"""Lanes that come and go: whatever the loads are, bounds are kept, nothing flaps, and few partitions move."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as some

from isthmus.engine.growth import Limits, Load, Mind, changed, spread, think
from isthmus.model import TopicPartition

AFTER_S, SHRINK_S, EVERY_S = 10.0, 100.0, 5


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def limits(*, least: int = 1, most: int = 8, room: int = 99) -> Limits:
    return Limits(least=least, most=most, room=room, after_s=AFTER_S, shrink_after_s=SHRINK_S)


class World:
    """Partitions that are written at some rate, on lanes that each carry up to `capacity`; a look every few seconds."""

    def __init__(self, rates: list[float], capacity: float, within: Limits, lanes: int = 1) -> None:
        self.rates = rates
        self.capacity = capacity
        self.limits = within
        self.lanes = lanes
        self.now = 0.0
        self.changes: list[tuple[float, int, int]] = []
        self._at = {partition(n): n % lanes for n in range(len(rates))}
        self._waiting = [0.0] * len(rates)
        self._mind = Mind()

    def run(self, seconds: int) -> None:
        for _ in range(seconds // EVERY_S):
            self._look()

    def _look(self) -> None:
        loads = self._loads()
        self.now += EVERY_S
        self._mind, step = think(self._mind, self.now, loads, self.lanes, self.limits)
        if step is None:
            return
        self._at = spread(step.lanes, self._at, {load.tp: load.wanted for load in loads}, {})
        self._mind = changed(self._mind, self.now, loads, self.lanes, step.lanes, self.limits)
        if step.lanes != self.lanes:
            self.changes.append((self.now, self.lanes, step.lanes))
        self.lanes = step.lanes

    def _loads(self) -> list[Load]:
        asked = [rate + waiting for rate, waiting in zip(self.rates, self._waiting, strict=True)]
        by_lane = Counter[int]()
        for number, bytes_asked in enumerate(asked):
            by_lane[self._at[partition(number)]] += bytes_asked  # type: ignore[assignment]
        found = []
        for number, bytes_asked in enumerate(asked):
            lane = self._at[partition(number)]
            share = min(1.0, self.capacity / by_lane[lane]) if by_lane[lane] else 1.0
            left = bytes_asked * (1 - share)
            in_need = left > self._waiting[number] + 1e-9
            self._waiting[number] = left
            wanted = self.rates[number] + left / 60
            found.append(Load(partition(number), lane, bytes_asked * share, wanted, in_need))
        return found


RATES = some.lists(some.floats(0, 100), min_size=1, max_size=12)


@settings(max_examples=30, deadline=None)
@given(some.lists(RATES, min_size=1, max_size=5), some.integers(1, 4), some.integers(1, 9), some.integers(1, 9))
def test_bounds_are_kept_and_changes_are_far_apart(steps: list[list[float]], least: int, more: int, room: int) -> None:
    width = max(map(len, steps))
    within = limits(least=least, most=least + more, room=max(room, least))
    world = World([0.0] * width, 50.0, within, lanes=least)
    for rates in steps:
        world.rates = rates + [0.0] * (width - len(rates))
        world.run(150)
        assert least <= world.lanes <= min(least + more, within.room)
    for (before, _, _), (after, was, now) in zip(world.changes, world.changes[1:], strict=False):
        assert after - before >= (AFTER_S if now > was else SHRINK_S)


@settings(max_examples=30, deadline=None)
@given(some.lists(some.floats(1, 45), min_size=1, max_size=12))
def test_a_steady_load_gets_the_lanes_that_it_needs_and_keeps_them(rates: list[float]) -> None:
    world = World(rates, 50.0, limits(most=16))
    world.run(600)
    settled = len(world.changes)
    assert world.lanes >= min(len(rates), math.ceil(sum(rates) / 50.0))
    assert not world.changes or all(was < now for _, was, now in world.changes), "none goes while the load lasts"
    world.run(1_500)
    assert len(world.changes) == settled


def test_a_load_step_makes_lanes_come_and_its_end_makes_them_go() -> None:
    world = World([10.0] * 8, 100.0, limits(most=6))
    world.run(100)
    assert world.lanes == 1
    world.rates = [40.0] * 8
    world.run(60)
    assert 4 <= world.lanes <= 6
    grown = world.lanes
    world.rates = [10.0] * 8
    world.run(90)
    assert world.lanes == grown, "not before it was calm for long"
    world.run(200)
    assert world.lanes == 2, "one lane could carry it, but not at ease"
    world.rates = [0.0] * 8
    world.run(300)
    assert world.lanes == 1


def test_lanes_that_bring_nothing_are_not_followed_by_more() -> None:
    """The brokers carry 100 in all, however many lanes ask."""
    mind, lanes, changes = Mind(), 1, []
    within = limits(most=16)
    for second in range(90):
        loads = [Load(partition(n), n % lanes, 100 / 16, 50.0, in_need=True) for n in range(16)]
        mind, step = think(mind, float(second), loads, lanes, within)
        if step is not None:
            mind = changed(mind, float(second), loads, lanes, step.lanes, within)
            if step.lanes != lanes:
                changes.append(step.lanes)
            lanes = step.lanes
    assert len(changes) == 1


def test_bursts_make_lanes_stay_longer_each_time() -> None:
    world = World([0.0] * 4, 100.0, limits(most=4))
    for _ in range(12):
        world.rates = [90.0] * 4
        world.run(40)
        world.rates = [0.0] * 4
        world.run(130)
    goings = sum(1 for _, was, now in world.changes if now < was)
    assert goings <= 5


# -- which lane carries what -----------------------------------------------------------------------

WEIGHTS = some.lists(some.one_of(some.just(0.0), some.floats(0.1, 1e6)), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(WEIGHTS, some.integers(1, 8), some.integers(1, 8), some.integers(1, 3))
def test_partitions_are_spread_and_stay_where_that_is_well(
    weights: list[float], before: int, after: int, brokers: int
) -> None:
    heavy = {partition(n): weight for n, weight in enumerate(weights)}
    leaders = {tp: tp.partition % brokers for tp in heavy}
    was = {tp: tp.partition % before for tp in heavy}
    now = spread(after, was, heavy, leaders)
    assert set(now) == set(was)
    assert set(now.values()) <= set(range(after))
    if len(weights) >= after and set(now.values()) != set(range(after)):
        by_lane = Counter({lane: sum(heavy[tp] for tp in heavy if now[tp] == lane) for lane in now.values()})
        assert list(now.values()).count(by_lane.most_common(1)[0][0]) == 1, (
            "nothing to give to the lane that has nothing"
        )
    assert spread(after, now, heavy, leaders) == now, "what is well stays"


@settings(max_examples=30, deadline=None)
@given(some.integers(1, 60), some.integers(1, 8), some.integers(1, 8))
def test_no_more_partitions_move_than_must(count: int, before: int, after: int) -> None:
    was = {partition(n): n % before for n in range(count)}
    now = spread(after, was, {}, {})
    sizes = Counter(now.values())
    assert max(sizes.values()) - min(sizes[lane] for lane in range(min(after, count))) <= 1 + count / (5 * after)
    moved = sum(1 for tp in was if now[tp] != was[tp])
    least = max(
        0, count - sum(min(-(-count // after), size) for lane, size in Counter(was.values()).items() if lane < after)
    )
    assert moved <= least + after


def test_a_hot_partition_gets_a_lane_for_itself() -> None:
    was = {partition(n): n % 2 for n in range(6)}
    now = spread(3, was, {partition(0): 100.0, **{partition(n): 5.0 for n in range(1, 6)}}, {})
    alone = now[partition(0)]
    assert [tp for tp, lane in now.items() if lane == alone] == [partition(0)]


def test_partitions_of_one_broker_stay_together_where_the_load_allows_it() -> None:
    leaders = {partition(n): n // 4 for n in range(8)}
    now = spread(2, dict.fromkeys(leaders, 0), {}, leaders)
    assert Counter(now.values()) == {0: 4, 1: 4}
    assert len({leaders[tp] for tp, lane in now.items() if lane == 1}) == 1
