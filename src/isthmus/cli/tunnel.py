"""`isthmus tunnel`: keys, ends that run, what they see, and what a side needs to run one.

What must stay true: no secret is printed; standard output holds the answer only (for `serve` and `connect`: one line
per connection), what is said beside it goes to standard error.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from isthmus.cli.config import Secrets, loaded_from, say
from isthmus.cli.render import Output
from isthmus.errors import ConfigError

if TYPE_CHECKING:
    from isthmus.config.prepared import Prepared
    from isthmus.config.tunnelfile import EndFile

app = typer.Typer(
    help="One port to brokers behind a firewall, trusted by a shared secret.",
    no_args_is_help=True,
)
EndArgument = Annotated[Path, typer.Argument(help="The end's own file, as `tunnel prepare` writes it.")]
Printed = Annotated[Output, typer.Option("-o", "--output", help="How to print it.")]


class Side(enum.StrEnum):
    source = "source"
    destination = "destination"


@app.command()
def keygen(
    file: Annotated[Path, typer.Argument(help="Where to write the key; must not exist.")],
    output: Printed = Output.text,
) -> None:
    """Make a shared secret: a random key, in a file that only you may read."""
    from isthmus.tunnel.secret import new_secret

    secret = new_secret()
    _write(file, f"{secret}\n", 0o600, overwrite=False)
    key_id = _key_id(secret)
    _print({"file": str(file), "key_id": key_id}, f"{file}: key {key_id}; both sides need this file", output)


@app.command()
def rotate(
    file: Annotated[Path, typer.Argument(help="The key file, or the file of an end that has a `secret_file`.")],
    finish: Annotated[bool, typer.Option("--finish", help="Take the old secrets out.")] = False,
    output: Printed = Output.text,
) -> None:
    """Put a new secret before the old one, which stays valid; ends that run take it over within seconds."""
    from isthmus.tunnel.secret import new_secret, several

    path = _key_file(file)
    known = [secret.reveal() for secret in several(_read(path))]
    kept = known[:1] if finish else [new_secret(), *known]
    _write(path, "".join(f"{each}\n" for each in kept), 0o600, overwrite=True)
    ids = [_key_id(each) for each in kept]
    then = "old secrets are out" if finish else "copy this file to the other side; then `--finish` on both sides"
    _print({"file": str(path), "valid": ids}, f"{path}: valid now: {', '.join(ids)}; {then}", output)


@app.command()
def serve(file: EndArgument, output: Printed = Output.text) -> None:
    """Run an end that listens: an exit, or the meeting point for an exit that dials. Until Ctrl-C."""
    _run(file, output, listens=True)


@app.command()
def connect(file: EndArgument, output: Printed = Output.text) -> None:
    """Run an end that dials: an exit that lets nobody in, or an entry with SOCKS5 and HTTP CONNECT on loopback."""
    _run(file, output, listens=False)


def _run(file: Path, output: Output, *, listens: bool) -> None:
    from isthmus.cli.tunnel_ends import run_end
    from isthmus.config.tunnelfile import read_end

    found = read_end(file)
    if (found.spec.listen is not None) != listens:
        hint = f"isthmus tunnel {'connect' if listens else 'serve'} {file}"
        raise ConfigError(f"this end {'dials' if listens else 'listens'}", where=str(file), hint=hint, code="TUNNEL")
    say(found.warnings)
    run_end(file, found, output)


@app.command()
def status(
    file: Annotated[Path, typer.Argument(help="The file of an end, or of flows: whose clusters are behind tunnels.")],
    secrets: Secrets = None,
    output: Printed = Output.text,
) -> None:
    """Is the tunnel up, from here? Exit status 12 if a way is closed."""
    from isthmus.cli.tunnel_ends import examine
    from isthmus.config.tunnelfile import is_end_file, read_end

    rows = examine(end=read_end(file)) if is_end_file(file) else examine(flows=loaded_from(file, secrets).flows)
    if not rows:
        raise ConfigError("no cluster of the file is behind a tunnel", where=str(file), code="TUNNEL")
    if output is Output.json:
        print(json.dumps(rows))
    else:
        _show(rows)
    if not all(row["ok"] for row in rows):
        raise typer.Exit(12)


@app.command()
def prepare(
    file: Annotated[Path, typer.Argument(help="The file that the flow runs from: setenv.sh, YAML...")],
    side: Annotated[Side, typer.Option("--side", help="source: with the brokers behind the tunnel.")],
    cluster: Annotated[str, typer.Option("--cluster", help="Whose tunnel, if the file has several.")] = "",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write this side's files.")] = Path(
        "isthmus-tunnel"
    ),
    secrets: Secrets = None,
    output: Printed = Output.text,
) -> None:
    """Print what this side's firewall must let through, and write its configuration, compose file and systemd unit."""
    from isthmus.config.prepared import prepare as prepared

    loaded = loaded_from(file, secrets)
    say(loaded.warnings)
    made = prepared(loaded, side.value, cluster)
    out.mkdir(parents=True, exist_ok=True)
    for each in made.files:
        _write(out / each.name, each.text, each.mode, overwrite=True)
    files = [str(out / each.name) for each in made.files]
    if output is Output.json:
        openings = [dataclasses.asdict(each) for each in made.openings]
        print(json.dumps({"cluster": made.cluster, "side": made.side, "firewall": openings, "files": files}))
    else:
        _show_prepared(made, files)


def _show_prepared(made: Prepared, files: list[str]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"Firewall of the {made.side} side (tunnel to {made.cluster}), all TCP:")
    for each in made.openings:
        console.print(f"  {each.direction:<3}  from {each.who}  to {each.to}  port {each.port}  ({each.why})")
    console.print("Written: " + ", ".join(files))


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table()
    for name in ("what", "state", "ms", "detail"):
        table.add_column(name, justify="right" if name == "ms" else "left")
    for row in rows:
        ms = "" if row["ms"] is None else f"{row['ms']:.1f}"
        table.add_row(row["what"], "ok" if row["ok"] else "CLOSED", ms, row["detail"])
    Console().print(table)


def _key_file(file: Path) -> Path:
    from isthmus.config.tunnelfile import is_end_file, read_end

    if not is_end_file(file):
        return file
    found: EndFile = read_end(file)
    if found.key_file is None:
        raise ConfigError("this end has no `secret_file`", where=str(file), hint="rotate its secret where it is kept")
    return found.key_file


def _key_id(secret: str) -> str:
    from isthmus.security import Secret
    from isthmus.tunnel.identity import identity

    return identity(Secret(secret)).key_id


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read: {error}", where=str(path), hint="`isthmus tunnel keygen` makes one") from None


def _write(path: Path, text: str, mode: int, *, overwrite: bool) -> None:
    """At once or not at all: an end that runs reads the file meanwhile."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        if path.exists() and not overwrite:
            raise FileExistsError(17, "it exists already")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as stream:
            stream.write(text)
        fresh.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write: {error.strerror}", where=str(path), hint="name another file") from None


def _print(data: dict[str, Any], text: str, output: Output) -> None:
    print(json.dumps(data) if output is Output.json else text)
