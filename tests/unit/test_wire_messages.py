"""Messages that we encode or decode by hand, against kafka-python's own classes."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from kafka.protocol.consumer.fetch import FetchResponse
from kafka.protocol.producer.produce import ProduceRequest

from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.fetch_answer import read_fetch_answer
from isthmus.wire.produce import Parcel, produce_version, send_parcels

ID = uuid.UUID(int=77)
OTHER = uuid.UUID(int=78)


class Catcher:
    """Stands where a link would: keeps the bytes that would be sent."""

    def send_raw(self, api_key: int, version: int, flexible: bool, parts: list[Any]) -> asyncio.Future[Any]:
        self.sent = (api_key, version, flexible, b"".join(bytes(part) for part in parts))
        return None  # type: ignore[return-value]


def parcels() -> list[Parcel]:
    return [
        Parcel(TopicPartition("orders", 0), ID, b"h" * 61, b"first payload", 1),
        Parcel(TopicPartition("orders", 3), ID, b"H" * 61, memoryview(b"second" * 50), 2),
        Parcel(TopicPartition("mm2-offsets.east.internal", 24), OTHER, b"p" * 61, b"", 1),
    ]


@pytest.mark.parametrize("version", [3, 7, 8, 9, 11, 12, 13])
def test_a_produce_request_reads_back_as_kafka_python_reads_it(version: int) -> None:
    link = Catcher()
    send_parcels(link, version, "isthmus.east.0.a", parcels(), 15_000)  # type: ignore[arg-type]
    api_key, sent_version, flexible, body = link.sent
    assert (api_key, sent_version, flexible) == (0, version, version >= 9)
    read = ProduceRequest.decode(body, version=version)
    assert (read.transactional_id, read.acks, read.timeout_ms) == ("isthmus.east.0.a", -1, 15_000)
    got = [
        (topic.topic_id if version >= 13 else topic.name, part.index, bytes(part.records))
        for topic in read.topic_data
        for part in topic.partition_data
    ]
    assert got == [
        (p.topic_id if version >= 13 else p.tp.topic, p.tp.partition, p.header + bytes(p.payload)) for p in parcels()
    ]


@pytest.mark.parametrize("version", [12, 13, 15, 17])
def test_a_fetch_answer_is_read_as_kafka_python_wrote_it(version: int) -> None:
    topic, part = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData
    diverging = part.EpochEndOffset(epoch=4, end_offset=99)
    aborted = [
        part.AbortedTransaction(producer_id=9, first_offset=3),
        part.AbortedTransaction(producer_id=8, first_offset=5),
    ]
    message = FetchResponse(
        throttle_time_ms=0,
        error_code=0,
        session_id=0,
        responses=[
            topic(
                topic="orders",
                topic_id=ID,
                partitions=[
                    _part(part, 0, records=b"some batches" * 30, aborted=aborted),
                    _part(part, 1, records=None, error=codes.NOT_LEADER),
                    _part(part, 2, records=b"", diverging=diverging),
                ],
            )
        ],
    )
    answer = read_fetch_answer(memoryview(message.encode(version=version)), version)
    first, second, third = answer.partitions
    assert first.topic == (ID if version >= 13 else "orders")
    assert (bytes(first.records), first.aborted) == (b"some batches" * 30, ((9, 3), (8, 5)))
    assert (first.number, first.high_watermark, first.last_stable, first.log_start) == (0, 50, 40, 10)
    assert (second.error, bytes(second.records), second.diverging) == (codes.NOT_LEADER, b"", None)
    assert third.diverging == (4, 99)


def _part(
    kind: Any, index: int, *, records: bytes | None, error: int = 0, aborted: Any = None, diverging: Any = None
) -> Any:
    extra = {"diverging_epoch": diverging} if diverging is not None else {}
    return kind(
        partition_index=index,
        error_code=error,
        high_watermark=50,
        last_stable_offset=40,
        log_start_offset=10,
        aborted_transactions=aborted,
        preferred_read_replica=-1,
        records=records,
        **extra,
    )


@pytest.mark.parametrize(
    ("highest", "second_protocol", "expected"), [(13, True, 13), (12, True, 12), (13, False, 11), (9, False, 9)]
)
def test_versions_are_pinned_by_the_transaction_protocol(highest: int, second_protocol: bool, expected: int) -> None:
    from isthmus.wire.link import Offer

    class Offering:
        offer = Offer({0: (0, highest)}, {})
        name = "broker"

    assert produce_version(Offering(), parcels(), second_protocol=second_protocol) == expected  # type: ignore[arg-type]
