"""Reading a topic as a consumer of committed records would, without a group: nothing is stored anywhere.

Owns where reading begins and ends. Ends are asked for first, so that reading a topic that is being written to ends,
unless it is to be followed. Records of one partition come in order; partitions come as brokers answer.
"""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from isthmus.errors import SourceError
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import find_batches
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    Fetched,
    Limits,
    Want,
    committed_batches,
    fetch,
    settled_offsets,
)
from isthmus.wire.legacy import unwrapped
from isthmus.wire.records import Record, decode_records


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to read: all partitions or one, from where, and whether to wait for more at the end."""

    topic: str
    partition: int = -1
    begin: str = "beginning"  # "beginning" | "end" | "timestamp" | "offset"
    at: int = 0  # the offset, or milliseconds
    follow: bool = False


def refuse_missing(client: Client, topic: str) -> None:
    """A topic that is not there is a slip more often than not."""
    if topic in client.topics:
        return
    near = difflib.get_close_matches(topic, client.topics, 1)
    raise SourceError(
        f"there is no topic {topic!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
        where=f"cluster {client.cluster.alias}",
        hint="`isthmus topics` lists what is there",
        code="UNKNOWN_TOPIC",
    )


async def read(client: Client, reading: Reading) -> AsyncIterator[tuple[TopicPartition, Record]]:
    """Records as they come; ends at the ends seen at the start, unless following."""
    await client.refresh(None)  # all of them, to name the nearest where this one is missing
    refuse_missing(client, reading.topic)
    partitions = _partitions(client, reading)
    ends = await settled_offsets(client, partitions, LATEST, READ_COMMITTED)
    at = await _begins(client, reading, partitions, ends)
    while wanted := [tp for tp in partitions if reading.follow or at[tp] < ends[tp]]:
        for answer in await _fetch_some(client, wanted, at):
            if answer.error == codes.OFFSET_OUT_OF_RANGE:
                at[answer.tp] = max(answer.log_start, at[answer.tp] + 1)
            elif answer.error != codes.NONE:
                await client.refresh([reading.topic])
            for record in _records(answer):
                if record.offset >= at[answer.tp] and (reading.follow or record.offset < ends[answer.tp]):
                    yield answer.tp, record
            at[answer.tp] = _past(answer, at[answer.tp])


def _partitions(client: Client, reading: Reading) -> list[TopicPartition]:
    known = sorted(client.topics[reading.topic].partitions)
    if reading.partition >= 0 and reading.partition not in known:
        raise SourceError(
            f"topic {reading.topic} has no partition {reading.partition}",
            where=f"cluster {client.cluster.alias}",
            hint=f"it has {len(known)}, from 0",
            code="UNKNOWN_PARTITION",
        )
    return [TopicPartition(reading.topic, n) for n in known if reading.partition in (-1, n)]


async def _begins(
    client: Client, reading: Reading, partitions: list[TopicPartition], ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if reading.begin == "end":
        return dict(ends)
    earliest = await settled_offsets(client, partitions, EARLIEST)
    if reading.begin == "offset":
        return {tp: max(earliest[tp], reading.at) for tp in partitions}
    if reading.begin == "timestamp":
        found = await settled_offsets(client, partitions, reading.at)
        return {tp: ends[tp] if offset < 0 else offset for tp, offset in found.items()}
    return earliest


async def _fetch_some(client: Client, wanted: list[TopicPartition], at: dict[TopicPartition, int]) -> list[Fetched]:
    by_node: dict[int, list[Want]] = {}
    for tp in wanted:
        want = Want(tp, client.topic_id(tp.topic), at[tp])
        by_node.setdefault(client.leader(tp), []).append(want)
    answers: list[Fetched] = []
    for node, wants in by_node.items():
        if node < 0:
            await client.refresh({want.tp.topic for want in wants})
        else:
            answers += await fetch(client, node, wants, Limits(max_bytes=4 << 20, partition_bytes=1 << 20, wait_ms=200))
    return answers


def _records(answer: Fetched) -> list[Record]:
    found: list[Record] = []
    for batch in committed_batches(answer, find_batches(answer.records)):
        if batch.magic < 2:
            found += unwrapped(answer.records, batch)[1]
        elif not batch.is_control and batch.count:
            found += decode_records(answer.records, batch)
    return found


def _past(answer: Fetched, at: int) -> int:
    batches = find_batches(answer.records)
    return max(at, batches[-1].last_offset + 1) if batches else at
