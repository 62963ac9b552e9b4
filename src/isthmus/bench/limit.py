"""The limit: how fast bytes could cross on this machine if a replicator cost nothing.

Two processes work on the same two clusters at the same time, as the two halves of a copy would:

    source --fetch--> nowhere          raw batches, never decoded, offsets taken from their headers
    memory --produce--> target         the topic's own batches, prepared and encoded beforehand

Each moves the whole topic over plain sockets, one per lane with a share of the partitions (a broker
takes up one request per connection at a time); up to five Produce requests in flight on each,
acks=all, one batch per partition and request as the protocol wants it, outside of transactions. The
limit is the topic's records by the time until both were done, the best of three tries. Brokers, their
disks and the loopback network share the halves' cores, exactly as they share them with a replicator.
One broker per cluster.
"""

from __future__ import annotations

import multiprocessing
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import Any, TypeVar

import crc32c
from kafka.protocol.consumer.fetch import (
    FetchRequest,
    FetchResponse,
)
from kafka.protocol.producer.produce import (
    ProduceRequest,
    ProduceResponse,
)

from isthmus.errors import TargetError

PATIENCE_S = 180.0
IN_FLIGHT = 5
PARTITION_BYTES = 4 << 20
# The last versions before the flexible encoding: an answer's header is 4 bytes and nothing else.
FETCH_VERSION, PRODUCE_VERSION = 11, 8
_BATCH = struct.Struct(">qiiBIHi")  # base offset, length, epoch, magic, CRC, attributes, last delta
_NO_PRODUCER = struct.pack(">qhi", -1, -1, -1)

Batches = dict[int, list[bytearray]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """`seconds` until both halves had moved the topic; what the source's batches look like."""

    seconds: float
    fetch_seconds: float
    produce_seconds: float
    batches: int
    batch_bytes: int  # on average, as stored

    def records_per_s(self, records: int) -> float:
        return records / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """What both halves need to know."""

    source: str
    target: str
    topic: str
    replica: str
    ends: dict[int, int]  # partition: end offset on the source
    lanes: int = 2

    def shares(self) -> list[Half]:
        """One for each lane, partitions dealt out in turn."""
        deal = [dict(list(self.ends.items())[lane :: self.lanes]) for lane in range(self.lanes)]
        return [replace(self, ends=ends, lanes=1) for ends in deal if ends]


def measure_limit(half: Half, tries: int = 3) -> Limit:
    """The best of some tries; the target topic must exist, and what is in it does not matter."""
    return min((_try_once(half) for _ in range(tries)), key=lambda limit: limit.seconds)


def _try_once(half: Half) -> Limit:
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(2), context.SimpleQueue()
    processes = [
        context.Process(target=each, args=(half, start, answers), daemon=True) for each in (_fetching, _producing)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(2 * PATIENCE_S)
    if any(process.exitcode != 0 for process in processes):
        raise TargetError("The limit could not be measured", where=half.target)
    both = sorted((answers.get(), answers.get()), key=lambda each: each[1])
    (fetch_s, _, _), (produce_s, batches, size) = both
    return Limit(
        seconds=max(fetch_s, produce_s),
        fetch_seconds=fetch_s,
        produce_seconds=produce_s,
        batches=batches,
        batch_bytes=size // max(1, batches),
    )


def _fetching(half: Half, start: Barrier, answers: SimpleQueue[tuple[float, int, int]]) -> None:
    start.wait(PATIENCE_S)
    began = time.monotonic()
    _side_by_side(_fetch_to_nowhere, half.shares())
    answers.put((time.monotonic() - began, 0, 0))


def _producing(half: Half, start: Barrier, answers: SimpleQueue[tuple[float, int, int]]) -> None:
    batches = [_prepared(share) for share in half.shares()]
    requests = [list(_requests(half.replica, each)) for each in batches]
    sizes = [len(batch) for share in batches for each in share.values() for batch in each]
    start.wait(PATIENCE_S)
    began = time.monotonic()
    _side_by_side(partial(_produce_all, half.target), requests)
    answers.put((time.monotonic() - began, len(sizes), sum(sizes)))


def _side_by_side(work: Callable[[T], None], shares: list[T]) -> None:
    """One thread per share; sockets are awaited without the interpreter's lock."""
    with ThreadPoolExecutor(len(shares)) as pool:
        list(pool.map(work, shares))


def _fetch_to_nowhere(share: Half) -> None:
    for _ in _fetch_all(share):
        pass


def _produce_all(target: str, requests: list[bytes]) -> None:
    with Wire(target) as wire:
        for number, request in enumerate(requests):
            if number >= IN_FLIGHT:
                _check(wire.receive())
            wire.send(request)
        for _ in requests[-IN_FLIGHT:]:
            _check(wire.receive())


# ---- batches -------------------------------------------------------------------------------


def _fetch_all(share: Half) -> Iterator[tuple[int, memoryview]]:
    """All batches of the share's partitions, as (partition, bytes)."""
    positions = dict.fromkeys(share.ends, 0)
    with Wire(share.source) as wire:
        while wanted := {each: at for each, at in positions.items() if at < share.ends[each]}:
            wire.send(encoded(_fetch_request(share.topic, wanted), FETCH_VERSION))
            answer = FetchResponse.decode(wire.receive()[4:], version=FETCH_VERSION)
            for partition in (each for topic in answer.responses for each in topic.partitions):
                if partition.error_code:
                    raise TargetError(f"Fetch was refused with code {partition.error_code}")
                for base, last_delta, batch in _split(memoryview(partition.records or b"")):
                    positions[partition.partition_index] = base + last_delta + 1
                    yield partition.partition_index, batch


def _split(records: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Whole batches, with their base offset and last offset delta."""
    begin = 0
    while len(records) - begin >= _BATCH.size:
        base, length, *_, last_delta = _BATCH.unpack_from(records, begin)
        end = begin + 12 + length
        if end > len(records):
            return  # the broker cuts the last one where the limit falls
        yield base, last_delta, records[begin:end]
        begin = end


def _prepared(share: Half) -> Batches:
    """The topic's batches as a producer without a producer id would send them."""
    batches: Batches = {each: [] for each in share.ends}
    for partition, fetched in _fetch_all(share):
        batch = bytearray(fetched)
        struct.pack_into(">q", batch, 0, 0)
        batch[43:57] = _NO_PRODUCER
        struct.pack_into(">I", batch, 17, crc32c.crc32c(memoryview(batch)[21:]))
        batches[partition].append(batch)
    return batches


def _requests(topic: str, batches: Batches) -> Iterator[bytes]:
    for turn in range(max(len(each) for each in batches.values())):
        partitions = {part: each[turn] for part, each in batches.items() if turn < len(each)}
        yield encoded(_produce_request(topic, partitions), PRODUCE_VERSION)


def _check(answer: memoryview) -> None:
    decoded = ProduceResponse.decode(answer[4:], version=PRODUCE_VERSION)
    for partition in (each for topic in decoded.responses for each in topic.partition_responses):
        if partition.error_code:
            raise TargetError(f"Produce was refused with code {partition.error_code}")


# ---- the wire ------------------------------------------------------------------------------


class Wire:
    """One plain socket to one broker: framed requests out, framed answers in, in order."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> memoryview:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        buffer = memoryview(bytearray(size))
        got = 0
        while got < size:
            some = self._socket.recv_into(buffer[got:])
            if not some:
                raise TargetError("The broker closed the connection")
            got += some
        return buffer


def encoded(request: Any, version: int) -> bytes:
    request.API_VERSION = version
    request.with_header(correlation_id=1, client_id="isthmus-bench")
    return bytes(request.encode(header=True, framed=True))


def _fetch_request(topic: str, positions: dict[int, int]) -> Any:
    kind = FetchRequest.FetchTopic
    partitions = [
        kind.FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=PARTITION_BYTES,
        )
        for partition, offset in positions.items()
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=32 << 20,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[kind(topic=topic, partitions=partitions)],
        forgotten_topics_data=[],
        rack_id="",
    )


def _produce_request(topic: str, batches: dict[int, bytearray]) -> Any:
    kind = ProduceRequest.TopicProduceData
    partitions = [kind.PartitionProduceData(index=index, records=batch) for index, batch in batches.items()]
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[kind(name=topic, partition_data=partitions)],
    )
