r"""Java regular expressions, written again for Python's `re`.

Owns the differences that a topic filter can meet: `\Q..\E`, `\p{..}`, `\z`, named groups, ASCII `\w` and
`\d`. Must stay true: a pattern either means the same as in Java or is refused with ConfigError; never
does it quietly mean something else. That is why nested and intersected classes (`[a-z&&[^x]]`), which
Python would read as plain characters, are refused. Where it can be had, no name takes long to match (`automaton`).

`\p{..}` is written out over the letters that a topic name may hold. Names of groups may hold any text
(`any_text`): there, only the classes that Java keeps to ASCII are known, and `.` stops at each of Java's line ends.
"""

from __future__ import annotations

import functools
import re
import string
from typing import Protocol

from isthmus.errors import ConfigError
from isthmus.mm2.automaton import Automaton, Unmatched, is_dangerous

LEGAL = string.ascii_letters + string.digits + "._-"

_UPPER = frozenset(string.ascii_uppercase)
_LOWER = frozenset(string.ascii_lowercase)
_DIGIT = frozenset(string.digits)
_PUNCT = frozenset("._-")
_ALL = frozenset(LEGAL)
_NONE: frozenset[str] = frozenset()
_CLASSES: dict[str, frozenset[str]] = {
    **dict.fromkeys(("Alpha", "L", "IsL", "IsAlphabetic", "javaLetter", "IsLatin"), _UPPER | _LOWER),
    **dict.fromkeys(("Lower", "Ll", "IsLl", "IsLowercase", "javaLowerCase"), _LOWER),
    **dict.fromkeys(("Upper", "Lu", "IsLu", "IsUppercase", "javaUpperCase"), _UPPER),
    **dict.fromkeys(("Digit", "N", "Nd", "IsN", "IsNd", "IsDigit"), _DIGIT),
    **dict.fromkeys(("Alnum", "IsAlnum", "javaLetterOrDigit"), _UPPER | _LOWER | _DIGIT),
    **dict.fromkeys(("Punct", "P", "IsP", "IsPunctuation"), _PUNCT),
    **dict.fromkeys(("Graph", "Print", "ASCII"), _ALL),
    **dict.fromkeys(("Blank", "Space", "Cntrl", "IsWhite_Space", "Z", "S"), _NONE),
    "XDigit": frozenset(string.hexdigits),
    "Pc": frozenset("_"),
    "Pd": frozenset("-"),
}
_ASCII_ONLY = frozenset({"Alpha", "Lower", "Upper", "Digit", "Alnum", "XDigit"})
_PROPERTY = re.compile(r"\\([pP])(?:\{(?:general_category=|gc=)?(\w+)\}|(\w))")
_GROUP_NAME = re.compile(r"\(\?<(?=[A-Za-z])")
_GROUP_USE = re.compile(r"\\k<([A-Za-z]\w*)>")
_POSIX_IN_PYTHON = re.compile(r"\(\?(?:P|\()")


class Expression(Protocol):
    """What matches names in full."""

    def fullmatch(self, text: str, /) -> object: ...


@functools.lru_cache(maxsize=1_024)  # some are asked for again in every round of a flow
def compile_java(pattern: str, *, any_text: bool = False) -> Expression:
    """What matches the names that the Java one matches; or ConfigError naming the pattern."""
    try:
        python = _Translation(pattern, any_text).python()
        compiled = re.compile(python, re.ASCII)
        return _safely(python) or compiled
    except (re.error, _Unlike, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"`{pattern}` is not a regular expression that can be used: {error}",
            hint="write it more simply; Java's syntax as in MirrorMaker 2 is meant",
        ) from None


def _safely(python: str) -> Expression | None:
    """None: trying one way after another is quick enough; or the only way, as for MirrorMaker 2, because the expression
    refers back or looks around."""
    try:
        return Automaton(python) if is_dangerous(python) else None
    except Unmatched:
        return None


class _Unlike(Exception):
    """Something that Python would read differently, or that Java would not read."""


class _Translation:
    """One pass over a pattern. `_inside` holds whether we stand within a character class."""

    def __init__(self, pattern: str, any_text: bool) -> None:
        self._rest = pattern
        self._any_text = any_text
        self._inside = False
        self._done: list[str] = []

    def python(self) -> str:
        while self._rest:
            if self._rest.startswith("\\"):
                self._escape()
            elif self._inside:
                self._within_class()
            else:
                self._outside_class()
        return "".join(self._done)

    def _take(self, length: int, written: str | None = None) -> None:
        self._done.append(self._rest[:length] if written is None else written)
        self._rest = self._rest[length:]

    def _escape(self) -> None:
        if self._rest.startswith(r"\Q"):
            quoted, _, self._rest = self._rest[2:].partition(r"\E")
            self._done.append(re.escape(quoted))
        elif found := _PROPERTY.match(self._rest):
            self._take(found.end(), self._characters(found))
        elif found := _GROUP_USE.match(self._rest):
            self._take(found.end(), f"(?P={found[1]})")
        elif self._rest.startswith((r"\Z", r"\z")):
            self._take(2, r"\Z")  # `\Z` differs only before a line end, which no topic name has
        else:
            self._take(2)

    def _characters(self, found: re.Match[str]) -> str:
        name = found[2] or found[3]
        if name not in _CLASSES:
            raise _Unlike(f"the class \\{found[1]}{{{name}}} is not known here")
        if self._any_text and (name not in _ASCII_ONLY or found[1] == "P"):
            raise _Unlike(f"the class \\{found[1]}{{{name}}} cannot be used where any letter may come")
        chosen = _CLASSES[name] if found[1] == "p" else _ALL - _CLASSES[name]
        listed = "".join(re.escape(c) for c in sorted(chosen))
        if self._inside:
            return listed
        return f"[{listed}]" if listed else "(?!)"

    def _outside_class(self) -> None:
        if found := re.match(r"\[\^?\]?", self._rest):
            self._inside = True
            self._take(found.end())
        elif found := _GROUP_NAME.match(self._rest):
            self._take(found.end(), "(?P<")
        elif _POSIX_IN_PYTHON.match(self._rest):
            raise _Unlike(f"`{self._rest[:3]}` is Python's syntax, not Java's")
        elif self._any_text and self._rest.startswith("."):
            self._take(1, r"[^\n\r\u0085\u2028\u2029]")
        else:
            self._take(1)

    def _within_class(self) -> None:
        if self._rest.startswith(("[", "&&")):
            raise _Unlike("a class within a class, or an intersection `&&`, is not supported")
        if self._rest.startswith("]"):
            self._inside = False
        # Escaped, because Python warns that it may give `||` and `~~` a meaning one day.
        self._take(1, f"\\{self._rest[0]}" if self._rest[0] in "|~&" else None)
