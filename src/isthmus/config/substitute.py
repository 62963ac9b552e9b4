"""`${...}` in values: from the environment, from properties files, from folders of files.

Owns what a reference may look like and where its value comes from: `${X}` and `${env:X}`, `${file:path:key}`,
`${dir:path:file}`, `${secrets:name:key}` (a folder given by --secrets), `$${` for a plain `${`. Must stay true: what
a provider gave may be a secret. It travels as `Resolved`, a text that remembers the reference, and whoever shows a
value shows `shown(value)`. Which values of a file are looked at is left to the readers.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import javaproperties

from isthmus.config.places import nearest

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}")
_CLASSES = {
    "EnvVarConfigProvider": "env",
    "FileConfigProvider": "file",
    "DirectoryConfigProvider": "dir",
    "KubernetesSecretConfigProvider": "secrets",
}
# Strimzi declares its own names by itself.
_ALWAYS = {kind: kind for kind in ("env", "file", "dir", "secrets")} | {
    "strimzienv": "env",
    "strimzifile": "file",
    "strimzidir": "dir",
}
_FORMS = {"file": "${file:path:key}", "dir": "${dir:path:file}", "secrets": "${secrets:name:key}"}


class Resolved(str):
    """A value that a provider gave, in whole or in part; `text` is what stood in the file."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, value: str, text: str) -> Resolved:
        made = super().__new__(cls, value)
        made.text = text
        return made


def shown(value: str) -> str:
    """What may be shown of a value: the reference where there is one."""
    return value.text if isinstance(value, Resolved) else value


def literal(text: str) -> str:
    """How a text is written that is to be taken as it is."""
    return text.replace("${", "$${")


def keep(value: str, derived: str) -> str:
    """A text derived from another, with the reference of that one."""
    return Resolved(derived, value.text) if isinstance(value, Resolved) else derived


def plain(value: Any) -> Any:
    """A value of the model without memory of references: it travels to executors, and has to be what it seems."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: plain(getattr(value, part.name)) for part in dataclasses.fields(value)}
        return dataclasses.replace(value, **parts)
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    return str(value) if isinstance(value, str) else value


class Missing(Exception):
    """A reference that leads nowhere: what, and what to do. Never holds a value."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Providers:
    """Where references lead. Relative paths start at `base`, the folder of the file that holds the reference."""

    base: Path = field(default_factory=Path)
    secrets: Path | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    names: Mapping[str, str] = field(default_factory=lambda: dict(_ALWAYS))
    _seen: dict[str, Path] = field(default_factory=dict, repr=False, compare=False)  # reference to file

    def declaring(self, declared: Mapping[str, str]) -> Providers:
        """With Connect's `config.providers`: names and their classes. Missing, if a class is not known."""
        names = dict(self.names)
        for name, class_name in declared.items():
            kind = _CLASSES.get(class_name.rpartition(".")[2])
            if kind is None:
                raise Missing(f"the provider `{name}` has a class that is not known", f"known: {', '.join(_CLASSES)}")
            names[name] = kind
        return Providers(self.base, self.secrets, self.environ, names, self._seen)

    def resolve(self, text: str) -> str:
        """The text with every reference replaced; Missing if one leads nowhere."""
        if "${" not in text:
            return text
        used = False

        def value(found: re.Match[str]) -> str:
            nonlocal used
            if found[1] is None:
                return "${"
            used = True
            return self._value(found[1])

        done = _REFERENCE.sub(value, text)
        return Resolved(done, text) if used else done

    def files_of(self, text: str) -> list[Path]:
        """The files that the references of a text led to."""
        return [self._seen[found[1]] for found in _REFERENCE.finditer(text) if found[1] in self._seen]

    def _value(self, reference: str) -> str:
        name, colon, rest = reference.partition(":")
        if not colon:
            return self._variable(name)
        kind = self.names.get(name)
        if kind is None:
            raise Missing(f"`${{{reference}}}`: there is no provider `{name}`", nearest(name, self.names))
        read: dict[str, Callable[[str, str], str]] = {
            "env": self._variable,
            "file": self._property,
            "dir": self._file,
            "secrets": self._secret,
        }
        return read[kind](rest, reference)

    def _variable(self, name: str, _: str = "") -> str:
        if name not in self.environ:
            raise Missing(
                f"the environment has no variable `{name}`", "set it, or write `$${` if a plain `${` is meant"
            )
        return self.environ[name]

    def _property(self, rest: str, reference: str) -> str:
        path, key = _two(rest, "file")
        self._seen[reference] = self.base / path
        try:
            with (self.base / path).open("rb") as stream:
                found = javaproperties.load(stream)
        except (OSError, ValueError):  # not there, no properties, or a name that no file can have
            raise Missing(f"the file `{path}` cannot be read", "check the path; a .properties file is meant") from None
        if key not in found:
            raise Missing(f"the file `{path}` has no property `{key}`", nearest(key, found))
        return found[key]

    def _file(self, rest: str, reference: str) -> str:
        path, name = _two(rest, "dir")
        self._seen[reference] = self.base / path / name
        return content(self.base / path / name, f"the folder `{path}` has no readable file `{name}`")

    def _secret(self, rest: str, reference: str) -> str:
        path, key = _two(rest, "secrets")
        return self.secret(path.rpartition("/")[2], key, reference)  # `namespace/name`: the folder has one namespace

    def secret(self, name: str, key: str, reference: str = "") -> str:
        """One key of a secret; Missing, if there is no folder of secrets or it does not hold that."""
        said = f"`{shown(name)}`", f"`{shown(key)}`"
        if self.secrets is None:
            text = "the secret {} (key {}) is needed".format(*said)
            raise Missing(text, "name the folder of secrets: --secrets DIR")
        where = "the secret {} has no readable key {} in {}".format(*said, self.secrets)
        if {name, key} & {"", ".", ".."} or "/" in name + key:
            raise Missing(where)
        self._seen[reference or f"secrets:{name}:{key}"] = self.secrets / name / key
        return content(self.secrets / name / key, where)


def _two(rest: str, kind: str) -> tuple[str, str]:
    path, colon, key = rest.rpartition(":")
    if not colon or not path or not key:
        raise Missing(f"`${{{kind}:{rest}}}` is not complete", f"write `{_FORMS[kind]}`")
    return path, key


def content(path: Path, missing: str) -> str:
    """A file's text without the line end that editors add; Missing if it cannot be read."""
    try:
        return path.read_text("utf-8").rstrip("\r\n")
    except (OSError, ValueError):  # not there, no text, or a name that no file can have
        raise Missing(missing, "a text file of that name is looked for") from None
