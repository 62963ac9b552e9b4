"""Parsers of files that people write: any text leads to flows or to an error of ours, and no secret is in either."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.config.load import load
from isthmus.config.security import read_security
from isthmus.errors import IsthmusError

SECRET = "Zq7mPlanted5xW"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETENV = f"""\
export SOURCE_CLUSTER_ID="a"
SOURCE_BROKER_SERVERS=a:1,b:2 # two
SOURCE_API_KEY='user'
SOURCE_API_SECRET="{SECRET}"
DESTINATION_CLUSTER_ID=b
DESTINATION_BROKER_SERVERS=b:1
DESTINATION_API_KEY=user
DESTINATION_API_SECRET='{SECRET}'
SHARED_SECRET={SECRET}
REPLICA_TOPICS_SOURCE_REGEX='x.*'
"""
PROPERTIES = f"""\
clusters = a, b
a.bootstrap.servers = a:1
b.bootstrap.servers = b:1
a.security.protocol = SASL_SSL
a.sasl.mechanism: PLAIN
a.sasl.jaas.config = {MODULE} username="u" \\
    password="{SECRET}";
b.ssl.truststore.password={SECRET}
a->b.enabled = true
a->b.topics = orders, shop\\\\..*
"""
JAAS = f'{MODULE} username="u" password="{SECRET}";'
MARKS = st.sampled_from(
    ["", "\n", "\\", '"', "'", "$", "${", "}", "=", ":", "#", ";", " ", "a", "é", "\0", "->", "`", "(", "."]
)
EDITS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 3), MARKS), min_size=1, max_size=4)


def damaged(text: str, edits: list[tuple[float, int, str]]) -> str:
    """Some letters taken out, others put in. The secret stays in one piece, with the letter before it: a secret that
    begins a line cannot be told from a name."""
    pieces = re.findall(f".{SECRET}|.", text, re.DOTALL)
    for where, gone, mark in edits:
        at = int(where * len(pieces))
        pieces[at : at + gone] = [mark, *(piece for piece in pieces[at : at + gone] if SECRET in piece)]
    return "".join(pieces)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def said(file: Path, raw: bytes) -> str:
    """All that a user gets to see of reading this file."""
    file.write_bytes(raw)
    try:
        loaded = load(file, environ={})
    except IsthmusError as error:
        return json.dumps([str(error), error.hint, error.where, repr(error)])
    return json.dumps([loaded.warnings, repr(loaded.flows)])


QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@QUICK
@given(text=st.text(st.characters(codec="utf-8"), max_size=80) | st.text("A=$'\"{}\\\n#;export `()", max_size=60))
@pytest.mark.parametrize("name", ["setenv.sh", "mm2.properties"])
def test_any_text_is_read_or_refused(folder: Path, name: str, text: str) -> None:
    said(folder / name, text.encode())


@QUICK
@given(raw=st.binary(max_size=60))
@pytest.mark.parametrize("name", ["setenv.sh", "mm2.properties", "flow.yaml"])
def test_any_bytes_are_read_or_refused(folder: Path, name: str, raw: bytes) -> None:
    said(folder / name, raw)


@QUICK
@given(edits=EDITS)
@pytest.mark.parametrize(("name", "text"), [("setenv.sh", SETENV), ("mm2.properties", PROPERTIES)])
def test_what_is_wrong_is_told_without_the_secret(
    folder: Path, name: str, text: str, edits: list[tuple[float, int, str]]
) -> None:
    wrong = damaged(text, edits)
    assert SECRET not in said(folder / name, wrong.encode()), wrong


@QUICK
@given(edits=EDITS)
def test_a_damaged_login_module_is_told_without_the_secret(edits: list[tuple[float, int, str]]) -> None:
    wrong = damaged(JAAS, edits)
    reading = read_security({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": wrong})
    assert SECRET not in repr(reading), wrong


def test_the_files_are_right_before_they_are_damaged(folder: Path) -> None:
    for name, text in (("setenv.sh", SETENV), ("mm2.properties", PROPERTIES)):
        assert "Flow(" in said(folder / name, text.encode())
