"""The shape of our YAML, as pydantic models, and its JSON Schema.

Owns which keys there are, their types, bounds and defaults (defaults come from `isthmus.model`, which stays
the one place for them). Must stay true: an unknown key is an error, and a value is never quietly bent to
another type, except where a `${...}` gave the text of a number. What concerns several parts at once (does the
cluster exist?) is checked in `load`; what single texts mean, in `values`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
    model_validator,
)

from isthmus.config import values
from isthmus.config.substitute import Resolved, keep
from isthmus.errors import ConfigError
from isthmus.mm2.filters import split_list
from isthmus.mm2.javaregex import compile_java
from isthmus.model import Groups, Growth, Mm2Topics, Naming, Start, Sync, Topics, Transform, Tuning

ALIAS = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
TOPIC_PART = r"^[A-Za-z0-9._-]*$"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_MAY_BE_ZERO = {"merge_below_bytes", "fetch_wait_ms"}


class Spec(BaseModel):
    """Strict; but the text of a provider is all that a provider can give, so it may stand for a number."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=False)

    @model_validator(mode="before")
    @classmethod
    def _read_resolved(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        kinds = {info.alias or name: info.annotation for name, info in cls.model_fields.items()}
        return {key: _as_kind(value, kinds.get(key)) for key, value in data.items()}


def _as_kind(value: object, kind: object) -> object:
    if not isinstance(value, Resolved) or kind not in (int, float, bool):
        return value
    text = value.strip().lower()
    if kind is bool:
        return {"true": True, "false": False}.get(text, value)
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    return float(text) if kind is float and re.fullmatch(r"\d{1,18}\.\d{1,18}", text) else value


def _split(value: object) -> object:
    return [keep(value, item) for item in split_list(value)] if isinstance(value, str) else value


def _usable(*, any_text: bool) -> Callable[[str], str]:
    def check(pattern: str) -> str:
        try:
            compile_java(pattern, any_text=any_text)
        except ConfigError as error:
            raise ValueError(error.message) from None
        return pattern

    return check


def _factor(value: int) -> int:
    if value != -1 and not 1 <= value <= 32767:
        raise ValueError("-1 (the cluster's default) or a number from 1 is meant")
    return value


def _text(value: object) -> object:
    """Kafka properties are texts; YAML reads `true` and `30000` as something else."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _named(value: object) -> object:
    return {"policy": value} if isinstance(value, str) else value


_TEXT_OR_LIST = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_REGEXES = WithJsonSchema({**_TEXT_OR_LIST, "description": "Java regular expressions, full match: comma list or list."})

Brokers = Annotated[
    list[Annotated[str, AfterValidator(values.broker)]],
    Field(min_length=1),
    BeforeValidator(_split),
    WithJsonSchema({**_TEXT_OR_LIST, "description": "Brokers to ask first: host:port, comma list or list."}),
]
Regexes = Annotated[list[Annotated[str, AfterValidator(_usable(any_text=False))]], BeforeValidator(_split), _REGEXES]
GroupRegexes = Annotated[
    list[Annotated[str, AfterValidator(_usable(any_text=True))]], BeforeValidator(_split), _REGEXES
]
Factor = Annotated[
    int, AfterValidator(_factor), WithJsonSchema({"type": "integer", "minimum": -1, "not": {"const": 0}})
]
PropertyText = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Aliases = Annotated[
    list[Annotated[str, Field(pattern=ALIAS.pattern)]],
    BeforeValidator(_split),
    WithJsonSchema(
        {
            **_TEXT_OR_LIST,
            "description": "Aliases. Records that Isthmus brought from there into the source are not carried. Flows of "
            "one file find out by themselves.",
        }
    ),
]
Rate = Annotated[
    int,
    BeforeValidator(values.amount),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
]


class TunnelSpec(Spec):
    """The way to brokers that cannot be reached directly."""

    dial: Annotated[str, AfterValidator(values.broker)] = Field(
        description="host:port of the tunnel's exit, or of the meeting point where the exit dials."
    )
    secret: str = Field(description="The shared secret, as `${...}`; several, one a line, while they are rotated.")
    reverse: bool = Field(default=False, description="The exit dials: for `isthmus tunnel prepare`.")
    peer: str = Field(default="", description="Address of the side that dials: for `isthmus tunnel prepare`.")


class ClusterSpec(Spec):
    """How to reach one cluster."""

    bootstrap: Brokers
    tunnel: TunnelSpec | None = None
    properties: dict[str, PropertyText] = Field(
        default_factory=dict, description="Kafka client properties (security, timeouts)."
    )


class NamingSpec(Spec):
    """How topics are called on the target."""

    policy: Literal["default", "identity", "rename"] = "default"
    separator: str = Field(default=Naming().separator, pattern=r"^[A-Za-z0-9._-]+$")
    prefix: str = Field(default="", pattern=TOPIC_PART, description="For `rename`: put before the topic's name.")
    suffix: str = Field(default="", pattern=TOPIC_PART, description="For `rename`: put after the topic's name.")
    exact: dict[str, Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]] = Field(
        default_factory=dict, description="For `rename`: source topic to target topic; before prefix and suffix."
    )
    internal_separator: str = Field(
        default="", pattern=TOPIC_PART, description="In names of MirrorMaker 2's internal topics, if not the same."
    )

    @model_validator(mode="after")
    def _check_rename(self) -> NamingSpec:
        changes = bool(self.prefix or self.suffix or self.exact)
        if self.policy == "rename" and not changes:
            raise ValueError("`rename` needs a `prefix`, a `suffix` or `exact` names; `identity` keeps names")
        if self.policy != "rename" and changes:
            raise ValueError(f"`prefix`, `suffix` and `exact` need `policy: rename`, not `{self.policy}`")
        if len(set(self.exact.values())) < len(self.exact):
            raise ValueError("`exact` gives two topics one name: their records would mix")
        return self


class StartSpec(Spec):
    """Where topics begin that have no progress yet."""

    topics: Annotated[str, AfterValidator(_usable(any_text=False))] = ".*"
    at: Any = Field(default=None, description="earliest, latest, or a time with its zone.")
    offsets: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict, description="Partition (in quotes) to offset; other partitions begin at the earliest."
    )

    @model_validator(mode="after")
    def _check_one(self) -> StartSpec:
        if (self.at is None) == (not self.offsets):
            raise ValueError("either `at` or `offsets` is meant")
        if self.at is not None:
            values.start(self.at)
        return self

    def start(self) -> Start:
        if self.at is not None:
            return values.start(self.at, self.topics)
        offsets = tuple(sorted((int(partition), offset) for partition, offset in self.offsets.items()))
        return Start(topics=self.topics, at="offsets", offsets=offsets)


def _starts(value: object) -> object:
    rules = value if isinstance(value, list) else [value]
    return [rule if isinstance(rule, dict | StartSpec) else {"at": rule} for rule in rules]


Starts = Annotated[
    list[StartSpec],
    BeforeValidator(_starts),
    WithJsonSchema(
        {
            "description": "earliest, latest, a time with its zone; or rules, of which the first that matches counts.",
            "anyOf": [
                {"type": "string"},
                StartSpec.model_json_schema(),
                {"type": "array", "items": StartSpec.model_json_schema()},
            ],
        }
    ),
]


def _knobs(kind: type[Any], **own: Any) -> dict[str, Any]:
    """Fields made from a dataclass, so that what is added there is at once known here."""
    fields: dict[str, Any] = {}
    for knob in dataclasses.fields(kind):
        default: Any = knob.default
        if knob.name in own:
            fields[knob.name] = (own[knob.name], list(default) if isinstance(default, tuple) else default)
        elif isinstance(default, bool):
            fields[knob.name] = (bool, default)
        else:
            bound = Field(default, ge=0) if knob.name in _MAY_BE_ZERO else Field(default, gt=0)
            fields[knob.name] = (type(default), bound)
    return fields


def _made(name: str, kind: type[Any], **own: Any) -> type[Spec]:
    return create_model(name, __base__=Spec, __doc__=kind.__doc__, **_knobs(kind, **own))


_SIDE = Literal["source", "target"]
TuningSpec = _made("TuningSpec", Tuning)
GrowthSpec = _made("GrowthSpec", Growth, least=Annotated[int, Field(ge=0)])
SyncSpec = _made("SyncSpec", Sync, config_exclude=Regexes, defaults_from=_SIDE)
Mm2TopicsSpec = _made("Mm2TopicsSpec", Mm2Topics, offset_syncs_on=_SIDE, offset_lag_max=Annotated[int, Field(ge=0)])


_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class TransformSpec(Spec):
    """What Spark does to records on their way: SQL over the view `records`, or a function of DataFrames."""

    sql: str = Field(default="", description="One query over the view `records`.")
    function: str = Field(default="", pattern=rf"^({_FUNCTION.pattern})?$", description="module:function")
    on_error: Literal["stop", "dead_letter"] = Field(
        default="stop", description="When the transform fails on a record, or its row cannot be written."
    )
    most_records: int = Field(default=Transform().most_records, gt=0, description="Of one transaction.")

    @model_validator(mode="after")
    def _is_one(self) -> TransformSpec:
        if bool(self.sql.strip()) == bool(self.function):
            raise ValueError("give either `sql` or `function`")
        return self


def _transform(value: object) -> object:
    """A text alone is a function if it looks like one, else SQL."""
    if not isinstance(value, str):
        return value
    return {"function": value} if _FUNCTION.fullmatch(value.strip()) else {"sql": value}


class FlowSpec(Spec):
    """One direction of replication."""

    source: str = Field(alias="from", description="Alias of the cluster to read from.")
    target: str = Field(alias="to", description="Alias of the cluster to write to.")
    topics: Regexes = Field(default=list(Topics().include))
    exclude: Regexes = Field(default=list(Topics().exclude))
    groups: GroupRegexes = Field(default=list(Groups().include))
    exclude_groups: GroupRegexes = Field(default=list(Groups().exclude))
    naming: Annotated[
        NamingSpec,
        BeforeValidator(_named),
        WithJsonSchema({"anyOf": [{"enum": ["default", "identity"]}, NamingSpec.model_json_schema()]}),
    ] = NamingSpec()
    lanes: int = Field(default=1, ge=1, description="Spark jobs that share the work; MirrorMaker 2's tasks.max.")
    growth: GrowthSpec = GrowthSpec()  # type: ignore[valid-type]
    replication_factor: Factor = Field(default=-1, description="Of topics created on the target.")
    internal_replication_factor: Factor = Field(default=-1, description="Of progress, control and MM2's topics.")
    on_gap: Literal["stop", "skip"] = Field(
        default="stop", description="When the source deleted records before they were copied."
    )
    on_too_large: Literal["stop", "dead_letter"] = Field(
        default="stop", description="When a single record is too large for its topic on the target."
    )
    on_foreign_write: Literal["stop", "allow"] = Field(
        default="stop", description="When somebody else writes into a copy on the target."
    )
    start: Starts = Field(default=[])
    compression: Literal["", "none", "gzip", "snappy", "lz4", "zstd"] = Field(
        default="", description="Codec of batches on the target; empty keeps what the source has."
    )
    transform: Annotated[
        TransformSpec | None,
        BeforeValidator(_transform),
        WithJsonSchema({"anyOf": [{"type": "string"}, TransformSpec.model_json_schema(), {"type": "null"}]}),
    ] = None
    throttle: Rate = Field(default=0, description="Bytes per second over all lanes, also as 10MB; 0: no limit.")
    cut_from: Aliases = Field(default=[])
    sync: SyncSpec = SyncSpec()  # type: ignore[valid-type]
    mm2_topics: Mm2TopicsSpec = Mm2TopicsSpec()  # type: ignore[valid-type]
    tuning: TuningSpec = TuningSpec()  # type: ignore[valid-type]


class FileSpec(Spec):
    """A whole configuration file."""

    clusters: dict[str, ClusterSpec]
    flows: Annotated[list[FlowSpec], Field(min_length=1)]


_PARTS: dict[str, type[BaseModel]] = {
    "naming": NamingSpec,
    "tuning": TuningSpec,
    "growth": GrowthSpec,
    "sync": SyncSpec,
    "mm2_topics": Mm2TopicsSpec,
    "start": StartSpec,
    "transform": TransformSpec,
}


def keys_at(trail: tuple[str | int, ...]) -> list[str]:
    """The keys that are known in the mapping that a trail leads to."""
    match trail:
        case ():
            return _keys(FileSpec)
        case ("clusters", _):
            return _keys(ClusterSpec)
        case ("clusters", _, "tunnel"):
            return _keys(TunnelSpec)
        case ("flows", _):
            return _keys(FlowSpec)
        case ("flows", _, str(part), *_) if part in _PARTS:
            return _keys(_PARTS[part])
    return []


def _keys(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def json_schema() -> dict[str, Any]:
    """JSON Schema of the YAML file, for editors and for the documentation."""
    schema: dict[str, Any] = _with_references(FileSpec.model_json_schema(by_alias=True))
    schema["$defs"]["Reference"] = {"type": "string", "pattern": r"\$\{.+\}", "description": "`${env:X}` and the like."}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Isthmus"}


_REFERENCE = {"$ref": "#/$defs/Reference"}
_ABOUT = ("title", "description", "default")


def _with_references(node: Any) -> Any:
    """A `${...}` may stand for every single value; a schema of a number or of some words must say so."""
    if isinstance(node, list):
        return [_with_references(item) for item in node]
    if not isinstance(node, dict):
        return node
    walked = {key: _with_references(value) for key, value in node.items()}
    if node.get("type") == "object" and "properties" in node:  # and not a map of fields, one of which is called so
        walked["properties"] = {name: _or_reference(field) for name, field in walked["properties"].items()}
    return walked


def _or_reference(field: dict[str, Any]) -> dict[str, Any]:
    bound = field.get("type") in ("integer", "number", "boolean") or "enum" in field or "pattern" in field
    if "anyOf" in field:
        return field | {"anyOf": [*field["anyOf"], _REFERENCE]}
    if not bound:
        return field
    about = {key: field[key] for key in _ABOUT if key in field}
    return about | {"anyOf": [{key: value for key, value in field.items() if key not in _ABOUT}, _REFERENCE]}
