"""Faults that several tests cause."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from isthmus.wire.link import Link


@pytest.fixture
def answers_lost(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Loses answers to Produce and EndTxn after the broker has done its work: the second of each, then one in five."""
    dice, lost = random.Random(3), list[str]()
    seen = Counter[str]()
    deliver = Link._answer

    def is_lost(kind: str) -> bool:
        seen[kind] += 1
        return seen[kind] == 2 or (len(lost) < 12 and dice.random() < 0.2)

    def lose_some(self: Link, frame: memoryview) -> None:
        name = getattr(self._pending[0].response, "__name__", "") if self._pending else ""
        kind = name.partition("Response")[0]
        if kind in ("EndTxn", "Produce") and is_lost(kind):
            lost.append(name)
            self.lose("an answer was lost on purpose")
            return
        deliver(self, frame)

    monkeypatch.setattr(Link, "_answer", lose_some)
    yield lost
