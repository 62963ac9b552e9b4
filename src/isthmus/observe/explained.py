"""What error codes mean: the rows of docs/errors.md, which people read and `isthmus explain` and the web page show.

The page travels with the package. What must stay true: one table for all faces; nothing here touches a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

_PAGE = "errors.md"
_CODE = re.compile(r"`([A-Z][A-Z0-9_]+)`")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_SECTION = re.compile(r"(?P<status>\d+)(?: and \d+)?: (?P<about>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One row of the table. `exit_status`: None where it depends on when it happens."""

    code: str
    about: str
    exit_status: int | None
    happened: str
    todo: str
    again: str = ""  # whether it is tried again by itself, of partitions


def explanations() -> list[Explanation]:
    """Every row, in the order of the page. A code may stand in several sections."""
    return list(_rows(_page()))


def _page() -> str:
    """Within the package when it was installed; beside it in a source tree."""
    packed = resources.files("isthmus") / _PAGE
    if packed.is_file():
        return packed.read_text(encoding="utf-8")
    return (Path(__file__).parents[3] / "docs" / _PAGE).read_text(encoding="utf-8")


def _rows(page: str) -> Iterator[Explanation]:
    about, status = "", None
    for line in page.splitlines():
        if line.startswith("## "):
            about, status = _section(line.removeprefix("## "))
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("| `") or len(cells) < 3:
            continue
        for code in _CODE.findall(cells[0]):
            happened, todo = _plain(cells[1]), _plain(cells[2])
            again = _plain(cells[3]) if len(cells) > 3 else ""
            yield Explanation(code=code, about=about, exit_status=status, happened=happened, todo=todo, again=again)


def _section(title: str) -> tuple[str, int | None]:
    found = _SECTION.fullmatch(title)
    return (title, None) if found is None else (found["about"], int(found["status"]))


def _plain(cell: str) -> str:
    """Without the marks of Markdown: links become their page."""
    text = _LINK.sub(lambda link: f"{link[1]} (docs/{link[2]})", cell)
    return text.strip().removesuffix(" |").replace("`", "")
