"""The options of a source, spelled as those of Spark's own Kafka source, into one typed value.

Owns which options there are and what may stand in them. Must stay true: whatever is wrong is a ConfigError that names
the option, before anything is asked of a broker; what cannot be followed is refused, not ignored; no value of a
`kafka.` option appears in a message, because it may be a secret. `${env:...}` and `${file:...}` in those are resolved
here, so each process that reads options resolves them for itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from isthmus.config.places import nearest
from isthmus.config.secured import secured
from isthmus.config.security import read_security
from isthmus.config.substitute import Missing, Providers, plain
from isthmus.config.values import broker
from isthmus.errors import ConfigError
from isthmus.frames import jsons
from isthmus.frames.clients import OF_CLIENTS
from isthmus.mm2.filters import TopicFilter, split_list
from isthmus.model import SECURITY_SETTINGS, Cluster, TopicPartition

ANSWER_BYTES = 4 << 20
_PREFIX = "kafka."
_ANSWER_SIZES = ("max.partition.fetch.bytes", "fetch.max.bytes")  # one partition is asked for at a time
_MOST_BYTES = 2**31 - 1
_SELECTIONS = ("assign", "subscribe", "subscribePattern")
_OF_A_STREAM = ("maxOffsetsPerTrigger",)
_OF_A_BATCH = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_WITHOUT_EFFECT = (  # of Spark's own: how its consumers behave, which are not here
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix", "path"),
)
_KNOWN = (
    *_SELECTIONS,
    *_OF_A_STREAM,
    *_OF_A_BATCH,
    *_WITHOUT_EFFECT,
    *("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp", "startingOffsetsByTimestampStrategy"),
    *("minPartitions", "failOnDataLoss", "includeHeaders"),
)
_SPELLED = {name.lower(): name for name in _KNOWN}
_SECURING = ("security.protocol", "sasl.mechanism", "sasl.jaas.config", "ssl.truststore.location")
_REFUSED = {
    "auto.offset.reset": "set `startingOffsets` instead",
    "enable.auto.commit": "offsets are kept by Spark's checkpoint",
    "key.deserializer": "keys are binary; cast the column instead",
    "value.deserializer": "values are binary; cast the column instead",
    "interceptor.classes": "there is no Java consumer that could have interceptors",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which partitions: those named, all of the topics named, or all of the topics that match."""

    assign: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""

    def matches(self, topic: str) -> bool:
        return TopicFilter((self.pattern,)).matches(topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where to begin or to end: at one end of the log, at offsets, or at times in milliseconds."""

    option: str
    at: str  # "earliest" | "latest" | "offsets" | "times" | "time"
    places: Mapping[TopicPartition, int] = field(default_factory=dict)
    time: int = -1
    or_latest: bool = False  # where no record is as late as the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All that was asked of a source."""

    cluster: Cluster
    selection: Selection
    start: Bound
    end: Bound
    most_per_batch: int = 0  # 0: no limit
    least_tasks: int = 0
    fail_on_loss: bool = True
    headers: bool = False
    answer_bytes: int = ANSWER_BYTES  # most that a broker sends at once, unless one batch is larger


def read_options(given: Mapping[str, str], streaming: bool) -> Options:
    """The options of a batch or of a stream."""
    options = {name.lower(): str(value) for name, value in given.items()}
    _refuse_unknown(options, streaming)
    cluster = read_cluster(options)
    return Options(
        cluster=cluster,
        selection=_selection(options),
        start=_start(options, streaming),
        end=_end(options),
        most_per_batch=_number(options, "maxOffsetsPerTrigger"),
        least_tasks=_number(options, "minPartitions"),
        fail_on_loss=truth(options, "failOnDataLoss", True),
        headers=truth(options, "includeHeaders", False),
        answer_bytes=_answer_bytes(cluster.settings),
    )


def wrong(option: str, what: str, hint: str = "") -> ConfigError:
    return ConfigError(what, where=f"option `{option}`", hint=hint, code="OPTION")


def _refuse_unknown(options: Mapping[str, str], streaming: bool) -> None:
    for name in options:
        if name.startswith(_PREFIX):
            continue
        spelled = _SPELLED.get(name)
        if spelled is None:
            raise wrong(name, "there is no such option", nearest(name, _KNOWN))
        if spelled in (_OF_A_BATCH if streaming else _OF_A_STREAM):
            kind, other = ("stream", "batch") if streaming else ("batch", "stream")
            raise wrong(spelled, f"it is an option of a {other}, and this is a {kind}", "leave it out")


# --- single values ---------------------------------------------------------------------------


def _number(options: Mapping[str, str], name: str) -> int:
    text = options.get(name.lower())
    if text is None:
        return 0
    if not text.strip().isdecimal() or int(text) < 1:
        raise wrong(name, f"`{text}` is no number of at least 1")
    return int(text)


def truth(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise wrong(name, f"`{text}` is neither true nor false")
    return text == "true"


# --- the cluster -----------------------------------------------------------------------------


def read_cluster(options: Mapping[str, str]) -> Cluster:
    """The cluster that `kafka.` options lead to, with its security."""
    settings = {
        name[len(_PREFIX) :]: _resolved(name, value)
        for name, value in ((name.lower(), value) for name, value in options.items())
        if name.startswith(_PREFIX)
    }
    _refuse_slips(settings)
    _refuse_settings(settings)
    servers = split_list(settings.pop("bootstrap.servers", ""))
    if not servers:
        raise wrong("kafka.bootstrap.servers", "it is missing", "set it to host:port, or several with commas")
    try:
        addresses = tuple(map(broker, servers))
    except ValueError:
        raise wrong("kafka.bootstrap.servers", "it is not host:port, or several of them with commas") from None
    reading = read_security(settings)
    for told in reading.wrong:
        raise wrong(_PREFIX + told.name, told.text, told.hint)
    return secured(Cluster(alias=addresses[0], bootstrap=addresses, settings=settings), reading)


def _resolved(name: str, value: str) -> str:
    try:
        found: str = plain(Providers().resolve(value))
    except Missing as missing:
        raise wrong(name, missing.text, missing.hint) from None
    return found


def _refuse_slips(settings: Mapping[str, str]) -> None:
    """A name that nobody knows may have been meant to secure a connection."""
    for name in settings:
        if not name.startswith(SECURITY_SETTINGS) and name not in OF_CLIENTS:
            hint = nearest(_PREFIX + name, [_PREFIX + known for known in (*_SECURING, *sorted(OF_CLIENTS))])
            raise wrong(_PREFIX + name, "Kafka's clients know no such setting", hint)


def _refuse_settings(settings: Mapping[str, str]) -> None:
    for name, hint in _REFUSED.items():
        if name in settings:
            raise wrong(_PREFIX + name, "it cannot be set here", hint)
    if settings.get("isolation.level", "read_committed").strip().lower() != "read_committed":
        what = "only committed records are read"
        raise wrong(f"{_PREFIX}isolation.level", what, "leave it out, or set it to read_committed")
    for name in settings:
        unset = "security.protocol" not in settings
        if unset and name.startswith(SECURITY_SETTINGS) and not name.startswith("tunnel."):
            hint = "set it to SSL, SASL_SSL or SASL_PLAINTEXT"
            raise wrong(
                f"{_PREFIX}security.protocol", f"it is missing, so `{_PREFIX}{name}` would have no effect", hint
            )


def _answer_bytes(settings: Mapping[str, str]) -> int:
    """The smaller one, where both are set."""
    given = {name: settings[name].strip() for name in _ANSWER_SIZES if name in settings}
    for name, text in given.items():
        if not text.isdecimal() or not 1 <= int(text) <= _MOST_BYTES:
            raise wrong(_PREFIX + name, f"it is no number of bytes from 1 to {_MOST_BYTES}")
    return min(map(int, given.values()), default=ANSWER_BYTES)


# --- what to read ----------------------------------------------------------------------------


def _selection(options: Mapping[str, str]) -> Selection:
    chosen = [name for name in _SELECTIONS if name.lower() in options]
    if len(chosen) != 1:
        what = "none of them is set" if not chosen else f"{' and '.join(chosen)} are set"
        raise wrong(", ".join(_SELECTIONS), f"exactly one of them is meant, and {what}")
    name, text = chosen[0], options[chosen[0].lower()].strip()
    if name == "assign":
        return Selection(assign=jsons.partitions(text, name))
    if not text:
        raise wrong(name, "it is empty")
    if name == "subscribe":
        return Selection(topics=tuple(dict.fromkeys(split_list(text))))
    try:
        TopicFilter((text,))
    except ConfigError as error:
        raise wrong(name, error.message, error.hint) from None
    return Selection(pattern=text)


def _start(options: Mapping[str, str], streaming: bool) -> Bound:
    name = "startingOffsetsByTimestampStrategy"
    strategy = options.get(name.lower(), "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise wrong(name, f"`{strategy}` is neither error nor latest")
    found = _bound(options, "starting", "latest" if streaming else "earliest")
    if not streaming and (found.at == "latest" or jsons.LATEST in found.places.values()):
        raise wrong(found.option, "a batch cannot begin at the latest record: there would be nothing to read")
    return dataclasses.replace(found, or_latest=strategy == "latest")


def _end(options: Mapping[str, str]) -> Bound:
    found = _bound(options, "ending", "latest")
    if found.at == "earliest" or jsons.EARLIEST in found.places.values():
        raise wrong(found.option, "nothing can end at the earliest record: there would be nothing to read")
    return dataclasses.replace(found, or_latest=True)


def _bound(options: Mapping[str, str], which: str, default: str) -> Bound:
    """A time goes before times by partition, and those before offsets, as with Spark's own."""
    time, times, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if time.lower() in options:
        return Bound(option=time, at="time", time=_number(options, time))
    if times.lower() in options:
        return Bound(option=times, at="times", places=jsons.times(options[times.lower()], times))
    text = options.get(offsets.lower(), default).strip()
    if text.lower() in ("earliest", "latest"):
        return Bound(option=offsets, at=text.lower())
    return Bound(option=offsets, at="offsets", places=jsons.offsets(text, offsets))
