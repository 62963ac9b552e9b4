"""The `setenv.sh` of kafka-cloud-replicator into a flow.

Owns the names of its variables. That tool runs Confluent's Replicator: topics by one Java regular expression, copied
under their name with a suffix, and no topics of MirrorMaker 2. Must stay true: keys and secrets are never shown. How a
script is read without running it is in `shell`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from isthmus.config import tunnels
from isthmus.config.credentials import login
from isthmus.config.places import Place, Problem, nearest, place, refusal
from isthmus.config.schema import ALIAS
from isthmus.config.shell import Assigned, Script
from isthmus.config.substitute import Providers, Resolved, keep, shown
from isthmus.config.values import broker
from isthmus.errors import ConfigError
from isthmus.mm2.filters import split_list
from isthmus.mm2.javaregex import compile_java
from isthmus.model import Cluster, Flow, Groups, Mm2Topics, Naming, Topics

_ENDS = ("SOURCE", "DESTINATION")
_REGEX, _SUFFIX = "REPLICA_TOPICS_SOURCE_REGEX", "REPLICA_TOPICS_DEST_SUFFIX"
_REQUIRED = (*(f"{end}_{what}" for end in _ENDS for what in ("CLUSTER_ID", "BROKER_SERVERS")), _REGEX)
_LOGIN = tuple(f"{end}_API_{what}" for end in _ENDS for what in ("KEY", "SECRET"))
_NEAR, _FAR, _SHARED = "DESTINATION_SIDE_TUNNEL_IP", "SOURCE_SIDE_TUNNEL_IP", "SHARED_SECRET"
_PORT, _REVERSE = "TUNNEL_PORT", "TUNNEL_REVERSE"  # not of that tool: its tunnel had one port and one direction
_TUNNEL = (_FAR, _NEAR, _SHARED, _PORT, _REVERSE)


def read(text: str, path: Path, providers: Providers) -> tuple[tuple[Flow, ...], tuple[str, ...], dict[str, Place]]:
    """The flow, warnings and origins; ConfigError with everything that is wrong."""
    reading = _Reading(path, Script(text, providers))
    if reading.problems:
        raise refusal(path, reading.problems)
    flow = reading.flow()
    warnings = sorted({*reading.script.warnings, *reading.unused()})
    return (flow,), tuple(f"line {line}: {text}" for line, text in warnings), dict(reading.places(flow))


_SECRETS = frozenset({"SHARED_SECRET", *(f"{end}_API_SECRET" for end in _ENDS)})
_NEXT_LINE = re.compile(r"\n|_SECRET=")


class _Reading:
    def __init__(self, path: Path, script: Script) -> None:
        self.path = path
        self.script = script
        self.problems = [*script.problems, *self._missing(), *self._wrong()]

    def _get(self, name: str) -> Assigned | None:
        found = self.script.assigned.get(name)
        return found if found and found.value.strip() else None

    def _value(self, name: str) -> str:
        found = self._get(name)
        return found.value if found else ""

    # --- what is wrong --------------------------------------------------------------------------

    def _missing(self) -> Iterator[Problem]:
        for name in _REQUIRED:
            if not self._get(name) and not self.script.problems:
                yield Problem(0, f"`{name}` is missing", f"add `export {name}=...`")
        for end in _ENDS:
            key, secret = self._get(f"{end}_API_KEY"), self._get(f"{end}_API_SECRET")
            if (key is None) != (secret is None):
                line = (key or secret or Assigned("", "", 0)).line
                yield Problem(line, f"`{end}_API_KEY` and `{end}_API_SECRET` go together", "set both, or none")

    def _swallowed(self) -> Iterator[Problem]:
        """A quote that is never closed makes later lines part of a value, and with them their secrets."""
        for found in self.script.assigned.values():
            if found.name not in _SECRETS and _NEXT_LINE.search(found.value):
                yield Problem(found.line, f"`{found.name}` goes on over the next line", "is a quote missing?")

    def _wrong(self) -> Iterator[Problem]:
        if swallowed := [*self._swallowed()]:
            yield from () if self.script.problems else swallowed
            return  # what else is wrong could not be told without showing values
        for end in _ENDS:
            if (alias := self._get(f"{end}_CLUSTER_ID")) and not ALIAS.fullmatch(alias.value):
                hint = "use letters, digits, `-` and `_`: it becomes part of topic names"
                yield Problem(alias.line, f"`{alias.name}` is `{shown(alias.value)}`", hint)
            if servers := self._get(f"{end}_BROKER_SERVERS"):
                yield from self._bad_servers(servers)
        one, other = (self._get(f"{end}_CLUSTER_ID") for end in _ENDS)
        if one and other and one.value == other.value:
            yield Problem(other.line, "the flow leads to where it comes from", "name another cluster")
        if regex := self._get(_REGEX):
            yield from self._bad_regex(regex)
        if (suffix := self._get(_SUFFIX)) and not re.fullmatch(r"[A-Za-z0-9._-]+", suffix.value):
            hint = "letters, digits, `.`, `_` or `-` are meant"
            yield Problem(suffix.line, f"`{suffix.name}` cannot be part of a topic's name", hint)

    def _bad_servers(self, servers: Assigned) -> Iterator[Problem]:
        try:
            for address in split_list(servers.value):
                broker(address)
        except ValueError as error:
            secret = isinstance(servers.value, Resolved)
            text = f"what `{shown(servers.value)}` gives is not a list of host:port" if secret else str(error)
            yield Problem(servers.line, f"`{servers.name}`: {text}")

    def _bad_regex(self, regex: Assigned) -> Iterator[Problem]:
        try:
            compile_java(regex.value)
        except ConfigError as error:
            secret = isinstance(regex.value, Resolved)
            text = f"what `{shown(regex.value)}` gives is not a regular expression" if secret else error.message
            yield Problem(regex.line, f"`{regex.name}`: {text}", error.hint)

    # --- what is asked for ----------------------------------------------------------------------

    def flow(self) -> Flow:
        source, target = (self._cluster(end) for end in _ENDS)
        suffix = self._value(_SUFFIX)
        return Flow(
            source=source,
            target=target,
            topics=Topics(include=(self._value(_REGEX),), exclude=()),
            # The tool joins with a dot: `copy` makes `bills.copy` of `bills`.
            naming=Naming(policy="rename", suffix=f".{suffix}") if suffix else Naming(policy="identity"),
            groups=Groups(include=()),
            mm2_topics=Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=False, checkpoints=False),
        )

    def _tunnel(self) -> dict[str, str]:
        """The replicator runs at the destination, and the source's brokers are behind the tunnel."""
        reverse = self._value(_REVERSE).lower() == "true"
        end, secret = self._value(self._listens()), self._value(_SHARED)
        if not end or not secret:
            return {}
        port = self._value(_PORT) or str(tunnels.DEFAULT_PORT)
        found = {tunnels.DIAL: keep(end, f"{end}:{port}"), tunnels.SECRET: secret}
        peer = self._value(_FAR if reverse else _NEAR)
        return found | ({tunnels.REVERSE: "true"} if reverse else {}) | ({tunnels.PEER: peer} if peer else {})

    def _listens(self) -> str:
        """The variable with the address that is dialled."""
        return _NEAR if self._value(_REVERSE).lower() == "true" else _FAR

    def _cluster(self, end: str) -> Cluster:
        key, secret = self._value(f"{end}_API_KEY"), self._value(f"{end}_API_SECRET")
        settings = login("PLAIN", key, secret, tls=True) if key else {}
        settings |= self._tunnel() if end == "SOURCE" else {}
        addresses = split_list(self._value(f"{end}_BROKER_SERVERS"))
        alias = str(self._value(f"{end}_CLUSTER_ID"))
        return Cluster(alias=alias, bootstrap=tuple(map(broker, addresses)), settings=settings)

    def unused(self) -> Iterator[tuple[int, str]]:
        known = (*_REQUIRED, *_LOGIN, *_TUNNEL, _SUFFIX)
        half = "" if self._tunnel() else "the tunnel needs `SHARED_SECRET` and the address of the side that listens"
        for found in self.script.assigned.values():
            if found.name in _TUNNEL:
                if half:
                    yield found.line, f"`{found.name}` has no effect: {half}"
            elif found.name not in known and found.name not in self.script.used:
                hint = nearest(found.name, known)
                said = f"; {hint}" if hint.startswith("did") else ""
                yield found.line, f"`{found.name}` is not known and has no effect{said}"

    # --- where it stands ------------------------------------------------------------------------

    def places(self, flow: Flow) -> Iterator[tuple[str, Place]]:
        yield from self._at(f"flows.{flow.name}.topics", _REGEX)
        if found := self._get(_SUFFIX):
            reference = f".{found.value.text}" if isinstance(found.value, Resolved) else None
            yield f"flows.{flow.name}.naming.suffix", Place(self._where(found), reference)
            yield f"flows.{flow.name}.naming.policy", Place(self._where(found))
        for key in ("exclude", "groups", *(f"mm2_topics.{k}" for k in ("heartbeats", "carry_heartbeats"))):
            yield f"flows.{flow.name}.{key}", Place("as kafka-cloud-replicator does")
        for key in ("mm2_topics.offset_syncs", "mm2_topics.checkpoints"):
            yield f"flows.{flow.name}.{key}", Place("as kafka-cloud-replicator does")
        for end, cluster in zip(_ENDS, (flow.source, flow.target), strict=True):
            yield from self._at(f"clusters.{cluster.alias}.bootstrap", f"{end}_BROKER_SERVERS")
            for name, value in cluster.settings.items():
                origin = {tunnels.SECRET: _SHARED, tunnels.DIAL: self._listens(), tunnels.REVERSE: _REVERSE}
                origin[tunnels.PEER] = _NEAR if self._listens() == _FAR else _FAR
                if found := self._get(origin.get(name, f"{end}_API_SECRET")):
                    reference = value.text if isinstance(value, Resolved) else None
                    yield f"clusters.{cluster.alias}.properties.{name}", Place(self._where(found), reference)

    def _at(self, key: str, name: str) -> Iterator[tuple[str, Place]]:
        if found := self._get(name):
            # One expression, commas and all: as a text in our YAML it would be split.
            reference = found.value.text if isinstance(found.value, Resolved) else None
            as_list = [reference] if reference and key.endswith(".topics") else reference
            yield key, Place(self._where(found), as_list)

    def _where(self, found: Assigned) -> str:
        return place(Path(self.path.name), found.line)
