"""Where in a file things stand, and how trouble there is told.

Owns line numbers: of every key and item of a YAML text, by the path that leads to it, and of a mistake; and the
origin of each value of the model, under the name that our YAML has for it (`flows.east->west.lanes`).
Must stay true: all problems of a file become ONE ConfigError, in the order of the file, each with its line; aliases
never make more of a text than some thousand lines could say, as each of them is walked through again by whoever reads.
What a file should hold is not known here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from isthmus.errors import ConfigError

Trail = tuple[str | int, ...]
_MOST_NODES = 100_000  # with every alias written out; ten flows have a few hundred
_MOST_LEVELS = 64
_UNREADABLE = (ValueError, LookupError, AttributeError, OverflowError, TypeError)  # of PyYAML's own constructors


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong: the line (0 if it is the file as a whole), what, and what to do."""

    line: int
    text: str
    hint: str = ""

    def told(self, path: Path) -> str:
        return f"{place(path, self.line)}: {self.text}" + (f"; {self.hint}" if self.hint else "")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value of the model comes from, in words; and, if providers had a part in it, what stood there."""

    where: str
    reference: object = None


DEFAULT = Place("default")
MM2_DEFAULT = Place("default of MirrorMaker 2")


def place(path: Path, line: int) -> str:
    return f"{path}:{line}" if line else str(path)


def refusal(path: Path, problems: Iterable[Problem]) -> ConfigError:
    """All problems of a file as one error."""
    ordered = sorted(set(problems))
    if len(ordered) == 1:
        only = ordered[0]
        return ConfigError(only.text, where=place(path, only.line), hint=only.hint)
    listed = "".join(f"\n  {problem.told(path)}" for problem in ordered)
    return ConfigError(f"{len(ordered)} problems in {path}:{listed}", hint="nothing was touched; correct these lines")


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the most similar known word, or all of them when none is similar."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"known here: {', '.join(names)}" if names else ""


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML text as plain data, with the line of every key and item."""

    data: object
    lines: dict[Trail, int]

    def line(self, trail: Sequence[str | int]) -> int:
        """The line of what the trail leads to, or of the nearest thing around it that is there."""
        for length in range(len(trail), 0, -1):
            if found := self.lines.get(tuple(trail[:length])):
                return found
        return 1


def read_yaml(text: str, path: Path) -> Document:
    """Parse; raise ConfigError for syntax, doubled keys, and keys that YAML does not read as text."""
    try:
        return _read(text, path)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        what = " ".join(str(part) for part in (error.context, error.problem) if part)
        raise refusal(path, [Problem(line, f"not valid YAML: {what}", "check indentation and quotes")]) from None
    except _Unreadable as error:
        hint = "put what is not meant as a number or date in quotes"
        raise refusal(path, [Problem(error.line, f"a value cannot be read as {error.kind}", hint)]) from None
    except _TooDeep as error:
        what = f"more than {_MOST_LEVELS} levels within each other"
        raise refusal(path, [Problem(error.args[0], what, "check brackets and indentation")]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise refusal(path, [Problem(line, f"not valid YAML: {error.reason}", "remove that character")]) from None


class _Unreadable(Exception):
    """A value is not what YAML takes it for: the date 2024-13-45, or a tag that says so."""

    def __init__(self, node: yaml.Node) -> None:
        super().__init__(node.tag)
        self.line = node.start_mark.line + 1
        self.kind = f"`{node.tag.rpartition(':')[2]}`"


class _TooDeep(Exception):
    """More levels than any file has that a person wrote. PyYAML takes seconds for a thousand."""


class _Loader(yaml.SafeLoader):
    """PyYAML's, which knows where it stands when something cannot be read."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _MOST_LEVELS:
            raise _TooDeep(self.line + 1)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        try:
            found: object = super().construct_object(node, deep)
            if isinstance(found, str):
                found.encode()  # `"\uD800"` is half of a pair of surrogates, which is no text
            return found
        except _UNREADABLE:
            raise _Unreadable(node) from None


def _read(text: str, path: Path) -> Document:
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            raise refusal(path, [Problem(0, "the file is empty", "it needs `clusters` and `flows`")])
        # Before construction, which folds `<<` merges into the nodes: there, a doubled key is lawful.
        if problems := [*_bad_keys(root, set()), *_too_many(root)]:
            raise refusal(path, problems)
        data = loader.construct_document(root)
        return Document(data, dict(_lines(root, (), frozenset())))
    finally:
        loader.dispose()


def _too_many(root: yaml.Node) -> Iterator[Problem]:
    """Ten lines of aliases to aliases can stand for billions of values."""
    sizes: dict[int, int] = {}
    if _size(root, sizes) > _MOST_NODES:
        yield Problem(0, f"its aliases stand for more than {_MOST_NODES} values", "write out what is meant")


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    if id(node) not in sizes:
        sizes[id(node)] = 0  # an alias to something around it
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            parts = node.value
        elif isinstance(node, yaml.MappingNode):
            parts = [each for pair in node.value for each in pair]
        sizes[id(node)] = 1 + sum(_size(each, sizes) for each in parts)
    return sizes[id(node)]


def _bad_keys(node: yaml.Node, visited: set[int]) -> Iterator[Problem]:
    if id(node) in visited:  # an alias: told once is enough, and it may lead back to itself
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _bad_keys(item, visited)
    elif isinstance(node, yaml.MappingNode):
        yield from _bad_keys_here(node)
        for _, value in node.value:
            yield from _bad_keys(value, visited)


def _bad_keys_here(node: yaml.MappingNode) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for key, _ in node.value:
        line, word = key.start_mark.line + 1, key.value
        if key.tag == "tag:yaml.org,2002:merge":
            continue
        if key.tag != "tag:yaml.org,2002:str":
            yield Problem(line, f"the key `{word}` is not text to YAML", "put it in quotes")
        elif word in first:
            yield Problem(line, f"the key `{word}` stands twice, first in line {first[word]}", "remove one")
        else:
            first[word] = line


def _lines(node: yaml.Node, trail: Trail, above: frozenset[int]) -> Iterator[tuple[Trail, int]]:
    if id(node) in above:  # an alias to something around it
        return
    above |= {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for at, item in enumerate(node.value):
            yield (*trail, at), item.start_mark.line + 1
            yield from _lines(item, (*trail, at), above)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*trail, str(key.value)), key.start_mark.line + 1
            yield from _lines(value, (*trail, str(key.value)), above)
