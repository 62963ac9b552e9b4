"""`isthmus topics`, `produce`, `consume`, with a client's properties file, against what librdkafka sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.command import called
from tests.integration.sources import KEPT, Row, numbered, producer, read, send, unique, write

from isthmus.lab import Lab

pytestmark = pytest.mark.integration


@pytest.fixture
def properties(lab: Lab, tmp_path: Path) -> Path:
    file = tmp_path / "east.properties"
    file.write_text(f"# a client's file\nbootstrap.servers={lab['east'].bootstrap}\nsecurity.protocol=PLAINTEXT\n")
    return file


def test_what_is_consumed_as_json_can_be_produced_again_and_is_the_same(lab: Lab, properties: Path) -> None:
    topic, copy = unique("tools-"), unique("tools-")
    for name in (topic, copy):
        lab["east"].create_topic(name, 1, configs=KEPT)
    rows: list[Row] = [
        {"key": b"k", "value": "ünï".encode(), "headers": [("trace", b"1"), ("raw", b"\xff\x00")], "timestamp": 1_000},
        {"key": None, "value": None, "timestamp": 2_000},
        {"key": b"", "value": b"", "timestamp": 3_000},
    ]
    write(lab["east"].bootstrap, topic, rows)
    lines = called("consume", topic, "--properties", properties, "-o", "json")
    assert lines.code == 0, lines
    done = called("produce", copy, "--properties", properties, "-o", "json", fed=lines.out.encode())
    assert done.json() == {"topic": copy, "stored": 3}
    assert read(lab["east"].bootstrap, copy) == read(lab["east"].bootstrap, topic)


def test_aborted_records_are_not_shown(lab: Lab, properties: Path) -> None:
    topic = unique("tools-")
    lab["east"].create_topic(topic, 1, configs=KEPT)
    writer = producer(lab["east"].bootstrap, transactional_id=unique("tx"))
    writer.begin_transaction()
    send(writer, topic, [{"value": b"never"}])
    writer.abort_transaction(30)
    write(lab["east"].bootstrap, topic, [{"value": b"seen", "headers": [("h", b"v")]}])
    shown = called("consume", topic, "--properties", properties)
    assert shown.out.count("\n") == 1
    assert "[h=v] null seen" in shown.out


def test_lines_become_records_with_keys_and_headers(lab: Lab, properties: Path) -> None:
    topic = unique("tools-")
    lab["east"].create_topic(topic, 3, configs=KEPT)
    words = ("produce", topic, "--properties", properties, "--key-separator", "\\t", "--header", "by=hand")
    done = called(*words, fed=b"a\tone\nb\ttwo\nplain\n")
    assert done.code == 0, done
    shown = called("consume", topic, "--properties", properties, "-o", "json")
    found = [json.loads(line) for line in shown.out.splitlines()]
    assert {(each["key"], each["value"]) for each in found} == {("a", "one"), ("b", "two"), (None, "plain")}
    assert all(each["headers"] == [["by", "hand"]] for each in found)


def test_reading_begins_and_ends_where_it_is_told(lab: Lab, properties: Path) -> None:
    topic = unique("tools-")
    lab["east"].create_topic(topic, 1, configs=KEPT)
    write(lab["east"].bootstrap, topic, numbered(50))
    some = called("consume", topic, "--properties", properties, "--from", "40", "--max", "5", "-o", "json")
    assert [json.loads(line)["offset"] for line in some.out.splitlines()] == [40, 41, 42, 43, 44]
    none = called("consume", topic, "--properties", properties, "--from", "end")
    assert (none.code, none.out) == (0, "")


def test_topics_are_listed_and_slips_are_told(lab: Lab, properties: Path) -> None:
    topic = unique("tools-")
    lab["east"].create_topic(topic, 2, configs=KEPT)
    write(lab["east"].bootstrap, topic, numbered(7, partitions=2))
    listed = called("topics", "--properties", properties, topic, "-o", "json")
    (found,) = listed.json()
    assert sum(p["end"] - p["start"] for p in found["partitions"]) == 7
    assert len(found["partitions"]) == 2
    slip = called("consume", topic[:-1], "--properties", properties)
    assert slip.code == 6
    assert f"did you mean '{topic}'" in slip.err
