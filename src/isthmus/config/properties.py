"""MirrorMaker 2's `mm2.properties` into flows.

Must stay true: a file that MirrorMaker 2 runs is not refused for something harmless; whatever in it has no effect is
told in a warning with its line, its nearest match if it is not known, and what happens instead; values of security
settings are never shown. How the file is read is in `entries`, what its properties become in `mirror`, which names
exist in `known`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

from isthmus.config import known
from isthmus.config.entries import parse, substitute
from isthmus.config.level import client_prefixes
from isthmus.config.mirror import Reading
from isthmus.config.places import Place, Problem, nearest, refusal
from isthmus.config.substitute import Providers
from isthmus.model import Flow

_CLIENT_COUNTS = ("auto.offset.reset", "compression.type", "client.rack", *known.CLIENT_REFUSED)
_CLIENT_USED = (("consumer", "source", "auto.offset.reset"), ("producer", "target", "compression.type"))


def read(raw: bytes, path: Path, providers: Providers) -> tuple[tuple[Flow, ...], tuple[str, ...], dict[str, Place]]:
    """Flows, warnings and origins; ConfigError with everything that is wrong."""
    entries, doubled = parse(raw, path)
    problems: list[Problem] = []
    entries = substitute(entries, providers, problems)
    if problems:  # before all else: a value that is not there would be told a second time, as a wrong one
        raise refusal(path, problems)
    reading = Reading(path, entries, problems)
    flows = reading.flows()
    if reading.problems:
        raise refusal(path, reading.problems)
    return flows, told(reading, doubled), reading.places


def told(reading: Reading, more: list[tuple[int, str]]) -> tuple[str, ...]:
    """Warnings in the order of the file."""
    warnings = sorted({*more, *reading.warnings, *_unused(reading)})
    return tuple(f"line {line}: {text}" for line, text in warnings)


def _unused(reading: Reading) -> Iterator[tuple[int, str]]:
    prefixes = reading.prefixes()
    used = set(_used_of_clients(reading.aliases))
    for entry in reading.entries.values():
        prefix = next((p for p in prefixes if entry.key.startswith(p)), "")
        name = entry.key.removeprefix(prefix)
        if entry.key in used or known.declares_provider(name) or _is_used(prefix, name):
            continue
        if not known.is_harmless(name) and not known.is_harmless(entry.key):
            yield entry.line, _told(entry.key, prefix, name, prefixes)


def _used_of_clients(aliases: tuple[str, ...]) -> Iterator[str]:
    """Settings of clients that become something of ours, under every name that they may have."""
    for pair in permutations(aliases, 2):
        flow = "{}->{}".format(*pair)
        for client, role, name in _CLIENT_USED:
            alias = pair[role == "target"]
            yield from (prefix + name for prefix in client_prefixes(flow, client, role, alias, aliases))
        for prefix in (*client_prefixes(flow, "consumer", "source", pair[0], aliases), f"{pair[0]}.", ""):
            yield f"{prefix}client.rack"


def _is_used(prefix: str, name: str) -> bool:
    client = known.CLIENT.fullmatch(name)
    if client and client[1] != "admin" and known.is_security(client[2]):
        return True
    if not prefix:
        return name in known.TOP_ONLY or (name in known.USED and name != "enabled") or known.is_security(name)
    if "->" in prefix:
        return name in known.USED
    return name in known.CLUSTER_ONLY or (name in known.USED and name != "enabled") or known.is_security(name)


def _client_slip(name: str) -> str:
    """A hint, if a client's setting is nearly one that would count. Kafka's clients have too many to know them all."""
    client = known.CLIENT.fullmatch(name)
    near = difflib.get_close_matches(client[2], _CLIENT_COUNTS, n=1, cutoff=0.85) if client else []
    return (
        f"did you mean `{name.removesuffix(client[2])}{near[0]}`?" if client and near and near[0] != client[2] else ""
    )


def _told(key: str, prefix: str, name: str, prefixes: list[str]) -> str:
    if hint := _client_slip(name) or _client_slip(key):
        return f"`{key}` is not known and has no effect; {hint}"
    if why := known.why_unused(name) or known.why_unused(key):
        return f"`{key}` is known but has no effect: {why}"
    if name == "enabled" or (known.is_security(name) and "->" in prefix):
        return f"`{key}` has no effect there: {'flows' if name == 'enabled' else 'clusters'} have it"
    names = {*known.USED, *known.KNOWN, *known.TOP_ONLY, *known.REFUSED}
    candidates = {prefix + n for n in {*names, *known.CLUSTER_ONLY}} if prefix else names
    if not prefix:
        candidates |= {p + n for p in prefixes for n in (known.USED | known.CLUSTER_ONLY)}
    hint = nearest(key, candidates)
    return f"`{key}` is not known and has no effect" + (f"; {hint}" if hint.startswith("did") else "")
