"""The documentation holds together: it builds strictly, links lead somewhere, what the program writes is current.

Command blocks are run in tests/integration/test_docs_blocks.py.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.threaded import Threads
from typer.main import get_command

from isthmus.cli.app import app
from isthmus.engine.spark import Spark

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


class Fetched(HTMLParser):
    """What a browser fetches by itself for a page: scripts, styles, pictures, fonts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.places: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        loads = {"script": "src", "img": "src", "iframe": "src", "link": "href"}.get(tag, "")
        if place := found.get(loads):
            self.places.append(place)


def anchors(text: str) -> set[str]:
    """Of headings, as GitHub makes them."""
    plain = [re.sub(r"[`*]|\]\([^)]*\)|\[", "", title) for title in HEADING.findall(FENCED.sub("", text))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


def broken(page: Path) -> list[str]:
    """Links of a page that lead nowhere within the repository."""
    text = page.read_text()
    found = []
    for link in LINK.finditer(FENCED.sub("", text)):
        if ":" in link["path"]:
            continue
        target = page.parent / link["path"] if link["path"] else page
        wanted = link["anchor"]
        if not target.exists() or (wanted and wanted not in anchors(target.read_text())):
            found.append(link[0])
    return found


def test_the_site_builds_strictly_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 20
    fetched = {place for page in pages for place in Fetched(page.read_text()).places}
    assert len(fetched) > 3
    assert [place for place in fetched if "//" in place] == []


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c\n[1](#a-b-c) [2](page.md#nowhere) [3](gone.md) [4](http://x/)\n```\n[5](gone.md)\n```\n"
    )
    assert broken(page) == ["[2](page.md#nowhere)", "[3](gone.md)"]


def test_the_pages_that_the_program_writes_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    pages: dict[Path, str] = importlib.import_module("tools.reference").pages()
    old = [file.name for file, text in pages.items() if not file.exists() or file.read_text() != text]
    assert old == [], f"`make reference` writes {', '.join(old)} anew"


def test_every_option_of_every_command_is_described() -> None:
    root = get_command(app)
    words = [("isthmus", root)]
    for name, command in words:
        words += [(f"{name} {inner}", each) for inner, each in getattr(command, "commands", {}).items()]
    mute = [
        f"{name} {each.name}" for name, command in words for each in command.params if not getattr(each, "help", "")
    ]
    assert len(words) > 30
    assert mute == []


def test_what_every_command_prints_as_json_is_told() -> None:
    page = (DOCS / "json-output.md").read_text()
    titles = " ".join(re.findall(r"^## (.+)$", page, re.MULTILINE))
    commands = get_command(app).commands  # type: ignore[attr-defined]
    untold = {name for name in commands if not re.search(rf"\b{name}\b", titles)}
    assert len(commands) > 25
    assert not untold, "docs/json-output.md has no section for it"


def test_tests_that_the_documentation_names_are_there() -> None:
    named = {found for page in DOCS.rglob("*.md") for found in NAMED_TEST.findall(page.read_text())}
    wrong = [f"{file}::{name}" for file, name in sorted(named) if not _holds(ROOT / file, name)]
    assert wrong == []


def _holds(file: Path, name: str) -> bool:
    return file.exists() and (
        not name or re.search(rf"^(async )?def {name}\(", file.read_text(), re.MULTILINE) is not None
    )


def test_every_line_of_the_guarantees_names_its_test_or_says_that_there_is_none() -> None:
    page = (DOCS / "guarantees.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "| shown by |" not in line]
    told = [row for row in rows if NAMED_TEST.search(row.rsplit(" | ", 1)[1]) or row.endswith("| no test |")]
    assert len(rows) > 50
    assert [row for row in rows if row not in told] == []
    invariants = set(re.findall(r"^\| (I\d+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE))
    assert invariants == set(re.findall(r"^\| (I\d+) \|", page, re.MULTILINE)) != set()


def test_threads_in_sparks_place_have_all_that_is_asked_of_spark() -> None:
    assert {name for name in vars(Spark) if not name.startswith("_")} - set(dir(Threads)) == set()
