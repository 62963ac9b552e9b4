"""MirrorMaker 2's `mm2.properties` into flows.

Owns how the file is read (as java.util.Properties does, keeping lines), which level of a name wins
(`topics` < `east.topics` < `east->west.topics`) and MirrorMaker 2's defaults where they differ from ours.
Must stay true: a file that MirrorMaker 2 runs is not refused for something harmless; whatever in it has no
effect is told in a warning with its line; a value that makes no sense is an error; values of security
settings are never shown. Which names exist is in `known`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import javaproperties

from isthmus.config import known
from isthmus.config.places import Problem, nearest, refusal
from isthmus.config.schema import ALIAS, broker
from isthmus.errors import ConfigError
from isthmus.mm2.filters import split_list
from isthmus.mm2.javaregex import compile_java
from isthmus.model import Cluster, Flow, Naming, Topics, Tuning

# Where MirrorMaker 2's defaults are not ours. Its refresh interval (600 s) is not kept: looking more often
# changes nothing but how soon a new topic joins.
REPLICATION_FACTOR = 2
INTERNAL_REPLICATION_FACTOR = 3

_MIRROR = "org.apache.kafka.connect.mirror."
_POLICIES = {
    f"{_MIRROR}DefaultReplicationPolicy": "default",
    "DefaultReplicationPolicy": "default",
    f"{_MIRROR}IdentityReplicationPolicy": "identity",
    "IdentityReplicationPolicy": "identity",
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": "identity",
}
_LINE_END = re.compile(r"\r\n|\r|\n")
_FLOW_KEY = re.compile(r"(?P<source>[^\s>]+?)->(?P<target>[^.\s]+)\.(?P<name>.+)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One property with the line that it starts in."""

    key: str
    value: str
    line: int


def read(raw: bytes, path: Path) -> tuple[tuple[Flow, ...], tuple[str, ...]]:
    """Flows and warnings; ConfigError with everything that is wrong."""
    entries, doubled = _parse(raw, path)
    reading = _Reading(path, entries)
    flows = reading.flows()
    if reading.problems:
        raise refusal(path, reading.problems)
    warnings = sorted([*doubled, *_unused(entries, reading.aliases)])
    return flows, tuple(f"line {line}: {text}" for line, text in warnings)


def _parse(raw: bytes, path: Path) -> tuple[dict[str, Entry], list[tuple[int, str]]]:
    """The last of doubled keys wins, as in Java."""
    entries: dict[str, Entry] = {}
    doubled: list[tuple[int, str]] = []
    line = 1
    # Java reads such files as Latin-1, whatever they are.
    pieces = javaproperties.parse(raw.decode("latin-1"))
    while piece := _next(pieces, line, path):
        if isinstance(piece, javaproperties.KeyValue):
            if before := entries.get(piece.key):
                doubled.append((line, f"`{piece.key}` replaces the value of line {before.line}"))
            entries[piece.key] = Entry(piece.key, piece.value.strip(), line)
        line += len(_LINE_END.findall(piece.source))
    return entries, doubled


def _next(
    pieces: Iterator[javaproperties.PropertiesElement], line: int, path: Path
) -> javaproperties.PropertiesElement | None:
    try:
        return next(pieces, None)
    except javaproperties.InvalidUEscapeError as error:
        text = f"`{error.escape}` is not an escape that Java reads"
        raise refusal(path, [Problem(line, text, "write \\uXXXX, or double the backslash")]) from None


class _Reading:
    """One reading of a file; gathers problems instead of stopping at the first."""

    def __init__(self, path: Path, entries: dict[str, Entry]) -> None:
        self.path = path
        self.entries = entries
        self.problems: list[Problem] = []
        self.aliases = self._aliases()

    def flows(self) -> tuple[Flow, ...]:
        pairs = [pair for pair in permutations(self.aliases, 2) if self._enabled(pair)]
        self._check_flow_names()
        if not pairs and not self.problems:
            hint = "add e.g. `{}->{}.enabled = true`".format(*(*self.aliases, "east", "west")[:2])
            self.problems.append(Problem(0, "no flow is enabled", hint))
        clusters = {alias: self._cluster(alias) for alias in dict.fromkeys(a for pair in pairs for a in pair)}
        return tuple(self._flow(clusters[source], clusters[target]) for source, target in pairs)

    def _aliases(self) -> tuple[str, ...]:
        entry = self.entries.get("clusters")
        if entry is None or not split_list(entry.value):
            line = entry.line if entry else 0
            self.problems.append(Problem(line, "`clusters` names no clusters", "add e.g. `clusters = east, west`"))
            return ()
        for alias in split_list(entry.value):
            if not ALIAS.fullmatch(alias):
                text = f"`{alias}` cannot be a cluster's alias"
                self.problems.append(Problem(entry.line, text, "use letters, digits, `-` and `_`"))
        return tuple(dict.fromkeys(split_list(entry.value)))

    def _enabled(self, pair: tuple[str, str]) -> bool:
        entry = self.entries.get("{}->{}.enabled".format(*pair))
        return entry is not None and self._boolean(entry)

    def _check_flow_names(self) -> None:
        """MirrorMaker 2 ignores flows between clusters that it does not know: surely not meant."""
        for entry in self.entries.values():
            found = _FLOW_KEY.fullmatch(entry.key)
            if not found or found["name"] != "enabled" or not self.aliases or not self._boolean(entry):
                continue
            for alias in (found["source"], found["target"]):
                if alias not in self.aliases:
                    text = f"`{entry.key}`: `clusters` does not name `{alias}`"
                    self.problems.append(Problem(entry.line, text, nearest(alias, self.aliases)))
            if found["source"] == found["target"]:
                text = f"`{entry.key}`: the flow leads to where it comes from"
                self.problems.append(Problem(entry.line, text, "name another cluster"))

    def _cluster(self, alias: str) -> Cluster:
        settings: dict[str, str] = {}
        for prefix in ("", f"{alias}."):
            for entry in self.entries.values():
                name = entry.key.removeprefix(prefix)
                if entry.key.startswith(prefix) and known.is_security(name):
                    settings[name] = entry.value
        return Cluster(alias=alias, bootstrap=self._bootstrap(alias), settings=settings)

    def _bootstrap(self, alias: str) -> tuple[str, ...]:
        key = f"{alias}.bootstrap.servers"
        entry = self.entries.get(key)
        if entry is None or not split_list(entry.value):
            line = entry.line if entry else self.entries["clusters"].line
            self.problems.append(Problem(line, f"`{key}` is missing", f"add `{key} = host:port`"))
            return ()
        addresses = split_list(entry.value)
        for address in addresses:
            # MirrorMaker 2 takes `PLAINTEXT://host:port` as well.
            self._check(entry, broker, address.rpartition("://")[2])
        return tuple(address.rpartition("://")[2] for address in addresses)

    def _flow(self, source: Cluster, target: Cluster) -> Flow:
        level = _Level(self, source.alias, target.alias)
        tuning = Tuning()
        seconds = level.number("refresh.topics.interval.seconds", None, lowest=1)
        partitions = level.number("offset.storage.partitions", None, lowest=1)
        tuning = dataclasses.replace(
            tuning,
            refresh_seconds=float(seconds or tuning.refresh_seconds),
            progress_partitions=partitions or tuning.progress_partitions,
        )
        return Flow(
            source=source,
            target=target,
            topics=level.topics(),
            naming=level.naming(),
            lanes=level.number("tasks.max", 1, lowest=1) or 1,
            replication_factor=level.factor("replication.factor", REPLICATION_FACTOR),
            internal_replication_factor=level.factor("offset.storage.replication.factor", INTERNAL_REPLICATION_FACTOR),
            tuning=tuning,
        )

    def _boolean(self, entry: Entry) -> bool:
        if entry.value.lower() not in ("true", "false"):
            self.wrong(entry, "true or false is meant")
        return entry.value.lower() == "true"

    def _check(self, entry: Entry, check: Callable[[str], object], value: str) -> None:
        try:
            check(value)
        except ValueError as error:
            self.problems.append(Problem(entry.line, f"`{entry.key}`: {error}"))

    def wrong(self, entry: Entry, meant: str) -> None:
        self.problems.append(Problem(entry.line, f"`{entry.key}` is `{entry.value}`", meant))


@dataclass(frozen=True, slots=True)
class _Level:
    """The properties as one flow sees them: its own before the target's, the source's, the file's."""

    reading: _Reading
    source: str
    target: str

    def find(self, *names: str) -> Entry | None:
        """The entry that counts. Of several spellings, the first wins within a level only."""
        for prefix in (f"{self.source}->{self.target}.", f"{self.target}.", f"{self.source}.", ""):
            for name in names:
                if entry := self.reading.entries.get(prefix + name):
                    return entry
        return None

    def number(self, name: str, default: int | None, *, lowest: int) -> int | None:
        entry = self.find(name)
        if entry is None:
            return default
        if not re.fullmatch(r"[+-]?\d{1,9}", entry.value) or int(entry.value) < lowest:
            self.reading.wrong(entry, f"a number from {lowest} is meant")
            return default
        return int(entry.value)

    def factor(self, name: str, default: int) -> int:
        found = self.number(name, default, lowest=-1)
        if found == 0 and (entry := self.find(name)):
            self.reading.wrong(entry, "-1 (the cluster's default) or a number from 1 is meant")
        return default if found is None else found

    def topics(self) -> Topics:
        default = Topics()
        return Topics(
            include=self._regexes(default.include, "topics", "topics.whitelist"),
            exclude=self._regexes(default.exclude, "topics.exclude", "topics.blacklist"),
        )

    def _regexes(self, default: tuple[str, ...], *names: str) -> tuple[str, ...]:
        entry = self.find(*names)
        if entry is None:
            return default
        patterns = split_list(entry.value)
        for pattern in patterns:
            self._compile(entry, pattern)
        return patterns

    def _compile(self, entry: Entry, pattern: str) -> None:
        try:
            compile_java(pattern)
        except ConfigError as error:
            self.reading.problems.append(Problem(entry.line, f"`{entry.key}`: {error.message}", error.hint))

    def naming(self) -> Naming:
        policy, separator = self.find("replication.policy.class"), self.find("replication.policy.separator")
        if policy and policy.value not in _POLICIES:
            meant = f"{_MIRROR}DefaultReplicationPolicy or {_MIRROR}IdentityReplicationPolicy is meant"
            self.reading.wrong(policy, meant)
        if separator and not re.fullmatch(r"[A-Za-z0-9._-]+", separator.value):
            self.reading.wrong(separator, "letters, digits, `.`, `_` or `-` are meant")
        return Naming(
            policy=_POLICIES.get(policy.value, "default") if policy else "default",
            separator=separator.value if separator else Naming().separator,
        )


# --- what has no effect -----------------------------------------------------------------------


def _unused(entries: dict[str, Entry], aliases: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    prefixes = sorted(
        [f"{a}->{b}." for a, b in permutations(aliases, 2)] + [f"{a}." for a in aliases],
        key=len,
        reverse=True,
    )
    for entry in entries.values():
        prefix = next((p for p in prefixes if entry.key.startswith(p)), "")
        name = entry.key.removeprefix(prefix)
        if not _is_used(prefix, name):
            yield entry.line, _told(entry.key, prefix, name, prefixes)


def _is_used(prefix: str, name: str) -> bool:
    if not prefix:
        return name in known.TOP_ONLY or (name in known.USED and name != "enabled") or known.is_security(name)
    if "->" in prefix:
        return name in known.USED
    return name in known.CLUSTER_ONLY or (name in known.USED and name != "enabled") or known.is_security(name)


def _told(key: str, prefix: str, name: str, prefixes: list[str]) -> str:
    if why := known.why_unused(name) or known.why_unused(key):
        return f"`{key}` is known but not used yet: {why}"
    if name == "enabled" or (known.is_security(name) and "->" in prefix):
        return f"`{key}` has no effect there: {'flows' if name == 'enabled' else 'clusters'} have it"
    names = {*known.USED, *known.KNOWN, *known.TOP_ONLY}
    candidates = {prefix + n for n in {*names, *known.CLUSTER_ONLY}} if prefix else names
    if not prefix:
        candidates |= {p + n for p in prefixes for n in (known.USED | known.CLUSTER_ONLY)}
    hint = nearest(key, candidates)
    return f"`{key}` is not known and has no effect" + (f"; {hint}" if hint.startswith("did") else "")
