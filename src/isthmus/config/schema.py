"""The shape of our YAML, as pydantic models, and its JSON Schema.

Owns which keys there are, their types, bounds and defaults (defaults come from `isthmus.model`, which stays
the one place for them). Must stay true: an unknown key is an error, and a value is never quietly bent to
another type. What concerns several parts at once (does the cluster exist?) is checked in `load`.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
)

from isthmus.errors import ConfigError
from isthmus.mm2.filters import split_list
from isthmus.mm2.javaregex import compile_java
from isthmus.model import Naming, Topics, Tuning

ALIAS = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_STRICT = ConfigDict(extra="forbid", strict=True, populate_by_name=False)
_BROKER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(\d{1,5})")
_MAY_BE_ZERO = {"merge_below_bytes", "fetch_wait_ms"}


def _split(value: object) -> object:
    return list(split_list(value)) if isinstance(value, str) else value


def _usable_regex(pattern: str) -> str:
    try:
        compile_java(pattern)
    except ConfigError as error:
        raise ValueError(error.message) from None
    return pattern


def broker(address: str) -> str:
    """`host:port`, checked; ValueError otherwise."""
    found = _BROKER.fullmatch(address)
    if not found or not 0 < int(found[2]) < 65536:
        raise ValueError(f"`{address}` is not a broker address: host:port is meant")
    return address


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

Brokers = Annotated[
    list[Annotated[str, AfterValidator(broker)]],
    Field(min_length=1),
    BeforeValidator(_split),
    WithJsonSchema({**_TEXT_OR_LIST, "description": "Brokers to ask first: host:port, comma list or list."}),
]
Regexes = Annotated[
    list[Annotated[str, AfterValidator(_usable_regex)]],
    BeforeValidator(_split),
    WithJsonSchema({**_TEXT_OR_LIST, "description": "Java regular expressions, full match: comma list or list."}),
]
Factor = Annotated[
    int, AfterValidator(_factor), WithJsonSchema({"type": "integer", "minimum": -1, "not": {"const": 0}})
]
PropertyText = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": ["string", "number", "boolean"]})]


class ClusterSpec(BaseModel):
    """How to reach one cluster."""

    model_config = _STRICT
    bootstrap: Brokers
    properties: dict[str, PropertyText] = Field(
        default_factory=dict, description="Kafka client properties (security, timeouts)."
    )


class NamingSpec(BaseModel):
    """How topics are called on the target."""

    model_config = _STRICT
    policy: Literal["default", "identity"] = "default"
    separator: str = Field(default=Naming().separator, pattern=r"^[A-Za-z0-9._-]+$")


def _knobs() -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for knob in dataclasses.fields(Tuning):
        bound = Field(knob.default, ge=0) if knob.name in _MAY_BE_ZERO else Field(knob.default, gt=0)
        fields[knob.name] = (type(knob.default), bound)
    return fields


# Made from the dataclass, so that a knob added there is at once known here.
TuningSpec = create_model("TuningSpec", __config__=_STRICT, __doc__=Tuning.__doc__, **_knobs())


class FlowSpec(BaseModel):
    """One direction of replication."""

    model_config = _STRICT
    source: str = Field(alias="from", description="Alias of the cluster to read from.")
    target: str = Field(alias="to", description="Alias of the cluster to write to.")
    topics: Regexes = Field(default=list(Topics().include))
    exclude: Regexes = Field(default=list(Topics().exclude))
    naming: Annotated[
        NamingSpec,
        BeforeValidator(_named),
        WithJsonSchema({"anyOf": [{"enum": ["default", "identity"]}, NamingSpec.model_json_schema()]}),
    ] = NamingSpec()
    lanes: int = Field(default=1, ge=1, description="Spark jobs that share the work; MirrorMaker 2's tasks.max.")
    replication_factor: Factor = Field(default=-1, description="Of topics created on the target.")
    internal_replication_factor: Factor = Field(default=-1, description="Of progress and control topics.")
    on_gap: Literal["stop", "skip"] = Field(
        default="stop", description="When the source deleted records before they were copied."
    )
    tuning: TuningSpec = TuningSpec()  # type: ignore[valid-type]


class FileSpec(BaseModel):
    """A whole configuration file."""

    model_config = _STRICT
    clusters: dict[str, ClusterSpec]
    flows: Annotated[list[FlowSpec], Field(min_length=1)]


def keys_at(trail: tuple[str | int, ...]) -> list[str]:
    """The keys that are known in the mapping that a trail leads to."""
    match trail:
        case ():
            return _keys(FileSpec)
        case ("clusters", _):
            return _keys(ClusterSpec)
        case ("flows", _):
            return _keys(FlowSpec)
        case (_, _, "naming"):
            return _keys(NamingSpec)
        case (_, _, "tuning"):
            return _keys(TuningSpec)
    return []


def _keys(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def json_schema() -> dict[str, Any]:
    """JSON Schema of the YAML file, for editors and for the documentation."""
    schema = FileSpec.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Isthmus"}
