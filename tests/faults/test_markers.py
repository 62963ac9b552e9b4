"""Markers in another order than the records that they decide (I2), made on a real broker.

A lane's two ids commit in turn, and a coordinator that is busy sends their markers together, in any order. Here they
are sent to the broker as a coordinator does it, last one first. What counts is asked of librdkafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import struct
import time
import uuid

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Place
from tests.crossing import flow_between

from isthmus.engine.ledger import Ledger
from isthmus.lab import Lab
from isthmus.mm2.progress import CONNECTOR, parse_progress, progress_pairs
from isthmus.model import Flow, TopicPartition
from isthmus.wire.batch import Stamp, seal
from isthmus.wire.cluster import Client
from isthmus.wire.produce import Parcel, landed, produce_version, send_parcels
from isthmus.wire.records import encode_records
from isthmus.wire.transaction import Identity, fence

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

_ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize("order", _ORDERS, ids=["".join(map(str, order)) for order in _ORDERS])
def test_i2_of_two_committed_positions_the_later_one_in_the_log_counts(lab: Lab, order: tuple[int, ...]) -> None:
    flow = flow_between(lab, "t", alias=f"a{uuid.uuid4().hex[:8]}")
    lab["west"].create_topic(flow.progress_topic, partitions=1)
    host, port = lab["west"].bootstrap.split(",")[0].rsplit(":", 1)

    async def crossing() -> dict[TopicPartition, int]:
        client = Client(flow.target)
        await client.start()
        with contextlib.closing(client):
            await client.refresh([flow.progress_topic])
            writers = [await _transaction(client, flow, turn) for turn in range(3)]
            for turn in order:
                _write_marker((host, int(port)), flow.progress_topic, writers[turn])
            ledger = Ledger(client, flow.progress_topic, flow.source.alias, CONNECTOR)
            await ledger.open(None)
            await ledger.advance()
            return ledger.positions

    assert asyncio.run(crossing()) == _as_librdkafka_reads(lab, flow) == {TopicPartition("t", 0): 300}


@pytest.mark.parametrize("early", [(), (0,), (1,), (2,), (0, 2), (1, 2)], ids=str)
def test_r6_what_is_decided_after_a_snapshot_is_read_by_whoever_begins_at_it(lab: Lab, early: tuple[int, ...]) -> None:
    """`early`: transactions that are decided before the snapshot; all others are after it."""
    flow = flow_between(lab, "t", alias=f"a{uuid.uuid4().hex[:8]}")
    lab["west"].create_topic(flow.progress_topic, partitions=1)
    host, port = lab["west"].bootstrap.split(",")[0].rsplit(":", 1)

    async def crossing() -> dict[TopicPartition, int]:
        client = Client(flow.target)
        await client.start()
        with contextlib.closing(client):
            await client.refresh([flow.progress_topic])
            writers = [await _transaction(client, flow, turn) for turn in range(3)]
            found = Ledger(client, flow.progress_topic, flow.source.alias, CONNECTOR)
            for turn in early:
                _write_marker((host, int(port)), flow.progress_topic, writers[turn])
            await found.open(None)
            await found.advance()
            snapshot = found.snapshot()
            for turn in {0, 1, 2} - set(early):
                _write_marker((host, int(port)), flow.progress_topic, writers[turn])
            found = Ledger(client, flow.progress_topic, flow.source.alias, CONNECTOR)
            await found.open(json.loads(json.dumps(snapshot)))
            await found.advance()
            return found.positions

    assert asyncio.run(crossing()) == _as_librdkafka_reads(lab, flow) == {TopicPartition("t", 0): 300}


async def _transaction(client: Client, flow: Flow, turn: int) -> Identity:
    """Progress of one transaction, acknowledged but not decided."""
    who = await fence(client, f"{flow.source.alias}.{turn}", 60_000, 60)
    pairs = progress_pairs(CONNECTOR, flow.source.alias, {TopicPartition("t", 0): 100 * (turn + 1)}, 1)[0]
    body = encode_records(pairs, int(time.time() * 1000))
    tp = TopicPartition(flow.progress_topic, 0)
    header = seal(body, Stamp(who.producer_id, who.epoch, 0))
    parcel = Parcel(tp, client.topic_id(tp.topic), header, body.payload, body.count)
    link = await client.link(client.leader(tp), "produce")
    version = produce_version(link, [parcel], second_protocol=True)
    answer = landed(await send_parcels(link, version, who.transactional_id, [parcel], 15_000), [parcel])[0]
    assert answer.error == 0, answer
    return who


def _write_marker(broker: tuple[str, int], topic: str, who: Identity) -> None:
    """WriteTxnMarkers, version 1: commit, with the epoch that follows, as the second protocol has it."""
    name = topic.encode()
    named = bytes([len(name) + 1]) + name + b"\x02" + struct.pack(">i", 0) + b"\0"
    marker = struct.pack(">qhb", who.producer_id, who.epoch + 1, 1) + b"\x02" + named + struct.pack(">i", 0) + b"\0"
    frame = struct.pack(">hhih", 27, 1, 7, -1) + b"\0" + b"\x02" + marker + b"\0"
    with socket.create_connection(broker, timeout=30) as link:
        link.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", _exactly(link, 4))[0]
        answer = _exactly(link, size)
    assert answer[-5:-3] == b"\0\0", answer.hex()  # the partition's error, before three ends of tagged fields


def _exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data


def _as_librdkafka_reads(lab: Lab, flow: Flow) -> dict[TopicPartition, int]:
    settings = {
        "bootstrap.servers": lab["west"].bootstrap,
        "group.id": uuid.uuid4().hex,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer, found = Consumer(settings), dict[TopicPartition, int]()
    consumer.assign([Place(flow.progress_topic, 0, 0)])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for message in consumer.consume(100, 0.5):
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return found
            position = parse_progress(message.key() or b"", message.value())
            assert error is None and position is not None and position.offset is not None
            found[TopicPartition(position.topic, position.partition)] = position.offset + 1
    raise AssertionError("the progress topic could not be read to its end")
