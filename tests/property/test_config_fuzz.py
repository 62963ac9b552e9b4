"""Parsers of files that people write: any text leads to flows or to an error of ours, and no secret is in either."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from isthmus.config.load import load
from isthmus.config.security import read_security
from isthmus.config.tunnelfile import read_end
from isthmus.errors import ConfigError, IsthmusError
from isthmus.mm2.automaton import Automaton, Unmatched
from isthmus.mm2.javaregex import compile_java

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


# --- YAML ----------------------------------------------------------------------------------------

SAMPLES = Path(__file__).parents[1] / "unit" / "samples"
YAML = {name: (SAMPLES / name).read_text() for name in ("whole.yaml", "strimzi-v1.yaml", "strimzi-v1beta2.yaml")}
CLUSTERS = 'clusters:\n  east: {bootstrap: "e1:9092"}\n  west: {bootstrap: [w:9092]}\n'
FLOW = "flows:\n  - from: east\n    to: west\n"
ODD = st.sampled_from(
    [
        *(
            "!!int ''",
            "!!bool maybe",
            "!!timestamp x",
            "!!float ''",
            "!!binary é",
            "!!set {a}",
            "!!omap [a: 1]",
            "!!map [a]",
        ),
        *("0001-01-01 00:00:00 +23:00", "2024-02-30", "&a [*a]", "&a {x: *a}", ".nan", "1e999", "0b", "1:99:99", "~"),
        *(
            '"\\0"',
            '"\\uD800"',
            "{? [a] : b}",
            "<<",
            "=",
            "[" * 200,
            "!!python/object:os.system {}",
            "9" * 400,
            "9" * 5000,
        ),
        *('"a{1,99999999999}"', '"' + "(" * 300 + ")" * 300 + '"', "'\\Uffffffff'", "0001-01-01T00:00:00+23:00"),
    ]
)


def refused_or_read(file: Path, text: str) -> None:
    """What is wrong has a place."""
    file.write_text(text, "utf-8", "surrogatepass")
    began = time.monotonic()
    try:
        load(file, environ={}, secrets=file.parent)
    except IsthmusError as error:
        assert str(file) in f"{error.where} {error}", error
    assert time.monotonic() - began < 20, "no text of this size takes long"


@QUICK
@given(data=st.data(), name=st.sampled_from(sorted(YAML)))
def test_a_damaged_yaml_file_is_read_or_refused_with_its_place(folder: Path, name: str, data: st.DataObject) -> None:
    lines = YAML[name].splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        key, colon, _ = lines[at].partition(": ")
        change = data.draw(st.sampled_from(["value", "gone", "twice", "letters"]))
        new = {
            "value": [f"{key}{colon}{data.draw(ODD)}\n"] if change == "value" else [],
            "gone": [],
            "twice": [lines[at], lines[data.draw(st.integers(0, len(lines) - 1))]] if change == "twice" else [],
            "letters": [damaged(lines[at], data.draw(EDITS))] if change == "letters" else [],
        }
        lines[at : at + 1] = new[change] or [""]
    refused_or_read(folder / name, "".join(lines))


@QUICK
@given(value=ODD, place=st.sampled_from(["lanes", "topics", "throttle", "start", "naming", "tuning", "clusters"]))
def test_a_value_of_any_kind_is_read_or_refused_with_its_place(folder: Path, value: str, place: str) -> None:
    text = f"clusters: {value}\n{FLOW}" if place == "clusters" else f"{CLUSTERS}{FLOW}    {place}: {value}\n"
    refused_or_read(folder / "flow.yaml", text)


def _laughs(lines: int, each: str) -> str:
    names = [f"a{n}" for n in range(lines)]
    chain = (f"{new}: &{new} {each.replace('X', '*' + old)}\n" for old, new in itertools.pairwise(names))
    return "a0: &a0 {x: y}\n" + "".join(chain)


@pytest.mark.parametrize(
    "text",
    [
        _laughs(12, "[X, X, X, X, X, X, X, X, X, X]"),
        _laughs(40, "{<<: [X, X]}"),
        _laughs(40, "{b: X, c: X}"),
        CLUSTERS + FLOW + _laughs(12, "[X, X, X, X, X, X, X, X, X, X]"),
        "[" * 100_000,
        "- " * 100_000,
        "{a: " * 50_000,
    ],
)
def test_few_lines_that_stand_for_billions_and_nests_without_end_are_refused_at_once(folder: Path, text: str) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"aliases stand for|levels within each other"):
        load(_file(folder, text), environ={})
    assert time.monotonic() - began < 20


def _file(folder: Path, text: str) -> Path:
    file = folder / "bomb.yaml"
    file.write_text(text)
    return file


# --- the end of a tunnel -------------------------------------------------------------------------

END = f"""\
role: exit
listen: 0.0.0.0:7443
secret: {SECRET}{SECRET}
metrics: 127.0.0.1:9464
allow: ["*.far:9092-9099", 10.1.0.0/16:9093, "[::1]:9092"]
pool: 4
limits: {{connections: 100, unauthenticated: 20, handshake_seconds: 5}}
cluster:
  bootstrap: [a:9092, b:9092]
  properties:
    security.protocol: SASL_SSL
    sasl.mechanism: PLAIN
    sasl.jaas.config: '{JAAS}'
"""


def told_of_end(file: Path, text: str) -> str:
    """All that a user gets to see of it; what is wrong has a place."""
    file.write_text(text, "utf-8", "surrogatepass")
    file.chmod(0o600)
    try:
        found = read_end(file, environ={})
    except IsthmusError as error:
        assert str(file) in f"{error.where} {error}", error
        return json.dumps([str(error), error.hint, error.where, repr(error)])
    return json.dumps([found.warnings, repr(found)])


def test_the_file_that_is_damaged_here_is_good(folder: Path) -> None:
    assert "EndFile(" in told_of_end(folder / "end.yaml", END)


@settings(QUICK, max_examples=150)
@given(edits=EDITS)
def test_a_damaged_end_of_a_tunnel_is_read_or_refused_without_the_secret(
    folder: Path, edits: list[tuple[float, int, str]]
) -> None:
    wrong = damaged(END, edits)
    assert SECRET not in told_of_end(folder / "end.yaml", wrong), wrong


@settings(QUICK, max_examples=150)
@given(value=ODD | st.text(max_size=12), at=st.integers(0, END.count("\n") - 1))
def test_a_value_of_any_kind_in_an_end_of_a_tunnel_is_read_or_refused(folder: Path, value: str, at: int) -> None:
    lines = END.splitlines()
    lines[at] = f"{lines[at].partition(': ')[0]}: {value}"
    told_of_end(folder / "end.yaml", "\n".join(lines))


# --- expressions ---------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    pattern=st.text("ab.*+?{}[](|)^$\\\\QEpkzux<>=!:&-0123456789,P", max_size=14) | st.text(max_size=8),
    any_text=st.booleans(),
)
@example("a{1,99999999999}", False)
@example("(" * 2000 + ")" * 2000, False)
@example("\\Uffffffff", False)
def test_any_text_is_an_expression_or_refused(pattern: str, any_text: bool) -> None:
    try:
        compile_java(pattern, any_text=any_text).fullmatch("orders.v1")
    except ConfigError as error:
        assert "not a regular expression that can be used" in str(error)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> str:
    choice = draw(st.sampled_from(["letter", "both", "either", "again", "again"])) if depth else "letter"
    if choice == "letter":
        return draw(st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "[a-c_]", "", "(?!)"]))
    parts = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    repeat = draw(st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "*?", "{2,}", "{1,9}"]))
    return {"both": "".join(parts), "either": "({}|{})".format(*parts), "again": f"({parts[0]}){repeat}"}[choice]


@settings(max_examples=300, deadline=None)
@given(pattern=expressions(), names=st.lists(st.text("ab_1\n", max_size=6), min_size=1, max_size=5))
def test_ways_followed_at_once_lead_where_pythons_own_lead(pattern: str, names: list[str]) -> None:
    with contextlib.suppress(Unmatched):  # thousands of states
        found = Automaton(pattern)
        for name in names:
            assert found.fullmatch(name) == bool(re.fullmatch(pattern, name, re.ASCII)), name


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a|a)*b",
        "(a|aa)+b",
        "(.*a)*b",
        ".*a.*a.*a.*a.*ab",
        "^(a+)+b$",
        r"(\w+\.?)+b",
        "(a?){60}a{60}b",
        "(a{1,9}){1,9}b",
    ],
)
def test_a_name_that_was_made_to_take_for_ever_takes_no_time(pattern: str) -> None:
    """Names of topics are given by others than whoever wrote the expression."""
    began = time.monotonic()
    assert not compile_java(pattern).fullmatch("a" * 248 + "c")
    assert compile_java(pattern).fullmatch("a" * 60 + "b")
    assert time.monotonic() - began < 20


def test_what_cannot_be_followed_at_once_is_matched_as_mirrormaker_does() -> None:
    for pattern in (r"((a+)b)+\1", "(?i)(a+)+b", r"(?!.*\.dlq$)([a-z]+\.)+v[0-9]+"):
        assert isinstance(compile_java(pattern), re.Pattern)
    for plain in ("(?i)orders.*", "(?!x).*", r"shop\..*", "(orders|payments)\\..*-[0-9]+"):
        assert isinstance(compile_java(plain), re.Pattern)


def test_the_files_are_right_before_they_are_damaged(folder: Path) -> None:
    for name, text in (("setenv.sh", SETENV), ("mm2.properties", PROPERTIES)):
        assert "Flow(" in said(folder / name, text.encode())
