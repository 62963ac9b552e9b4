"""Sets of numbers that come mostly in a row, as runs: (first, last), sorted, never touching each other.

What writers wrote and readers read is numbered without holes, so that a whole drill is a few runs, however long it
lasts. What must stay true: the same answers as Python's sets of the same numbers. What the numbers mean is left to
the ledger.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Run = tuple[int, int]  # first and last


class Runs:
    """A set of whole numbers."""

    __slots__ = ("_runs",)

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs: list[Run] = []
        for first, last in runs:
            self.add(first, last)

    def add(self, first: int, last: int | None = None) -> None:
        """Add one number, or all from the first to the last."""
        last = first if last is None else last
        if self._runs and first == self._runs[-1][1] + 1:
            self._runs[-1] = (self._runs[-1][0], last)  # by far the most usual case
            return
        at = self._place(first - 1)
        until = at
        while until < len(self._runs) and self._runs[until][0] <= last + 1:
            first, last = min(first, self._runs[until][0]), max(last, self._runs[until][1])
            until += 1
        self._runs[at:until] = [(first, last)]

    def _place(self, number: int) -> int:
        """The index of the run that holds the number, or else of the first one behind it."""
        at = bisect_right(self._runs, number, key=lambda run: run[0])
        return at - 1 if at and self._runs[at - 1][1] >= number else at

    def __contains__(self, number: int) -> bool:
        at = self._place(number)
        return at < len(self._runs) and self._runs[at][0] <= number

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self._runs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and self._runs == other._runs

    def __hash__(self) -> int:
        raise TypeError("runs change")

    def __repr__(self) -> str:
        return f"Runs({self._runs})"

    @property
    def highest(self) -> int:
        """-1 when there is none."""
        return self._runs[-1][1] if self._runs else -1

    def union(self, other: Iterable[Run]) -> Runs:
        return Runs([*self._runs, *other])

    def minus(self, other: Runs) -> Runs:
        left = Runs()
        for first, last in self._runs:
            at = other._place(first)
            while first <= last and at < len(other._runs) and other._runs[at][0] <= last:
                cut_first, cut_last = other._runs[at]
                if first < cut_first:
                    left.add(first, cut_first - 1)
                first, at = cut_last + 1, at + 1
            if first <= last:
                left.add(first, last)
        return left

    def common(self, other: Runs) -> Runs:
        return self.minus(self.minus(other))
