"""Strimzi's KafkaMirrorMaker2 resource into flows.

Owns the shapes v1beta2 (`clusters`, `connectCluster`) and v1 (`target`, `mirrors[].source`). Must stay true: what the
connectors' `config` maps say goes through the same code as mm2.properties, so names, warnings and errors are the same:
a resource becomes properties first (`source->dest.topics`), each with its line. What Strimzi does not deploy is off.
Secrets come from `--secrets DIR` and are never shown. How clusters say who they are is in `strimzi_access`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isthmus.config import known
from isthmus.config.entries import Entry
from isthmus.config.flowfile import substituted
from isthmus.config.mirror import Reading
from isthmus.config.places import Document, Place, Problem, Trail, nearest, refusal
from isthmus.config.properties import told
from isthmus.config.strimzi_access import identity, trust
from isthmus.config.substitute import Missing, Providers
from isthmus.model import Flow

KIND = "KafkaMirrorMaker2"
_PATTERNS = {
    "topicsPattern": "topics",
    "topicsExcludePattern": "topics.exclude",
    "topicsBlacklistPattern": "topics.exclude",
    "groupsPattern": "groups",
    "groupsExcludePattern": "groups.exclude",
    "groupsBlacklistPattern": "groups.exclude",
}
_CONNECTORS = ("checkpointConnector", "heartbeatConnector", "sourceConnector")  # the last one's word counts
_SPEC = ("clusters", "connectCluster", "target", "mirrors")
_CLUSTER = ("alias", "bootstrapServers", "tls", "authentication", "config")
_MIRROR = ("sourceCluster", "targetCluster", "source", *_PATTERNS, *_CONNECTORS)
_CONNECTOR = ("tasksMax", "config", "pause", "state", "enabled")
# Of the machinery that runs Connect in Kubernetes: no slips, but nothing to do for here.
_MACHINERY = frozenset(
    {
        *("replicas", "version", "image", "resources", "logging", "template", "jvmOptions", "metricsConfig", "rack"),
        *("livenessProbe", "readinessProbe", "clientRackInitImage", "tracing", "externalConfiguration", "jmxOptions"),
        *("groupId", "configStorageTopic", "offsetStorageTopic", "statusStorageTopic"),
        *("autoRestart", "listOffsets", "alterOffsets"),
    }
)
_PROGRESS = (
    "progress that Strimzi's MirrorMaker 2 kept (in its own offsets topic) is not taken over: topics that have no "
    "progress of this flow begin at the earliest, unless `auto.offset.reset` says latest"
)


def read(
    document: Document, path: Path, providers: Providers
) -> tuple[tuple[Flow, ...], tuple[str, ...], dict[str, Place]]:
    """Flows, warnings and origins; ConfigError with everything that is wrong."""
    resource = _Resource(document, providers)
    if resource.problems:
        raise refusal(path, resource.problems)
    reading = Reading(path, resource.entries, resource.problems)
    flows = reading.flows()
    if reading.problems:
        raise refusal(path, reading.problems)
    return flows, (*resource.said(), *told(reading, resource.warnings), _PROGRESS), reading.places


class _Resource:
    """One pass over a resource, which leaves properties with their lines."""

    def __init__(self, document: Document, providers: Providers) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[tuple[int, str]] = []
        self.entries: dict[str, Entry] = {}
        self._machinery: list[str] = []
        self._lines = document
        providers = self._declared(document, providers)
        self._document = substituted(document, providers, self.problems)
        self._providers = providers
        spec = self._mapping(self._document.data, "spec", ())
        if not self.problems:
            self._take(spec)

    def said(self) -> Iterator[str]:
        if self._machinery:
            named = ", ".join(dict.fromkeys(self._machinery))
            yield f"these fields have no meaning here, where no Kafka Connect runs: {named}"

    def _declared(self, document: Document, providers: Providers) -> Providers:
        """Providers are declared in the config of the cluster that Connect runs with; a name means one thing anyway."""
        for trail, line in document.lines.items():
            match trail:
                case ("spec", "clusters", int(), "config", str(key)) | ("spec", "target", "config", str(key)):
                    name = key.removeprefix("config.providers.").removesuffix(".class")
                    if key == f"config.providers.{name}.class":
                        try:
                            providers = providers.declaring({name: str(_value(document.data, trail))})
                        except Missing as missing:
                            self.problems.append(Problem(line, missing.text, missing.hint))
        return providers

    # --- the parts ------------------------------------------------------------------------------

    def _take(self, spec: dict[str, Any]) -> None:
        self._look_for_others(spec, ("spec",), _SPEC)
        mirrors = self._list(spec, "mirrors", ("spec",))
        aliases = [self._cluster(value, trail) for value, trail in self._clusters(spec, mirrors)]
        self._add("clusters", ",".join(dict.fromkeys(filter(None, aliases))), ("spec", "clusters"))
        for at, mirror in enumerate(mirrors):
            trail: Trail = ("spec", "mirrors", at)
            match mirror, spec:
                case {"source": {"alias": str(source)}}, {"target": {"alias": str(target)}}:
                    self._mirror(mirror, trail, f"{source}->{target}.")
                case {"sourceCluster": str(source), "targetCluster": str(target)}, {"clusters": _}:
                    self._mirror(mirror, trail, f"{source}->{target}.")
                case _:
                    hint = "add `sourceCluster` and `targetCluster` (v1beta2), or `source` with its `alias` (v1)"
                    self._wrong(trail, "the mirror does not say from where to where", hint)

    def _clusters(self, spec: dict[str, Any], mirrors: list[Any]) -> Iterator[tuple[Any, Trail]]:
        if "target" in spec:
            yield spec["target"], ("spec", "target")
            for at, mirror in enumerate(mirrors):
                if isinstance(mirror, dict) and "source" in mirror:
                    yield mirror["source"], ("spec", "mirrors", at, "source")
            return
        for at, cluster in enumerate(self._list(spec, "clusters", ("spec",))):
            yield cluster, ("spec", "clusters", at)

    def _cluster(self, cluster: Any, trail: Trail) -> str:
        if not isinstance(cluster, dict) or not isinstance(cluster.get("alias"), str):
            self._wrong(trail, "a cluster needs an `alias`", "add `alias:`")
            return ""
        self._look_for_others(cluster, trail, _CLUSTER)
        alias: str = cluster["alias"]
        self._add(f"{alias}.bootstrap.servers", cluster.get("bootstrapServers") or "", (*trail, "bootstrapServers"))
        for name, value in self._mapping(cluster, "config", trail, optional=True).items():
            self._add(f"{alias}.{name}", value, (*trail, "config", name))
        for part, properties in (("tls", trust), ("authentication", identity)):
            try:
                for name, value in properties(cluster, self._providers).items():
                    self._add(f"{alias}.{name}", value, (*trail, part))
            except Missing as missing:
                self._wrong((*trail, part), f"cluster `{alias}`: {missing.text}", missing.hint)
        return alias

    def _mirror(self, mirror: dict[str, Any], trail: Trail, prefix: str) -> None:
        self._look_for_others(mirror, trail, _MIRROR)
        self._add(f"{prefix}enabled", "true", trail)
        if not isinstance(mirror.get("sourceConnector"), dict):
            self._wrong(trail, f"{prefix[:-1]}: without `sourceConnector` nothing is copied", "add it, if only as `{}`")
        for connector, switch in (("heartbeatConnector", "heartbeats"), ("checkpointConnector", "checkpoints")):
            if connector not in mirror:
                self._add(f"{prefix}emit.{switch}.enabled", "false", trail)
        for connector in _CONNECTORS:
            if connector in mirror:
                self._connector(mirror, connector, trail, prefix)
        for pattern, name in _PATTERNS.items():
            if mirror.get(pattern) is not None:
                self._add(f"{prefix}{name}", mirror[pattern], (*trail, pattern))

    def _connector(self, mirror: dict[str, Any], connector: str, trail: Trail, prefix: str) -> None:
        given = self._mapping(mirror, connector, trail, optional=True)
        trail = (*trail, connector)
        self._look_for_others(given, trail, _CONNECTOR)
        if given.get("pause") is True or str(given.get("state", "running")) != "running":
            self._wrong(trail, f"`{connector}` is paused or stopped", "set `state: running` when it shall run")
        if connector == "sourceConnector" and "tasksMax" in given:
            self._add(f"{prefix}tasks.max", given["tasksMax"], (*trail, "tasksMax"))
        for name, value in self._mapping(given, "config", trail, optional=True).items():
            self._agree(f"{prefix}{name}", name, value, (*trail, "config", name))

    def _agree(self, key: str, name: str, value: object, trail: Trail) -> None:
        before = self.entries.get(key)
        self._add(key, value, trail)
        if before and before.value != self.entries[key].value and name in known.USED:
            hint = "one flow has one value: make the connectors agree"
            self._wrong(trail, f"`{name}` differs from line {before.line}", hint)

    # --- single values --------------------------------------------------------------------------

    def _add(self, key: str, value: object, trail: Trail) -> None:
        if isinstance(value, bool):
            value = str(value).lower()
        if isinstance(value, str | int | float):
            text = value if isinstance(value, str) else str(value)
            self.entries[key] = Entry(key, text, self._lines.line(trail))
        elif value is not None:
            self._wrong(trail, "a single value is meant")

    def _mapping(self, data: Any, key: str, trail: Trail, *, optional: bool = False) -> dict[str, Any]:
        value = data.get(key) if isinstance(data, dict) else None
        if isinstance(value, dict):
            return value
        if value is not None or not optional:
            self._wrong((*trail, key), f"`{key}` has to be a mapping")
        return {}

    def _list(self, data: dict[str, Any], key: str, trail: Trail) -> list[Any]:
        value = data.get(key)
        if not isinstance(value, list) or not value:
            self._wrong((*trail, key), f"`{key}` has to be a list that is not empty")
            return []
        return value

    def _look_for_others(self, data: dict[str, Any], trail: Trail, fields: tuple[str, ...]) -> None:
        for key in data:
            if key in _MACHINERY:
                self._machinery.append(key)
            elif key not in fields:
                hint = nearest(key, fields)
                said = f"; {hint}" if hint.startswith("did") else ""
                self.warnings.append((self._lines.line((*trail, key)), f"`{key}` is not known and has no effect{said}"))

    def _wrong(self, trail: Trail, text: str, hint: str = "") -> None:
        self.problems.append(Problem(self._lines.line(trail), text, hint))


def _value(data: Any, trail: Trail) -> object:
    for step in trail:
        data = data[step]
    result: object = data
    return result
