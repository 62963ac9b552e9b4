"""Producer ids at the end of their lives: epochs that are used up, and ids that brokers have forgotten.

Threads instead of Spark; judged by librdkafka. Under the second protocol every transaction costs an epoch, so a busy
lane gets a new producer id twice an hour; what a lane had that was idle for days, brokers forget.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.crossing import QUICK, Crossing, cross, flow_between
from tests.faults.staged import wait_until
from tests.integration.command import fill, unique

from isthmus.lab import ClusterSpec, Lab
from isthmus.lab.oracle import compare
from isthmus.model import REGISTER, Cluster, Flow, Naming
from isthmus.model import TopicPartition as Partition
from isthmus.wire.batch import find_batches
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import READ_UNCOMMITTED, Fetched, Limits, Want, fetch
from isthmus.wire.transaction import Identity, list_transactional_ids
from isthmus.wire.transaction import fence as worn_by

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(300)]
LAST_EPOCH = 32_766
ROOM = 60  # epochs that are left to a lane: some for its fences, the others for transactions
SOON = {
    "transactional.id.expiration.ms": "2000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "producer.id.expiration.ms": "1000",
    "producer.id.expiration.check.interval.ms": "500",
}


async def _worn(flow: Flow) -> list[Identity]:
    """Both ids of the first lane, with hardly an epoch left."""
    client = Client(flow.target)
    await client.start()
    try:
        return await asyncio.gather(*(_wear(client, flow.transactional_id(0, turn)) for turn in (0, 1)))
    finally:
        client.close()


async def _wear(client: Client, name: str) -> Identity:
    while (who := await worn_by(client, name, 60_000, 30)).epoch < LAST_EPOCH - ROOM:
        pass
    return who


def producer_ids(bootstrap: str, topic: str) -> list[int]:
    """Whose batches stand in the first partition, in their order; by the wire, as no client tells it."""
    return asyncio.run(_producer_ids(bootstrap, topic))


async def _producer_ids(bootstrap: str, topic: str) -> list[int]:
    client = Client(Cluster(alias="here", bootstrap=tuple(bootstrap.split(","))))
    await client.start()
    try:
        await client.refresh([topic])
        at, found, tp = 0, list[int](), Partition(topic, 0)
        while batches := find_batches((await _fetched(client, tp, at)).records):
            found += [batch.producer_id for batch in batches if not batch.is_control]
            at = batches[-1].last_offset + 1
        return list(dict.fromkeys(found))
    finally:
        client.close()


async def _fetched(client: Client, tp: Partition, at: int) -> Fetched:
    want = Want(tp, client.topic_id(tp.topic), at)
    (answer,) = await fetch(client, client.leader(tp), [want], Limits(wait_ms=0, isolation=READ_UNCOMMITTED), "test")
    return answer


def registered(lab: Lab) -> set[int]:
    """Ids that the target's register knows; by librdkafka."""
    reader = Consumer({"bootstrap.servers": lab["west"].bootstrap, "group.id": unique("g"), "log_level": 0})
    found: set[int] = set()
    with contextlib.closing(reader):
        _, end = reader.get_watermark_offsets(TopicPartition(REGISTER, 0), 10)
        reader.assign([TopicPartition(REGISTER, 0, 0)])
        while (message := reader.poll(10)) is not None and message.error() is None:
            key = (message.key() or b"").decode()
            found |= {int(key[3:])} if key.startswith("id/") else set()
            if (message.offset() or 0) >= end - 1:
                break
    return found


def trickled(bootstrap: str, topic: str, records: int, pause_s: float = 0.0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    for number in range(records):
        producer.produce(topic, b"more %d" % number, partition=0)
        assert producer.flush(30) == 0
        time.sleep(pause_s)


def test_epochs_that_are_used_up_bring_new_ids_which_are_on_record_before_their_first_batch(lab: Lab) -> None:
    topic = unique("worn-")
    fill(lab["east"], topic, 10, 1)
    flow = flow_between(lab, topic, alias=unique("a"), naming=Naming(policy="identity"))
    worn = {who.producer_id for who in asyncio.run(_worn(flow))}
    with Crossing(flow) as crossing:
        crossing.until_copied(10)
        trickled(lab["east"].bootstrap, topic, 300, 0.01)
        crossing.until_copied(310)
        assert not any("void" in event for event in (crossing.status or crossing.until_copied(0)).events)
    wrote = producer_ids(lab["west"].bootstrap, topic)
    assert len(worn & set(wrote)) == 2, "the lane wrote with ids that were nearly used up"
    assert len(set(wrote) - worn) == 2, "and went on with new ones"
    assert set(wrote) <= registered(lab)
    assert compare(lab["east"].bootstrap, topic, lab["west"].bootstrap, topic).equal

    cross(flow)  # who comes next fences them by their names
    assert compare(lab["east"].bootstrap, topic, lab["west"].bootstrap, topic).equal


@pytest.fixture(scope="module")
def forgetful() -> Iterator[Lab]:
    with Lab([ClusterSpec(name="east"), ClusterSpec(name="west", properties=SOON)]) as lab:
        yield lab


@pytest.mark.parametrize("runs_on", [True, False])
def test_a_lane_whose_ids_brokers_have_forgotten_goes_on_and_doubles_nothing(forgetful: Lab, runs_on: bool) -> None:
    lab, topic, alias = forgetful, unique("idle-"), unique("a")
    fill(lab["east"], topic, 50, 1)
    flow = flow_between(lab, topic, alias=alias, tuning=QUICK)
    with contextlib.ExitStack() as running:
        if runs_on:
            crossing = running.enter_context(Crossing(flow))
            crossing.until_copied(50)
        else:
            cross(flow)
        wait_until(lambda: is_forgotten(lab, alias), 60)
        trickled(lab["east"].bootstrap, topic, 30)
        if runs_on:
            crossing.until_copied(80)
        else:
            cross(flow)
        wait_until(lambda: is_forgotten(lab, alias), 60)
        trickled(lab["east"].bootstrap, topic, 20)
    cross(flow)
    verdict = compare(lab["east"].bootstrap, topic, lab["west"].bootstrap, f"{alias}.{topic}")
    assert verdict.equal
    assert verdict.records == 100


def is_forgotten(lab: Lab, alias: str) -> bool:
    """Whether the target knows no transactional id of the flow any more."""
    return not asyncio.run(_known(lab, alias))


async def _known(lab: Lab, alias: str) -> set[str]:
    client = Client(Cluster(alias="west", bootstrap=tuple(lab["west"].bootstrap.split(","))))
    await client.start()
    try:
        return await list_transactional_ids(client, f"isthmus.{alias}.")
    finally:
        client.close()
