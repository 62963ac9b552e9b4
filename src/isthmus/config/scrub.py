"""Takes every secret of a configuration out of values that leave this machine: a second lock behind `written`.

What must stay true: whatever a file, its providers or its stores' settings gave as a secret is found in no text that
was scrubbed, however it got there; a PEM key is not found line by line either. Very short secrets are left alone: they
would be found in any text, and tell nothing by it. (Where they stand under their own name, `written` hides them.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass

from isthmus.config.credentials import is_secret
from isthmus.config.written import HIDDEN
from isthmus.model import Flow
from isthmus.security import Secret

_SHORTEST = 4
_LINE = 16  # of a PEM text; what is shorter is its frame or its end


def secrets_of(flows: Iterable[Flow]) -> tuple[str, ...]:
    """Every secret of these flows' clusters, the longest first: one may be part of another."""
    clusters = {end.alias: end for flow in flows for end in (flow.source, flow.target)}.values()
    found: set[str] = set()
    for cluster in clusters:
        found.update(_in_value(cluster.security))
        found.update(value for name, value in cluster.settings.items() if is_secret(name))
    lines = {line.strip() for text in found if "\n" in text for line in text.splitlines() if _is_telling(line)}
    return tuple(sorted((each for each in found | lines if len(each) >= _SHORTEST), key=len, reverse=True))


def _is_telling(line: str) -> bool:
    return len(line.strip()) >= _LINE and not line.startswith("-----")


def _in_value(value: object) -> Iterator[str]:
    if isinstance(value, Secret):
        yield value.reveal()
    elif isinstance(value, tuple):
        for each in value:
            yield from _in_value(each)
    elif is_dataclass(value):
        for each in fields(value):
            yield from _in_value(getattr(value, each.name))


def scrubbed(value: object, secrets: Iterable[str]) -> object:
    """The same without secrets: in texts, in lists, in values and keys of mappings."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return str(value)  # also of what remembers a reference
    if isinstance(value, dict):
        return {str(scrubbed(str(key), secrets)): scrubbed(each, secrets) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [scrubbed(each, secrets) for each in value]
    return value
