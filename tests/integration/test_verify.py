"""`isthmus verify`: it finds damage that was planted on a real cluster, and finds none where there is none.

Most tests compare in this process; one runs the command, on Spark. Damage is written by librdkafka into a copy that
takes the place of the one that a flow made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.crossing import Crossing, cross
from tests.integration.command import isthmus, yaml_file
from tests.integration.sources import (
    KEPT,
    START_MS,
    Pair,
    Row,
    Stream,
    alter,
    delete_before,
    numbered,
    partition_count,
    producer,
    send,
    wait_until,
    write,
)

from isthmus.engine.verify.proof import Progress, Report, Wanted, prove
from isthmus.engine.verify.task import compared
from isthmus.engine.verify.values import Compared, Task
from isthmus.errors import ConfigError, IsthmusError
from isthmus.lab import Lab
from isthmus.model import Flow, Mm2Topics, Naming, Start, Sync, Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

INDEXED = Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=True, checkpoints=False)
PROOF = 10  # the exit code


class Here:
    """Compares in threads of this process."""

    async def run(self, task: Task) -> list[Compared]:
        found = await asyncio.to_thread(compared, task)
        if isinstance(found, IsthmusError):
            raise found
        return found


def verified(flow: Flow, **wanted: Any) -> Report:
    return asyncio.run(prove(flow, Here(), Wanted(**wanted)))


@pytest.fixture
def pair(lab: Lab) -> Pair:
    return Pair(lab)


def only(report: Report) -> Compared:
    (found,) = report.compared
    return found


# --- damage -----------------------------------------------------------------------------------

ROWS: list[Row] = [
    {
        "key": b"k%d" % n,
        "value": b"value %d" % n,
        "timestamp": START_MS + n,
        "partition": 0,
        "headers": [("h", b"%d" % n)],
    }
    for n in range(100)
]


def _doubled(rows: list[Row]) -> None:
    rows.insert(50, rows[49])


def _swapped(rows: list[Row]) -> None:
    rows[50], rows[51] = rows[51], rows[50]


def _changed(**parts: Any) -> Callable[[list[Row]], None]:
    return lambda rows: rows.__setitem__(50, rows[50] | parts)


DAMAGES: dict[str, tuple[Callable[[list[Row]], object], str, str]] = {
    "missing": (lambda rows: rows.pop(50), "missing", "1 record of the source missing"),
    "first": (lambda rows: rows.pop(0), "missing", "1 record of the source missing"),
    "last": (lambda rows: rows.pop(), "missing", "the target ends before"),
    "doubled": (_doubled, "doubled", "a second time"),
    "doubled-at-the-end": (lambda rows: rows.append(rows[-1]), "doubled", "a second time"),
    "foreign": (lambda rows: rows.insert(50, rows[50] | {"value": b"of somebody else"}), "extra", "does not have"),
    "swapped": (_swapped, "reordered", "another order"),
    "value": (_changed(value=b"value 5O"), "altered", "differs in its value"),
    "key": (_changed(key=None), "altered", "differs in its key"),
    "headers": (_changed(headers=[]), "altered", "differs in its headers"),
    "timestamp": (_changed(timestamp=START_MS), "altered", f"timestamp ({START_MS + 50} on the source"),
}
AT = {"first": 0, "last": 99, "doubled-at-the-end": -1}


def _planted(pair: Pair) -> dict[str, str]:
    """A topic for each kind of damage, and one without; all were copied by the flow before."""
    topics = {name: pair.topic(name) for name in ("nothing", *DAMAGES)}
    for topic in topics.values():
        write(pair.source.bootstrap, topic, ROWS)
    assert cross(pair.flow()).stopped == ()
    for name, (damage, _, _) in DAMAGES.items():
        remote = pair.remote(topics[name])
        pair.target.delete_topic(remote)
        wait_until(partial(_is_gone, pair, remote), "the copy is gone")
        rows = list(ROWS)
        damage(rows)
        pair.target.create_topic(remote, 1, 1, KEPT)
        write(pair.target.bootstrap, remote, rows)
    return topics


def _is_gone(pair: Pair, remote: str) -> bool:
    return partition_count(pair.target.bootstrap, remote) == 0


@pytest.mark.spark
def test_planted_damage_is_found_named_and_told_by_the_command(pair: Pair, tmp_path: Path) -> None:
    topics = _planted(pair)

    report = verified(pair.flow())

    found = {each.source.topic: each.difference for each in report.compared}
    assert not report.equal
    assert found.pop(topics["nothing"]) is None
    for name, (_, kind, words) in DAMAGES.items():
        difference = found.pop(topics[name])
        assert difference is not None, name
        assert (difference.kind, difference.source_offset) == (kind, AT.get(name, 50)), (name, difference)
        assert words in difference.text
    assert not found

    chosen = [topics["swapped"], topics["nothing"]]
    ends = pair.source.bootstrap, pair.target.bootstrap
    file = yaml_file(tmp_path, *ends, alias=pair.alias, topics=[f"{pair.prefix}-.*"])
    page = tmp_path / "report.html"
    picked = [word for topic in chosen for word in ("--topic", topic)]
    ended = isthmus("verify", file, *picked, "--html", page, "-o", "json", seconds=240)
    assert ended.code == PROOF, ended
    (told,) = ended.json()
    assert {row["topic"]: row["equal"] for row in told["partitions"]} == {chosen[0]: False, chosen[1]: True}
    assert chosen[0] in ended.err
    assert "offset 50" in ended.err
    assert chosen[0] in page.read_text()
    assert "value 50" not in page.read_text() + ended.err + ended.out, "contents are never shown"


# --- no damage --------------------------------------------------------------------------------


def test_batches_that_crossed_as_they_are_are_not_even_opened(pair: Pair) -> None:
    topic = pair.topic("plain", partitions=3)
    write(pair.source.bootstrap, topic, numbered(3_000, partitions=3), compression_type="lz4")
    cross(pair.flow())
    seen: list[Progress] = []

    report = asyncio.run(prove(pair.flow(), Here(), Wanted(), seen.append))

    assert report.equal
    assert sum(each.records for each in report.compared) == 3_000
    assert sum(each.alike for each in report.compared) > 0
    assert sum(each.opened for each in report.compared) == 0
    assert (seen[-1].partitions_done, seen[-1].offsets_done) == (3, seen[-1].offsets)


def test_records_in_another_codec_transactions_and_aborted_records_are_the_same(pair: Pair) -> None:
    topic = pair.topic("odd")
    writing = producer(pair.source.bootstrap, transactional_id=f"{topic}-writer")
    for number in range(4):
        writing.begin_transaction()
        send(writing, topic, numbered(50, first=50 * number))
        writing.abort_transaction() if number == 1 else writing.commit_transaction()
    flow = pair.flow(compression="zstd")
    cross(flow)

    found = only(verified(flow))

    assert (found.equal, found.records, found.alike) == (True, 150, 0)


def test_a_running_flow_is_compared_up_to_what_it_has_committed(pair: Pair) -> None:
    topic = pair.topic("live", partitions=2)
    with Stream(pair.source.bootstrap, topic, partitions=2), Crossing(pair.flow()) as crossing:
        for records in (100, 300):
            crossing.until_copied(records)
            report = verified(pair.flow())
            assert report.equal, report.different
            assert sum(each.records for each in report.compared) >= records


def test_logs_that_lost_their_first_records_are_compared_from_what_both_have(pair: Pair) -> None:
    here, there = pair.topic("here"), pair.topic("there")
    flow = pair.flow(mm2_topics=INDEXED)
    for topic in (here, there):
        write(pair.source.bootstrap, topic, numbered(100))
    cross(flow)
    delete_before(pair.source.bootstrap, here, {0: 40})
    delete_before(pair.target.bootstrap, pair.remote(there), {0: 70})

    report = verified(flow)

    assert report.equal, report.different
    assert {each.source.topic: (each.low, each.records) for each in report.compared} == {
        here: (40, 60),
        there: (70, 30),
    }


def test_without_an_index_a_log_that_lost_records_is_not_called_equal_and_a_moment_helps(pair: Pair) -> None:
    topic = pair.topic("there")
    write(pair.source.bootstrap, topic, numbered(100))
    cross(pair.flow())
    delete_before(pair.target.bootstrap, pair.remote(topic), {0: 70})

    blind, since = verified(pair.flow()), verified(pair.flow(), since_ms=START_MS + 80)

    assert not blind.equal
    assert "--since" in only(blind).reason
    assert (only(since).equal, only(since).low, only(since).records) == (True, 80, 20)


def test_a_flow_that_began_later_is_compared_from_there(pair: Pair) -> None:
    topic = pair.topic("late")
    write(pair.source.bootstrap, topic, numbered(50))
    flow = pair.flow(starts=(Start(topics=".*", at="offsets", offsets=((0, 30),)),))
    cross(flow)

    found = only(verified(flow))

    assert (found.equal, found.low, found.records) == (True, 30, 20)


def test_a_compacted_topic_is_compared_by_the_last_value_of_each_key(pair: Pair) -> None:
    topic = pair.topic("compacted", settings={"cleanup.policy": "compact"})
    write(pair.source.bootstrap, topic, [*numbered(20), *numbered(20), *numbered(5, value=None)])
    cross(pair.flow())
    assert verified(pair.flow()).equal

    write(pair.target.bootstrap, pair.remote(topic), [numbered(1, first=7)[0] | {"value": b"another"}])
    difference = only(verified(pair.flow())).difference

    assert difference is not None
    assert (difference.kind, difference.source_offset) == ("altered", 27)


def test_settings_that_differ_are_told(pair: Pair) -> None:
    topic = pair.topic("set")
    flow = pair.flow(sync=Sync(configs=True))
    cross(flow)
    alter(pair.source.bootstrap, topic, max_message_bytes="2000000")

    report = verified(flow)

    assert not report.equal
    assert any("max.message.bytes" in line for line in report.settings)


def test_what_cannot_be_compared_is_refused_with_the_reason(pair: Pair) -> None:
    pair.topic("some")
    with pytest.raises(ConfigError) as unknown:
        verified(pair.flow(), topics=("none-of-these",))
    assert unknown.value.code == "UNKNOWN_TOPIC"
    two_way = pair.flow(naming=Naming(policy="identity"), cut_from=("west",), topics=Topics(include=("a",)))
    with pytest.raises(ConfigError) as caught:
        verified(two_way)
    assert caught.value.code == "TWO_WAY"
