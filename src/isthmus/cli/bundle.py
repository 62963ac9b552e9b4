"""`isthmus bundle FILE`: all that somebody needs who is asked for help, in one file, without secrets. Only reads.

What must stay true: nothing goes into the file but through `scrubbed`, with every secret that the configuration gives;
only its owner may read it; a cluster that is away costs its part and is told; an existing file is never overwritten.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from isthmus.cli.bundled import Part, of_clusters, of_config, of_machine
from isthmus.cli.config import Secrets, looked_at
from isthmus.cli.render import Output
from isthmus.errors import ConfigError

_FOLDER = "isthmus-bundle"
_CONTENTS = "contents.json"


def bundle(
    file: Annotated[Path, typer.Argument(help="The file that the flow runs from.")],
    secrets: Secrets = None,
    to: Annotated[Path | None, typer.Option("--to", help="Write there, as .tar.gz; else into this folder.")] = None,
    records: Annotated[int, typer.Option("--records", min=0, help="How many control records, of each flow.")] = 500,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to say what it holds.")] = Output.text,
) -> None:
    """Collect configuration, status, checks, events and versions into one file, for whoever helps; without secrets."""
    path = to or Path(time.strftime("isthmus-bundle-%Y%m%d-%H%M%S.tar.gz"))
    parts, hidden = _collected(file, secrets, records)
    files = {f"{_FOLDER}/{part.name}": _text(part, hidden) for part in parts}
    contents = [_told(part, len(files[f"{_FOLDER}/{part.name}"]), hidden) for part in parts]
    files[f"{_FOLDER}/{_CONTENTS}"] = json.dumps(contents, indent=1).encode()
    _write(path, files)
    if output is Output.json:
        print(json.dumps({"file": str(path), "parts": contents}))
    else:
        _show(path, contents, Console())


def _collected(file: Path, folder: Path | None, records: int) -> tuple[list[Part], tuple[str, ...]]:
    """All parts, and what must be in none of them. A file that cannot be loaded is a part, too."""
    from isthmus.config.exposed import refuse
    from isthmus.config.scrub import secrets_of

    try:
        loaded = looked_at(file, folder)
    except ConfigError as error:
        return [Part(name="config.json", about="the file cannot be loaded", error=str(error)), *of_machine()], ()
    try:
        refuse(loaded.exposed)  # no secret that others may read is used, here as anywhere
        asked = asyncio.run(of_clusters(loaded, records))
    except ConfigError as error:
        asked = [Part(name="clusters.json", about="no cluster was asked", error=f"{error}: {error.hint}")]
    return [of_config(loaded), *asked, *of_machine()], secrets_of(loaded.flows)


def _text(part: Part, hidden: tuple[str, ...]) -> bytes:
    """Scrubbed before it is spelled as JSON: a secret with quotes in it looks different afterwards."""
    from isthmus.config.scrub import scrubbed

    value = {"error": part.error} if part.error else json.loads(json.dumps(part.value, default=str))
    return json.dumps(scrubbed(value, hidden), indent=1, ensure_ascii=False).encode()


def _told(part: Part, size: int, hidden: tuple[str, ...]) -> dict[str, Any]:
    from isthmus.config.scrub import scrubbed

    return {"name": part.name, "about": part.about, "bytes": size, "error": scrubbed(part.error, hidden)}


def _write(path: Path, files: dict[str, bytes]) -> None:
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError("there is such a file already", where=str(path), hint="name another one with --to") from None
    except OSError as error:
        raise ConfigError(
            f"cannot write: {error.strerror}", where=str(path), hint="name another file with --to"
        ) from None
    with os.fdopen(number, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(data), 0o600, int(time.time())
            archive.addfile(member, io.BytesIO(data))


def _show(path: Path, contents: list[dict[str, Any]], console: Console) -> None:
    for part in contents:
        trouble = (f"\n    missing: {part['error']}", "yellow") if part["error"] else ""
        console.print(Text.assemble((f"  {part['name']:<32}", "bold"), part["about"], trouble), soft_wrap=True)
    console.print(
        Text(f"{path}: no secrets, but names of hosts, topics and groups; readable by you alone"), soft_wrap=True
    )
