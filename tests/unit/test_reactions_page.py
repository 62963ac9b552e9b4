"""The page of guarantees tells what is done about each error code: its table is made of the product's own sets."""

from __future__ import annotations

from pathlib import Path

from tests.faults.reactions import table

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"


def test_the_page_tells_what_is_done_about_each_code() -> None:
    assert table() in PAGE.read_text(), f"docs/guarantees.md should have:\n{table()}"
