"""The options of a sink, spelled as those of Spark's own Kafka sink, into one typed value.

Must stay true, as with those of a source: whatever is wrong is a ConfigError that names the option, before anything is
asked of a broker; what cannot be followed is refused, not ignored; no value of a `kafka.` option appears in a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isthmus.config.places import nearest
from isthmus.frames.options import read_cluster, truth, wrong
from isthmus.model import Cluster
from isthmus.wire.compression import NAMES

_KNOWN = ("topic", "includeHeaders", "compression")
_SPELLED = {name.lower(): name for name in _KNOWN}
_CODEC = "kafka.compression.type"
_TIMEOUT = "kafka.transaction.timeout.ms"
_DEFAULT_CODEC = "lz4"
_DEFAULT_TIMEOUT_MS = 300_000  # brokers take 15 minutes at most, unless told otherwise
_ONLY = {  # settings of a Java producer that would change what is promised
    "kafka.acks": ("all", "-1"),
    "kafka.enable.idempotence": ("true",),
}
_REFUSED = {
    "kafka.transactional.id": "it follows from the query's name",
    "kafka.key.serializer": "keys are binary or strings; cast the column instead",
    "kafka.value.serializer": "values are binary or strings; cast the column instead",
    "kafka.partitioner.class": "give each row its `partition`, or leave it to its key",
    "kafka.interceptor.classes": "there is no Java producer that could have interceptors",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """All that was asked of a sink. `topic`: empty where each row names its own."""

    cluster: Cluster
    topic: str = ""
    codec: int = 0
    timeout_ms: int = _DEFAULT_TIMEOUT_MS


def read_sink_options(given: Mapping[str, object]) -> SinkOptions:
    options = {name.lower(): str(value) for name, value in given.items()}
    _refuse_unknown(options)
    _refuse_settings(options)
    truth(options, "includeHeaders", True)
    topic = options.get("topic", "").strip()
    if "topic" in options and not topic:
        raise wrong("topic", "it is empty")
    return SinkOptions(
        cluster=read_cluster(options), topic=topic, codec=_codec(options), timeout_ms=_timeout_ms(options)
    )


def _refuse_unknown(options: Mapping[str, str]) -> None:
    for name in options:
        if not name.startswith("kafka.") and name not in _SPELLED:
            hint = nearest(name, (*_KNOWN, "kafka.bootstrap.servers"))
            raise wrong(name, "there is no such option of a sink", hint)


def _refuse_settings(options: Mapping[str, str]) -> None:
    for name, hint in _REFUSED.items():
        if name in options:
            raise wrong(name, "it cannot be set here", hint)
    for name, allowed in _ONLY.items():
        if options.get(name, allowed[0]).strip().lower() not in allowed:
            raise wrong(name, "exactly once cannot be had with it", f"leave it out, or set it to {allowed[0]}")


def _codec(options: Mapping[str, str]) -> int:
    given = {name: options[name].strip().lower() for name in ("compression", _CODEC) if name in options}
    for name, value in given.items():
        if value not in NAMES:
            raise wrong(name, f"there is no such compression; one of: {', '.join(NAMES)}")
    if len(set(given.values())) > 1:
        raise wrong("compression", f"`{_CODEC}` says something else", "leave one of them out")
    return NAMES.index(next(iter(given.values()), _DEFAULT_CODEC))


def _timeout_ms(options: Mapping[str, str]) -> int:
    text = options.get(_TIMEOUT, str(_DEFAULT_TIMEOUT_MS)).strip()
    if not text.isdecimal() or int(text) < 1000:
        raise wrong(_TIMEOUT, "it is no number of at least 1000")
    return int(text)
