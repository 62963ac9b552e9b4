"""What lanes report becomes loads: bytes per second, what is wanted, and who is in need."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.engine.loads import Loads
from isthmus.model import TopicPartition

ORDERS = TopicPartition("orders", 0)
SPAN_S = 10.0


class Clock:
    """Ours; the target's is an hour ahead."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Told:
    """A lane that reports one partition each second."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.loads = Loads(self.clock)

    def seconds(self, count: int, written: int, copied: int, size: int = 100) -> None:
        """So many records are written and copied each second, of this size."""
        for _ in range(count):
            self.clock.now += 1
            self.end += written
            self.position = min(self.end, self.position + copied)
            self.report(self.position, self.end, self.position * size)

    end = position = 0

    def report(self, position: int, end: int, carried: int, order: str = "o") -> None:
        value: dict[str, Any] = {"order": order, "positions": [["orders", 0, position, end]], "carried": [carried]}
        self.loads.heard("status/0", value, int(self.clock.now * 1000) + 3_600_000, SPAN_S)

    def load(self, *, helpless: bool = False) -> Any:
        (found,) = self.loads.read({ORDERS: 0}, {ORDERS} if helpless else set(), SPAN_S)
        return found


def test_a_partition_that_keeps_up_is_carried_as_it_is_written() -> None:
    told = Told()
    told.seconds(15, written=50, copied=50)
    load = told.load()
    assert load.carried == pytest.approx(5_000, rel=0.01)
    assert load.wanted == pytest.approx(5_000, rel=0.01)
    assert not load.in_need


def test_one_that_falls_behind_is_in_need_and_wants_more_than_it_gets() -> None:
    told = Told()
    told.seconds(15, written=100, copied=50)
    load = told.load()
    assert load.in_need
    assert load.carried == pytest.approx(5_000, rel=0.01)
    assert load.wanted > 10_000
    assert not told.load(helpless=True).in_need


def test_one_that_has_much_to_catch_up_is_in_need_and_one_that_is_nearly_there_is_not() -> None:
    told = Told()
    told.end = 1_000_000
    told.seconds(15, written=10, copied=100)
    assert told.load().in_need
    near = Told()
    near.end = 2_000
    near.seconds(15, written=10, copied=100)
    assert not near.load().in_need


def test_one_that_does_not_move_is_not_in_need() -> None:
    told = Told()
    told.seconds(15, written=100, copied=0)
    assert not told.load().in_need


def test_silence_means_that_nothing_changes() -> None:
    told = Told()
    told.seconds(15, written=50, copied=50)
    told.clock.now += 30
    load = told.load()
    assert (load.carried, load.wanted) == (0.0, 0.0)


def test_a_report_that_is_read_twice_and_a_new_order_count_once() -> None:
    told = Told()
    told.seconds(15, written=50, copied=50)
    for _ in range(2):
        told.report(told.position, told.end, told.position * 100)
    assert told.load().carried == pytest.approx(5_000, rel=0.01)
    told.clock.now += 1
    told.report(told.position + 50, told.end + 50, 5_000, order="next")
    assert told.load().carried == pytest.approx(5_000, rel=0.01)


def test_after_partitions_changed_hands_everything_is_measured_anew() -> None:
    told = Told()
    told.seconds(15, written=100, copied=50)
    told.loads.clear()
    assert not told.load().in_need
