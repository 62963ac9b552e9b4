"""Faults that several tests cause."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from isthmus.wire.link import Link


@pytest.fixture
def answers_lost(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Loses one in five answers to Produce and EndTxn after the broker has done its work."""
    dice, lost = random.Random(3), list[str]()
    deliver = Link._answer

    def lose_some(self: Link, frame: memoryview) -> None:
        name = getattr(self._pending[0].response, "__name__", "") if self._pending else ""
        if name.startswith(("EndTxnResponse", "ProduceResponse")) and len(lost) < 12 and dice.random() < 0.2:
            lost.append(name)
            self.lose("an answer was lost on purpose")
            return
        deliver(self, frame)

    monkeypatch.setattr(Link, "_answer", lose_some)
    yield lost
