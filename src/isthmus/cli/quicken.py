"""`isthmus quicken`: have Spark start sooner on this machine from now on.

Writes one file into the cache, which can be deleted at any time; asks no cluster.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console

from isthmus.cli.render import Output
from isthmus.errors import MachineError


def quicken(
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")] = Output.text,
) -> None:
    """Record which classes Spark loads, once (about 15 s): every later start of its JVM takes half of the CPU."""
    from isthmus.engine.archive import record

    try:
        path = record()
    except OSError as error:
        raise MachineError(
            f"the cache cannot be written to: {error}", hint="set ISTHMUS_CACHE", code="CACHE"
        ) from error
    if path is None:
        raise MachineError("this Java wrote no class archive", hint="Isthmus works without one", code="CACHE")
    size = path.stat().st_size
    if output is Output.json:
        sys.stdout.write(json.dumps({"archive": str(path), "bytes": size}) + "\n")
    else:
        Console(soft_wrap=True).print(f"Spark starts from {path} ({size / 1e6:.0f} MB)", highlight=False)
