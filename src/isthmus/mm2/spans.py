r"""Lists of expressions as access rules can say them: one name, names with a prefix, or every name.

Kafka's access rules know no expressions. What must stay true: every name that an expression matches is within its
spans, with one exception that is meant: a bare dot between letters (`shop.orders`) stands for a dot, as it was
surely meant, although it would match any character. A span that holds more than its expression says so (`wider`).
Excludes are not looked at: an access rule that allows cannot leave names out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

LITERAL, PREFIXED = "literal", "prefixed"
EVERY = "*"

_PLAIN = re.compile(r"(?:(?:[^\\\[\](){}*+?|^$]|\\[^A-Za-z0-9])(?![*+?{]))*")
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|$)")
_ESCAPED = re.compile(r"\\(.)")
_WRAPPED = re.compile(r"\((?:\?:)?([^()]*)\)")
_ALL_OF_IT = (".*", ".+")


class Span(NamedTuple):
    """Names that one access rule can be about."""

    pattern: str  # LITERAL | PREFIXED
    name: str  # EVERY with LITERAL: all names
    wider: bool = False  # than the expression that it is for
    expression: str = ""

    def holds(self, name: str) -> bool:
        if self.pattern == PREFIXED:
            return name.startswith(self.name)
        return self.name in (EVERY, name)

    def covers(self, other: Span) -> bool:
        """Whether every name of the other is in this one."""
        if (self.pattern, self.name) == (LITERAL, EVERY):
            return True
        if other.pattern == PREFIXED:
            return self.pattern == PREFIXED and other.name.startswith(self.name)
        return other.name != EVERY and self.holds(other.name)

    def __str__(self) -> str:
        return f"{self.name}* (as a prefix)" if self.pattern == PREFIXED else self.name


def prefixed(name: str, *, wider: bool = False, expression: str = "") -> Span:
    """An empty prefix is every name."""
    return Span(PREFIXED if name else LITERAL, name or EVERY, wider, expression)


def spans(expressions: Iterable[str]) -> list[Span]:
    """What these expressions match, in as few rules as hold them."""
    found = [_span(part, text) for text in expressions for part in _alternatives(text)]
    kept: list[Span] = []
    for span in found:
        if not any(other.covers(span) for other in kept):
            kept = [*(other for other in kept if not span.covers(other)), span]
    return kept


def _alternatives(text: str) -> list[str]:
    """The branches of an expression, where they can be told without reading it in full."""
    if found := _WRAPPED.fullmatch(text):
        text = found[1]
    simple = "|" in text and not set(text) & set("()[]") and "\\Q" not in text and "\\|" not in text
    return text.split("|") if simple else [text]


def _span(text: str, expression: str) -> Span:
    text = _QUOTED.sub(lambda found: re.escape(found[1]), text)
    plain = _PLAIN.match(text)
    end = plain.end() if plain else 0
    name, rest = _ESCAPED.sub(r"\1", text[:end]), text[end:]
    if not rest and name:
        return Span(LITERAL, name, expression=expression)
    return prefixed(name, wider=rest not in _ALL_OF_IT, expression=expression)
