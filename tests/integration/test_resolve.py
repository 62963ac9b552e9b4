"""Loud stops, and how they go on: each is caused on real clusters, stands still with its name and its exact range while
others go on, and is resolved by a decision that stays on record; in a flow that runs, and in one that does not.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.crossing import QUICK, Crossing, cross
from tests.faults.staged import trickle
from tests.integration.command import called, yaml_file
from tests.integration.sources import (
    Pair,
    codes,
    delete_before,
    partition_count,
    position,
    producer,
    values,
    wait_until,
    write,
)
from tests.integration.test_verify import INDEXED, verified

from isthmus.engine.ledger import Ledger
from isthmus.engine.offsets.index import Index
from isthmus.engine.positions import Positions
from isthmus.engine.resolve.choices import Choice, wanted_here
from isthmus.engine.wishes import Wishing
from isthmus.errors import ConfigError, TargetError
from isthmus.model import Flow, TopicPartition
from isthmus.observe.status import FlowStatus

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WRONG, SOURCE, TARGET = 2, 6, 7


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
    flow = pair.flow(mm2_topics=INDEXED)
    cross(flow)
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
    with Crossing(flow) as crossing:
        strange, own = mixed(pair, crossing, shared)
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
        assert strange in foreign["target"]

        for topic in (lost, copy, again, shared):
            pair.write(topic, 3, first=50)
        crossing.until(lambda status: status.stopped == () and status.lag == 0 and position(status, again) == 13, 120)
        crossing.until(lambda status: (status.gaps, status.lost) == (4, 10 + 15), 60)
    assert copied(pair, anew) == plain(range(10)) + plain(range(100, 105))
    assert copied(pair, lost) == plain(range(10)) + plain(range(25, 30)) + plain(range(50, 53))
    assert copied(pair, copy) == plain(range(10)) + plain(range(50, 53))
    assert copied(pair, again) == plain(range(50, 53))
    ours = [value for value in copied(pair, shared) if value != b"strange"]
    assert ours == plain([*range(own), 50, 51, 52])
    pair.proven(staying, 20)
    proof = verified(flow)
    assert proof.equal, proof.different
    assert {gap.topic for gap in proof.gaps} == {anew, lost, again, shared}
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


def test_lanes_without_the_topic_of_a_decision_never_notice_it(pair: Pair, tmp_path: Path) -> None:
    """I7: what is written into others meanwhile goes over in the order that they have."""
    one, two = pair.topic("one"), pair.topic("two")
    pair.write(one, 10)
    pair.write(two, 10)
    flow = pair.flow(lanes=2, tuning=dataclasses.replace(QUICK, epoch_seconds=600))
    with Crossing(flow) as crossing:

        def topics() -> list[set[str]]:
            return [{each.source.topic for each in order.assignments} for order in crossing.runner.orders]

        crossing.until_copied(20)
        assert sorted(map(sorted, topics())) == [[one], [two]]
        pair.recreate(pair.source, one)
        pair.write(one, 5, first=100)
        crossing.until(lambda status: codes(status) == {(one, 0): "SOURCE_RECREATED"}, 60)
        before = topics().count({one})
        with trickle(pair.source.bootstrap, two, 1) as written:
            resolve(file_of(pair, tmp_path), one, "--accept-gap")
            crossing.until(lambda status: position(status, one) == 5, 60)
        crossing.until(lambda status: position(status, two) == 10 + written[0], 60)
        assert topics().count({two}) == 1
        assert topics().count({one}) > before
    assert copied(pair, one) == plain(range(10)) + plain(range(100, 105))
    pair.proven(two, 10 + written[0])


def test_the_index_is_read_before_lanes_are_held_for_a_decision(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I7: it grows with the age of a flow, and others of the lane would wait for it."""
    topic, held = pair.topic("anew"), list[bool]()
    pair.write(topic, 10)
    cross(pair.flow(mm2_topics=INDEXED))
    pair.recreate(pair.source, topic)
    pair.write(topic, 5, first=100)
    with Crossing(pair.flow(mm2_topics=INDEXED)) as crossing:
        crossing.until(lambda status: codes(status) == {(topic, 0): "SOURCE_RECREATED"}, 60)
        catch_up = Index.catch_up

        async def seen(index: Index) -> None:
            if index._cursor < 0:  # from its beginning
                assert crossing.driver is not None
                held.append(crossing.driver.fleet.is_held)
            await catch_up(index)

        monkeypatch.setattr(Index, "catch_up", seen)
        resolve(file_of(pair, tmp_path), topic, "--accept-gap")
        crossing.until(lambda status: position(status, topic) == 5, 60)
    assert held == [False]
    assert copied(pair, topic) == plain(range(10)) + plain(range(100, 105))


def test_a_decision_about_what_has_gone_on_by_itself_is_refused_as_if_nobody_ran_the_flow(pair: Pair) -> None:
    """It had stopped when the command looked; with the same code and hint a script knows what to do."""
    topic = pair.topic("healed")
    pair.write(topic, 10)
    flow = pair.flow()

    async def decide() -> None:
        async with Wishing(flow) as wishing:
            await wishing.resolve(wanted_here(topic, -1, Choice.retry).as_wish())

    with Crossing(flow) as crossing:
        crossing.until_copied(10)
        with pytest.raises(ConfigError, match=r"the running flow refused it: .* is not stopped") as told:
            asyncio.run(decide())
    assert told.value.code == "NOT_STOPPED"
    assert "isthmus gaps" in told.value.hint


def test_decisions_are_made_while_nobody_runs_the_flow_and_only_those_that_make_sense(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, cut, large = pair.topic("over", partitions=2), pair.topic("cut"), pair.topic("large")
    pair.target.create_topic(pair.remote(large), 1, 1, {"max.message.bytes": "3000"})
    pair.write(over, 20, partitions=2)
    pair.write(cut, 10)
    rows = [{"value": b"v0"}, {"value": b"v1"}, {"value": os.urandom(5000)}, {"value": b"v3"}]
    write(pair.source.bootstrap, large, rows, linger_ms=500)
    flow, file = pair.flow(mm2_topics=INDEXED), file_of(pair, tmp_path)
    cross(flow)
    pair.write(over, 40, first=20, partitions=2)
    delete_before(pair.source.bootstrap, over, {0: 25})
    asyncio.run(_copied_up_to(flow, TopicPartition(cut, 0), 15))
    stopped = {(over, 0): "GAP", (cut, 0): "TRUNCATED", (large, 0): "TARGET_REFUSED"}
    assert codes(cross(flow)) == stopped
    assert {(each["topic"], each["partition"]): each["code"] for each in shown(file)["stops"]} == stopped

    told = called("resolve", file, "--topic", cut)
    assert (told.code, "TRUNCATED" in told.out, "--accept-gap: goes on at the end" in told.out) == (0, True, True), told
    assert refused(file, large, "--restart") == (WRONG, "CHOICE")
    assert refused(file, over, "--retry") == (WRONG, "CHOICE")
    assert refused(file, over, "--restart", "--partition", "0") == (WRONG, "CHOICE")
    assert refused(file, over, "--accept-gap", "--partition", "1") == (WRONG, "NOT_STOPPED")
    assert refused(file, over, "--accept-gap", "--retry") == (WRONG, "CONFIG")
    assert refused(file, over, "--restart") == (TARGET, "COPY_NOT_EMPTY")
    assert refused(file, f"{over}-not", "--retry") == (SOURCE, "UNKNOWN_TOPIC")
    words = ("resolve", file, "--topic", over, "--accept-gap")
    assert "NOT_CONFIRMED" in called(*words, fed=b"something else\n").err
    assert "Nothing was changed" in called(*words, "--dry-run").out
    assert shown(file)["decisions"] == []

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "put", _dies)
        assert called(*words, "--yes").code == TARGET
    assert [each["code"] for each in shown(file)["decisions"]] == ["GAP"], "on record before it is carried out"
    states = called("resolve", file, "--topic", over, "-o", "json").json()["states"]
    assert [(each["code"], each["lost"]) for each in states] == [("GAP", [10, 25]), ("", None)], "and not done by that"
    assert called(*words, fed=f"{over}\n".encode()).code == 0
    assert ranges(resolve(file, cut, "--accept-gap")) == [("TRUNCATED", 10, 15)]
    assert ranges(resolve(file, large, "--accept-gap")) == [("TARGET_REFUSED", 2, 3)]
    again = resolve(file, over, "--accept-gap")
    assert (again["changed"], ranges(again)) == (False, [("GAP", 10, 25)]), "saying it again does no harm"

    pair.write(cut, 10, first=10)
    assert cross(flow).stopped == ()
    assert values(pair.target.bootstrap, pair.remote(over), 0) == plain([*range(0, 20, 2), *range(50, 60, 2)])
    assert copied(pair, cut) == plain(range(20))
    assert copied(pair, large) == plain([0, 1, 3])
    proof = verified(flow)
    assert proof.equal, proof.different
    assert sorted((gap.topic, gap.first, gap.past) for gap in proof.gaps) == [
        (cut, 10, 15),
        (large, 2, 3),
        (over, 10, 25),
    ]


async def _dies(_: Ledger, __: object) -> None:
    raise TargetError("the command died here")


async def _copied_up_to(flow: Flow, source: TopicPartition, offset: int) -> None:
    """As if the source had held more when it was copied, and had lost it since."""
    async with Positions(flow) as positions:
        await positions.read()
        await positions.write({source: offset})


def refused(file: Path, topic: str, *words: str) -> tuple[int, str]:
    ended = called("resolve", file, "--topic", topic, *words, "--yes")
    return ended.code, ended.err.partition("[")[2].partition("]")[0]


def mixed(pair: Pair, crossing: Crossing, topic: str) -> tuple[list[int], int]:
    """Somebody else writes between our records until it is noticed: offsets of the last time, and how many are ours.

    The first answer of an order is what later ones are compared with; should a lane begin anew meanwhile, once more.
    """
    for own in range(10, 30, 2):
        pair.write(topic, 1, first=own)
        crossing.until(partial(_reached, topic, own + 1))
        strange = written_by_somebody_else(pair, topic)
        pair.write(topic, 1, first=own + 1)
        crossing.until(partial(_reached, topic, own + 2))
        if _is_noticed(crossing, topic):
            return strange, own + 2
    raise AssertionError("nobody noticed")


def _reached(topic: str, offset: int, status: FlowStatus) -> bool:
    return position(status, topic) == offset


def _is_noticed(crossing: Crossing, topic: str) -> bool:
    try:
        crossing.until(lambda status: codes(status).get((topic, 0)) == "FOREIGN_WRITE", 20)
    except AssertionError:
        return False
    return True


def written_by_somebody_else(pair: Pair, topic: str) -> list[int]:
    """Two records, as a half-open range of the copy's offsets."""
    offsets: list[int] = []
    into = producer(pair.target.bootstrap)
    for _ in range(2):
        into.produce(
            pair.remote(topic), b"strange", partition=0, on_delivery=lambda _, sent: offsets.append(sent.offset())
        )
    assert into.flush(60) == 0
    return [min(offsets), max(offsets) + 1]
