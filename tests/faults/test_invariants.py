"""The invariants of ARCHITECTURE.md, one test of the same name each, attacked on real brokers.

Faults are injected where they happen in life: a process is killed, an answer is lost on its way, two attempts run
at once, a stranger holds a transaction open. What arrived is always judged by librdkafka, never by our own reader.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.crossing import QUICK, Crossing, InThread, cross, flow_between
from tests.killable import Killable

from isthmus.engine import control, dispatch, fetcher, writer
from isthmus.engine.dispatch import Dispatch
from isthmus.engine.driver import Driver
from isthmus.engine.lane import run_order
from isthmus.engine.orders import Assignment, Order, Receipt
from isthmus.engine.track import Track
from isthmus.errors import MachineError
from isthmus.lab import Lab
from isthmus.lab.oracle import compare
from isthmus.model import Flow
from isthmus.model import TopicPartition as SourcePartition
from isthmus.observe.status import FlowStatus
from isthmus.wire import codes
from isthmus.wire.fetch import Fetched, fetch

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

SMALL = dataclasses.replace(QUICK, commit_bytes=20_000, merge_below_bytes=0, fetch_partition_bytes=64 << 10)


@pytest.fixture
def alias() -> str:
    return f"a{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(lab: Lab, topic_name: str) -> str:
    lab["east"].create_topic(topic_name, partitions=2)
    return topic_name


def fill(lab: Lab, topic: str, records: int, partitions: int = 2, size: int = 100) -> None:
    producer = Producer({"bootstrap.servers": lab["east"].bootstrap, "linger.ms": 5, "batch.size": 4000})
    for number in range(records):
        value = f"{number}:".encode().ljust(size, b"x")
        producer.produce(topic, value, str(number).encode(), partition=number % partitions)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0


def assert_exact(lab: Lab, topic: str, alias: str) -> None:
    verdict = compare(lab["east"].bootstrap, topic, lab["west"].bootstrap, f"{alias}.{topic}")
    assert verdict.equal, verdict


def read_control(lab: Lab, flow: Flow) -> dict[str, Any]:
    """The control topic as librdkafka reads it."""
    consumer = Consumer({"bootstrap.servers": lab["west"].bootstrap, "group.id": uuid.uuid4().hex})
    consumer.assign([TopicPartition(flow.control_topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(flow.control_topic, 0), timeout=20)
    values: dict[str, Any] = {}
    while consumer.position([TopicPartition(flow.control_topic, 0)])[0].offset < end:
        for message in consumer.consume(500, 0.1):
            value = message.value()
            values[(message.key() or b"").decode()] = json.loads(value) if value else None
    consumer.close()
    return values


def count_committed(bootstrap: str, topic: str, partition: int) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    count, deadline = 0, time.monotonic() + 60
    while time.monotonic() < deadline:
        for message in consumer.consume(5_000, 0.1):
            error = message.error()
            if error is None:
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return count
    raise AssertionError(f"{topic}-{partition} could not be read to its end")


def test_i1_progress_is_in_the_transaction(lab: Lab, topic: str, alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After kill -9 at any moment, progress says exactly what a read_committed reader finds."""
    fill(lab, topic, 40_000)
    flow = flow_between(lab, topic, alias=alias, tuning=SMALL)
    seen: list[tuple[int, int]] = []

    def checking(self: Dispatch, source: SourcePartition, view: control.ControlView) -> Assignment:
        made = plain(self, source, view)
        there = count_committed(lab["west"].bootstrap, made.target.topic, made.target.partition)
        seen.append((max(0, made.offset), there))
        return made

    plain = Dispatch.assignment
    monkeypatch.setattr(Dispatch, "assignment", checking)
    killer = Killable(4, lab["west"].bootstrap, f"{alias}.{topic}")
    status = asyncio.run(Driver(flow, killer, until_caught_up=True).run())

    assert status.lag == 0
    assert seen and all(progress == there for progress, there in seen), seen
    assert any(0 < progress < 20_000 for progress, _ in seen), f"no kill hit the middle: {seen}"
    assert_exact(lab, topic, alias)


def test_i1_a_partition_that_stops_in_the_middle_of_a_transaction_keeps_its_progress(
    lab: Lab, topic: str, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source refuses a partition while some of it is in the open transaction: that part must not come again."""
    fill(lab, topic, 2_000)
    flow = flow_between(lab, topic, alias=alias, tuning=SMALL)
    is_last = writer.Writer._is_last

    async def refusing(*words: Any) -> list[Fetched]:
        answers = await fetch(*words)
        return [
            a._replace(error=codes.TOPIC_AUTHORIZATION_FAILED) if a.tp.partition == 0 and a.offset else a
            for a in answers
        ]

    def not_before_the_stop(self: writer.Writer, tracks: list[Track]) -> bool:
        return any(track.stop for track in tracks) and is_last(self, tracks)

    with monkeypatch.context() as patched:
        patched.setattr(fetcher, "fetch", refusing)
        patched.setattr(writer.Writer, "_is_last", not_before_the_stop)
        status = cross(flow)
    assert [(stop.partition, stop.code) for stop in status.stopped] == [(0, "SOURCE_REFUSED")]
    assert 0 < count_committed(lab["west"].bootstrap, f"{alias}.{topic}", 0) < 1_000
    assert cross(flow).stopped == ()
    assert_exact(lab, topic, alias)


def test_i2_the_driver_fences_then_reads(lab: Lab, topic: str, alias: str) -> None:
    """An order from before a fence can write nothing, and a stranger's open transaction hides no progress."""
    fill(lab, topic, 2_000)
    flow = flow_between(lab, topic, alias=alias, tuning=SMALL)
    orders: list[Order] = []

    class Keeping(InThread):
        async def run(self, order: Order) -> Receipt:
            orders.append(order)
            raise MachineError("this attempt was lost before it began")

    class Once(InThread):
        async def run(self, order: Order) -> Receipt:
            if not orders:
                return await Keeping().run(order)
            return await super().run(order)

    status = asyncio.run(Driver(flow, Once(), until_caught_up=True).run())
    assert status.lag == 0

    with stranger(lab, flow):
        fill(lab, topic, 500)
        zombie = threading.Thread(target=lambda: receipts.append(run_order(orders[0], "zombie")))
        receipts: list[Receipt] = []
        zombie.start()
        cross(flow)
        zombie.join(60)
    assert [(r.reason, r.records) for r in receipts] in ([("fenced", 0)], [("another driver", 0)]), receipts
    assert_exact(lab, topic, alias)


class stranger:
    """Somebody else's transaction, open on every partition of the progress topic."""

    def __init__(self, lab: Lab, flow: Flow) -> None:
        self._producer = Producer(
            {"bootstrap.servers": lab["west"].bootstrap, "transactional.id": f"stranger-{flow.source.alias}"}
        )
        self._topic, self._partitions = flow.progress_topic, flow.tuning.progress_partitions

    def __enter__(self) -> None:
        self._producer.init_transactions(30)
        self._producer.begin_transaction()
        for partition in range(self._partitions):
            self._producer.produce(self._topic, b"x", b"somebody else", partition=partition)
        self._producer.flush(30)

    def __exit__(self, *_: object) -> None:
        self._producer.abort_transaction(30)


def test_i3_an_order_is_claimed_once(lab: Lab, topic: str, alias: str) -> None:
    """Two attempts at one order at the same time: one works, the other leaves without a write."""
    fill(lab, topic, 5_000)
    flow = flow_between(lab, topic, alias=alias, tuning=SMALL)
    receipts: list[Receipt] = []

    class Twice(InThread):
        async def run(self, order: Order) -> Receipt:
            both = await asyncio.gather(
                asyncio.to_thread(run_order, order, "first"), asyncio.to_thread(run_order, order, "second")
            )
            receipts.extend(both)
            return max(both, key=lambda receipt: receipt.records)

    asyncio.run(Driver(flow, Twice(), until_caught_up=True).run())

    assert sorted((r.reason, r.records) for r in receipts) == [("caught up", 5_000), ("claimed by another", 0)]
    assert_exact(lab, topic, alias)


@pytest.mark.parametrize("protocol", ["TV2", "TV1"])
def test_i4_an_unknown_outcome_is_resolved_by_the_protocol(
    lab: Lab, topic: str, alias: str, protocol: str, answers_lost: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if protocol == "TV1":
        monkeypatch.setattr(dispatch, "speaks_second_protocol", lambda _: False)
    fill(lab, topic, 10_000)

    status = cross(flow_between(lab, topic, alias=alias, tuning=SMALL))

    assert status.lag == 0
    assert any(name.startswith("EndTxn") for name in answers_lost), answers_lost
    assert any(name.startswith("Produce") for name in answers_lost), answers_lost
    assert_exact(lab, topic, alias)


def test_i5_a_topic_is_its_id(lab: Lab, topic: str, alias: str) -> None:
    """A topic made anew under the same name is an error, never read on at the old offset."""
    fill(lab, topic, 1_000)
    with Crossing(flow_between(lab, topic, alias=alias)) as crossing:
        crossing.until_copied(1_000)
        lab["east"].delete_topic(topic)
        lab["east"].create_topic(topic, partitions=2)
        fill(lab, topic, 3_000)
        status = crossing.until(lambda s: bool(s.stopped))
    assert {p.code for p in status.stopped} <= {"SOURCE_GONE", "SOURCE_RECREATED"}
    arrived = [count_committed(lab["west"].bootstrap, f"{alias}.{topic}", partition) for partition in (0, 1)]
    assert arrived == [500, 500]


def test_i6_a_gap_is_recorded_never_skipped_over(lab: Lab, topic: str, alias: str) -> None:
    fill(lab, topic, 1_000)
    flow = flow_between(lab, topic, alias=alias)
    cross(flow)
    fill(lab, topic, 1_000)
    admin = AdminClient({"bootstrap.servers": lab["east"].bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 700)]).values():
        future.result(20)

    status = cross(flow)

    assert [(p.partition, p.code) for p in status.stopped] == [(0, "GAP")]
    gap = read_control(lab, flow)[f"gap/{topic}/0/500"]
    assert (gap["first"], gap["past"]) == (500, 700)
    arrived = [count_committed(lab["west"].bootstrap, f"{alias}.{topic}", partition) for partition in (0, 1)]
    assert arrived == [500, 1_000]


def test_i7_one_partitions_trouble_is_its_own(lab: Lab, topic: str, alias: str) -> None:
    """A partition that the target refuses stops; another one in the same lane goes on."""
    refused = f"{topic}-large"
    lab["east"].create_topic(refused, partitions=1)
    lab["west"].create_topic(f"{alias}.{refused}", partitions=1, configs={"max.message.bytes": "2000"})
    fill(lab, refused, 50, partitions=1, size=3_000)
    fill(lab, topic, 2_000)

    status = cross(flow_between(lab, f"{topic}.*", alias=alias))

    assert [(p.topic, p.code) for p in status.stopped] == [(refused, "TARGET_REFUSED")]
    assert "max.message.bytes" in status.stopped[0].error
    assert count_committed(lab["west"].bootstrap, f"{alias}.{refused}", 0) == 0
    assert_exact(lab, topic, alias)


def test_i8_a_lane_outlives_neither_its_driver_nor_its_epoch(
    lab: Lab, topic: str, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the driver's lease a lane ends by itself; with it, its epoch ends it. (Kills: test_processes.)"""
    fill(lab, topic, 500)
    receipts: list[Receipt] = []
    tuning = dataclasses.replace(QUICK, epoch_seconds=2.0)

    class Watching(InThread):
        async def run(self, order: Order) -> Receipt:
            receipts.append(await super().run(order))
            return receipts[-1]

    with Crossing(flow_between(lab, topic, alias=alias, tuning=tuning)) as crossing:
        crossing.runner.run = Watching().run  # type: ignore[method-assign]
        crossing.until(lambda _: len(receipts) >= 2)
    assert {receipt.reason for receipt in receipts[:2]} == {"epoch"}

    monkeypatch.setattr(control, "DRIVER_GONE_AFTER_S", 2.0)
    monkeypatch.setattr(control, "LEASE_EVERY_S", 3600.0)
    receipts.clear()
    with Crossing(flow_between(lab, topic, alias=alias)) as crossing:
        crossing.runner.run = Watching().run  # type: ignore[method-assign]
        crossing.until(lambda _: len(receipts) >= 1)
    assert receipts[0].reason == "driver gone"


def test_i9_returned_base_offsets_rise(lab: Lab, topic: str, alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that the broker swallows as a duplicate is noticed, and nothing is lost.

    The fault: sequences restart within an epoch of the first protocol (R2), so the broker answers "success" and
    stores nothing.
    """
    monkeypatch.setattr(dispatch, "speaks_second_protocol", lambda _: False)
    begin, faults = writer.Writer._begin, [0]

    def forgetful(self: writer.Writer) -> None:
        begin(self)
        if faults[0] < 3 and self.tally.transactions >= 2:
            faults[0] += 1
            self._sequences = [{}, {}]

    monkeypatch.setattr(writer.Writer, "_begin", forgetful)
    fill(lab, topic, 5_000)
    notes: list[FlowStatus] = []

    status = cross(flow_between(lab, topic, alias=alias, tuning=SMALL), watch=notes.append)

    assert faults[0] == 3
    assert any("taken for a duplicate" in event for event in status.events), status.events
    assert_exact(lab, topic, alias)
