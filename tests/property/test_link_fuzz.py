"""A peer that is no broker, or a hostile one: whatever it sends, requests end soon, with an answer or an error of ours.

No broker is needed: bytes come over a pair of sockets, and the other end then hangs up.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer.fetch import FetchResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse

from isthmus.errors import BrokerUnreachable, WireError
from isthmus.model import Cluster
from isthmus.wire import compression, dial
from isthmus.wire.fetch_answer import read_fetch_answer, uvarint
from isthmus.wire.link import Link, Offer, Undecodable, decode_answer
from isthmus.wire.unread import Unread

fuzz = settings(deadline=None, max_examples=60)
KINDS = [
    (known[version], version)
    for known in ResponseClassRegistry._response_class_registry.values()
    for version in range(known.min_version, known.max_version + 1)
]
FETCH = ResponseClassRegistry._response_class_registry[1]
# Lengths, counts and texts are small; one byte in three is one that a count has when it is absurd.
body = st.binary(max_size=120) | st.lists(st.sampled_from(b"\0\1\2\3\x7f\x80\xff"), max_size=120).map(bytes)
sizes = st.sampled_from([-(2**31), -1, 0, 3, 4, 2**30, 2**30 + 1, 2**31 - 1])


def framed(correlation: int, content: bytes) -> bytes:
    return struct.pack(">ii", len(content) + 4, correlation) + content


# --- answers -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@given(kind=st.sampled_from(KINDS), content=body)
def test_any_bytes_are_an_answer_or_undecodable(kind: tuple[Any, int], content: bytes) -> None:
    try:
        decode_answer(*kind, memoryview(b"\0\0\0\1" + content))
    except Undecodable as error:
        assert "could not be decoded" in str(error)


def _without_lists(version: int) -> list[tuple[str, bytes]]:
    topic = MetadataResponse.MetadataResponseTopic
    part = topic.MetadataResponsePartition
    numbers = {"error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": 1}
    lists: dict[str, list[int] | None] = {"replica_nodes": [1], "isr_nodes": [1], "offline_replicas": []}
    parts: list[tuple[str, Any]] = [("offline_replicas", [part(**numbers, **lists | {"offline_replicas": None})])]
    parts += [("isr_nodes", [part(**numbers, **lists | {"isr_nodes": None})]), ("partitions", None)]
    whole = {"throttle_time_ms": 0, "brokers": [], "cluster_id": None, "controller_id": 1, "version": version}
    found = [
        (name, MetadataResponse(**whole, topics=[topic(error_code=0, name="t", topic_id=None, partitions=given)]))
        for name, given in parts
    ]
    found += [("topics", MetadataResponse(**whole, topics=None))]
    return [(name, bytes(message.encode(version=version))) for name, message in found]


@pytest.mark.parametrize("version", [7, 12])
def test_a_list_that_is_null_where_it_must_not_be_is_undecodable_and_named(version: int) -> None:
    kind = ResponseClassRegistry._response_class_registry[3][version]
    header = b"\0\0\0\1" + b"\0" * kind.flexible_version_q(version)
    for name, raw in _without_lists(version):
        with pytest.raises(Undecodable, match=f"`{name}` is null"):
            decode_answer(kind, version, memoryview(header + raw))


def test_a_list_that_may_be_null_passes() -> None:
    topic, part = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData
    one = part(partition_index=0, error_code=0, high_watermark=5, aborted_transactions=None, records=None)
    message = FetchResponse(throttle_time_ms=0, responses=[topic(topic="t", partitions=[one])])
    raw = bytes(message.encode(version=5))
    answer = decode_answer(FETCH[5], 5, memoryview(b"\0\0\0\1" + raw))
    assert answer.responses[0].partitions[0].aborted_transactions is None


def _fetched(version: int) -> bytes:
    topic, part = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData
    aborted = [part.AbortedTransaction(producer_id=9, first_offset=3)]
    one = part(
        partition_index=0,
        error_code=0,
        high_watermark=50,
        last_stable_offset=40,
        log_start_offset=10,
        diverging_epoch=part.EpochEndOffset(epoch=4, end_offset=99),
        aborted_transactions=aborted,
        preferred_read_replica=-1,
        records=b"some batches",
    )
    message = FetchResponse(
        throttle_time_ms=0, error_code=0, session_id=0, responses=[topic(topic="t", partitions=[one])]
    )
    return bytes(message.encode(version=version))


@fuzz
@given(
    version=st.sampled_from([12, 13, 17]),
    edits=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), body), min_size=1, max_size=3),
)
def test_a_damaged_fetch_answer_is_read_within_its_frame_or_undecodable(
    version: int, edits: list[tuple[int, int, bytes]]
) -> None:
    raw = _fetched(version)
    for at, gone, new in edits:
        at %= len(raw) + 1
        raw = raw[:at] + new[:5] + raw[at + gone :]
    try:
        answer = decode_answer(FETCH[version], version, memoryview(b"\0\0\0\1\0" + raw))
    except Undecodable:
        return
    assert sum(len(each.records) for each in answer.partitions) <= len(raw)


def test_a_number_without_end_is_refused_at_once() -> None:
    """A frame of such bytes would be one number of gigabits, made of ever longer ones."""
    began = time.monotonic()
    with pytest.raises(ValueError, match="more than five bytes"):
        uvarint(memoryview(b"\xff" * (1 << 20)), 0)
    with pytest.raises(ValueError, match="without a name"):
        read_fetch_answer(memoryview(bytes(10) + b"\x02\x00\x01\x00"), 12)
    assert time.monotonic() - began < 1


@fuzz
@given(content=body)
def test_an_answer_that_is_read_later_is_told_from_a_damaged_one_all_the_same(content: bytes) -> None:
    message = Unread(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    message.API_VERSION = 12
    message._message.API_VERSION = 12
    message.with_header(correlation_id=1, client_id="x")
    message.get_response_class()
    try:
        message.read(content)
    except WireError as error:
        assert "could not be decoded" in str(error)


# --- frames --------------------------------------------------------------------------------------


def outcomes(sent: bytes, requests: int) -> list[BaseException | Any]:
    """What becomes of requests when the peer sends this and hangs up."""

    async def talk() -> list[Any]:
        loop, troubles = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: troubles.append(context))
        ours, theirs = socket.socketpair()
        link = Link(ours, "peer", Offer({}, {}), timeout_s=60)
        waiting = [link.send(MetadataRequest(topics=[]), 12) for _ in range(requests)]
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(20):
            found = await asyncio.gather(*waiting, return_exceptions=True)
        link.close()
        theirs.close()
        assert not troubles, troubles
        return found

    return asyncio.run(talk())


@fuzz
@given(
    parts=st.lists(
        st.tuples(st.integers(-1, 3), body).map(lambda x: framed(*x))
        | sizes.map(lambda x: struct.pack(">i", x))
        | body,
        max_size=4,
    ),
    requests=st.integers(1, 3),
    cut=st.integers(0, 300),
)
def test_whatever_a_peer_sends_every_request_ends(parts: list[bytes], requests: int, cut: int) -> None:
    """Frames cut off, of absurd sizes, of others' numbers, that nobody asked for, or no frames at all."""
    for found in outcomes(b"".join(parts)[:cut], requests):
        assert isinstance(found, WireError) or not isinstance(found, BaseException), found


@pytest.mark.parametrize("size", [-1, 0, 3, 2**31 - 1])
def test_an_absurd_size_loses_the_link_and_takes_no_memory(size: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (found,) = outcomes(struct.pack(">i", size) + b"x" * 1000, 1)
    assert isinstance(found, BrokerUnreachable)
    assert "announced" in str(found)
    (found,) = outcomes(struct.pack(">i", 2**30) + b"x" * 1000, 1)
    assert isinstance(found, BrokerUnreachable)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10, "KB"


def test_an_answer_to_another_question_loses_the_link() -> None:
    for found in outcomes(framed(2, b"\0" * 40), 2):
        assert isinstance(found, BrokerUnreachable)
        assert "answer 2 came where 1 was due" in str(found)


# --- the handshake -------------------------------------------------------------------------------


def dialled(monkeypatch: pytest.MonkeyPatch, sent: bytes, pause_s: float = 0.0) -> Any:
    """What a connection comes to whose other end sends this, byte by byte if it pauses, and hangs up."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5)

    def speak() -> None:
        with theirs:
            try:
                for part in [sent] if not pause_s else [sent[at : at + 1] for at in range(len(sent))]:
                    theirs.sendall(part)
                    time.sleep(pause_s)
                theirs.shutdown(socket.SHUT_WR)
                while theirs.recv(4096):
                    pass
            except OSError:
                return  # it was not listened to any more

    speaking = threading.Thread(target=speak)
    speaking.start()
    monkeypatch.setattr(dial, "_reached", lambda *_: ours)
    try:
        return dial._connect(Cluster(alias="c", bootstrap=("h:1",)), "h", 1, "c h:1", threading.Event())
    except WireError as error:
        return error
    finally:
        ours.close()
        speaking.join()


VERSIONS = bytes(ApiVersionsResponse[3](error_code=0, api_keys=[], throttle_time_ms=0).encode(version=3))


@fuzz
@given(
    sent=st.tuples(st.integers(0, 2), body).map(lambda x: framed(*x)) | body | sizes.map(lambda x: struct.pack(">i", x))
)
def test_whatever_answers_at_first_is_a_broker_or_unreachable(sent: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = dialled(patch, sent)
    assert isinstance(found, WireError | dial._Opened)


def test_an_answer_that_is_too_long_or_to_another_question_is_no_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(dialled(monkeypatch, framed(1, VERSIONS)), dial._Opened)
    assert "belongs to no question" in str(dialled(monkeypatch, framed(7, VERSIONS)))
    assert "is this a Kafka broker" in str(dialled(monkeypatch, struct.pack(">i", 1 << 29)))


def test_a_byte_now_and_then_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, all of them never would."""
    monkeypatch.setattr(dial, "_ANSWER_S", 0.2)
    began = time.monotonic()
    assert "took too long" in str(dialled(monkeypatch, framed(1, b"\0" * 60), pause_s=0.05))
    assert time.monotonic() - began < 20


# --- bombs ---------------------------------------------------------------------------------------

ZSTD_CLAIM = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**40) + b"\x01\0\0"
CLAIMS = {
    "snappy": (compression.SNAPPY, b"\xff\xff\xff\xff\x0f\0"),
    "snappy in frames": (
        compression.SNAPPY,
        compression._XERIAL_HEADER + struct.pack(">i", 6) + b"\xff\xff\xff\xff\x0f\0",
    ),
    "a frame of 2 GB": (compression.SNAPPY, compression._XERIAL_HEADER + struct.pack(">i", 2**31 - 1)),
    "zstd": (compression.ZSTD, ZSTD_CLAIM),
    "lz4 blocks": (compression.LZ4, b"\x04\x22\x4d\x18\x60\x70\x73" + b"\0\0\0\x80" * 100_000 + b"\0\0\0\1"),
}


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("limit", [1 << 20, compression.LIMIT])
def test_what_claims_gigabytes_is_refused_and_takes_none(name: str, limit: int) -> None:
    codec, data = CLAIMS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for room in (None, compression.Room()):
        with pytest.raises(WireError, match="Cannot decompress"):
            compression.decompress(codec, data, limit, room)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10, "KB"
