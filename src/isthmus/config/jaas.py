"""`sasl.jaas.config`: one login module with its options, as Java reads it.

Owns the grammar (`Module flag name="value" ... ;`, quotes, backslashes, comments). Must stay true: no value of an
option is ever part of an error, since it may be a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)'
    | (?P<mark>[=;]) | (?P<word>[^\s;="']+)""",
    re.VERBOSE | re.DOTALL,
)
_SHOWN = ("username", "clientId", "scope")  # options that messages may show
_KNOWN = (*_SHOWN, "password", "clientSecret", "tokenauth")
_SWALLOWED = re.compile(r"(?i)(?:password|secret)\s*=")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Module:
    """A login module by its class name without the package; its options are not shown."""

    name: str
    options: dict[str, str] = field(repr=False)


def parse(text: str) -> Module:
    """The one module of a text; ValueError that says what is wrong with its form."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[0][0] != "word" or tokens[-1] != ("mark", ";"):
        raise ValueError('`Module required name="value" ... ;` is meant, with a semicolon at its end')
    if tokens[1][1].lower() not in _FLAGS:
        raise ValueError("after the module's name, `required` is meant")
    rest = tokens[2:-1]
    if ("mark", ";") in rest:
        raise ValueError("one login module is meant, not several")
    options: dict[str, str] = {}
    while rest:
        options.update([_option(rest)])
    for name in _SHOWN:
        if _SWALLOWED.search(options.get(name, "")):
            raise ValueError(f"the option `{name}` holds another option: is a quote missing?")
    return Module(tokens[0][1].rpartition(".")[2], options)


def _option(rest: list[tuple[str, str]]) -> tuple[str, str]:
    """Takes one option off the list. A bare value may hold `=`, as keys in base64 do."""
    kind, name = rest.pop(0)
    if kind != "word" or not rest or rest.pop(0) != ("mark", "="):
        raise ValueError('after the module\'s name, options of the form name="value" are meant')
    if not rest or rest[0] == ("mark", "="):
        # A word in this place may be the rest of a password that a lost quote has cut off.
        raise ValueError(f"the option `{name}` has no value" if name in _KNOWN else "an option has no value")
    kind, value = rest.pop(0)
    while kind == "word" and rest and rest[0] == ("mark", "="):
        value += rest.pop(0)[1]
    return name, value


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError("a quote is not closed")
        at = match.end()
        if (quoted := match["double"] if match["double"] is not None else match["single"]) is not None:
            found.append(("text", re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), quoted, flags=re.DOTALL)))
        elif kind := match.lastgroup:
            found.append((kind, match[0]))
    return found
