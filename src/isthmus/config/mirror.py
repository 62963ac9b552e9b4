"""The properties of MirrorMaker 2 into clusters and flows, wherever they stood.

Owns which level of a name wins (`topics` < `east.topics` < `east->west.topics`), MirrorMaker 2's defaults where they
differ from ours, and the origin of each value. Must stay true: a value that makes no sense is an error, and so is one
that would change what is delivered; all are gathered, not just the first. A value that a provider gave is never shown.
Which names exist is in `known`; how single flows read them, in `level`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

from isthmus.config import known
from isthmus.config.entries import Entry
from isthmus.config.level import Level, client_prefixes
from isthmus.config.places import Place, Problem, nearest
from isthmus.config.schema import ALIAS
from isthmus.config.substitute import Resolved
from isthmus.config.values import broker
from isthmus.mm2.filters import split_list
from isthmus.model import Cluster, Flow

_FLOW_KEY = re.compile(r"(?P<source>[^\s>]+?)->(?P<target>[^.\s]+)\.(?P<name>.+)")


class Reading:
    """One reading of a file; gathers problems, warnings and origins."""

    def __init__(self, path: Path, entries: dict[str, Entry], problems: list[Problem]) -> None:
        self.path = path
        self.entries = entries
        self.problems = problems
        self.warnings: list[tuple[int, str]] = []
        self.places: dict[str, Place] = {}
        self.aliases = self._aliases()

    def flows(self) -> tuple[Flow, ...]:
        pairs = [pair for pair in permutations(self.aliases, 2) if self._enabled(pair)]
        self._check_flow_names()
        self._refuse_changed_delivery()
        if not pairs and not self.problems:
            hint = "add e.g. `{}->{}.enabled = true`".format(*(*self.aliases, "east", "west")[:2])
            self.problems.append(Problem(0, "no flow is enabled", hint))
        clusters = {alias: self._cluster(alias, pairs) for alias in dict.fromkeys(a for pair in pairs for a in pair)}
        return tuple(Level(self, clusters[source], clusters[target]).flow() for source, target in pairs)

    def note(self, at: str, entry: Entry) -> None:
        self.places[at] = entry.origin(self.path)

    def boolean(self, entry: Entry) -> bool:
        if entry.value.lower() not in ("true", "false"):
            self.wrong(entry, "true or false is meant")
        return entry.value.lower() == "true"

    def check(self, entry: Entry, check: Callable[[str], object], value: str) -> None:
        try:
            check(value)
        except ValueError as error:
            text = f"what `{entry.shown}` gives cannot be used" if isinstance(entry.value, Resolved) else str(error)
            self.problems.append(Problem(entry.line, f"`{entry.key}`: {text}"))

    def wrong(self, entry: Entry, meant: str) -> None:
        problem = Problem(entry.line, f"`{entry.key}` is `{entry.shown}`", meant)
        if problem not in self.problems:
            self.problems.append(problem)

    def prefixes(self) -> list[str]:
        """Of flows and clusters, the longest first."""
        pairs = [f"{a}->{b}." for a, b in permutations(self.aliases, 2)]
        return sorted([*pairs, *(f"{a}." for a in self.aliases)], key=len, reverse=True)

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
        return entry is not None and self.boolean(entry)

    def _check_flow_names(self) -> None:
        """MirrorMaker 2 ignores flows between clusters that it does not know: surely not meant."""
        for entry in self.entries.values():
            found = _FLOW_KEY.fullmatch(entry.key)
            if not found or found["name"] != "enabled" or not self.aliases or not self.boolean(entry):
                continue
            for alias in (found["source"], found["target"]):
                if alias not in self.aliases:
                    text = f"`{entry.key}`: `clusters` does not name `{alias}`"
                    self.problems.append(Problem(entry.line, text, nearest(alias, self.aliases)))
            if found["source"] == found["target"]:
                text = f"`{entry.key}`: the flow leads to where it comes from"
                self.problems.append(Problem(entry.line, text, "name another cluster"))

    def _refuse_changed_delivery(self) -> None:
        prefixes = self.prefixes()
        for entry in self.entries.values():
            prefix = next((p for p in prefixes if entry.key.startswith(p)), "")
            name = entry.key.removeprefix(prefix)
            if instead := known.why_refused(name, entry.value) or known.why_refused(entry.key, entry.value):
                self.wrong(entry, f"that would change what is delivered: {instead}")

    # --- clusters -----------------------------------------------------------------------------

    def _cluster(self, alias: str, pairs: list[tuple[str, str]]) -> Cluster:
        settings: dict[str, str] = {}
        for prefix in self._security_prefixes(alias, pairs):
            for entry in self.entries.values():
                name = entry.key.removeprefix(prefix)
                if entry.key.startswith(prefix) and known.is_security(name):
                    settings[name] = entry.value
                    self.note(f"clusters.{alias}.properties.{name}", entry)
        if (rack := self._rack(alias, pairs)) and rack.value:
            settings["client.rack"] = rack.value
            self.note(f"clusters.{alias}.properties.client.rack", rack)
        return Cluster(alias=alias, bootstrap=self._bootstrap(alias), settings=settings)

    def _security_prefixes(self, alias: str, pairs: list[tuple[str, str]]) -> list[str]:
        """Weakest first. We have one client per cluster: what a source's consumer has, or a target's producer."""
        found = ["", f"{alias}."]
        for role, client, end in (("source", "consumer", 0), ("target", "producer", 1)):
            own = [pair for pair in pairs if pair[end] == alias]
            if own:
                everyone = [f"{client}."] if role in self.aliases else [f"{client}.", f"{role}.{client}."]
                found += [*everyone, f"{alias}.{client}."]
                found += [f"{a}->{b}.{way}{client}." for a, b in own for way in ("", f"{role}.")]
        return found

    def _rack(self, alias: str, pairs: list[tuple[str, str]]) -> Entry | None:
        """Where this process is, to fetch from the nearest replica: of a source only. The nearest level wins."""
        own = [pair for pair in pairs if pair[0] == alias]
        if not own:
            return None
        of_flows = (client_prefixes(f"{a}->{b}", "consumer", "source", a, self.aliases) for a, b in own)
        prefixes = (*(prefix for prefixes in of_flows for prefix in prefixes), f"{alias}.", "")
        return next((entry for prefix in prefixes if (entry := self.entries.get(f"{prefix}client.rack"))), None)

    def _bootstrap(self, alias: str) -> tuple[str, ...]:
        key = f"{alias}.bootstrap.servers"
        entry = self.entries.get(key)
        if entry is None or not split_list(entry.value):
            line = entry.line if entry else self.entries["clusters"].line
            self.problems.append(Problem(line, f"`{key}` is missing", f"add `{key} = host:port`"))
            return ()
        self.note(f"clusters.{alias}.bootstrap", entry)
        addresses = split_list(entry.value)
        for address in addresses:
            # MirrorMaker 2 takes `PLAINTEXT://host:port` as well.
            self.check(entry, broker, address)
        return tuple(address.rpartition("://")[2] for address in addresses)
