"""`isthmus top` on a real terminal and without one, and a debug bundle, of a flow on real clusters."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from tests.crossing import cross, flow_between
from tests.integration.command import COMMAND, called, yaml_file
from tests.integration.sources import KEPT, numbered, unique, write
from tests.terminal import Terminal

from isthmus.lab import Lab

pytestmark = pytest.mark.integration

OTHER_SCREEN, BACK = "\x1b[?1049h", "\x1b[?1049l"
SHOW_CURSOR = "\x1b[?25h"


@pytest.fixture
def file(lab: Lab, tmp_path: Path) -> Path:
    """A flow that copied two topics, and ended."""
    alias, topics = unique("top"), [unique("apples"), unique("pears")]
    for topic in topics:
        lab["east"].create_topic(topic, 2, configs=KEPT)
        write(lab["east"].bootstrap, topic, numbered(10, partitions=2))
    cross(flow_between(lab, *topics, alias=alias))
    more = ["mm2_topics: {heartbeats: false, carry_heartbeats: false}"]  # other flows of the lab have written some
    return yaml_file(tmp_path, lab["east"].bootstrap, lab["west"].bootstrap, alias=alias, topics=topics, more=more)


def test_on_a_terminal_keys_change_the_view_and_the_end_leaves_it_as_it_was(file: Path) -> None:
    with Terminal([*COMMAND, "top", str(file)]) as first, Terminal([*COMMAND, "top", str(file)]) as second:
        first.until(OTHER_SCREEN, "apples", "pears", "not running [NOT_RUNNING]", "1-4 of 4 partitions")
        first.press("/pear\r")
        first.until("1-2 of 2 partitions", "/pear")
        first.press("p")
        first.until("STANDS STILL")
        first.press("?")
        first.until("worst first")
        first.press("q")
        second.until("1-4 of 4 partitions")
        second.press("\x03")
        for terminal in (first, second):
            assert terminal.ended() == 0
            assert terminal.settings() == terminal.before
            assert terminal.seen.rindex(BACK) > terminal.seen.rindex(OTHER_SCREEN)
            assert SHOW_CURSOR in terminal.seen
            assert "Traceback" not in terminal.seen


def test_without_a_terminal_it_prints_text_or_a_line_of_json_for_each_look(file: Path) -> None:
    told = called("top", file, "--count", 2, "--every", 0.2)
    assert told.code == 0
    assert told.out.count("not running [NOT_RUNNING]") == 2
    assert "\x1b" not in told.out

    lines = called("top", file, "--count", 2, "--every", 0.2, "-o", "json").out.splitlines()
    pictures = [json.loads(line) for line in lines]
    assert [[len(flow["partitions"]) for flow in picture] for picture in pictures] == [[4], [4]]


def test_a_target_that_does_not_answer_is_shown_and_looked_at_again(tmp_path: Path) -> None:
    file = yaml_file(tmp_path, "127.0.0.1:1", "127.0.0.1:1", alias=unique("top"), topics=["t"])
    lines = called("top", file, "--count", 2, "--every", 0.2, "-o", "json").out.splitlines()
    assert [[flow["exit_status"] for flow in json.loads(line)] for line in lines] == [[7], [7]]
    assert "target does not answer [UNREACHABLE]" in called("top", file, "--count", 1).out


def test_a_bundle_tells_how_a_flow_stands_and_what_it_did(file: Path, tmp_path: Path) -> None:
    told = called("bundle", file, "--to", tmp_path / "b.tar.gz", "--records", 1000, "-o", "json")
    assert told.code == 0, told
    assert [part["name"] for part in told.json()["parts"] if part["error"]] == []
    alias = file.stem
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        found = {
            Path(member.name).name: json.loads(getattr(archive.extractfile(member), "read", bytes)())
            for member in archive.getmembers()
        }
    assert found[f"status-{alias}-to-west.json"]["state"] == "not running"
    assert len(found[f"status-{alias}-to-west.json"]["partitions"]) == 4
    keys = {record["key"] for record in found[f"control-{alias}-to-west.json"]}
    assert {"lease", "driver", "status/0"} <= keys
    assert found["doctor.json"]["checks"]
    assert found[f"plan-{alias}-to-west.json"]["flow"] == f"{alias}->west"
    assert found["versions.json"]["libraries"]["pyspark"] == found["spark.json"]["version"]
