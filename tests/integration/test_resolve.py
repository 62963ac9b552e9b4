"""Loud stops, and how they go on: each is caused on real clusters, stands still with its name and its exact range while
others go on, and is resolved by a decision that stays on record; in a flow that runs, and in one that does not.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.crossing import Crossing, cross
from tests.integration.command import Ended, called, yaml_file
from tests.integration.sources import (
    Pair,
    codes,
    delete_before,
    numbered,
    partition_count,
    position,
    producer,
    send,
    values,
    wait_until,
    write,
)

from isthmus.engine.positions import Positions
from isthmus.model import Flow, TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WRONG, STOPPED_BY_TARGET = 2, 7


def file_of(pair: Pair, folder: Path, *more: str) -> Path:
    return yaml_file(
        folder, pair.source.bootstrap, pair.target.bootstrap, alias=pair.alias, topics=[f"{pair.prefix}-.*"], more=more
    )


def resolve(file: Path, topic: str, *words: str) -> Any:
    ended = called("resolve", file, "--topic", topic, *words, "--yes", "-o", "json")
    assert ended.code == 0, ended
    return ended.json()


def shown(file: Path) -> Any:
    (found,) = called("gaps", file, "-o", "json").json()
    return found


def plain(numbers: range | list[int]) -> list[bytes]:
    return [b"v%d" % n for n in numbers]


def copied(pair: Pair, topic: str) -> list[bytes | None]:
    return values(pair.target.bootstrap, pair.remote(topic))


def ranges(told: Any) -> list[tuple[str, int, int]]:
    return [(each["code"], each["first"], each["past"]) for each in told["decisions"]]


def deleted(pair: Pair, topic: str) -> None:
    pair.target.delete_topic(pair.remote(topic))
    wait_until(lambda: partition_count(pair.target.bootstrap, pair.remote(topic)) == 0, "the copy is gone")


def test_every_loud_stop_is_named_and_goes_on_by_a_decision_while_the_flow_runs(pair: Pair, tmp_path: Path) -> None:
    names = ("gone", "anew", "lost", "copy", "again", "shared", "staying")
    gone, anew, lost, copy, again, shared, staying = topics = [pair.topic(name) for name in names]
    for topic in topics:
        pair.write(topic, 10)
    cross(pair.flow())
    pair.source.delete_topic(gone)
    pair.recreate(pair.source, anew)
    pair.write(anew, 5, first=100)
    pair.write(lost, 20, first=10)
    delete_before(pair.source.bootstrap, lost, {0: 25})
    for topic in (copy, again):
        deleted(pair, topic)
    file = file_of(pair, tmp_path)
    stopped = {
        (gone, 0): "SOURCE_GONE",
        (anew, 0): "SOURCE_RECREATED",
        (lost, 0): "GAP",
        (copy, 0): "TARGET_RECREATED",
        (again, 0): "TARGET_RECREATED",
        (shared, 0): "FOREIGN_WRITE",
    }
    with Crossing(pair.flow()) as crossing:
        # The first answer of an order is what later ones are compared with, so one record of ours comes first.
        pair.write(shared, 1, first=10)
        crossing.until(lambda status: position(status, shared) == 11)
        strange = end_of(pair, shared)
        send(producer(pair.target.bootstrap), pair.remote(shared), numbered(2, first=900))
        pair.write(shared, 1, first=11)
        crossing.until(lambda status: codes(status) == stopped, 120)
        pair.write(staying, 10, first=10)
        crossing.until(lambda status: position(status, staying) == 20)

        assert ranges(resolve(file, gone, "--accept-gap")) == [("SOURCE_GONE", 10, -1)]
        assert ranges(resolve(file, anew, "--accept-gap")) == [("SOURCE_RECREATED", 10, -1)]
        assert ranges(resolve(file, lost, "--accept-gap")) == [("GAP", 10, 25)]
        assert ranges(resolve(file, copy, "--restart")) == [("TARGET_RECREATED", 0, 10)]
        assert ranges(resolve(file, again, "--accept-gap")) == [("TARGET_RECREATED", 0, 10)]
        (foreign,) = resolve(file, shared, "--accept-gap")["decisions"]
        assert foreign["code"] == "FOREIGN_WRITE"
        assert foreign["target"][0] == [strange, strange + 2]

        for topic in (lost, copy, again, shared):
            pair.write(topic, 3, first=50)
        crossing.until(lambda status: status.stopped == () and status.lag == 0 and position(status, again) == 13, 120)
        crossing.until(lambda status: (status.gaps, status.lost) == (4, 10 + 15), 60)
    assert copied(pair, anew) == plain(range(10)) + plain(range(100, 105))
    assert copied(pair, lost) == plain(range(10)) + plain(range(25, 30)) + plain(range(50, 53))
    assert copied(pair, copy) == plain(range(10)) + plain(range(50, 53))
    assert copied(pair, again) == plain(range(50, 53))
    ours = [value for value in copied(pair, shared) if value not in plain([900, 901])]
    assert ours == plain([*range(12), 50, 51, 52])
    pair.proven(staying, 20)
    record = shown(file)
    assert record["stops"] == []
    assert len(record["decisions"]) == len(stopped)
    assert {(gap["topic"], gap["first"], gap["past"]) for gap in record["gaps"]} == {
        (gone, 10, -1),
        (anew, 10, -1),
        (lost, 10, 25),
        (again, 0, 10),
        (shared, -1, -1),
    }


def end_of(pair: Pair, topic: str) -> int:
    """Where the next record of the copy will stand, when all markers are there."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as There

    consumer = Consumer({"bootstrap.servers": pair.target.bootstrap, "group.id": "isthmus-test-reader"})
    try:
        return int(consumer.get_watermark_offsets(There(pair.remote(topic), 0), timeout=60)[1])
    finally:
        consumer.close()
