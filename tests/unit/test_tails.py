"""The comparing of two ends, without any broker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.engine.offsets.tails import borders

FEW = st.lists(st.integers(0, 2), max_size=12)


@given(FEW, FEW)
def test_every_way_in_which_a_beginning_is_an_end_is_found(head: list[int], tail: list[int]) -> None:
    most = min(len(head), len(tail))
    assert borders(head, tail) == [n for n in range(most, 0, -1) if head[:n] == tail[len(tail) - n :]]


def test_one_way_only_where_records_differ() -> None:
    assert borders([5, 6, 7, 8], [1, 2, 3, 4, 5, 6]) == [2]
    assert borders([5, 6], [1, 2]) == []
