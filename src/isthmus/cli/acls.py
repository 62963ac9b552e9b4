"""`isthmus acls FILE`: the access rules (ACLs) that the flows of a file need, and no more. Changes nothing."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from isthmus.cli.config import File, Secrets, loaded_from, say
from isthmus.cli.render import Output
from isthmus.errors import ConfigError
from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.engine.grants import Grant
    from isthmus.mm2.spans import Span

_OPTIONS = {"topic": "--topic", "group": "--group", "transactional id": "--transactional-id"}
_COLUMNS = ("on", "operation", "needed to")


def acls(
    file: File = None,
    secrets: Secrets = None,
    principal: Annotated[
        list[str] | None,
        typer.Option(help="Whom brokers take us for: User:NAME, or ALIAS=User:NAME for one cluster. May be repeated."),
    ] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Ask the source, and name the topics that there are now, not prefixes.")
    ] = False,
    commands: Annotated[bool, typer.Option("--commands", help="Print the kafka-acls.sh lines only.")] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print it.")] = Output.text,
) -> None:
    """List the least rights that a run needs on both clusters, as a table and as kafka-acls.sh lines."""
    from isthmus.engine.grants import grants

    flows = loaded_from(file, secrets).flows
    names = asyncio.run(_names(flows)) if now else None
    found = grants(flows, _principals(flows, principal or []), names)
    say(_wider(found))
    if output is Output.json:
        sys.stdout.write(json.dumps([as_json(each) for each in found]) + "\n")
        return
    if not commands:
        for table in _tables(found):
            Console().print(table)
    sys.stdout.write("\n".join(command_lines(found)) + "\n")


async def _names(flows: Sequence[Flow]) -> dict[str, list[str]]:
    from isthmus.engine.sides import clients, reach
    from isthmus.engine.survey import chosen_topics
    from isthmus.errors import SourceError

    found: dict[str, list[str]] = {}
    for flow in flows:
        async with clients(flow) as (source, _):
            await reach(source, SourceError)
            found[flow.name] = await chosen_topics(source, flow)
    return found


def _principals(flows: Sequence[Flow], given: Iterable[str]) -> dict[str, str]:
    """By alias; one without an alias counts for every cluster that has none of its own."""
    aliases = {end.alias for flow in flows for end in (flow.source, flow.target)}
    own: dict[str, str] = {}
    rest: dict[str, str] = {}
    for text in given:
        alias, _, who = text.partition("=")
        named = alias in aliases and bool(who)
        who = who if named else text
        if ":" not in who:
            raise ConfigError(
                f"--principal {text}: a principal has a kind and a name, or the alias is not in the file",
                hint=f"such as User:isthmus; aliases: {', '.join(sorted(aliases))}",
                code="PRINCIPAL",
            )
        own |= {alias: who} if named else {}
        rest |= {} if named else dict.fromkeys(aliases, who)
    return rest | own


def _wider(found: Iterable[Grant]) -> list[str]:
    """Rules that allow more than the file asks for."""
    cases = {(g.cluster, g.resource, str(g.span), g.span.expression) for g in found if g.span.wider}
    return [
        f"cluster {cluster}: no access rule can say `{text}`: the narrowest is {resource} {span}; write a prefix, or "
        "names, or use --now"
        for cluster, resource, span, text in sorted(cases)
    ]


def _tables(found: Sequence[Grant]) -> list[Table]:
    """One for each cluster and principal; what is named once is not named again in the lines below."""
    owners: dict[tuple[str, str], list[Grant]] = {}
    for grant in found:
        owners.setdefault((grant.cluster, grant.principal), []).append(grant)
    return [_table(*owner, grants) for owner, grants in owners.items()]


def _table(cluster: str, principal: str, found: Sequence[Grant]) -> Table:
    title = f"cluster {cluster}: what {principal} needs (all ALLOW, from any host)"
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD)
    for name in _COLUMNS:
        table.add_column(name, overflow="fold")
    before = ""
    for grant in found:
        thing = f"{grant.resource} {grant.span}" if grant.resource != "cluster" else "the cluster"
        table.add_row(*map(Text, ("" if thing == before else thing, grant.operation, grant.why)))
        before = thing
    return table


def command_lines(found: Sequence[Grant]) -> list[str]:
    """One line for each thing, with all operations on it. Who adds rules logs in by a file of their own."""
    by_thing: dict[tuple[str, str, str, Span], list[Grant]] = {}
    for grant in found:
        by_thing.setdefault((grant.cluster, grant.principal, grant.resource, grant.span), []).append(grant)
    return [_line(each) for each in by_thing.values()]


def _line(found: Sequence[Grant]) -> str:
    first = found[0]
    words = ["kafka-acls.sh", "--bootstrap-server", first.bootstrap, "--command-config", "admin.properties", "--add"]
    words += ["--allow-principal", first.principal]
    for grant in found:
        words += ["--operation", "".join(part.capitalize() for part in grant.operation.split("_"))]
    if first.resource == "cluster":
        return shlex.join([*words, "--cluster"])
    return shlex.join(
        [*words, _OPTIONS[first.resource], first.span.name, "--resource-pattern-type", first.span.pattern]
    )


def as_json(grant: Grant) -> dict[str, Any]:
    """The documented JSON form (docs/json-output.md)."""
    return {
        "cluster": grant.cluster,
        "principal": grant.principal,
        "resource": grant.resource,
        "pattern": grant.span.pattern,
        "name": grant.span.name,
        "operation": grant.operation,
        "needed_to": grant.why,
    }
