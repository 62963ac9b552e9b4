"""A file of Java properties as entries with their lines.

Owns reading as java.util.Properties does (escapes, continued lines, Latin-1, the last of doubled keys wins), and
replacing `${...}` in values, by the providers that the file declares itself (`config.providers`) and ours. What the
names mean is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import javaproperties

from isthmus.config.places import Place, Problem, place, refusal
from isthmus.config.substitute import Missing, Providers, Resolved, shown
from isthmus.mm2.filters import split_list

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Entry:
    """One property with the line that it starts in. The value may be `Resolved`: a secret."""

    key: str
    value: str
    line: int

    @property
    def shown(self) -> str:
        return shown(self.value)

    def origin(self, path: Path) -> Place:
        reference = self.value.text if isinstance(self.value, Resolved) else None
        return Place(place(Path(path.name), self.line), reference)


def parse(raw: bytes, path: Path) -> tuple[dict[str, Entry], list[tuple[int, str]]]:
    """Entries by key, and what is to be said of doubled ones, by line."""
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


def substitute(
    entries: dict[str, Entry], providers: Providers, problems: list[Problem], declared_under: tuple[str, ...] = ("",)
) -> dict[str, Entry]:
    """Every value with its references replaced; what leads nowhere becomes a problem of its line."""
    for prefix in declared_under:
        providers = _declared(entries, providers, prefix, problems)
    return {key: _substituted(entry, providers, problems) for key, entry in entries.items()}


def _substituted(entry: Entry, providers: Providers, problems: list[Problem]) -> Entry:
    try:
        return Entry(entry.key, providers.resolve(entry.value), entry.line)
    except Missing as missing:
        problems.append(Problem(entry.line, f"`{entry.key}`: {missing.text}", missing.hint))
        return Entry(entry.key, Resolved("", entry.value), entry.line)


def _declared(entries: dict[str, Entry], providers: Providers, prefix: str, problems: list[Problem]) -> Providers:
    entry = entries.get(f"{prefix}config.providers")
    for name in split_list(entry.value) if entry else ():
        declaration = entries.get(f"{prefix}config.providers.{name}.class")
        try:
            providers = providers.declaring({name: declaration.value} if declaration else {})
        except Missing as missing:
            line = declaration.line if declaration else 0
            problems.append(Problem(line, f"`{prefix}config.providers.{name}.class`: {missing.text}", missing.hint))
    return providers
