"""Our YAML into flows.

Owns reading it, and the checks that span several parts of a file: clusters that exist, flows that lead somewhere
else, no direction twice. Must stay true: ONE ConfigError tells everything that is wrong, with lines; neither values of
`properties` nor what a `${...}` gave appear in it, since they may be secrets. The shape is in `schema`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from isthmus.config.doubts import Doubt, contradictions
from isthmus.config.places import Document, Place, Problem, Trail, nearest, place, refusal
from isthmus.config.schema import ALIAS, ClusterSpec, FileSpec, FlowSpec, keys_at
from isthmus.config.substitute import Missing, Providers, Resolved, literal, shown
from isthmus.model import Cluster, Flow, Groups, Growth, Mm2Topics, Naming, Sync, Topics, Transform, Tuning


def read(document: Document, path: Path, providers: Providers) -> tuple[tuple[Flow, ...], dict[str, Place]]:
    """Flows, and the origin of each of their values."""
    problems: list[Problem] = []
    document = substituted(document, providers, problems)
    if problems:  # before all else: a value that is not there would be told a second time, as a wrong one
        raise refusal(path, problems)
    problems = list(_cross_problems(document))
    try:
        spec = FileSpec.model_validate(document.data)
    except ValidationError as error:
        problems += [_problem(document, detail) for detail in error.errors(include_url=False)]
        raise refusal(path, problems) from None
    if problems:
        raise refusal(path, problems)
    clusters = {alias: _cluster(alias, cluster, document) for alias, cluster in spec.clusters.items()}
    flows = tuple(_flow(flow, clusters) for flow in spec.flows)
    if problems := [
        _contradicted(document, at, each) for at, flow in enumerate(flows) for each in contradictions(flow)
    ]:
        raise refusal(path, problems)
    return flows, dict(_places(document, path, flows))


def substituted(document: Document, providers: Providers, problems: list[Problem]) -> Document:
    """The document with every `${...}` in a text replaced; what leads nowhere becomes a problem of its line."""

    def walk(value: object, trail: Trail, above: frozenset[int]) -> object:
        if id(value) in above:  # an alias to something around it: the schema will refuse it
            return None
        if isinstance(value, dict):
            return {key: walk(item, (*trail, key), above | {id(value)}) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item, (*trail, at), above | {id(value)}) for at, item in enumerate(value)]
        try:
            return providers.resolve(value) if isinstance(value, str) else value
        except Missing as missing:
            problems.append(Problem(document.line(trail), f"`{_spelled(trail)}`: {missing.text}", missing.hint))
            return None

    return Document(walk(document.data, (), frozenset()), document.lines)


def _cluster(alias: str, spec: ClusterSpec, document: Document) -> Cluster:
    settings = {("properties", name): str(value) for name, value in spec.properties.items()}
    if spec.tunnel is not None:
        settings |= {("tunnel", "dial"): spec.tunnel.dial, ("tunnel", "secret"): spec.tunnel.secret}
        settings |= {("tunnel", "reverse"): "true"} if spec.tunnel.reverse else {}
        settings |= {("tunnel", "peer"): spec.tunnel.peer} if spec.tunnel.peer else {}
    kept = {}
    for (part, name), value in settings.items():
        given = _at(document.data, ("clusters", alias, part, name))
        # pydantic copies texts, and a copy has no memory of its reference, which tells what files hold secrets.
        kept[f"tunnel.{name}" if part == "tunnel" else name] = given if isinstance(given, Resolved) else value
    return Cluster(alias=str(alias), bootstrap=tuple(map(str, spec.bootstrap)), settings=kept)


def _flow(spec: FlowSpec, clusters: dict[str, Cluster]) -> Flow:
    return Flow(
        source=clusters[spec.source],
        target=clusters[spec.target],
        topics=Topics(include=tuple(spec.topics), exclude=tuple(spec.exclude)),
        groups=Groups(include=tuple(spec.groups), exclude=tuple(spec.exclude_groups)),
        naming=Naming(**{**dict(spec.naming), "exact": tuple(sorted(spec.naming.exact.items()))}),
        lanes=1 if spec.transform else spec.lanes,
        growth=Growth(**dict(spec.growth)),
        replication_factor=spec.replication_factor,
        internal_replication_factor=spec.internal_replication_factor,
        on_gap=spec.on_gap,
        on_too_large=spec.on_too_large,
        on_foreign_write=spec.on_foreign_write,
        starts=tuple(rule.start() for rule in spec.start),
        compression=spec.compression,
        throttle=spec.throttle,
        cut_from=tuple(map(str, spec.cut_from)),
        sync=Sync(**_tuples(dict(spec.sync))),
        mm2_topics=_mm2_topics(spec),
        tuning=Tuning(**dict(spec.tuning)),
        transform=Transform(**dict(spec.transform), tasks=spec.lanes if spec.lanes > 1 else 0)
        if spec.transform
        else None,
    )


def _mm2_topics(spec: FlowSpec) -> Mm2Topics:
    """With a transform offsets of both sides tell nothing of each other, unless the file asks for it all the same."""
    asked: BaseModel = spec.mm2_topics
    given: dict[str, Any] = dict(asked)
    if spec.transform:
        given |= dict.fromkeys({"offset_syncs", "checkpoints"} - asked.model_fields_set, False)
    return Mm2Topics(**given)


def _tuples(given: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}


# --- where each value came from ---------------------------------------------------------------


def _places(document: Document, path: Path, flows: tuple[Flow, ...]) -> Iterator[tuple[str, Place]]:
    for trail, line in document.lines.items():
        where = place(Path(path.name), line)
        match trail:
            case ("clusters", str(alias), "tunnel", str(key)):
                name = f"clusters.{alias}.properties.tunnel.{key}"  # where other formats have it
            case ("clusters", str(), _, *_):
                name = ".".join(str(step) for step in trail)
            case ("flows", int(at), str(), *rest) if at < len(flows) and not any(isinstance(r, int) for r in rest):
                name = f"flows.{flows[at].name}.{'.'.join(str(step) for step in trail[2:])}"
            case _:
                continue
        value = _at(document.data, trail)
        # `naming: identity` says the policy only.
        yield (
            f"{name}.policy" if trail[2:] == ("naming",) and isinstance(value, str) else name,
            Place(where, _as_written(value) if _holds_reference(value) else None),
        )


def _at(data: Any, trail: Trail) -> object:
    for step in trail:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):  # `<<`, for one, is in the text but not in the data
            return None
    result: object = data
    return result


def _holds_reference(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_reference, value.values()))
    return any(map(_holds_reference, value)) if isinstance(value, list) else isinstance(value, Resolved)


def _as_written(value: object) -> object:
    if isinstance(value, dict):
        return {key: _as_written(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_written(item) for item in value]
    if isinstance(value, Resolved):
        return value.text
    return literal(value) if isinstance(value, str) else value


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
    if _holds_reference(detail["input"]):
        return f"what `{_as_written(detail['input'])}` gives cannot be used here"
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


def _contradicted(document: Document, at: int, doubt: Doubt) -> Problem:
    return Problem(document.line(("flows", at, *doubt.key.split("."))), doubt.text, doubt.hint)


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
            text = f"`flows[{at}].{end}`: there is no cluster `{shown(alias)}`"
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
        case {"policy": "identity" | "rename"}:
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
    name = "->".join(shown(end) for end in pair if isinstance(end, str))
    if pair[0] == pair[1]:
        yield Problem(line, f"the flow {name} leads to where it comes from", "name another cluster")
    elif pair in seen:
        text = f"the flow {name} stands twice, first in line {seen[pair]}"
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
