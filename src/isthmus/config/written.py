"""Flows written down again: as a list of values with their origins, and as our YAML.

Owns the way back from the model to the words of our YAML. Must stay true: the YAML, loaded again, gives the same flows;
no secret is shown: neither what a provider gave (its `${...}` stands there instead), nor a setting that is a secret
by its name, unless that is asked for. Reading is left to `load`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from isthmus.config import tunnels
from isthmus.config.credentials import holds_secret, is_secret
from isthmus.config.level import default_place
from isthmus.config.load import Loaded
from isthmus.config.places import DEFAULT, Place
from isthmus.config.substitute import literal
from isthmus.config.values import spelled_instant
from isthmus.model import Cluster, Flow, Start, Transform

HIDDEN = "***"
# Of other formats, these are not copied but concluded from: their reference would not mean the same in our YAML.
_CONCLUDED = ("naming.policy", "naming.internal_separator")


@dataclass(frozen=True, slots=True)
class Item:
    """One value: under which heading, its name in our YAML, what may be shown of it, and where it comes from."""

    part: str
    key: str
    value: object
    origin: str


def items(loaded: Loaded) -> Iterator[Item]:
    """Every value of every cluster and flow."""
    for cluster in _clusters(loaded.flows):
        for key, value in _cluster(cluster).items():
            found = loaded.places.get(f"clusters.{cluster.alias}.{key}", DEFAULT)
            name = key.removeprefix("properties.")
            yield Item(f"cluster {cluster.alias}", name, _shown(name, value, found), found.where)
    for flow in loaded.flows:
        for key, value in _flow(flow).items():
            found = _place(loaded, flow, key)
            yield Item(f"flow {flow.name}", key, _shown(key, value, found), found.where)


def _place(loaded: Loaded, flow: Flow, key: str) -> Place:
    default = default_place(key) if loaded.format in ("properties", "strimzi") else DEFAULT
    return loaded.places.get(f"flows.{flow.name}.{key}", default)


def _shown(name: str, value: object, place: Place) -> object:
    if place.reference is not None:
        return HIDDEN if holds_secret(name, str(place.reference)) else place.reference
    return HIDDEN if is_secret(name) and value else value


# --- the model in the words of our YAML -------------------------------------------------------


def _clusters(flows: tuple[Flow, ...]) -> list[Cluster]:
    return list({end.alias: end for flow in flows for end in (flow.source, flow.target)}.values())


def _cluster(cluster: Cluster) -> dict[str, object]:
    settings = {f"properties.{name}": value for name, value in sorted(cluster.settings.items())}
    return {"bootstrap": list(cluster.bootstrap), **settings}


def _flow(flow: Flow) -> dict[str, object]:
    """Flat, with dots: `sync.acls`."""
    return {
        "topics": list(flow.topics.include),
        "exclude": list(flow.topics.exclude),
        "groups": list(flow.groups.include),
        "exclude_groups": list(flow.groups.exclude),
        **_parts("naming", {**dataclasses.asdict(flow.naming), "exact": dict(flow.naming.exact)}),
        "lanes": flow.transform.tasks or 1 if flow.transform else flow.lanes,
        "replication_factor": flow.replication_factor,
        "internal_replication_factor": flow.internal_replication_factor,
        "on_gap": flow.on_gap,
        "on_too_large": flow.on_too_large,
        "on_foreign_write": flow.on_foreign_write,
        "start": [_start(rule) for rule in flow.starts],
        "compression": flow.compression,
        **_parts("growth", dataclasses.asdict(flow.growth)),
        **_transform(flow.transform),
        "throttle": flow.throttle,
        "cut_from": list(flow.cut_from),
        **_parts("sync", dataclasses.asdict(flow.sync)),
        **_parts("mm2_topics", dataclasses.asdict(flow.mm2_topics)),
        **_parts("tuning", dataclasses.asdict(flow.tuning)),
    }


def _transform(transform: Transform | None) -> dict[str, object]:
    """`tasks` is what the file calls lanes."""
    fields = {} if transform is None else dataclasses.asdict(transform)
    return _parts("transform", {name: value for name, value in fields.items() if name != "tasks"})


def _parts(under: str, fields: Mapping[str, Any]) -> dict[str, object]:
    return {f"{under}.{name}": list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def _start(rule: Start) -> dict[str, object]:
    topics: dict[str, object] = {} if rule.topics == Start().topics else {"topics": rule.topics}
    if rule.at == "offsets":
        return {**topics, "offsets": {str(partition): offset for partition, offset in rule.offsets}}
    return {**topics, "at": spelled_instant(rule.timestamp_ms) if rule.at == "timestamp" else rule.at}


# --- our YAML ---------------------------------------------------------------------------------


def as_yaml(loaded: Loaded, *, include_secrets: bool = False) -> str:
    """The file that asks for the same flows. Plain secrets become variables, named at its top."""
    variables: dict[str, str] = {}
    data = {
        "clusters": {c.alias: _cluster_data(loaded, c, variables, include_secrets) for c in _clusters(loaded.flows)},
        "flows": [_flow_data(loaded, flow) for flow in loaded.flows],
    }
    notes = [f"# Set {variable} to {what}, which stood here as plain text.\n" for variable, what in variables.items()]
    body = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return f"# Made by `isthmus config convert` from {loaded.origin.name}.\n{''.join(notes)}{body}"


class _Dumper(yaml.SafeDumper):
    """Without anchors: two equal lists are no reason to write `*id001`."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _cluster_data(loaded: Loaded, cluster: Cluster, variables: dict[str, str], include_secrets: bool) -> object:
    properties: dict[str, object] = {}
    for name, value in sorted(cluster.settings.items()):
        reference = loaded.places.get(f"clusters.{cluster.alias}.properties.{name}", DEFAULT).reference
        text = literal(value) if reference is None else str(reference)
        if holds_secret(name, text) and not include_secrets:
            variable = re.sub(r"\W", "_", f"{cluster.alias}_{name}").upper()
            variables[variable] = f"`{name}` of {cluster.alias}"
            text = f"${{env:{variable}}}"
        properties[name] = text
    bootstrap = loaded.places.get(f"clusters.{cluster.alias}.bootstrap", DEFAULT).reference
    data: dict[str, object] = {"bootstrap": bootstrap or list(cluster.bootstrap)}
    if tunnel := {name.partition(".")[2]: properties.pop(name) for name in tunnels.NAMES if name in properties}:
        data["tunnel"] = tunnel | ({"reverse": tunnel["reverse"] == "true"} if "reverse" in tunnel else {})
    return {**data, "properties": properties} if properties else data


def _flow_data(loaded: Loaded, flow: Flow) -> dict[str, object]:
    """Only what differs from the defaults: a short file can be read."""
    usual = _flow(Flow(source=flow.source, target=flow.target, transform=flow.transform and Transform()))
    data: dict[str, object] = {"from": flow.source.alias, "to": flow.target.alias}
    for key, value in _flow(flow).items():
        reference = loaded.places.get(f"flows.{flow.name}.{key}", DEFAULT).reference
        if reference is not None and (loaded.format == "yaml" or key not in _CONCLUDED):
            _put(data, key, reference)
        elif value != usual[key]:
            _put(data, key, _literal(value))
    return data


def _put(data: dict[str, Any], key: str, value: object) -> None:
    part, dot, name = key.partition(".")
    if dot:
        data.setdefault(part, {})[name] = value
    else:
        data[key] = value


def _literal(value: object) -> object:
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return literal(value) if isinstance(value, str) else value
