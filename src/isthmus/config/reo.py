"""kafka-reo's environment variables into a flow.

Owns their names, and those of ours beside them for security: `KAFKA_CLUSTERS_SOURCE_SASL_MECHANISM` is
`sasl.mechanism` of the source. kafka-reo copies one topic to another, under any name, and keeps nothing else in step;
so does the flow that comes out. Must stay true: the topic is one name, not a pattern, and its name on the target is
exactly what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from isthmus.config.places import Place, Problem, nearest, refusal
from isthmus.config.values import broker
from isthmus.mm2.filters import split_list
from isthmus.model import Cluster, Flow, Groups, Mm2Topics, Naming, Sync, Topics

ORIGIN = Path("environment")
_PREFIX = "KAFKA_CLUSTERS_"
_ENDS = ("SOURCE", "DESTINATION")
_NAMES = tuple(f"{_PREFIX}{end}_{what}" for end in _ENDS for what in ("BOOTSTRAP_SERVERS", "TOPIC"))
_SECURITY = re.compile(rf"{_PREFIX}(SOURCE|DESTINATION)_((?:SECURITY|SASL|SSL)_[A-Z_]+)")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def describes_flow(environ: Mapping[str, str]) -> bool:
    return any(name in environ for name in _NAMES)


def read(environ: Mapping[str, str]) -> tuple[tuple[Flow, ...], tuple[str, ...], dict[str, Place]]:
    """The flow, warnings and origins; ConfigError with everything that is wrong."""
    problems = [*_missing(environ), *_wrong(environ)]
    if problems:
        raise refusal(ORIGIN, problems)
    source, target = (_cluster(environ, end) for end in _ENDS)
    topic, renamed = (environ[f"{_PREFIX}{end}_TOPIC"].strip() for end in _ENDS)
    flow = Flow(
        source=source,
        target=target,
        topics=Topics(include=(re.sub(r"\.", r"\\.", topic),), exclude=()),
        naming=Naming(policy="rename", exact=((topic, renamed),)),
        groups=Groups(include=()),
        sync=Sync(configs=False),
        mm2_topics=Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=False, checkpoints=False),
    )
    return (flow,), tuple(_unused(environ)), _places(flow) | _security_places(environ)


def _missing(environ: Mapping[str, str]) -> Iterator[Problem]:
    for name in _NAMES:
        if not environ.get(name, "").strip():
            yield Problem(0, f"the variable `{name}` is missing", "kafka-reo needs all four of its variables")


def _wrong(environ: Mapping[str, str]) -> Iterator[Problem]:
    for end in _ENDS:
        try:
            for address in split_list(environ.get(f"{_PREFIX}{end}_BOOTSTRAP_SERVERS", "")):
                broker(address)
        except ValueError as error:
            yield Problem(0, f"`{_PREFIX}{end}_BOOTSTRAP_SERVERS`: {error}")
        topic = environ.get(f"{_PREFIX}{end}_TOPIC", "").strip()
        if topic and not _TOPIC.fullmatch(topic):
            yield Problem(0, f"`{_PREFIX}{end}_TOPIC` is `{topic}`", "the name of one topic is meant")


def _cluster(environ: Mapping[str, str], end: str) -> Cluster:
    addresses = split_list(environ[f"{_PREFIX}{end}_BOOTSTRAP_SERVERS"])
    settings = {
        _property(found): environ[found[0]]
        for found in map(_SECURITY.fullmatch, sorted(environ))
        if found is not None and found[1] == end
    }
    return Cluster(alias=end.lower(), bootstrap=tuple(map(broker, addresses)), settings=settings)


def _property(found: re.Match[str]) -> str:
    return found[2].lower().replace("_", ".")


def _unused(environ: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(environ):
        if name.startswith(_PREFIX) and name not in _NAMES and not _SECURITY.fullmatch(name):
            hint = nearest(name, _NAMES)
            yield f"`{name}` is not known and has no effect" + (f"; {hint}" if hint.startswith("did") else "")


def _places(flow: Flow) -> dict[str, Place]:
    servers = {f"clusters.{end.lower()}.bootstrap": f"{_PREFIX}{end}_BOOTSTRAP_SERVERS" for end in _ENDS}
    topics = {
        f"flows.{flow.name}.topics": f"{_PREFIX}SOURCE_TOPIC",
        f"flows.{flow.name}.naming.exact": f"{_PREFIX}DESTINATION_TOPIC",
    }
    tool = Place("as kafka-reo does")
    fixed = ("exclude", "naming.policy", "groups", "sync.configs", "mm2_topics.heartbeats", "mm2_topics.offset_syncs")
    others = (*fixed, "mm2_topics.carry_heartbeats", "mm2_topics.checkpoints")
    return {key: Place(f"environment: {name}") for key, name in {**servers, **topics}.items()} | {
        f"flows.{flow.name}.{key}": tool for key in others
    }


def _security_places(environ: Mapping[str, str]) -> dict[str, Place]:
    found = filter(None, map(_SECURITY.fullmatch, environ))
    return {f"clusters.{m[1].lower()}.properties.{_property(m)}": Place(f"environment: {m[0]}") for m in found}
