"""What a shell is told when somebody presses Tab: flows and topics of the file on the line, codes of errors.

What must stay true: no cluster is asked and nothing heavy imported, so Tab answers at once; whatever is wrong with the
file, completion says nothing rather than printing an error into a command line.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.model import Flow

_PLAIN = re.compile(r"[A-Za-z0-9._-]+")


def flow_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Flows of the file that the command names."""
    return [_spelled(flow.name) for flow in _flows(ctx) if flow.name.startswith(incomplete)]


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that the file names; what an expression matches only a cluster knows."""
    named = {_unescaped(text) for flow in _flows(ctx) for text in flow.topics.include}
    return sorted(name for name in named if _PLAIN.fullmatch(name) and name.startswith(incomplete))


def error_codes(incomplete: str) -> list[str]:
    from isthmus.observe.explained import explanations

    return sorted({each.code for each in explanations() if each.code.startswith(incomplete.upper())})


def _spelled(name: str) -> str:
    """bash takes what it is given as it is, and `>` is a redirection; the others quote by themselves."""
    return name.replace(">", "\\>") if os.environ.get("_ISTHMUS_COMPLETE") == "complete_bash" else name


def _unescaped(text: str) -> str:
    return text.replace("\\.", ".")


def _flows(ctx: typer.Context) -> tuple[Flow, ...]:
    from isthmus.config.load import load

    # An option that still lacks its value stops the parsing: then words are left over that no parameter took.
    named = [ctx.params.get("file"), *ctx.args]
    file = next((Path(each) for each in named if each and Path(each).is_file()), None)
    try:
        return load(file, secrets=ctx.params.get("secrets")).flows if file else ()
    except (IsthmusError, OSError, ValueError):
        return ()
