"""Every error code is explained, and nothing is explained that does not exist."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import isthmus
from isthmus.cli.app import app
from isthmus.errors import ConfigError, IsthmusError
from isthmus.observe import health
from isthmus.observe.explained import explanations

SOURCES = Path(isthmus.__file__).parent
CODE = re.compile(r"[A-Z][A-Z0-9_]+[A-Z0-9]")


def asked(*words: str) -> Result:
    return CliRunner().invoke(app, ["explain", *words])


def _constants(node: ast.AST) -> Iterator[str]:
    """Also of `"A" if x else "B"`."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and CODE.fullmatch(each.value):
            yield each.value


def _names(tree: ast.Module) -> dict[str, str]:
    """Codes that have a name: FOREIGN_WRITE = "FOREIGN_WRITE"."""
    return {
        target.id: line.value.value
        for line in tree.body
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)
        for target in line.targets
        if isinstance(target, ast.Name) and CODE.fullmatch(line.value.value)
    }


def _raised(tree: ast.Module, names: dict[str, str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "code":
            yield from _constants(node.value)
            yield from (
                names[each.id] for each in ast.walk(node.value) if isinstance(each, ast.Name) and each.id in names
            )
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == "code" for t in line.targets
                ):
                    yield from _constants(line.value)


def raised_codes() -> set[str]:
    trees = [ast.parse(path.read_text()) for path in SOURCES.rglob("*.py")]
    names = {name: value for tree in trees for name, value in _names(tree).items()}
    return {code for tree in trees for code in _raised(tree, names)}


def test_every_code_that_is_raised_is_explained() -> None:
    assert raised_codes() - {each.code for each in explanations()} == set()


def test_every_explanation_says_what_happened_and_what_to_do() -> None:
    found = explanations()
    assert len(found) > 100
    assert [each.code for each in found if not each.happened] == []
    assert {each.code for each in found if not each.todo} <= {"STOPPED"}


def test_the_exit_status_of_the_page_is_that_of_the_status_command() -> None:
    told = {(each.code, each.exit_status) for each in explanations()}
    causes = [*health._BY_STATE.values(), *health._BY_VERDICT.values()]
    assert {(cause.code, cause.exit_code) for cause in causes} <= told


def _tree(kind: type[IsthmusError] = IsthmusError) -> Iterator[type[IsthmusError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _tree(each)


def test_the_one_table_of_exit_statuses_has_all_that_commands_end_with() -> None:
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
    table = page.split("## Exit status")[1].split("\n## ")[0]
    listed = {int(found) for found in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    causes = [*health._BY_STATE.values(), *health._BY_VERDICT.values(), health.WELL]
    used = {kind.exit_code for kind in _tree()} | {cause.exit_code for cause in causes} | {130}
    assert used == listed
    by_code = {each.code: each.exit_status for each in explanations()}
    ours = [kind for kind in _tree() if kind.__module__ == IsthmusError.__module__ and by_code[kind.code] is not None]
    assert {kind.code: kind.exit_code for kind in ours} == {kind.code: by_code[kind.code] for kind in ours}


def test_a_code_is_explained() -> None:
    told = asked("gap")
    assert told.exit_code == 0
    assert told.stdout.startswith("GAP  (partitions that stopped, exit status 9)")
    assert "isthmus resolve --accept-gap" in told.stdout


def test_all_codes_are_listed_as_json() -> None:
    found = json.loads(asked("-o", "json").stdout)
    assert {"code", "about", "exit_status", "happened", "todo", "again"} == set(found[0])
    assert {each["code"] for each in found} == {each.code for each in explanations()}


@pytest.mark.parametrize(("word", "hint"), [("TUNEL", "did you mean TUNNEL"), ("qqqq", "lists all codes")])
def test_an_unknown_code_is_refused_with_what_is_near(word: str, hint: str) -> None:
    refused = asked(word).exception
    assert isinstance(refused, ConfigError)
    assert hint in refused.hint
