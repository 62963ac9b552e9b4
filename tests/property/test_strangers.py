"""Who writes into a copy, by returned offsets: never an alarm for what is ours, however late markers come, and no
stranger that goes unnoticed once they have come.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as some

from isthmus.engine.strangers import Tide, strange_among
from isthmus.wire.batch import Batch

STRANGER = 99


@dataclass
class Partition:
    """A target partition as a broker keeps it, and a lane with two ids that writes into it in turn.

    An id may begin its next transaction only when the marker of its last one is there: so brokers hold it.
    """

    tide: Tide = field(default_factory=Tide)
    log: list[int] = field(default_factory=list)  # who wrote each offset
    batches: list[Batch] = field(default_factory=list)
    late: list[int] = field(default_factory=list)  # ids whose marker is yet to come
    turn: int = 0
    touched: bool = False

    def append(self, who: int, count: int) -> int:
        base = len(self.log)
        self.log += [who] * count
        self.batches.append(_batch(base, count, who))
        return base

    def produce(self, count: int) -> None:
        if not self.touched:
            self.marker(self.turn)
        self.touched = True
        self.tide.landed(self.append(self.turn, count), count)

    def end(self, *, commit: bool) -> None:
        if self.touched:
            self.late.append(self.turn)
            if commit:
                self.tide.ended()
        if not commit:
            self.tide.forget()
        self.turn, self.touched = 1 - self.turn, False

    def marker(self, who: int) -> None:
        if who in self.late:
            self.late.remove(who)
            self.append(who, 1)

    def suspects(self) -> list[tuple[int, int]]:
        """As a lane proves a suspicion."""
        return [each for span in self.tide.spans for each in strange_among(self.batches, span, {0, 1})]


def _batch(base: int, count: int, who: int) -> Batch:
    empty = Batch._make([0] * len(Batch._fields))
    return empty._replace(base_offset=base, last_offset_delta=count - 1, producer_id=who, count=count, magic=2)


STEPS = some.lists(
    some.one_of(
        some.tuples(some.just("produce"), some.integers(1, 5)),
        some.tuples(some.sampled_from(["commit", "commit", "abort"]), some.just(0)),
        some.tuples(some.just("marker"), some.integers(0, 1)),
    ),
    max_size=60,
)


def play(partition: Partition, steps: list[tuple[str, int]]) -> None:
    for what, number in steps:
        if what == "produce":
            partition.produce(number)
        elif what == "marker":
            partition.marker(number)
        else:
            partition.end(commit=what == "commit")


@given(STEPS)
def test_what_is_ours_is_never_even_suspected(steps: list[tuple[str, int]]) -> None:
    partition = Partition()
    for step in steps:
        play(partition, [step])
        assert not partition.tide.is_high


@given(STEPS, some.integers(0, 1), some.integers(1, 40))
def test_a_marker_that_is_written_again_and_again_is_suspected_at_most_and_never_proven(
    steps: list[tuple[str, int]], who: int, times: int
) -> None:
    partition = Partition()
    play(partition, steps)
    partition.produce(1)
    for _ in range(times):
        partition.append(who, 1)
    partition.produce(1)
    assert partition.suspects() == []


@given(STEPS, some.integers(1, 5), STEPS)
def test_a_stranger_is_noticed_when_all_markers_are_there_and_named_exactly(
    before: list[tuple[str, int]], count: int, after: list[tuple[str, int]]
) -> None:
    partition = Partition()
    play(partition, [step for step in before if step[0] != "abort"])
    partition.produce(1)  # what is compared with
    at = partition.append(STRANGER, count)
    play(partition, [step for step in after if step[0] != "abort"][:10])
    partition.end(commit=True)
    partition.marker(0)
    partition.marker(1)
    partition.produce(1)
    assert partition.tide.is_high
    assert partition.suspects() == [(at, at + count)]


def test_after_an_abort_nothing_is_held_against_what_came_before() -> None:
    partition = Partition()
    partition.produce(3)
    partition.append(STRANGER, 7)
    partition.end(commit=False)
    partition.produce(1)
    assert not partition.tide.is_high
    assert partition.suspects() == []
