"""The properties as one flow of MirrorMaker 2 sees them.

Owns which property becomes which field of the flow, and its default there. Must stay true: a flow's own property
comes before the target's, the source's, the file's; each value that was found is noted with its origin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from isthmus.config import known
from isthmus.config.entries import Entry
from isthmus.config.places import DEFAULT, MM2_DEFAULT, Place, Problem
from isthmus.config.schema import CODECS
from isthmus.config.substitute import Resolved
from isthmus.errors import ConfigError
from isthmus.mm2.filters import split_list
from isthmus.mm2.javaregex import compile_java
from isthmus.model import Cluster, Flow, Groups, Growth, Mm2Topics, Naming, Start, Sync, Topics, Tuning

# Where MirrorMaker 2's defaults are not ours. Its intervals for looking at topics, their configurations and access
# rules (600 s) are not kept: looking more often changes nothing but how soon a change is seen.
REPLICATION_FACTOR = 2
INTERNAL_REPLICATION_FACTOR = 3
SYNC_ACLS = True
_OURS = (
    *(
        "on_gap",
        "on_too_large",
        "on_foreign_write",
        "throttle",
        "cut_from",
        "compression",
        "tuning.",
        "transform",
        "growth.",
    ),
    *("sync.configs_seconds", "sync.acls_seconds"),
    *("naming.prefix", "naming.suffix", "naming.exact"),
)

_MIRROR = "org.apache.kafka.connect.mirror."
_POLICIES = {
    f"{_MIRROR}DefaultReplicationPolicy": "default",
    "DefaultReplicationPolicy": "default",
    f"{_MIRROR}IdentityReplicationPolicy": "identity",
    "IdentityReplicationPolicy": "identity",
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": "identity",
}


def default_place(key: str) -> Place:
    """Whose default a value of a flow is that the file does not give."""
    return DEFAULT if key.startswith(_OURS) else MM2_DEFAULT


class Gathering(Protocol):
    """What a level needs of the reading that it belongs to."""

    aliases: tuple[str, ...]
    entries: dict[str, Entry]
    problems: list[Problem]
    warnings: list[tuple[int, str]]

    def note(self, at: str, entry: Entry) -> None: ...
    def boolean(self, entry: Entry) -> bool: ...
    def wrong(self, entry: Entry, meant: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Level:
    """One flow's view. Every method takes first the name that our YAML has for the value, to note its origin."""

    reading: Gathering
    source: Cluster
    target: Cluster

    def flow(self) -> Flow:
        tuning = Tuning()
        lanes = self._number("lanes", "tasks.max", 1, lowest=1)
        return Flow(
            source=self.source,
            target=self.target,
            topics=self._topics(),
            groups=self._groups(),
            naming=self._naming(),
            lanes=lanes,
            growth=Growth(least=1 if lanes > 1 else 0),  # "max": as many as lag asks for, up to this
            replication_factor=self._factor("replication_factor", "replication.factor", REPLICATION_FACTOR),
            internal_replication_factor=self._internal_factor(),
            sync=self._sync(),
            mm2_topics=self._mm2_topics(),
            starts=self._starts(),
            compression=self._compression(),
            tuning=Tuning(
                refresh_seconds=self._seconds(
                    "tuning.refresh_seconds", "refresh.topics.interval.seconds", tuning.refresh_seconds
                ),
                progress_partitions=self._number(
                    "tuning.progress_partitions", "offset.storage.partitions", tuning.progress_partitions, lowest=1
                ),
            ),
        )

    # --- parts of a flow ----------------------------------------------------------------------

    def _topics(self) -> Topics:
        default = Topics()
        return Topics(
            include=self._regexes("topics", default.include, "topics", "topics.whitelist"),
            exclude=self._regexes("exclude", default.exclude, "topics.exclude", "topics.blacklist"),
        )

    def _groups(self) -> Groups:
        default = Groups()
        return Groups(
            include=self._regexes("groups", default.include, "groups", "groups.whitelist"),
            exclude=self._regexes("exclude_groups", default.exclude, "groups.exclude", "groups.blacklist"),
        )

    def _naming(self) -> Naming:
        policy = self._find("naming.policy", "replication.policy.class")
        separator = self._find("naming.separator", "replication.policy.separator")
        if policy and policy.value not in _POLICIES:
            meant = f"{_MIRROR}DefaultReplicationPolicy or {_MIRROR}IdentityReplicationPolicy is meant"
            self.reading.wrong(policy, meant)
        if separator and not re.fullmatch(r"[A-Za-z0-9._-]+", separator.value):
            self.reading.wrong(separator, "letters, digits, `.`, `_` or `-` are meant")
        same = self._boolean("naming.internal_separator", "replication.policy.internal.topic.separator.enabled", True)
        return Naming(
            policy=_POLICIES.get(policy.value, "default") if policy else "default",
            separator=separator.value if separator else Naming().separator,
            internal_separator="." if separator and separator.value != "." and not same else "",
        )

    def _sync(self) -> Sync:
        default = Sync()
        exclude = self._regexes(
            "sync.config_exclude", default.config_exclude, "config.properties.exclude", "config.properties.blacklist"
        )
        return Sync(
            configs=self._boolean("sync.configs", "sync.topic.configs.enabled", default.configs),
            configs_seconds=self._seconds(
                "sync.configs_seconds", "sync.topic.configs.interval.seconds", default.configs_seconds
            ),
            config_exclude=exclude,
            defaults_from=self._side("sync.defaults_from", "use.defaults.from", default.defaults_from),
            acls=self._boolean("sync.acls", "sync.topic.acls.enabled", SYNC_ACLS),
            acls_seconds=self._seconds("sync.acls_seconds", "sync.topic.acls.interval.seconds", default.acls_seconds),
        )

    def _mm2_topics(self) -> Mm2Topics:
        at, default = "mm2_topics.{}".format, Mm2Topics()
        return Mm2Topics(
            heartbeats=self._boolean(at("heartbeats"), "emit.heartbeats.enabled", True),
            heartbeat_seconds=self._seconds(
                at("heartbeat_seconds"), "emit.heartbeats.interval.seconds", default.heartbeat_seconds
            ),
            carry_heartbeats=self._boolean(at("carry_heartbeats"), "heartbeats.replication.enabled", True),
            offset_syncs=self._boolean(at("offset_syncs"), "emit.offset-syncs.enabled", True),
            offset_syncs_on=self._side(at("offset_syncs_on"), "offset-syncs.topic.location", default.offset_syncs_on),
            offset_lag_max=self._number(at("offset_lag_max"), "offset.lag.max", default.offset_lag_max, lowest=0),
            checkpoints=self._boolean(at("checkpoints"), "emit.checkpoints.enabled", True),
            checkpoint_seconds=self._seconds(
                at("checkpoint_seconds"), "emit.checkpoints.interval.seconds", default.checkpoint_seconds
            ),
            group_offsets=self._boolean(at("group_offsets"), "sync.group.offsets.enabled", False),
            group_offsets_seconds=self._seconds(
                at("group_offsets_seconds"), "sync.group.offsets.interval.seconds", default.group_offsets_seconds
            ),
        )

    def _internal_factor(self) -> int:
        """MirrorMaker 2 has one for each internal topic. Ours have one: that of progress, or else the first given."""
        at, names = "internal_replication_factor", ("offset.storage.replication.factor", *known.TOPIC_FACTORS)
        given = next((name for name in names if self._first((name,))), names[0])
        chosen = self._factor(at, given, INTERNAL_REPLICATION_FACTOR)
        for name in known.TOPIC_FACTORS:
            entry = self._first((name,))
            if entry and self._factor("", name, chosen) != chosen:
                text = f"`{entry.key}` has no effect: all internal topics have one replication factor, {chosen}"
                self.reading.warnings.append((entry.line, text))
        return chosen

    def _starts(self) -> tuple[Start, ...]:
        entry = self._client("start", "consumer", "source", self.source.alias, "auto.offset.reset")
        if entry and entry.value not in ("earliest", "latest"):
            self.reading.wrong(entry, "earliest or latest is meant; for a time, our YAML has `start`")
        return (Start(at=entry.value),) if entry else ()

    def _compression(self) -> str:
        entry = self._client("compression", "producer", "target", self.target.alias, "compression.type")
        if entry and entry.value not in CODECS:
            self.reading.wrong(entry, f"one of {', '.join(CODECS)} is meant")
        return entry.value if entry else ""

    # --- single values ------------------------------------------------------------------------

    def _find(self, at: str, *names: str) -> Entry | None:
        entry = self._first(names)
        if entry and at:
            self.reading.note(f"flows.{self.source.alias}->{self.target.alias}.{at}", entry)
        return entry

    def _first(self, names: tuple[str, ...]) -> Entry | None:
        """The entry that counts. Of several spellings, the first wins within a level only."""
        for prefix in (f"{self.source.alias}->{self.target.alias}.", f"{self.target.alias}.", f"{self.source.alias}."):
            for name in names:
                if entry := self.reading.entries.get(prefix + name):
                    return entry
        return next((entry for name in names if (entry := self.reading.entries.get(name))), None)

    def _client(self, at: str, client: str, role: str, alias: str, name: str) -> Entry | None:
        flow = f"{self.source.alias}->{self.target.alias}"
        for prefix in client_prefixes(flow, client, role, alias, self.reading.aliases):
            if entry := self.reading.entries.get(prefix + name):
                self.reading.note(f"flows.{flow}.{at}", entry)
                return entry
        return None

    def _boolean(self, at: str, name: str, default: bool) -> bool:
        entry = self._find(at, name)
        return default if entry is None else self.reading.boolean(entry)

    def _number(self, at: str, name: str, default: int, *, lowest: int) -> int:
        entry = self._find(at, name)
        if entry is None:
            return default
        if not re.fullmatch(r"[+-]?\d{1,9}", entry.value) or int(entry.value) < lowest:
            self.reading.wrong(entry, f"a number from {lowest} is meant")
            return default
        return int(entry.value)

    def _seconds(self, at: str, name: str, default: float) -> float:
        """Given ones are whole seconds, as in MirrorMaker 2."""
        entry = self._first((name,))
        return default if entry is None else float(self._number(at, name, 1, lowest=1))

    def _factor(self, at: str, name: str, default: int) -> int:
        found = self._number(at, name, default, lowest=-1)
        if found == 0 and (entry := self._first((name,))):
            self.reading.wrong(entry, "-1 (the cluster's default) or a number from 1 is meant")
        return found

    def _side(self, at: str, name: str, default: str) -> str:
        entry = self._find(at, name)
        if entry and entry.value not in ("source", "target"):
            self.reading.wrong(entry, "source or target is meant")
        return entry.value if entry else default

    def _regexes(self, at: str, default: tuple[str, ...], *names: str) -> tuple[str, ...]:
        entry = self._find(at, *names)
        if entry is None:
            return default
        patterns = split_list(entry.value)
        for pattern in patterns:
            self._compile(entry, pattern, any_text=at.endswith("groups"))
        return patterns

    def _compile(self, entry: Entry, pattern: str, *, any_text: bool) -> None:
        try:
            compile_java(pattern, any_text=any_text)
        except ConfigError as error:
            secret = isinstance(entry.value, Resolved)
            text = f"what `{entry.shown}` gives is not a regular expression that can be used"
            problem = Problem(entry.line, f"`{entry.key}`: {text if secret else error.message}", error.hint)
            if problem not in self.reading.problems:
                self.reading.problems.append(problem)


def client_prefixes(flow: str, client: str, role: str, alias: str, aliases: tuple[str, ...]) -> Iterator[str]:
    """Under which a setting of a client may stand, the nearest first. A cluster may be called `source`, too."""
    for way in (f"{role}.{client}.", f"{client}.override.", f"{client}."):
        yield f"{flow}.{way}"
    for way in (f"{client}.override.", f"{client}."):
        yield f"{alias}.{way}"
    if role not in aliases:
        yield f"{role}.{client}."
    yield from (f"{client}.override.", f"{client}.")
