"""`isthmus config`: look at a configuration without touching a cluster.

What must stay true: no secret is printed, except by `convert --include-secrets`; standard output holds the answer only,
warnings go to standard error.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from isthmus.cli.render import Output
from isthmus.errors import ConfigError, SecurityRefused

if TYPE_CHECKING:
    from isthmus.config.load import Loaded
    from isthmus.config.written import Item

app = typer.Typer(help="Show, check and convert configuration files.", no_args_is_help=True)

FILE_HELP = (
    "Isthmus YAML, mm2.properties, a Strimzi KafkaMirrorMaker2 resource, or setenv.sh; "
    "without one, kafka-reo's environment variables."
)
File = Annotated[Path | None, typer.Argument(help=FILE_HELP)]
Secrets = Annotated[
    Path | None, typer.Option("--secrets", metavar="DIR", help="Folder with a folder per secret, a file per key.")
]


def loaded_from(file: Path | None, secrets: Path | None) -> Loaded:
    """The one way from a command's arguments to flows that are used; files with secrets must be closed to others."""
    from isthmus.config.exposed import refuse

    loaded = looked_at(file, secrets)
    refuse(loaded.exposed)
    return loaded


def looked_at(file: Path | None, secrets: Path | None) -> Loaded:
    """As `loaded_from`, for commands that only show the file: they tell what others may read."""
    from isthmus.config.load import load, load_environment

    loaded = load_environment() if file is None else load(file, secrets=secrets)
    open_files = (f"others on this machine may read the secrets in {path}" for path in loaded.exposed)
    return dataclasses.replace(loaded, warnings=(*loaded.warnings, *open_files))


def warn(loaded: Loaded) -> None:
    say(loaded.warnings)


def say(warnings: Iterable[str]) -> None:
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    for warning in warnings:
        console.print(Text.assemble(("warning", "yellow"), f" {warning}"))


@app.command()
def show(
    file: File = None,
    secrets: Secrets = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print it.")] = Output.text,
) -> None:
    """Print every value that counts, and where it comes from."""
    loaded = looked_at(file, secrets)
    warn(loaded)
    print(_as_json(loaded) if output is Output.json else _as_text(loaded))


@app.command()
def check(file: File = None, secrets: Secrets = None) -> None:
    """Check a file without touching a cluster; exit status 2 if it cannot run."""
    loaded = loaded_from(file, secrets)
    warn(loaded)
    _open_stores(loaded)
    flows = len(loaded.flows)
    print(f"fit to run: {flows} flow{'s' if flows != 1 else ''}")


def _open_stores(loaded: Loaded) -> None:
    """Stores that are here have to be usable. Those that are not may be where it will run: that is only told."""
    from isthmus.wire.security.tls import context

    for cluster in {end.alias: end for flow in loaded.flows for end in (flow.source, flow.target)}.values():
        tls = cluster.security.tls
        stores = [store for store in (tls.trust, tls.own) if store and store.path] if tls else []
        away = [store.path for store in stores if not Path(store.path).exists()]
        say(f"cluster {cluster.alias}: there is no {path} on this machine" for path in away)
        if tls is not None and not away:
            try:
                context(tls, f"cluster {cluster.alias}")
            except SecurityRefused as error:
                raise ConfigError(error.message, where=error.where, hint=error.hint, code=error.code) from None


@app.command()
def schema() -> None:
    """Print the JSON Schema of our YAML."""
    from isthmus.config.schema import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command()
def convert(
    file: File = None,
    secrets: Secrets = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write there instead of to standard output.")] = None,
    include_secrets: Annotated[
        bool, typer.Option("--include-secrets", help="Keep secrets that stand in the file as plain text.")
    ] = False,
) -> None:
    """Write our YAML that asks for the same."""
    from isthmus.config.written import as_yaml

    loaded = looked_at(file, secrets)
    warn(loaded)
    text = as_yaml(loaded, include_secrets=include_secrets)
    if out is None:
        print(text, end="")
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write: {error.strerror}", where=str(out), hint="name another file") from None


def _as_text(loaded: Loaded) -> str:
    from isthmus.config.written import items

    listed = list(items(loaded))
    names = max(len(item.key) for item in listed)
    values = min(60, max(len(_spelled(item.value)) for item in listed))
    lines: list[str] = []
    part = ""
    for item in listed:
        if item.part != part:
            part = item.part
            lines += ["", part] if lines else [part]
        lines.append(f"  {item.key:<{names}}  {_spelled(item.value):<{values}}  {item.origin}")
    return "\n".join(lines)


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "(none)"
    if isinstance(value, dict | list):
        return json.dumps(value, default=str) if value else "(none)"
    return str(value).replace("\n", "\\n") if value != "" else "(none)"


def _as_json(loaded: Loaded) -> str:
    return json.dumps(as_data(loaded), default=str)


def as_data(loaded: Loaded) -> dict[str, Any]:
    """The documented JSON form (docs/json-output.md), without secrets."""
    from isthmus.config.written import items

    data: dict[str, Any] = {"file": str(loaded.origin), "format": loaded.format, "clusters": {}, "flows": {}}
    for item in items(loaded):
        kind, _, name = item.part.partition(" ")
        data[f"{kind}s"].setdefault(name, {})[item.key] = _value(item)
    return {**data, "warnings": list(loaded.warnings)}


def _value(item: Item) -> dict[str, object]:
    return {"value": item.value, "origin": item.origin}
