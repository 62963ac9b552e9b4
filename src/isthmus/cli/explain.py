"""`isthmus explain CODE`: what an error code means, what happened, and what to do about it. Touches no cluster.

The one table of all codes is docs/errors.md, which people read and this command prints: it travels with the package. A
test holds it together with every code that is raised anywhere (tests/unit/test_explain.py).
"""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from isthmus.cli.completing import error_codes
from isthmus.cli.render import Output
from isthmus.errors import ConfigError
from isthmus.observe.explained import Explanation, explanations


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
