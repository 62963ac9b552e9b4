"""Where a flow begins, and moving it by hand: `start`, and the `positions` command while nobody runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.crossing import Crossing, cross, flow_between
from tests.integration.command import called, yaml_file
from tests.integration.sources import KEPT, START_MS, add_partitions, numbered, unique, values, write

from isthmus.errors import SourceError
from isthmus.lab import Lab
from isthmus.model import Flow, Start

pytestmark = pytest.mark.integration

RIVAL = 8


def _filled(lab: Lab, records: int = 100) -> tuple[str, str]:
    alias, topic = unique("pos"), unique("topic-")
    lab["east"].create_topic(topic, 1, configs=KEPT)
    write(lab["east"].bootstrap, topic, numbered(records))
    return alias, topic


def _begun(lab: Lab, start: Start) -> tuple[Flow, str]:
    alias, topic = _filled(lab)
    return flow_between(lab, topic, alias=alias, starts=(start,)), topic


def _numbers(lab: Lab, flow: Flow, topic: str) -> list[bytes]:
    return [value or b"" for value in values(lab["west"].bootstrap, f"{flow.source.alias}.{topic}")]


def _expected(first: int, past: int) -> list[bytes]:
    return [row["value"] for row in numbered(past - first, first=first)]


def test_a_flow_begins_at_given_offsets(lab: Lab) -> None:
    flow, topic = _begun(lab, Start(at="offsets", offsets=((0, 60),)))
    cross(flow)
    assert _numbers(lab, flow, topic) == _expected(60, 100)


def test_a_flow_begins_at_a_time(lab: Lab) -> None:
    flow, topic = _begun(lab, Start(at="timestamp", timestamp_ms=START_MS + 30))
    cross(flow)
    assert _numbers(lab, flow, topic) == _expected(30, 100)


def test_latest_is_looked_up_once_so_nothing_written_while_it_is_down_is_missed(lab: Lab) -> None:
    flow, topic = _begun(lab, Start(at="latest"))
    cross(flow)  # sees the end, and has nothing to copy: no progress is stored
    assert _numbers(lab, flow, topic) == []
    write(lab["east"].bootstrap, topic, numbered(20, first=100))
    cross(flow)
    assert _numbers(lab, flow, topic) == _expected(100, 120)


def test_partitions_that_are_added_later_begin_at_their_beginning(lab: Lab) -> None:
    flow, topic = _begun(lab, Start(at="latest"))
    with Crossing(flow) as crossing:
        crossing.until(lambda status: status.state == "running")
        add_partitions(lab["east"].bootstrap, topic, 2)
        write(lab["east"].bootstrap, topic, numbered(50, first=500, partition=1))
        crossing.until_copied(50)
    assert values(lab["west"].bootstrap, f"{flow.source.alias}.{topic}", 1) == _expected(500, 550)
    assert _numbers(lab, flow, topic) == []


def test_an_offset_that_the_log_does_not_have_is_refused(lab: Lab) -> None:
    flow, _ = _begun(lab, Start(at="offsets", offsets=((0, 101),)))
    with pytest.raises(SourceError, match="cannot start at offset 101: its log has 0 to 100"):
        cross(flow)


def test_positions_are_listed_planned_and_changed(lab: Lab, tmp_path: Path) -> None:
    alias, topic = _filled(lab)
    flow = flow_between(lab, topic, alias=alias)
    cross(flow)
    file = yaml_file(tmp_path, lab["east"].bootstrap, lab["west"].bootstrap, alias=alias, topics=[topic])

    listed = called("positions", file, "-o", "json")
    assert listed.code == 0, listed
    # Beside it there may be MirrorMaker 2's heartbeats, if another test made that topic.
    (stored,) = [each for each in listed.json()["positions"] if each["topic"] == topic]
    assert stored == {"topic": topic, "partition": 0, "next": 100, "log_start": 0, "end": 100, "lag": 0}

    planned = called("positions", file, "--set", f"{topic}:0=90")
    assert planned.code == 0, planned
    assert "10 offsets will be copied AGAIN" in planned.out
    assert "Add --yes" in planned.out
    cross(flow)
    assert len(_numbers(lab, flow, topic)) == 100  # nothing was changed

    done = called("positions", file, "--set", f"{topic}:0=90", "--yes", "-o", "json")
    assert done.json()["changed"] is True
    cross(flow)
    assert _numbers(lab, flow, topic) == _expected(0, 100) + _expected(90, 100)

    called("positions", file, "--reset", topic, "--yes")
    cross(flow)
    assert _numbers(lab, flow, topic)[110:] == _expected(0, 100)

    beyond = called("positions", file, "--set", f"{topic}:0=101", "--yes")
    assert beyond.code == SourceError.exit_code
    assert "its log has 0 to 100" in beyond.err


def test_positions_are_not_changed_under_a_running_flow(lab: Lab, tmp_path: Path) -> None:
    alias, topic = _filled(lab)
    file = yaml_file(tmp_path, lab["east"].bootstrap, lab["west"].bootstrap, alias=alias, topics=[topic])
    with Crossing(flow_between(lab, topic, alias=alias)) as crossing:
        crossing.until_copied(100)
        time.sleep(0.5)
        refused = called("positions", file, "--set", f"{topic}:0=1", "--yes")
    assert refused.code == RIVAL, refused
    assert "another replicator drives" in refused.err
