"""The pages that the program writes itself: commands, keys of the configuration, metrics, benchmarks (`figures`), and
the table of faults in the guarantees (`storms`).

`make reference` writes them; `pages()` is what a test compares them with, so they cannot rot. Must stay true: nothing
on them depends on the machine or the terminal, and nothing is said here that the program does not say. Error codes and
JSON are pages of their own (docs/errors.md, docs/json-output.md), held to the program by other tests.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from tools import figures, storms
from typer.main import get_command
from typer.testing import CliRunner

from isthmus.cli.app import app
from isthmus.config.schema import json_schema
from isthmus.observe.metrics import Looked, metric_families

DOCS = Path(__file__).parents[1] / "docs"
_WRITTEN = "\n<!-- Written by the program: `make reference`. Edits here are lost. -->\n"
# Headings of docs/configuration.md, and which keys the table below them is about.
_SECTIONS = {
    "A cluster": "clusters.NAME.",
    "A flow": "flows[].",
    "Naming": "flows[].naming.",
    "Sync": "flows[].sync.",
    "MirrorMaker 2's topics": "flows[].mm2_topics.",
    "Tuning": "flows[].tuning.",
}
_ABOUT = re.compile(r"(?P<who>[a-z][a-z-]*(?:, [a-z][a-z-]*)*)(?: [^:]*)?: ")


def pages() -> dict[Path, str]:
    """Every generated page with its text."""
    written = {"cli": _commands(), "keys": _keys(), "metrics": _metrics()}
    found = {DOCS / "reference" / f"{name}.md": "\n".join(lines) + "\n" for name, lines in written.items()}
    found[DOCS / "benchmarks.md"] = "\n".join(figures.page()) + "\n"
    guarantees = DOCS / "guarantees.md"
    found[guarantees] = storms.put_into(guarantees.read_text(encoding="utf-8"))
    return found | {DOCS / "configuration.schema.json": json.dumps(json_schema(), indent=2) + "\n"}


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


# --- commands ---------------------------------------------------------------------------------


def _commands() -> list[str]:
    root = get_command(app)
    lines = ["# Commands", _WRITTEN, _cell(root.help), ""]
    lines += [
        "Every command has `--help`. What `-o json` prints: [JSON output](../json-output.md). What an exit status",
        "means, of any command: [exit status](../errors.md#exit-status). `isthmus explain CODE` tells of a code.",
        "",
        *_parameters(root),
    ]
    codes = _codes()
    for words, command in _leaves(root, ("isthmus",)):
        lines += [f"## {' '.join(words)}", "", *_described(command), f"`{_usage(words, command)}`", ""]
        lines += [*_parameters(command), *codes.get(words[1], [])]
    return lines[:-1]


def _leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that is not only a name for others; typer's own classes differ from release to release."""
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, each in sorted(command.commands.items()):
        if not each.hidden:
            yield from _leaves(each, (*words, name))


def _described(command: Any) -> list[str]:
    paragraphs = [_cell(each) for each in (command.help or "").split("\n\n")]
    return [line for each in paragraphs for line in (each, "")]


def _usage(words: tuple[str, ...], command: Any) -> str:
    named = [each for each in command.params if _is_argument(each)]
    shown = [_argument(each) if each.required else f"[{_argument(each)}]" for each in named]
    return " ".join([*words, "[OPTIONS]", *shown])


def _is_argument(each: Any) -> bool:
    return not any(name.startswith("-") for name in each.opts)


def _argument(each: Any) -> str:
    return str(each.metavar or each.name.upper())


def _parameters(command: Any) -> list[str]:
    rows = [_parameter(each) for each in command.params if not each.hidden]
    return ["| | default | meaning |", "|---|---|---|", *rows, ""] if rows else []


def _parameter(each: Any) -> str:
    about = _cell(each.help or "")
    repeats = each.multiple or each.nargs == -1
    return _row(_names(each), _default(each), about + (" (repeatable)" if repeats and "repeat" not in about else ""))


def _names(each: Any) -> str:
    if _is_argument(each):
        return f"`{_argument(each)}`"
    names = ", ".join(f"`{name}`" for name in (*each.opts, *each.secondary_opts))
    return names if each.is_flag else f"{names} {_cell(_kind(each))}"


def _kind(each: Any) -> str:
    if each.metavar:
        return str(each.metavar)
    kind = each.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(one.value) for one in kind)
    return {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def _default(each: Any) -> str:
    if each.required:
        return "required"
    value = each.default() if callable(each.default) else each.default
    value = value.value if isinstance(value, Enum) else value
    return "" if value in (None, "", False, (), []) else f"`{_cell(value)}`"


def _codes() -> dict[str, list[str]]:
    """Of each command: the error codes that the table says are its own."""
    found: dict[str, dict[str, int | None]] = {}
    for each in json.loads(CliRunner().invoke(app, ["explain", "-o", "json"]).stdout):
        named = _ABOUT.match(each["happened"])
        for command in named["who"].split(", ") if named else ():
            found.setdefault(command, {})[each["code"]] = each["exit_status"]
    return {command: [_told(codes), ""] for command, codes in found.items()}


def _told(codes: Mapping[str, int | None]) -> str:
    told = [f"`{code}`" + (f" ({status})" if status is not None else "") for code, status in codes.items()]
    return f"Codes of its own, with exit status: {', '.join(told)}."


# --- keys of the configuration ----------------------------------------------------------------


def _keys() -> list[str]:
    schema = json_schema()
    lines = [
        "# Every key of the configuration",
        _WRITTEN,
        "Of our own YAML, from the schema by which files are read ([JSON Schema](../configuration.schema.json)). What",
        "keys mean together, and the other formats: [configuration](../configuration.md). `[]` stands for an item of",
        "a list, `NAME` for an alias of yours.",
        "",
        "| key | what | default | meaning |",
        "|---|---|---|---|",
    ]
    meanings = _meanings()
    return lines + [_key(path, node, must, meanings) for path, node, must in _walk(schema, schema, "")]


def _walk(
    node: Mapping[str, Any], schema: Mapping[str, Any], path: str
) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Every key with its part of the schema, and whether it has to be there."""
    node = _looked_up(node, schema)
    for name, each in node.get("properties", {}).items():
        here = f"{path}{name}"
        yield here, each, name in node.get("required", ())
        for inner, step in _inner(each, schema):
            yield from _walk(inner, schema, here + step)


def _inner(each: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Mappings within a key's value: itself, an item of a list, or what stands under names of the user's own."""
    for one in (_looked_up(kind, schema) for kind in each.get("anyOf", [each])):
        if one.get("properties"):
            yield one, "."
            return
        if _looked_up(one.get("items", {}), schema).get("properties"):
            yield one["items"], "[]."
            return
        more = one.get("additionalProperties")
        if isinstance(more, dict) and _looked_up(more, schema).get("properties"):
            yield more, ".NAME."
            return


def _looked_up(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = node.get("$ref")
    return schema["$defs"][reference.rpartition("/")[2]] if reference else node


def _key(path: str, node: Mapping[str, Any], must: bool, meanings: Mapping[str, str]) -> str:
    default = "required" if must else _value(node.get("default"))
    return _row(f"`{path}`", _cell(_shape(node)), default, meanings.get(path) or _cell(node.get("description", "")))


def _value(value: object) -> str:
    return "" if value in (None, "", [], {}) or isinstance(value, dict) else f"`{_cell(json.dumps(value))}`"


def _shape(node: Mapping[str, Any]) -> str:
    if "$ref" in node:
        return "" if node["$ref"].endswith("/Reference") else "mapping"
    if "anyOf" in node:
        shapes = dict.fromkeys(shape for each in node["anyOf"] if (shape := _shape(each)) and shape != "null")
        return " or ".join(shapes)
    if "enum" in node:
        return ", ".join(f"`{word}`" if word != "" else "empty" for word in node["enum"])
    kinds = node.get("type", "")
    kind = " or ".join(kinds) if isinstance(kinds, list) else kinds
    names = {"object": "mapping", "array": "list", "string": "text", "boolean": "true or false"}
    return names.get(kind, kind) + "".join(
        f", {word} {node[bound]}"
        for bound, word in (("minimum", "at least"), ("exclusiveMinimum", "above"), ("maximum", "at most"))
        if bound in node
    )


def _meanings() -> dict[str, str]:
    """What the hand-written page says of keys, by their paths: it says more than the schema."""
    found: dict[str, str] = {}
    prefix: str | None = None
    for line in (DOCS / "configuration.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            prefix = _SECTIONS.get(line.lstrip("# "))
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if prefix is not None and line.startswith("| `") and len(cells) == 3:
            found |= {prefix + name: _told_elsewhere(cells[2]) for name in re.findall(r"`(\w+)`", cells[0])}
    return found


def _told_elsewhere(meaning: str) -> str:
    """With links that lead to where they led, one folder further up."""
    linked = meaning.replace("](#", "](configuration.md#").replace("](", "](../")
    return linked.replace("see below", "see [configuration](../configuration.md)")


# --- metrics ----------------------------------------------------------------------------------


def _metrics() -> list[str]:
    lines = [
        "# Every metric",
        _WRITTEN,
        "As `isthmus metrics` exports them. How to use them: [metrics](../metrics.md).",
        "",
    ]
    rows = sorted(_metric(each) for each in metric_families(Looked(flows=[])))
    return [*lines, "| metric | type | labels | meaning |", "|---|---|---|---|", *rows]


def _metric(family: Any) -> str:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return _row(f"`{name}`", family.type, _labels(family), _cell(family.documentation))


def _labels(family: object) -> str:
    return ", ".join(getattr(family, "_labelnames", ()))  # the library has no public name for it


if __name__ == "__main__":
    for file, text in pages().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {file.name}\n")
