"""Expressions matched along all ways at once, in time that grows with the name alone.

Python's `re`, as Java's, tries one way after another: `(a+)+b` takes longer than anybody waits for a name of forty
letters, and names are given by whoever may create a topic. Owns which expressions are in danger of that, and how they
are matched instead. Must stay true: what is matched here is what `re` would match in full. What cannot be matched in
this way (references, looking around, boundaries, flags) is told by `Unmatched`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

_parser: Any = import_module("re._parser")  # what `re` itself reads expressions with
_MANY = 8  # ways through `x{1,8}` within another repetition are few enough
_IN_A_ROW = 3  # unbounded repetitions one after another, before tries add up
_MOST_STATES = 4_000
_MOST_KNOWN = 20_000
_CATEGORIES = {
    f"CATEGORY_{name}": re.compile(escape, re.ASCII)
    for name, escape in (
        *(("DIGIT", r"\d"), ("NOT_DIGIT", r"\D"), ("WORD", r"\w"), ("NOT_WORD", r"\W")),
        *(("SPACE", r"\s"), ("NOT_SPACE", r"\S")),
    )
}
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT"}
Test = Callable[[str], bool]
Node = tuple[Any, Any]


class Unmatched(Exception):
    """An expression that cannot be matched here."""


class Automaton:
    """One expression; `fullmatch` as of a compiled one."""

    def __init__(self, pattern: str) -> None:
        tree = _parser.parse(pattern, re.ASCII)
        if tree.state.flags & ~(re.ASCII | re.VERBOSE):
            raise Unmatched
        self._free: list[list[int]] = []  # by state: where it leads without a letter
        self._step: list[tuple[Test, int] | None] = []  # and with one that passes a test
        begin = self._state()
        self._end = self._sequence(_without_edges(list(tree)), begin)
        self._begin = self._reached({begin})
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def fullmatch(self, text: str, /) -> bool:
        now = self._begin
        for letter in text:
            now = self._next(now, letter)
        return self._end in now

    def _next(self, now: frozenset[int], letter: str) -> frozenset[int]:
        found = self._known.get((now, letter))
        if found is None:
            steps = (self._step[state] for state in now)
            found = self._reached({step[1] for step in steps if step is not None and step[0](letter)})
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[now, letter] = found
        return found

    def _reached(self, states: set[int]) -> frozenset[int]:
        found, waiting = set(states), list(states)
        while waiting:
            for state in self._free[waiting.pop()]:
                if state not in found:
                    found.add(state)
                    waiting.append(state)
        return frozenset(found)

    # -- making it -----------------------------------------------------------------------------

    def _state(self) -> int:
        if len(self._free) >= _MOST_STATES:
            raise Unmatched
        self._free.append([])
        self._step.append(None)
        return len(self._free) - 1

    def _sequence(self, nodes: list[Node], at: int) -> int:
        """The state behind these, begun at this one."""
        for kind, about in nodes:
            at = self._node(str(kind), about, at)
        return at

    def _node(self, kind: str, about: Any, at: int) -> int:
        if kind in _REPEATS:
            least, most, inner = about
            return self._repeat(least, most, inner, at)
        if kind == "SUBPATTERN":
            _, added, removed, inner = about
            if added or removed:
                raise Unmatched
            return self._sequence(list(inner), at)
        end = self._state()
        if kind == "BRANCH":
            for each in about[1]:
                self._free[self._sequence(list(each), self._branch(at))].append(end)
        elif not _never_matches(kind, about):
            self._step[self._branch(at)] = _test(kind, about), end
        return end

    def _branch(self, at: int) -> int:
        """A state of its own, which `at` leads to."""
        self._free[at].append(self._state())
        return self._free[at][-1]

    def _repeat(self, least: int, most: Any, inner: Any, at: int) -> int:
        nodes = list(inner)
        for _ in range(least):
            at = self._sequence(nodes, at)
        if most is _parser.MAXREPEAT:
            loop = self._branch(at)
            self._free[self._sequence(nodes, self._branch(loop))].append(loop)
            return self._branch(loop)
        end = self._state()
        for _ in range(int(most) - least):
            self._free[at].append(end)
            at = self._sequence(nodes, at)
        self._free[at].append(end)
        return end


def _without_edges(nodes: list[Node]) -> list[Node]:
    """A match in full begins and ends there anyway."""
    while nodes and str(nodes[0][0]) == "AT" and str(nodes[0][1]).startswith("AT_BEGINNING"):
        nodes = nodes[1:]
    while nodes and str(nodes[-1][0]) == "AT" and str(nodes[-1][1]) in ("AT_END", "AT_END_STRING"):
        nodes = nodes[:-1]
    return nodes


def _never_matches(kind: str, about: Any) -> bool:
    """`(?!)`"""
    return kind == "FAILURE" or (kind == "ASSERT_NOT" and not len(about[1]))


def _test(kind: str, about: Any) -> Test:
    if kind == "LITERAL":
        return chr(about).__eq__
    if kind == "NOT_LITERAL":
        return chr(about).__ne__
    if kind == "ANY":
        return "\n".__ne__
    if kind == "RANGE":
        low, high = about
        return lambda letter: low <= ord(letter) <= high
    if kind == "CATEGORY" and str(about) in _CATEGORIES:
        known = _CATEGORIES[str(about)]
        return lambda letter: known.fullmatch(letter) is not None
    if kind == "IN":
        is_negated = str(about[0][0]) == "NEGATE"
        tests = [_test(str(part), more) for part, more in about[is_negated:]]
        return lambda letter: any(test(letter) for test in tests) != is_negated
    raise Unmatched


# --- danger --------------------------------------------------------------------------------------


def is_dangerous(pattern: str) -> bool:
    """Whether trying one way after another could take very long."""
    nodes = list(_parser.parse(pattern, re.ASCII))
    repeats = [about for kind, about in _within(nodes) if str(kind) in _REPEATS and _is_long(about)]
    return len(repeats) > _IN_A_ROW or any(_is_open(list(about[2])) for about in repeats)


def _is_long(about: Any) -> bool:
    return about[1] is _parser.MAXREPEAT or int(about[1]) > _MANY


def _is_open(nodes: list[Node]) -> bool:
    """Whether there are several ways through these."""
    return any(
        str(kind) == "BRANCH" or (str(kind) in _REPEATS and about[0] != about[1]) for kind, about in _within(nodes)
    )


def _within(nodes: list[Node]) -> Iterator[Node]:
    for kind, about in nodes:
        yield kind, about
        for inner in _inner(str(kind), about):
            yield from _within(list(inner))


def _inner(kind: str, about: Any) -> list[Any]:
    if kind == "BRANCH":
        return list(about[1])
    if kind in _REPEATS or kind in ("SUBPATTERN", "POSSESSIVE_REPEAT"):
        return [about[-1]]
    if kind in ("ASSERT", "ASSERT_NOT"):
        return [about[1]]
    return [about] if kind == "ATOMIC_GROUP" else []
