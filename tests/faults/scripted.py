"""A door to a real broker that answers as a script says: any error code, for any request and partition.

Bytes are taken apart and put together by kafka-python's messages, not by Isthmus' own. What a script refuses is not
done: a Produce to a partition that is refused never reaches the broker, the rest of the request does; an EndTxn,
InitProducerId, AddPartitionsToTxn, CreateTopics or OffsetCommit is not passed on. What only asks is passed on, and its
answer is bent. Records of a Fetch can be damaged on their way (`damage`).
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

from kafka.protocol.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsResponse,
    ListTransactionsResponse,
)
from kafka.protocol.admin.groups import DescribeGroupsResponse, ListGroupsResponse
from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

from isthmus.lab.brokers import HOST
from isthmus.lab.network import Door

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
COMMIT, OFFSETS, FIND, DESCRIBE_GROUPS, LIST_GROUPS = 8, 9, 10, 15, 16
CREATE, INIT, ADD, END, CONFIGS, LIST_TRANSACTIONS = 19, 22, 24, 26, 32, 66
_ASKED = {
    FETCH: FetchResponse,
    LIST_OFFSETS: ListOffsetsResponse,
    METADATA: MetadataResponse,
    FIND: FindCoordinatorResponse,
    OFFSETS: OffsetFetchResponse,
    DESCRIBE_GROUPS: DescribeGroupsResponse,
    LIST_GROUPS: ListGroupsResponse,
    CONFIGS: DescribeConfigsResponse,
    LIST_TRANSACTIONS: ListTransactionsResponse,
}
_DONE = {INIT: (InitProducerIdRequest, InitProducerIdResponse), END: (EndTxnRequest, EndTxnResponse)}
# Answers that hold a list of things, each with its own code: the list, how a thing is named, what a refusal empties.
_LISTS = {
    METADATA: ("topics", "name", ("partitions",)),
    OFFSETS: ("groups", "group_id", ("topics",)),
    DESCRIBE_GROUPS: ("groups", "group_id", ("members",)),
    CONFIGS: ("results", "resource_name", ("configs",)),
    FIND: ("coordinators", "key", ()),
}
_WHOLE = {LIST_GROUPS: "groups", LIST_TRANSACTIONS: "transaction_states"}

# Request, topic (or transactional id, or group), partition (-1: of none) -> error code, 0: as it is
Script = Callable[[int, str, int], int]
# Topic, partition, records -> the same, or others
Damage = Callable[[str, int, bytes], bytes]


class Scripted(Door):
    """Requests of one connection are answered one by one, so that answers keep their order."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.script: Script = lambda *_: 0
        self.told: Counter[tuple[int, int]] = Counter()  # (request, code): how often it was answered so
        self.damage: Damage | None = None
        self._names: dict[uuid.UUID, str] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            far = await asyncio.open_connection(HOST, self.target)
            ends.append(far[1])
            while True:
                writer.write(await self._answered(await _frame(reader), far))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for end in ends:
                end.close()

    async def _answered(self, frame: bytes, far: Any) -> bytes:
        api, version, correlation = struct.unpack_from(">hhi", frame)
        if api == PRODUCE:
            return await self._produced(frame, version, correlation, far)
        if api in _DONE:
            asked, answer = _DONE[api]
            if code := self.code(api, asked.decode(frame, version=version, header=True).transactional_id):
                return _encoded(answer(error_code=code, producer_id=-1, producer_epoch=-1), version, correlation)
        if refused := _refused(self, api, frame, version):
            return _encoded(refused, version, correlation)
        answer = await _asked(frame, far)
        if api not in _ASKED:
            return answer
        found = _ASKED[api].decode(answer, version=version, header=True, framed=True)
        return _encoded(found, version, correlation) if self._bend(api, found, version) else answer

    def code(self, api: int, topic: str = "", partition: int = -1) -> int:
        code = self.script(api, topic, partition)
        if code:
            self.told[api, code] += 1
        return code

    def _bend(self, api: int, found: Any, version: int) -> bool:
        """Put the script's codes into an answer; False: there was none."""
        if api == METADATA and version >= 10:
            self._names |= {topic.topic_id: topic.name for topic in found.topics}
        before = self.told.total()
        if api in _WHOLE:
            self._bend_whole(api, found)
        elif api in _LISTS:
            self._bend_list(api, found, version)
        else:
            self._bend_partitions(api, found, version)
        return self.told.total() > before

    def _bend_whole(self, api: int, found: Any) -> None:
        if code := self.code(api):
            found.error_code = code
            setattr(found, _WHOLE[api], [])

    def _bend_list(self, api: int, found: Any, version: int) -> None:
        things, name, emptied = _LISTS[api]
        single = api == FIND and version < 4
        for each in [found] if single else getattr(found, things):
            if code := self.code(api, "" if single else str(getattr(each, name) or "")):
                each.error_code = code
                for field in emptied:
                    setattr(each, field, [])

    def _bend_partitions(self, api: int, found: Any, version: int) -> None:
        if api == FETCH and (code := self.code(FETCH)):
            found.error_code, found.responses = code, []
        for topic in found.responses if api == FETCH else found.topics:
            name = self._names.get(topic.topic_id, "") if api == FETCH and version >= 13 else _name(topic)
            for each in topic.partitions:
                self._bend_one(api, name, each)

    def _bend_one(self, api: int, topic: str, each: Any) -> None:
        index = each.partition_index
        if code := self.code(api, topic, index):
            each.error_code = code
            if api == FETCH:
                each.records, each.high_watermark, each.last_stable_offset, each.log_start_offset = b"", -1, -1, -1
            else:
                each.offset = -1
        elif api == FETCH and self.damage is not None and each.records:
            records = self.damage(topic, index, bytes(each.records))
            if records != each.records:
                each.records = records
                self.told[FETCH, 0] += 1

    async def _produced(self, frame: bytes, version: int, correlation: int, far: Any) -> bytes:
        request = ProduceRequest.decode(frame, version=version, header=True)
        refused: dict[tuple[Any, int], int] = {}
        for topic in request.topic_data:
            key = topic.topic_id if version >= 13 else topic.name
            name = self._names.get(key, "") if version >= 13 else key
            codes = {each.index: self.code(PRODUCE, name, each.index) for each in topic.partition_data}
            refused |= {(key, index): code for index, code in codes.items() if code}
            topic.partition_data = [each for each in topic.partition_data if not codes[each.index]]
        if not refused:
            return await _asked(frame, far)
        request.topic_data = [topic for topic in request.topic_data if topic.partition_data]
        answer = ProduceResponse(responses=[], throttle_time_ms=0, node_endpoints=[])
        if request.topic_data:
            request._header = None
            request.API_VERSION = version
            request.with_header(correlation_id=correlation, client_id="isthmus")
            done = await _asked(bytes(request.encode(framed=True, header=True))[4:], far)
            answer = ProduceResponse.decode(done, version=version, header=True, framed=True)
        for (key, index), code in refused.items():
            answer.responses.append(_refusal(key, index, code, version))
        return _encoded(answer, version, correlation)


def _refusal(key: Any, index: int, code: int, version: int) -> Any:
    kind = ProduceResponse.TopicProduceResponse
    entry = kind.PartitionProduceResponse(
        index=index,
        error_code=code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=[],
        error_message=None,
    )
    named = {"topic_id": key} if version >= 13 else {"name": key}
    return kind(partition_responses=[entry], **named)


def _refused(door: Scripted, api: int, frame: bytes, version: int) -> Any:
    """The answer to a request that is not carried out; None: it is."""
    if api == ADD:
        added = AddPartitionsToTxnRequest.decode(frame, version=version, header=True)
        code = door.code(ADD, added.v3_and_below_transactional_id)
        return _not_added(added, code) if code else None
    if api == CREATE:
        created = CreateTopicsRequest.decode(frame, version=version, header=True)
        code = door.code(CREATE, created.topics[0].name) if created.topics else 0
        return _not_created(created, code) if code else None
    if api == COMMIT:
        committed = OffsetCommitRequest.decode(frame, version=version, header=True)
        code = door.code(COMMIT, committed.group_id)
        return _not_committed(committed, code) if code else None
    return None


def _not_added(asked: Any, code: int) -> Any:
    kind = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    one = kind.AddPartitionsToTxnPartitionResult
    found = [
        kind(
            name=topic.name,
            results_by_partition=[one(partition_index=each, partition_error_code=code) for each in topic.partitions],
        )
        for topic in asked.v3_and_below_topics
    ]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=found)


def _not_created(asked: Any, code: int) -> Any:
    kind = CreateTopicsResponse.CreatableTopicResult
    return CreateTopicsResponse(topics=[_filled(kind, name=topic.name, error_code=code) for topic in asked.topics])


def _filled(kind: Any, **values: Any) -> Any:
    """Fields that a version has and a script does not care for."""
    plain = {"error_message": None, "topic_config_error_code": 0, "num_partitions": -1, "replication_factor": -1}
    return kind(**plain, configs=None, topic_id=uuid.UUID(int=0), **values)


def _not_committed(asked: Any, code: int) -> Any:
    kind = OffsetCommitResponse.OffsetCommitResponseTopic
    one = kind.OffsetCommitResponsePartition
    found = [
        kind(
            name=topic.name,
            partitions=[one(partition_index=each.partition_index, error_code=code) for each in topic.partitions],
        )
        for topic in asked.topics
    ]
    return OffsetCommitResponse(topics=found)


def _name(topic: Any) -> str:
    return str(getattr(topic, "name", "") or getattr(topic, "topic", ""))


def _encoded(answer: Any, version: int, correlation: int) -> bytes:
    answer._header = None  # one that was decoded has no room for a version
    answer.API_VERSION = version
    answer.with_header(correlation_id=correlation)
    return bytes(answer.encode(framed=True, header=True))


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def _asked(frame: bytes, far: Any) -> bytes:
    reader, writer = far
    writer.write(struct.pack(">i", len(frame)) + frame)
    await writer.drain()
    body = await _frame(reader)
    return struct.pack(">i", len(body)) + body
