"""`isthmus explain CODE`: what an error code means, what happened, and what to do about it. Touches no cluster.

The one table of all codes is docs/errors.md, which people read and this command prints: it travels with the package. A
test holds it together with every code that is raised anywhere (tests/unit/test_explain.py).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from isthmus.cli.completing import error_codes
from isthmus.cli.render import Output
from isthmus.errors import ConfigError

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


def explain(
    code: Annotated[
        str,
        typer.Argument(help="The code in brackets of an error message; without one: all.", autocompletion=error_codes),
    ] = "",
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print it.")] = Output.text,
) -> None:
    """What an error code means, what happened, and what to do."""
    known = explanations()
    wanted = code.strip("[]` ").upper()
    found = [each for each in known if wanted in ("", each.code)]
    if not found:
        raise _unknown(wanted, {each.code for each in known})
    if output is Output.json:
        print(json.dumps([asdict(each) for each in found]))
    elif wanted:
        _show(found)
    else:
        _list(found)


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


def _unknown(code: str, known: set[str]) -> ConfigError:
    near = difflib.get_close_matches(code, sorted(known), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`isthmus explain` lists all codes"
    return ConfigError(f"there is no error code {code}", where="explain", hint=hint)


def _show(found: list[Explanation]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    for each in found:
        status = "" if each.exit_status is None else f", exit status {each.exit_status}"
        console.print(Text.assemble((each.code, "bold"), f"  ({each.about}{status})"))
        console.print(Text(f"  what happened: {each.happened}"))
        if each.todo:
            console.print(Text(f"  what to do:    {each.todo}"))
        if each.again:
            console.print(Text(f"  tried again:   {each.again}"))


def _list(found: list[Explanation]) -> None:
    table = Table("code", "status", "what happened")
    for each in found:
        table.add_row(each.code, "" if each.exit_status is None else str(each.exit_status), Text(each.happened))
    Console().print(table)
