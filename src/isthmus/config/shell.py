"""Assignments of a shell script, read and never run.

Owns the little of sh's syntax that files of settings use: comments, `export`, quotes, continued lines, `$NAME` and
`${NAME}` of earlier lines or the environment, and our `${env:X}` and friends. Must stay true: nothing is executed; what
would have to be executed to know a value is a problem of its line, never a guess; no value is part of a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from isthmus.config.places import Problem
from isthmus.config.substitute import Missing, Providers, Resolved, literal, shown

_NAME = re.compile(r"[A-Za-z_]\w*")
_REFERENCE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)\}|(?P<bare>[A-Za-z_]\w*))")
_PROVIDED = re.compile(r"\$\{([A-Za-z_]\w*):[^{}]*\}")
_HARMLESS = frozenset({"set", "echo", "printf", "umask", ":", "true", "unset"})
# Words that a message may show. Any other may be the rest of a secret that a line break has cut off.
_SHELL = frozenset({"if", "for", "while", "until", "case", "function", "source", ".", "eval", "exec", "cd", "[", "[["})
_SHELL |= {"declare", "local", "readonly", "trap", "exit", "return", "sudo", "sh", "bash", "docker", "java", "curl"}
_QUOTE_IT = "put the value in single quotes"


@dataclass(frozen=True, slots=True)
class Assigned:
    """One variable: its value (`Resolved` if the environment had a part in it), and its line."""

    name: str
    value: str
    line: int


class Script:
    """One pass over a text. `assigned` holds the last value of each name; `used` the names that others refer to."""

    def __init__(self, text: str, providers: Providers) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._line = 1
        self._providers = providers
        self.assigned: dict[str, Assigned] = {}
        self.used: set[str] = set()
        self.problems: list[Problem] = []
        self.warnings: list[tuple[int, str]] = []
        self._run()

    def _run(self) -> None:
        while self._at < len(self._text):
            line = self._line
            words = list(self._command())
            if words:
                self._take(words, line)

    def _take(self, words: list[str], line: int) -> None:
        if words[0] == "export":
            words = words[1:]
        for at, word in enumerate(words):
            name, equals, _ = word.partition("=")
            if _NAME.fullmatch(name) and (equals or at or len(words) == 1):
                if equals:
                    self.assigned[name] = Assigned(name, _after_equals(word), line)
                continue
            if word in _HARMLESS and at == 0:
                self.warnings.append((line, f"`{word}` is not run: only assignments are read"))
            else:
                what = f"`{name}`" if name in _SHELL else "this"
                self.problems.append(Problem(line, f"{what} is not an assignment", "only NAME=value can be read"))
            return

    # --- words --------------------------------------------------------------------------------

    def _command(self) -> Iterator[str]:
        """The words up to the end of the line or a `;`."""
        while self._at < len(self._text):
            character = self._text[self._at]
            if self._text.startswith("\\\n", self._at):
                self._skip(2)
            elif character in " \t":
                self._skip(1)
            elif character in "\n;":
                self._skip(1)
                return
            elif character == "#":
                end = self._text.find("\n", self._at)
                self._skip((end if end >= 0 else len(self._text)) - self._at)
            else:
                yield self._word()

    def _word(self) -> str:
        value, written, provided = "", "", False
        while self._at < len(self._text) and self._text[self._at] not in " \t\n;":
            piece = self._piece()
            value += piece
            written += shown(piece) if isinstance(piece, Resolved) else literal(piece)
            provided = provided or isinstance(piece, Resolved)
        return Resolved(value, written) if provided else value

    def _piece(self) -> str:
        character = self._text[self._at]
        if character == "'":
            return self._single()
        if character == '"':
            return self._double()
        if character == "\\":
            following = self._text[self._at + 1 : self._at + 2]
            self._skip(1 + len(following))
            return "" if following == "\n" else following
        if character in "&|<>()":
            self.problems.append(Problem(self._line, f"`{character}` outside quotes is for a shell to run", _QUOTE_IT))
            self._skip(1)
            return ""
        return self._expanded()

    def _single(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            self.problems.append(Problem(self._line, "the quote `'` is never closed", "close it"))
            end = len(self._text)
        value = self._text[self._at + 1 : end]
        self._skip(end + 1 - self._at)
        return value

    def _double(self) -> str:
        line, known = self._line, len(self.problems)
        self._skip(1)
        value, written, provided = "", "", False
        while self._at < len(self._text) and self._text[self._at] != '"' and len(self.problems) == known:
            if self._text[self._at] == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`", "\n"):
                piece = self._text[self._at + 1].replace("\n", "")
                self._skip(2)
            else:
                piece = self._expanded()
            value += piece
            written += shown(piece) if isinstance(piece, Resolved) else literal(piece)
            provided = provided or isinstance(piece, Resolved)
        # After a problem within, the rest of the line was skipped, and its quote with it.
        if self._at >= len(self._text) and len(self.problems) == known:
            self.problems.append(Problem(line, 'the quote `"` is never closed', "close it"))
        self._skip(1)
        return Resolved(value, written) if provided else value

    # --- what begins with a dollar --------------------------------------------------------------

    def _expanded(self) -> str:
        if found := _REFERENCE.match(self._text, self._at):
            self._skip(found.end() - self._at)
            return self._variable(found["braced"] or found["bare"])
        if (found := _PROVIDED.match(self._text, self._at)) and found[1] in self._providers.names:
            self._skip(found.end() - self._at)
            return self._provided(found[0])
        if self._text.startswith(("$(", "`", "${"), self._at):
            return self._refuse_substitution()
        self._skip(1)
        return self._text[self._at - 1]

    def _variable(self, name: str) -> str:
        if before := self.assigned.get(name):
            self.used.add(name)
            return before.value
        return self._provided(f"${{env:{name}}}")

    def _provided(self, reference: str) -> str:
        try:
            return self._providers.resolve(reference)
        except Missing as missing:
            self.problems.append(Problem(self._line, missing.text, missing.hint))
            return ""

    def _refuse_substitution(self) -> str:
        what = "`${...}` with more than a name" if self._text.startswith("${", self._at) else "a command substitution"
        self.problems.append(Problem(self._line, f"{what} would have to be run", "write the value itself"))
        end = self._text.find("\n", self._at)
        self._skip((end if end >= 0 else len(self._text)) - self._at)
        return ""

    def _skip(self, length: int) -> None:
        self._line += self._text.count("\n", self._at, self._at + length)
        self._at += length


def _after_equals(word: str) -> str:
    value = word.partition("=")[2]
    return Resolved(value, word.text.partition("=")[2]) if isinstance(word, Resolved) else value
