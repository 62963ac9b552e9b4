"""Changing a flow while it runs: pause, resume, throttle, other topics, more lanes; by wish, and by its file."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.crossing import QUICK, Crossing, cross
from tests.integration.command import Running, called, wait_for, yaml_file
from tests.integration.sources import Pair, add_partitions, numbered, values, write

from isthmus.engine import dispatch, letters
from isthmus.engine.wishes import Answer, Wishing, live_settings
from isthmus.errors import ConfigError, TargetError
from isthmus.lab import Lab
from isthmus.model import Flow, TopicPartition, Topics

pytestmark = pytest.mark.integration


def _wish(flow: Flow, ask: Callable[[Wishing], Awaitable[Answer]]) -> Answer:
    async def go() -> Answer:
        async with Wishing(flow) as wishing:
            return await ask(wishing)

    return asyncio.run(go())


def _until_left(flow: Flow, topic: str) -> None:
    async def go() -> None:
        async with Wishing(flow) as wishing:
            await wishing.until_left(topic, 20)

    asyncio.run(go())


def test_a_paused_topic_waits_while_others_go_on_and_resumes_where_it_was(lab: Lab) -> None:
    """I7: the lane that has both goes on with its order, and those who read the other topic never notice."""
    pair = Pair(lab)
    one, two = pair.topic("one"), pair.topic("two")
    pair.write(one, 10)
    pair.write(two, 10)
    flow = pair.flow(tuning=dataclasses.replace(QUICK, epoch_seconds=600))
    with Crossing(flow) as crossing:
        crossing.until_copied(20)
        assert _wish(flow, lambda wishing: wishing.pause(frozenset({one}))).heard_by
        _until_left(flow, one)
        pair.write(one, 10, first=10)
        pair.write(two, 10, first=10)
        crossing.until_copied(30)
        time.sleep(0.5)
        assert len(values(pair.target.bootstrap, pair.remote(one))) == 10
        assert _wish(flow, lambda wishing: wishing.resume(frozenset())).heard_by
        crossing.until_copied(40)
        assert len(crossing.runner.orders) == 1
    pair.proven(one, 20)
    pair.proven(two, 20)


def test_a_topic_that_is_paused_again_and_again_under_load_is_copied_once(lab: Lab) -> None:
    """I1: what a pause meets in an open transaction is committed with its progress, what waits is read again."""
    pair = Pair(lab)
    one, two = pair.topic("one"), pair.topic("two")
    flow = pair.flow(tuning=dataclasses.replace(QUICK, epoch_seconds=600))
    with Crossing(flow) as crossing:
        for turn in range(10):
            for topic in (one, two):
                pair.write(topic, 3000, first=3000 * turn)
            crossing.until_copied(1)  # so that an order runs
            assert _wish(flow, lambda wishing: wishing.pause(frozenset({one}))).heard_by
            assert _wish(flow, lambda wishing: wishing.resume(frozenset())).heard_by
        crossing.until_copied(60_000)
        assert len(crossing.runner.orders) == 1
    pair.proven(one, 30_000)
    pair.proven(two, 30_000)


def test_a_topic_that_is_paused_when_an_order_is_made_gets_another_when_it_resumes(lab: Lab) -> None:
    pair = Pair(lab)
    one, two = pair.topic("one"), pair.topic("two")
    pair.write(one, 10)
    pair.write(two, 10)
    flow = pair.flow(tuning=dataclasses.replace(QUICK, epoch_seconds=600))
    cross(flow)
    _wish(flow, lambda wishing: wishing.pause(frozenset({one})))
    pair.write(one, 10, first=10)
    pair.write(two, 10, first=10)
    with Crossing(flow) as crossing:
        crossing.until_copied(10)
        assert _wish(flow, lambda wishing: wishing.resume(frozenset())).heard_by
        crossing.until_copied(20)
        assert len(crossing.runner.orders) == 2
    pair.proven(one, 20)
    pair.proven(two, 20)


def test_a_topic_that_is_deleted_leaves_its_lane_to_the_others(lab: Lab) -> None:
    """I7: nobody who reads another topic of the same lane waits for a new order."""
    pair = Pair(lab)
    gone, there = pair.topic("gone"), pair.topic("there")
    pair.write(gone, 10)
    pair.write(there, 10)
    flow = pair.flow(tuning=dataclasses.replace(QUICK, epoch_seconds=600))
    with Crossing(flow) as crossing:
        crossing.until_copied(20)
        pair.source.delete_topic(gone)
        crossing.until(lambda status: any(part.code == "SOURCE_GONE" for part in status.partitions))
        _until_left(flow, gone)
        pair.write(there, 10, first=10)
        crossing.until_copied(30)
        assert len(crossing.runner.orders) == 1
    pair.proven(there, 20)


def test_an_order_needs_to_read_little_progress_because_it_is_read_as_it_comes(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_KEEP_UP_EVERY_S", 0.2)
    pair = Pair(lab)
    topic = pair.topic("long")
    flow = pair.flow(tuning=dataclasses.replace(QUICK, epoch_seconds=600))
    with Crossing(flow) as crossing:
        pair.write(topic, 10)
        crossing.until_copied(10)
        assert crossing.driver is not None
        ledger = crossing.driver.dispatch.ledger
        wait_for(lambda: ledger.positions.get(TopicPartition(topic, 0)) == 10, what="the progress of the order")
        pair.write(topic, 10, first=10)
        wait_for(lambda: ledger.positions.get(TopicPartition(topic, 0)) == 20, what="more of it")
        assert len(crossing.runner.orders) == 1


def test_lanes_without_the_topics_of_a_wish_never_notice_it(lab: Lab) -> None:
    """I7: a pause, a rate or a resume ends the orders of the lanes that it concerns, and no others."""
    pair = Pair(lab)
    one, two = pair.topic("one"), pair.topic("two")
    pair.write(one, 10)
    pair.write(two, 10)
    flow = pair.flow(lanes=2, tuning=dataclasses.replace(QUICK, epoch_seconds=600))
    with Crossing(flow) as crossing:

        def topics() -> list[set[str]]:
            return [{each.source.topic for each in order.assignments} for order in crossing.runner.orders]

        crossing.until_copied(20)
        assert sorted(map(sorted, topics())) == [[one], [two]]
        wishes: list[Callable[[Wishing], Awaitable[Answer]]] = [
            lambda wishing: wishing.pause(frozenset({one})),
            lambda wishing: wishing.resume(frozenset()),
            lambda wishing: wishing.throttle(50_000_000, frozenset({one})),
            lambda wishing: wishing.throttle(0, frozenset({one})),
        ]
        for wish in wishes:
            assert _wish(flow, wish).heard_by
            pair.write(one, 10)
            pair.write(two, 10)
        crossing.until_copied(100)
        assert topics().count({two}) == 1
        assert topics().count({one}) == 4  # the first, and those of a resume and of two rates
    pair.proven(one, 50)
    pair.proven(two, 50)


def test_a_pause_outlives_the_driver(lab: Lab) -> None:
    pair = Pair(lab)
    topic = pair.topic("held")
    pair.write(topic, 10)
    flow = pair.flow()
    cross(flow)
    answer = _wish(flow, lambda wishing: wishing.pause(frozenset()))
    assert answer.heard_by == ""
    pair.write(topic, 10, first=10)
    with pytest.raises(TargetError, match="so it cannot catch up"):
        cross(flow)
    with Crossing(flow) as crossing:
        crossing.until(lambda status: any("paused: all topics" in event for event in status.events))
        time.sleep(1.0)
        assert not crossing.runner.orders
        assert _wish(flow, lambda wishing: wishing.resume(frozenset())).heard_by
        crossing.until_copied(10)
    pair.proven(topic, 20)


def test_lanes_are_added_and_taken_away_under_a_running_flow(lab: Lab) -> None:
    pair = Pair(lab)
    topic = pair.topic("many", partitions=6)
    pair.write(topic, 600, partitions=6)
    flow = pair.flow()
    with Crossing(flow) as crossing:
        crossing.until_copied(600)
        for round_, lanes in enumerate((3, 1, 2), 1):
            before = len(crossing.runner.orders)
            settings = live_settings(dataclasses.replace(flow, lanes=lanes))
            assert _wish(flow, lambda wishing, settings=settings: wishing.apply(settings)).heard_by  # type: ignore[misc]
            pair.write(topic, 600, first=600 * round_, partitions=6)
            crossing.until_copied(600 * (round_ + 1))
            assert {order.lane for order in crossing.runner.orders[before:]} >= set(range(lanes))
    pair.proven(topic, 2400)


def test_other_topics_are_carried_at_once(lab: Lab) -> None:
    pair = Pair(lab)
    first, second = pair.topic("first"), pair.topic("second")
    pair.write(first, 10)
    pair.write(second, 10)
    flow = dataclasses.replace(pair.flow(), topics=Topics(include=(first,)))
    with Crossing(flow) as crossing:
        crossing.until_copied(10)
        wider = dataclasses.replace(flow, topics=Topics(include=(f"{pair.prefix}-.*",)))
        assert _wish(flow, lambda wishing: wishing.apply(live_settings(wider))).heard_by
        crossing.until_copied(20)
    pair.proven(second, 10)


def test_a_throttled_topic_is_slow_while_others_are_not(lab: Lab) -> None:
    pair = Pair(lab)
    slow, free = pair.topic("slow", partitions=2), pair.topic("free")
    flow = pair.flow(lanes=2)

    def throttle(rate: int | None, *topics: str) -> Answer:
        return _wish(flow, lambda wishing: wishing.throttle(rate, frozenset(topics)))

    with Crossing(flow) as crossing:

        def rates() -> list[tuple[float, int]]:
            last = {order.lane: order for order in crossing.runner.orders}
            return [(sum(o.topic_rates.get(slow, 0) for o in last.values()), o.flow.throttle) for o in last.values()]

        crossing.until(lambda status: len(crossing.runner.orders) >= 2)
        assert throttle(20_000, slow).heard_by
        assert throttle(50_000_000).value == {"topics": {slow: 20_000}, "rate": 50_000_000}
        wait_for(lambda: rates() == [(20_000, 50_000_000)] * 2, what="orders with both rates")
        rows = [{"value": os.urandom(10_000), "partition": n % 2} for n in range(80)]
        write(pair.source.bootstrap, slow, rows, batch_num_messages=1)  # 40 s at that rate
        write(pair.source.bootstrap, free, [{**row, "partition": 0} for row in rows])
        wait_for(lambda: len(values(pair.target.bootstrap, pair.remote(free))) == 80, what="all of the other topic")
        assert crossing.status is not None
        assert crossing.status.records < 160
        assert throttle(0, slow).value == {"rate": 50_000_000}
        wait_for(lambda: rates() == [(0, 50_000_000)] * 2, what="orders without that rate")
        crossing.until_copied(160)
        assert throttle(None).value == {}
    pair.proven(slow, 80)
    pair.proven(free, 80)


def test_wishes_that_make_no_sense_are_refused(lab: Lab) -> None:
    pair = Pair(lab)
    pair.write(pair.topic("only"), 1)
    flow = pair.flow()
    with pytest.raises(TargetError, match="has never run"):
        _wish(flow, lambda wishing: wishing.pause(frozenset()))
    cross(flow)
    _wish(flow, lambda wishing: wishing.pause(frozenset()))
    with pytest.raises(ConfigError, match="is paused, not single topics"):
        _wish(flow, lambda wishing: wishing.resume(frozenset({"only"})))


def test_an_edited_file_comes_into_force_and_a_bad_edit_does_not(lab: Lab, tmp_path: Path) -> None:
    pair = Pair(lab)
    first, second = pair.topic("first"), pair.topic("second")
    pair.write(first, 10)
    pair.write(second, 10)

    def written(*topics: str, more: tuple[str, ...] = ()) -> Path:
        return yaml_file(
            tmp_path, pair.source.bootstrap, pair.target.bootstrap, alias=pair.alias, topics=topics, more=more
        )

    file = written(first)
    with Running("run", file) as running:
        wait_for(lambda: len(values(pair.target.bootstrap, pair.remote(first))) == 10, what="the first topic")
        file.write_text(file.read_text().replace("lanes: 1", "lanes: one"))
        wait_for(lambda: running.says("the old settings run on"), seconds=60)
        written(first, second)
        wait_for(lambda: running.says("its settings are in force"), seconds=60)
        wait_for(lambda: len(values(pair.target.bootstrap, pair.remote(second))) == 10, seconds=60, what="the second")
        slow = called("throttle", file, "1MB", "--topic", first, "-o", "json")
        assert slow.json()[0]["wish"] == {"topics": {first: 1_000_000}}, slow
        assert f"process {running.pid} on" in slow.json()[0]["heard_by"]
        running.terminate()
        assert running.ended(60).code == 0


def test_a_partition_that_comes_while_an_order_is_made_does_not_wait_for_the_next_epoch(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partitions of an order are chosen before its fence; one that is found in between must end the order."""
    pair = Pair(lab)
    topic = pair.topic("orders")
    pair.write(topic, 10)
    crossing, pristine, grown = Crossing(pair.flow()), letters.made_ready, False

    async def while_it_is_made(*args: Any) -> bool:
        nonlocal grown
        if not grown:
            grown = True
            await asyncio.to_thread(add_partitions, pair.source.bootstrap, topic, 2)
            await asyncio.wait_for(_assigned(crossing, TopicPartition(topic, 1)), 60)
        return await pristine(*args)

    monkeypatch.setattr(dispatch, "made_ready", while_it_is_made)
    with crossing:
        crossing.until_copied(10)
        write(pair.source.bootstrap, topic, numbered(10, first=10, partitions=2))
        crossing.until_copied(20)
    pair.proven(topic, 20)


async def _assigned(crossing: Crossing, partition: TopicPartition) -> None:
    while crossing.driver is None or partition not in crossing.driver.roster.lanes:
        await asyncio.sleep(0.05)
