"""From a file, or the environment, to flows: which format it is, and what in it is doubtful.

Must stay true: either every flow of the file is fit to run, or ONE ConfigError tells everything that is wrong, with
lines. Each format has a reader of its own: `flowfile` (our YAML), `properties` (MirrorMaker 2), `strimzi`, `setenv`
and `reo` (the environment); `doubts` judges what they found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from isthmus.config import flowfile, properties, reo, setenv, strimzi
from isthmus.config.circles import circle_problems, with_cuts
from isthmus.config.doubts import contradictions, doubts
from isthmus.config.exposed import exposed
from isthmus.config.places import Place, Problem, read_yaml, refusal
from isthmus.config.secured import secure
from isthmus.config.substitute import Providers, plain
from isthmus.errors import ConfigError
from isthmus.model import Flow

_PROPERTIES_LINE = re.compile(rb"^[ \t]*(clusters|\S+->\S+)[ \t]*=", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file asks for, what in it will have no effect, and where each value stands (see `places`)."""

    flows: tuple[Flow, ...]
    warnings: tuple[str, ...]
    origin: Path
    places: Mapping[str, Place] = field(default_factory=dict, repr=False)
    format: str = "yaml"
    exposed: tuple[Path, ...] = ()  # files with secrets that others may read


def load(path: Path, *, secrets: Path | None = None, environ: Mapping[str, str] | None = None) -> Loaded:
    """Read and check a configuration file; ConfigError if anything in it is wrong.

    `secrets` holds a folder per secret with a file per key; `environ` is what `${X}` means, else the process's own.
    """
    raw = _bytes(path)
    providers = Providers(path.parent, secrets)
    if environ is not None:
        providers = Providers(path.parent, secrets, environ)
    kind, (flows, warnings, places) = _read(path, raw, providers)
    ends = [end for flow in flows for end in (flow.source, flow.target)]
    return _loaded(flows, warnings, path, places, kind, exposed(ends, path, providers))


def load_environment(environ: Mapping[str, str] | None = None) -> Loaded:
    """The flow that kafka-reo's variables describe; ConfigError if there are none."""
    environ = os.environ if environ is None else environ
    if not reo.describes_flow(environ):
        hint = "name a FILE, or set kafka-reo's variables (KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS and so on)"
        raise ConfigError("no FILE is named, and the environment describes no flow", hint=hint)
    flows, warnings, places = reo.read(environ)
    return _loaded(flows, warnings, reo.ORIGIN, places, "environment")


def _loaded(
    flows: tuple[Flow, ...],
    warnings: tuple[str, ...],
    origin: Path,
    places: Mapping[str, Place],
    kind: str,
    open_files: tuple[Path, ...] = (),
) -> Loaded:
    bare: tuple[Flow, ...] = with_cuts(plain(flows))
    if problems := list(circle_problems(bare)):
        raise refusal(origin, problems)
    secured, dangers = secure(bare, origin, places)
    found = [*(each for flow in secured for each in contradictions(flow)), *doubts(secured)]
    told = (*warnings, *dangers, *(doubt.told(places) for doubt in found))
    return Loaded(secured, told, origin, places, kind, open_files)


_Read = tuple[tuple[Flow, ...], tuple[str, ...], dict[str, Place]]


def _read(path: Path, raw: bytes, providers: Providers) -> tuple[str, _Read]:
    if _is_properties(path, raw):
        return "properties", properties.read(raw, path, providers)
    text = _decoded(raw, path)
    if path.suffix == ".sh":
        return "setenv", setenv.read(text, path, providers)
    document = read_yaml(text, path)
    if isinstance(document.data, dict) and document.data.get("kind") == strimzi.KIND:
        return "strimzi", strimzi.read(document, path, providers)
    flows, places = flowfile.read(document, path, providers)
    return "yaml", (flows, (), places)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError("there is no such file", where=str(path), hint="check the path") from None
    except OSError as error:
        what = f"the file cannot be read: {error.strerror or error}"
        raise ConfigError(what, where=str(path), hint="a readable YAML or .properties file is meant") from None


def _is_properties(path: Path, raw: bytes) -> bool:
    if path.suffix in (".yaml", ".yml", ".sh", ".properties"):
        return path.suffix == ".properties"
    return _PROPERTIES_LINE.search(raw) is not None


def _decoded(raw: bytes, path: Path) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise refusal(path, [Problem(line, "not UTF-8 text", "save the file as UTF-8")]) from None
