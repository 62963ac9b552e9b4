"""From a file to flows: which format it is, what is wrong with it, what it asks for.

Owns reading our YAML and the checks that span several parts of a file: clusters that exist, flows that lead
somewhere else, no direction twice. Must stay true: either every flow of the file is fit to run, or ONE
ConfigError tells everything that is wrong, with lines; values of `properties` never appear in it, since they
may be secrets. MirrorMaker 2's format is read in `properties`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from isthmus.config import properties
from isthmus.config.places import Document, Problem, Trail, nearest, read_yaml, refusal
from isthmus.config.schema import ALIAS, ClusterSpec, FileSpec, FlowSpec, keys_at
from isthmus.errors import ConfigError
from isthmus.model import Cluster, Flow, Naming, Topics, Tuning

_PROPERTIES_LINE = re.compile(rb"^[ \t]*(clusters|\S+->\S+)[ \t]*=", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file asks for, and what in it will have no effect."""

    flows: tuple[Flow, ...]
    warnings: tuple[str, ...]
    origin: Path


def load(path: Path) -> Loaded:
    """Read and check a configuration file; ConfigError if anything in it is wrong."""
    raw = _bytes(path)
    if _is_properties(path, raw):
        flows, warnings = properties.read(raw, path)
    else:
        flows, warnings = read(_decoded(raw, path), path), ()
    return Loaded(flows, (*warnings, *_doubts(flows)), path)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError("there is no such file", where=str(path), hint="check the path") from None
    except OSError as error:
        what = f"the file cannot be read: {error.strerror or error}"
        raise ConfigError(what, where=str(path), hint="a readable YAML or .properties file is meant") from None


def _is_properties(path: Path, raw: bytes) -> bool:
    if path.suffix in (".yaml", ".yml", ".properties"):
        return path.suffix == ".properties"
    return _PROPERTIES_LINE.search(raw) is not None


def _decoded(raw: bytes, path: Path) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise refusal(path, [Problem(line, "not UTF-8 text", "save the file as UTF-8")]) from None


def read(text: str, path: Path) -> tuple[Flow, ...]:
    """Our YAML into flows."""
    document = read_yaml(text, path)
    problems = list(_cross_problems(document))
    try:
        spec = FileSpec.model_validate(document.data)
    except ValidationError as error:
        problems += [_problem(document, detail) for detail in error.errors(include_url=False)]
        raise refusal(path, problems) from None
    if problems:
        raise refusal(path, problems)
    clusters = {alias: _cluster(alias, cluster) for alias, cluster in spec.clusters.items()}
    return tuple(_flow(flow, clusters) for flow in spec.flows)


def _cluster(alias: str, spec: ClusterSpec) -> Cluster:
    return Cluster(alias=alias, bootstrap=tuple(spec.bootstrap), settings=dict(spec.properties))


def _flow(spec: FlowSpec, clusters: dict[str, Cluster]) -> Flow:
    return Flow(
        source=clusters[spec.source],
        target=clusters[spec.target],
        topics=Topics(include=tuple(spec.topics), exclude=tuple(spec.exclude)),
        naming=Naming(policy=spec.naming.policy, separator=spec.naming.separator),
        lanes=spec.lanes,
        replication_factor=spec.replication_factor,
        internal_replication_factor=spec.internal_replication_factor,
        on_gap=spec.on_gap,
        tuning=Tuning(**dict(spec.tuning)),
    )


# --- what is wrong with one value -------------------------------------------------------------


def _problem(document: Document, detail: Any) -> Problem:
    trail: Trail = detail["loc"]
    line = document.line(trail)
    name = _spelled(trail) or "the file"
    if detail["type"] == "extra_forbidden":
        inside = f" in `{_spelled(trail[:-1])}`" if trail[:-1] else ""
        return Problem(line, f"unknown key `{trail[-1]}`{inside}", nearest(str(trail[-1]), keys_at(trail[:-1])))
    if detail["type"] == "missing":
        return Problem(line, f"`{name}` is missing", f"add `{trail[-1]}:` there")
    return Problem(line, f"`{name}`: {_wrong(detail)}")


def _wrong(detail: Any) -> str:
    says = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
    value = detail["input"]
    shown = isinstance(value, str | int | float) and detail["type"] != "value_error"
    return f"{says}, not {value!r}" if shown and "properties" not in detail["loc"] else says


def _spelled(trail: Trail) -> str:
    """`flows[0].tuning.commit_bytes`, as a reader would say it."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in trail)
    return "".join(steps).removeprefix(".")


# --- what is wrong between values -------------------------------------------------------------


def _cross_problems(document: Document) -> Iterator[Problem]:
    """Looks at raw data, so that these are told together with what pydantic finds."""
    data = document.data if isinstance(document.data, dict) else {}
    clusters, flows = data.get("clusters"), data.get("flows")
    if not isinstance(clusters, dict):
        return
    yield from _alias_problems(document, clusters)
    seen: dict[tuple[object, object], int] = {}
    for at, flow in enumerate(flows if isinstance(flows, list) else ()):
        if isinstance(flow, dict):
            yield from _end_problems(document, clusters, flow, at)
            yield from _pair_problems(document, flow, at, seen)
            yield from _timing_problems(document, flow, at)


def _alias_problems(document: Document, clusters: dict[str, object]) -> Iterator[Problem]:
    for alias in clusters:
        if not ALIAS.fullmatch(alias):
            hint = "use letters, digits, `-` and `_`: it becomes part of topic names"
            yield Problem(document.line(("clusters", alias)), f"`{alias}` cannot be a cluster's alias", hint)


def _end_problems(
    document: Document, clusters: dict[str, object], flow: dict[str, object], at: int
) -> Iterator[Problem]:
    for end in ("from", "to"):
        alias = flow.get(end)
        if isinstance(alias, str) and alias not in clusters:
            text = f"`flows[{at}].{end}`: there is no cluster `{alias}`"
            yield Problem(document.line(("flows", at, end)), text, nearest(alias, clusters))
    separator = _separator(flow.get("naming"))
    source = flow.get("from")
    if isinstance(source, str) and source in clusters and separator and separator in source:
        text = f"`{source}` holds the separator `{separator}`, so circles could not be noticed"
        yield Problem(document.line(("flows", at, "from")), text, "choose another alias or `naming.separator`")


def _separator(naming: object) -> str:
    """The separator that tells prefixes apart; empty where names are kept or the value is wrong anyway."""
    match naming:
        case None | "default":
            return Naming().separator
        case {"policy": "identity"}:
            return ""
        case {"separator": str(separator)}:
            return separator
        case {}:
            return Naming().separator
    return ""


def _pair_problems(
    document: Document, flow: dict[str, object], at: int, seen: dict[tuple[object, object], int]
) -> Iterator[Problem]:
    pair = (flow.get("from"), flow.get("to"))
    if not all(isinstance(end, str) for end in pair):
        return
    line = document.line(("flows", at, "from"))
    if pair[0] == pair[1]:
        yield Problem(line, f"the flow {pair[0]}->{pair[1]} leads to where it comes from", "name another cluster")
    elif pair in seen:
        text = f"the flow {pair[0]}->{pair[1]} stands twice, first in line {seen[pair]}"
        yield Problem(line, text, "put all its topics into one flow")
    seen.setdefault(pair, line)


def _timing_problems(document: Document, flow: dict[str, object], at: int) -> Iterator[Problem]:
    tuning = flow.get("tuning")
    given = tuning if isinstance(tuning, dict) else {}
    interval = given.get("commit_interval_ms", Tuning().commit_interval_ms)
    timeout = given.get("transaction_timeout_ms", Tuning().transaction_timeout_ms)
    if isinstance(interval, int) and isinstance(timeout, int) and 0 < timeout <= interval:
        text = f"a transaction would time out ({timeout} ms) before it is committed ({interval} ms)"
        trail = ("flows", at, "tuning", "commit_interval_ms")
        yield Problem(document.line(trail), text, "make commit_interval_ms smaller")


# --- what is lawful, but hardly meant ---------------------------------------------------------


def _doubts(flows: tuple[Flow, ...]) -> Iterator[str]:
    kept = {(f.source.alias, f.target.alias) for f in flows if f.naming.policy == "identity"}
    for source, target in sorted(kept):
        if source < target and (target, source) in kept:
            yield (
                f"flows {source}->{target} and {target}->{source} both keep topic names: a topic "
                "that both carry would go round for ever; give them topics that differ"
            )
    for flow in flows:
        if flow.naming.policy == "default" and flow.naming.separator in flow.source.alias:
            yield (
                f"flow {flow.name}: the alias `{flow.source.alias}` holds the separator "
                f"`{flow.naming.separator}`, so a circle through it would not be noticed"
            )
        if set(flow.source.bootstrap) & set(flow.target.bootstrap):
            yield (
                f"flow {flow.name}: source and target name the same broker; if they are one cluster, copies "
                "that match `topics` would be copied again"
            )
