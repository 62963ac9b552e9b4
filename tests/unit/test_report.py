"""What a driver says of itself: again if it could not be written, and not otherwise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from isthmus.engine import report
from isthmus.engine.report import DRIVER, Report

GROUPS = cast(Any, SimpleNamespace(as_value=dict))


@pytest.fixture
def said() -> Report:
    return Report(cast(Any, SimpleNamespace(report=lambda: {"events": []})), "d")


def test_news_are_told_once(said: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_EVERY_S", 0.0)
    assert DRIVER in said.news(GROUPS)
    said.written()
    assert not said.news(GROUPS)


def test_news_that_could_not_be_written_are_news_again(said: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_EVERY_S", 0.0)
    assert DRIVER in said.news(GROUPS)
    assert DRIVER in said.news(GROUPS)


def test_news_that_were_not_in_what_was_written_are_not_taken_for_said(
    said: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something else was written, in the second in which they were not due again."""
    assert DRIVER in said.news(GROUPS)  # and the write fails
    assert not said.news(GROUPS)
    said.written()
    monkeypatch.setattr(said, "_due_at", 0.0)
    assert DRIVER in said.news(GROUPS)
