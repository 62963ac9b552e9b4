"""Records that are too large for the target, by `on_too_large: dead_letter`: each is among the dead letters exactly
once, all others arrive in order, whatever is lost or killed meanwhile. Judged by librdkafka, read_committed."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import uuid
from collections.abc import Collection
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from tests.crossing import Crossing, cross
from tests.faults.test_invariants import SMALL
from tests.integration.sources import KEPT, START_MS, Pair, Row, own_settings, producer, send
from tests.integration.test_verify import verified
from tests.killable import Killable

from isthmus.engine import dispatch, fencing
from isthmus.engine.driver import Driver
from isthmus.lab import Lab
from isthmus.model import Flow
from isthmus.wire.cluster import Client
from isthmus.wire.transaction import Identity, add_partitions

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

LIMIT = {"max.message.bytes": "3000"}


class Seen(NamedTuple):
    """One record as librdkafka shows it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...]


def seen(bootstrap: str, topic: str, partitions: int) -> list[Seen]:
    """All committed records, in order within each partition."""
    settings = {"group.id": uuid.uuid4().hex, "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found: list[Seen] = []
    waiting = set(range(partitions))
    while waiting:
        message = consumer.poll(30)
        assert message is not None, f"{topic} cannot be read to its end"
        error = message.error()
        if error is None:
            headers = tuple(message.headers() or ())
            found.append(
                Seen(
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.timestamp()[1],
                    headers,
                )
            )
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            waiting.discard(message.partition())
    consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def rows(count: int, large: Collection[int], partitions: int) -> list[Row]:
    """Records by number; those in `large` are too large for the target, even alone."""
    return [
        {
            "key": b"k%d" % number,
            "value": os.urandom(5_000) if number in large else b"v%d" % number,
            "timestamp": START_MS + number,
            "partition": number % partitions,
            "headers": [("own", b"%d" % number)],
        }
        for number in range(count)
    ]


class Oversized:
    """A topic of two partitions with some records that its copy will not take."""

    def __init__(self, lab: Lab, count: int, large: Collection[int]) -> None:
        self.pair = Pair(lab)
        self.topic = self.pair.topic("large", partitions=2)
        self.pair.target.create_topic(self.pair.remote(self.topic), 2, 1, KEPT | LIMIT)
        into = producer(self.pair.source.bootstrap, batch_num_messages=8, linger_ms=50, compression_type="lz4")
        send(into, self.topic, rows(count, large, 2))
        self.large = len(large)

    def flow(self, **changes: object) -> Flow:
        return self.pair.flow(**{"on_too_large": "dead_letter", "tuning": SMALL, **changes})

    def assert_exact(self) -> None:
        """The copies and the letters together are the source's records, each once, the copies in order."""
        written = seen(self.pair.source.bootstrap, self.topic, 2)
        fitting = [record for record in written if len(record.value or b"") < 3_000]
        copies = seen(self.pair.target.bootstrap, self.pair.remote(self.topic), 2)
        assert [c._replace(offset=-1) for c in copies] == [record._replace(offset=-1) for record in fitting]
        expected = [self._letter(record) for record in written if record not in fitting]
        assert len(expected) == self.large
        letters = seen(self.pair.target.bootstrap, self.pair.flow().dead_letter_topic, 1)
        assert sorted(letter._replace(offset=-1) for letter in letters) == sorted(expected)

    def _letter(self, record: Seen) -> Seen:
        origin = {"topic": self.topic, "partition": record.partition, "offset": record.offset}
        ours = {**origin, "reason": "MESSAGE_TOO_LARGE (10)"}
        headers = (*record.headers, *((f"isthmus.{name}", str(value).encode()) for name, value in ours.items()))
        return record._replace(partition=0, offset=-1, headers=headers)


@pytest.fixture
def barriers(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The topics that each barrier of the first protocol covers."""
    covered: list[set[str]] = []

    async def watched(client: Client, who: Identity, partitions: Collection[object]) -> None:
        covered.append({str(tp).rpartition("-")[0] for tp in partitions})
        await add_partitions(client, who, partitions)  # type: ignore[arg-type]

    monkeypatch.setattr(fencing, "add_partitions", watched)
    return covered


@pytest.mark.parametrize("protocol", ["TV2", "TV1"])
def test_lost_answers_neither_lose_nor_double_a_dead_letter(
    lab: Lab, protocol: str, answers_lost: list[str], barriers: list[set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lanes write letters to one partition, and one in five answers is lost after the broker did its work."""
    if protocol == "TV1":
        monkeypatch.setattr(dispatch, "speaks_second_protocol", lambda _: False)
    world = Oversized(lab, 1_200, large={0, 3, 302, 303, 304, 911, 1_199})

    status = cross(world.flow(lanes=2))

    assert (status.lag, status.stopped, status.dead_letters) == (0, (), 7)
    assert any(name.startswith("EndTxn") for name in answers_lost), answers_lost
    world.assert_exact()
    letters = world.flow().dead_letter_topic
    assert own_settings(world.pair.target.bootstrap, letters)["retention.ms"] == "-1"
    assert all(letters in topics for topics in barriers)
    assert bool(barriers) == (protocol == "TV1")


def test_a_kill_in_the_middle_neither_loses_nor_doubles_a_dead_letter(lab: Lab) -> None:
    world = Oversized(lab, 600, large={100, 351, 400})
    killer = Killable(1, world.pair.target.bootstrap, world.flow().dead_letter_topic, records=1)

    status = asyncio.run(Driver(world.flow(), killer, until_caught_up=True).run())

    assert (status.lag, status.stopped, killer.kills) == (0, (), 0)
    assert status.lanes[0].failures == 1, "no kill hit a lane"
    world.assert_exact()


def test_a_dead_letter_that_is_refused_as_well_stops_its_partition_alone(lab: Lab) -> None:
    world = Oversized(lab, 40, large={10})
    world.pair.target.create_topic(world.flow().dead_letter_topic, 1, 1, KEPT | LIMIT)
    status = cross(world.flow())
    (stop,) = status.stopped
    assert (stop.topic, stop.partition, stop.code) == (world.topic, 0, "TARGET_REFUSED")
    assert f"{world.flow().dead_letter_topic} refused offset 5: MESSAGE_TOO_LARGE" in stop.error
    arrived = [record.partition for record in seen(world.pair.target.bootstrap, world.pair.remote(world.topic), 2)]
    assert arrived.count(1) == 20
    assert not seen(world.pair.target.bootstrap, world.flow().dead_letter_topic, 1)


def test_the_policy_can_be_switched_on_under_a_flow_that_has_stopped_a_partition(lab: Lab) -> None:
    world = Oversized(lab, 40, large={10, 12})
    flow = world.flow(on_too_large="stop")
    with Crossing(flow) as crossing:
        crossing.until(lambda status: bool(status.stopped))
        crossing.adopt(dataclasses.replace(flow, on_too_large="dead_letter")).result(60)
        status = crossing.until(lambda status: status.dead_letters == 2)
        assert not status.stopped
        crossing.until_copied(38)
    world.assert_exact()
    proof = verified(flow)
    assert (proof.equal, proof.dead_letters) == (True, 2), "what is among the dead letters is not missing"
