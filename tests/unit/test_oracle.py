"""The oracle's naming of differences, on made-up sequences of digests."""

from __future__ import annotations

import random
from array import array

import pytest

from isthmus.lab.oracle import Damage, Verdict, classify

SOURCE = array("q", range(100, 200))


def changed(*edits: tuple[int, list[int]]) -> array[int]:
    """SOURCE with the element at each index replaced by a list (of none, one or more)."""
    by_index = dict(edits)
    return array("q", [d for i, one in enumerate(SOURCE) for d in by_index.get(i, [one])])


def test_equal_sequences_show_no_damage() -> None:
    assert classify(SOURCE, array("q", SOURCE)) == Damage()


def test_a_missing_record_is_lost() -> None:
    assert classify(SOURCE, changed((7, []))) == Damage(lost=1, first=7)


def test_a_missing_tail_is_lost() -> None:
    assert classify(SOURCE, SOURCE[:90]) == Damage(lost=10, first=90)


def test_a_doubled_record_is_duplicated() -> None:
    assert classify(SOURCE, changed((7, [107, 107]))) == Damage(duplicated=1, first=8)


def test_a_chunk_sent_twice_is_duplicated_but_not_reordered() -> None:
    twice = SOURCE[:30] + SOURCE[10:30] + SOURCE[30:]
    assert classify(SOURCE, twice) == Damage(duplicated=20, first=30)


def test_two_swapped_records_are_one_move() -> None:
    assert classify(SOURCE, changed((7, [108]), (8, [107]))) == Damage(reordered=1, first=7)


def test_a_record_moved_far_is_one_move() -> None:
    assert classify(SOURCE, changed((7, []), (90, [190, 107]))) == Damage(reordered=1, first=7)


def test_an_altered_record_is_neither_lost_nor_foreign() -> None:
    assert classify(SOURCE, changed((7, [-1]))) == Damage(altered=1, first=7)


def test_an_unknown_record_is_foreign() -> None:
    assert classify(SOURCE, changed((7, [107, -1]))) == Damage(foreign=1, first=8)


def test_everything_is_lost_when_the_target_is_empty() -> None:
    assert classify(SOURCE, array("q")) == Damage(lost=100, first=0)


def test_equal_records_of_the_source_are_not_taken_for_duplicates() -> None:
    source = array("q", [5, 5, 6, 5])
    assert classify(source, array("q", [5, 5, 6, 5])) == Damage()
    assert classify(source, array("q", [5, 6, 5])) == Damage(lost=1, first=1)
    assert classify(source, array("q", [5, 5, 6, 5, 5])) == Damage(duplicated=1, first=4)


def test_several_kinds_of_damage_are_counted_apart() -> None:
    target = changed((3, []), (10, [110, 110]), (20, [-1]), (50, [151]), (51, [150]))
    assert classify(SOURCE, target) == Damage(lost=1, duplicated=1, altered=1, reordered=1, first=3)


@pytest.mark.parametrize("seed", range(20))
def test_any_shuffle_is_only_reordered(seed: int) -> None:
    shuffled = list(SOURCE)
    random.Random(seed).shuffle(shuffled)
    damage = classify(SOURCE, array("q", shuffled))
    assert damage.reordered > 0
    assert (damage.lost, damage.duplicated, damage.altered, damage.foreign) == (0, 0, 0, 0)


def test_a_verdict_is_equal_only_without_a_difference() -> None:
    assert Verdict(topic="t", partitions=1, records=1, bytes=1).equal
    assert not Verdict(topic="t", partitions=1, records=1, bytes=1, first_difference="x").equal
