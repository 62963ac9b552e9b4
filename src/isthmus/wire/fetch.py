"""Reading from partitions: Fetch and ListOffsets, by topic id wherever the broker offers it.

By name, a topic that was deleted and made anew is silently read at the old offset; by id it is an error.
`current_leader_epoch` and `last_epoch` are always sent, because the broker then tells for free when its
log was truncated below what we have read. Answers are turned into plain values; what they mean for a
partition is the caller's decision.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.consumer.offsets import ListOffsetsRequest

from isthmus.errors import BrokerRefused, BrokerUnreachable
from isthmus.model import NO_ID, TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import Batch, marker_of
from isthmus.wire.cluster import Client
from isthmus.wire.fetch_answer import BY_ID, FetchAnswer
from isthmus.wire.link import Answer, Message

LATEST, EARLIEST = -1, -2
FETCHING = "fetch"  # what a connection is for
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_ABORT = 0
_PATIENCE_S = 60.0
_EMPTY = memoryview(b"")


class Want(NamedTuple):
    """What to read next from one partition."""

    tp: TopicPartition
    topic_id: uuid.UUID
    offset: int
    leader_epoch: int = -1
    last_epoch: int = -1  # leader epoch of the last batch read, -1 when nothing was read yet
    max_bytes: int = 0  # 0: as the limits say


class Fetched(NamedTuple):
    """What one partition answered."""

    tp: TopicPartition
    offset: int  # the offset that was asked for
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset) of aborted transactions
    records: memoryview
    diverging: tuple[int, int] | None  # (epoch, end offset): the log was truncated below our position
    preferred: int = -1  # a replica in our rack, to be asked instead of the leader


class Limits(NamedTuple):
    """How much to read at once, and how long the broker may wait for it."""

    max_bytes: int = 16 << 20
    partition_bytes: int = 2 << 20
    wait_ms: int = 500
    min_bytes: int = 1
    isolation: int = READ_COMMITTED
    rack: str = ""  # where we are: the leader may then name a replica that is nearer


def fetches_by_id(client: Client) -> bool:
    """Whether the brokers take topic ids in a Fetch (3.1 and newer); by name, a topic made anew goes unnoticed."""
    return client.offer.best(FetchRequest.API_KEY, BY_ID, BY_ID) == BY_ID


async def fetch(
    client: Client, node: int, wants: Sequence[Want], limits: Limits, purpose: str = FETCHING
) -> list[Fetched]:
    """One Fetch to one broker for partitions that it leads."""
    ceiling = 17 if all(want.topic_id != NO_ID for want in wants) else BY_ID - 1
    answer = await client.call(node, _request(wants, limits), ceiling, floor=3, purpose=purpose)
    if isinstance(answer, FetchAnswer):
        return _as_a_whole(client, answer.error, wants) or _understand(answer, wants)
    return _as_a_whole(client, getattr(answer, "error_code", 0), wants) or _understand_old(answer, wants)


def _as_a_whole(client: Client, error: int, wants: Sequence[Want]) -> list[Fetched]:
    """A code for the whole answer is one for each partition, if it heals; empty: there is none."""
    if error == codes.NONE:
        return []
    if error not in codes.ASKED_AGAIN:
        where = f"cluster {client.cluster.alias}"
        raise BrokerRefused(f"Fetch answered {codes.name(error)}", error, where=where, hint=codes.advice(error, "READ"))
    return [Fetched(want.tp, want.offset, error, -1, -1, -1, (), _EMPTY, None) for want in wants]


def _request(wants: Sequence[Want], limits: Limits) -> Message:
    by_topic: dict[tuple[str, uuid.UUID], list[object]] = {}
    for want in wants:
        by_topic.setdefault((want.tp.topic, want.topic_id), []).append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=want.tp.partition,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                last_fetched_epoch=want.last_epoch,
                log_start_offset=-1,
                partition_max_bytes=want.max_bytes or limits.partition_bytes,
            )
        )
    topics = [
        FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)
        for (name, topic_id), partitions in by_topic.items()
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=limits.wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation,
        session_id=0,
        session_epoch=-1,
        topics=topics,
        forgotten_topics_data=[],
        rack_id=limits.rack,
    )


def _understand(answer: FetchAnswer, wants: Sequence[Want]) -> list[Fetched]:
    by_topic: dict[str | uuid.UUID, str] = {want.topic_id: want.tp.topic for want in wants}
    asked = {want.tp: want.offset for want in wants}
    fetched: list[Fetched] = []
    for entry in answer.partitions:
        name = entry.topic if isinstance(entry.topic, str) else by_topic.get(entry.topic, "")
        tp = TopicPartition(name, entry.number)
        if tp in asked:
            fetched.append(Fetched(tp, asked[tp], *entry[2:]))
    return fetched


def _understand_old(answer: Answer, wants: Sequence[Want]) -> list[Fetched]:
    """Versions 3 to 11, of brokers before 2.7: topics by name, no diverging epoch, record bytes copied."""
    asked = {want.tp: want.offset for want in wants}
    fetched: list[Fetched] = []
    for topic in answer.responses:
        for entry in topic.partitions:
            tp = TopicPartition(topic.topic, entry.partition_index)
            if tp in asked:
                fetched.append(_partition(tp, asked[tp], entry))
    return fetched


def _partition(tp: TopicPartition, offset: int, entry: Answer) -> Fetched:
    return Fetched(
        tp=tp,
        offset=offset,
        error=entry.error_code,
        high_watermark=entry.high_watermark,
        last_stable=entry.last_stable_offset,
        log_start=getattr(entry, "log_start_offset", -1),
        aborted=tuple((a.producer_id, a.first_offset) for a in entry.aborted_transactions or ()),
        records=_EMPTY if not entry.records else memoryview(entry.records),
        diverging=None,
        preferred=getattr(entry, "preferred_read_replica", -1),
    )


def committed_batches(fetched: Fetched, batches: Sequence[Batch]) -> Iterator[Batch]:
    """Batches without those of aborted transactions, by the same rule as Kafka's own consumer."""
    waiting = sorted(fetched.aborted, key=lambda entry: entry[1], reverse=True)
    active: set[int] = set()
    for batch in batches:
        while waiting and waiting[-1][1] <= batch.last_offset:
            active.add(waiting.pop()[0])
        if batch.is_control:
            if marker_of(fetched.records, batch) == _ABORT:
                active.discard(batch.producer_id)
            yield batch
        elif not (batch.is_transactional and batch.producer_id in active):
            yield batch


class Edge(NamedTuple):
    """An end of a log, as its leader told it. `epoch`: of that leader; -1 where it does not say (before Kafka 2.1)."""

    offset: int
    error: int
    epoch: int = -1


async def list_offsets(
    client: Client, partitions: Iterable[TopicPartition], when: int, isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, tuple[int, int]]:
    """As `list_edges`, offset and error code alone."""
    found = await list_edges(client, partitions, when, isolation)
    return {tp: (edge.offset, edge.error) for tp, edge in found.items()}


async def list_edges(
    client: Client, partitions: Iterable[TopicPartition], when: int, isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, Edge]:
    """Each partition at LATEST or EARLIEST, asked of its leader.

    Version 5 or newer where offered: only then does a fresh leader whose high watermark lags say so
    (OFFSET_NOT_AVAILABLE) instead of answering too low. Version 1 knows no isolation, nor do its brokers know
    transactions. A partition without a leader: error 5.
    """
    by_node: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        by_node.setdefault(client.leader(tp), []).append(tp)
    found = dict.fromkeys(by_node.pop(-1, []), Edge(-1, codes.LEADER_NOT_AVAILABLE))
    for node, tps in by_node.items():
        answer = await client.call(node, _list_request(tps, when, isolation), 7, floor=1)
        for topic in answer.topics:
            for entry in topic.partitions:
                epoch = getattr(entry, "leader_epoch", -1)
                edge = Edge(entry.offset, entry.error_code, -1 if epoch is None else epoch)
                found[TopicPartition(topic.name, entry.partition_index)] = edge
    return found


async def settled_offsets(
    client: Client, partitions: Iterable[TopicPartition], when: int, isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """As `list_offsets`, asked again while leaders move: every partition has an offset, or BrokerUnreachable; or
    BrokerRefused, when an answer is none that heals."""
    wanted = list(partitions)
    until = time.monotonic() + _PATIENCE_S
    found: dict[TopicPartition, int] = {}
    while missing := [tp for tp in wanted if tp not in found]:
        try:
            answers = await list_offsets(client, missing, when, isolation)
        except BrokerUnreachable:
            answers = {}
        for tp, (_, error) in answers.items():
            if error not in codes.ASKED_AGAIN | {codes.NONE}:
                raise edge_refused(client, tp, error)
        found |= {tp: offset for tp, (offset, error) in answers.items() if error == codes.NONE}
        if len(found) < len(wanted):
            if time.monotonic() > until:
                raise BrokerUnreachable(f"no leader answers for {missing[0]}", where=f"cluster {client.cluster.alias}")
            await asyncio.sleep(0.2)
            await client.refresh({tp.topic for tp in missing})
    return found


def edge_refused(client: Client, tp: TopicPartition, error: int) -> BrokerRefused:
    what, where = f"ListOffsets of {tp} answered {codes.name(error)}", f"cluster {client.cluster.alias}"
    return BrokerRefused(what, error, where=where, hint=codes.advice(error))


def _list_request(tps: Sequence[TopicPartition], when: int, isolation: int) -> Message:
    by_topic: dict[str, list[object]] = {}
    for tp in tps:
        by_topic.setdefault(tp.topic, []).append(
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=tp.partition, current_leader_epoch=-1, timestamp=when
            )
        )
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=p) for name, p in by_topic.items()]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
