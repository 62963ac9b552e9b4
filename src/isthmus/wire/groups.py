"""Consumer groups: which there are, where they stand, and committing offsets for those that nobody works in.

Groups live with coordinators: each broker lists its own, and offsets are asked of the right one, many groups at once
where brokers can. What must stay true: a commit here names no member, so a broker refuses it for a group that is
active, and no running consumer can be moved by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kafka.protocol.admin.groups import ListGroupsRequest
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from isthmus.errors import BrokerRefused, BrokerUnreachable
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.cluster import Client
from isthmus.wire.link import Answer

CONSUMERS, CONNECT = frozenset({"", "consumer"}), frozenset({"connect"})  # protocols; "": offsets without members
IDLE = frozenset({"", "Empty", "Dead"})  # states of a group that nobody works in

_GROUPS_AT_ONCE = 200
_COMMITS_AT_ONCE = 20
_NO_OFFSET = -1
_MOVED = frozenset({codes.COORDINATOR_LOADING, codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR})


class Committed(NamedTuple):
    """What a group has committed for a partition: the next offset that it wants, and its own note."""

    offset: int
    metadata: str = ""


Offsets = Mapping[TopicPartition, Committed]
_Answered = tuple[str, int, Iterable[Answer]]  # a group, its error code, its topics


async def list_groups(client: Client, protocols: Collection[str] = CONSUMERS) -> dict[str, str]:
    """The state of each group that speaks so; "" where the broker is too old to tell (before 2.6)."""
    await client.refresh([])
    groups: dict[str, str] = {}
    for node in sorted(client.nodes):
        answer = await client.call(node, ListGroupsRequest(states_filter=[], types_filter=[]), 5)
        if answer.error_code in _MOVED:
            raise BrokerUnreachable(f"groups cannot be listed yet: {codes.name(answer.error_code)}", where=str(node))
        if answer.error_code:
            raise _refused(client, "groups cannot be listed", answer.error_code)
        groups |= {
            group.group_id: getattr(group, "group_state", None) or ""
            for group in answer.groups
            if group.protocol_type in protocols
        }
    return groups


async def committed_offsets(
    client: Client, groups: Iterable[str], refused: dict[str, int] | None = None
) -> dict[str, Offsets]:
    """What each of these groups has committed. One that cannot be told of now (it moves to another broker, say) is left
    out, and `refused` has its code."""
    found: dict[str, Offsets] = {}
    unread: dict[str, int] = {} if refused is None else refused
    for node, names in (await _coordinators(client, sorted(groups), unread)).items():
        link = await client.link(node)
        many = link.offer.best(OffsetFetchRequest.API_KEY, 9, 8) >= 0
        for at in range(0, len(names), _GROUPS_AT_ONCE if many else 1):
            some = names[at : at + _GROUPS_AT_ONCE] if many else names[at : at + 1]
            for name, code, topics in await (_fetch_many if many else _fetch_one)(client, node, some):
                if code:
                    unread[name] = code
                else:
                    found[name] = _offsets(topics)
    return found


async def _fetch_many(client: Client, node: int, names: Sequence[str]) -> list[_Answered]:
    kind = OffsetFetchRequest.OffsetFetchRequestGroup
    wanted = [kind(group_id=name, member_id=None, member_epoch=-1, topics=None) for name in names]
    answer = await client.call(node, OffsetFetchRequest(groups=wanted, require_stable=False), 9, floor=8)
    return [(group.group_id, group.error_code, group.topics) for group in answer.groups]


async def _fetch_one(client: Client, node: int, names: Sequence[str]) -> list[_Answered]:
    message = OffsetFetchRequest(group_id=names[0], topics=None, require_stable=False)
    answer = await client.call(node, message, 7, floor=2)
    return [(names[0], answer.error_code, answer.topics)]


def _offsets(topics: Iterable[Answer]) -> Offsets:
    return {
        TopicPartition(topic.name, p.partition_index): Committed(p.committed_offset, p.metadata or "")
        for topic in topics
        for p in topic.partitions
        if not p.error_code and p.committed_offset > _NO_OFFSET
    }


async def commit_offsets(client: Client, group: str, offsets: Offsets) -> dict[TopicPartition, int]:
    """Commit for a group without members; the error code of each partition that was refused."""
    return (await commit_many(client, {group: offsets}))[group]


async def commit_many(client: Client, wanted: Mapping[str, Offsets]) -> dict[str, dict[TopicPartition, int]]:
    """Likewise for many groups, some at a time."""
    refused: dict[str, int] = {}
    coordinators = await _coordinators(client, sorted(wanted), refused)
    found = {name: dict.fromkeys(wanted[name], code) for name, code in refused.items()}
    places = [(name, node) for node, names in coordinators.items() for name in names]
    for at in range(0, len(places), _COMMITS_AT_ONCE):
        some = places[at : at + _COMMITS_AT_ONCE]
        answers = await asyncio.gather(*(_commit(client, node, name, wanted[name]) for name, node in some))
        found |= {name: answer for (name, _), answer in zip(some, answers, strict=True)}
    return found


async def _commit(client: Client, node: int, group: str, offsets: Offsets) -> dict[TopicPartition, int]:
    topic_kind = OffsetCommitRequest.OffsetCommitRequestTopic
    by_topic: dict[str, list[object]] = {}
    for tp, committed in offsets.items():
        row = topic_kind.OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=-1,
            committed_metadata=committed.metadata,
        )
        by_topic.setdefault(tp.topic, []).append(row)
    message = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[topic_kind(name=name, partitions=rows) for name, rows in by_topic.items()],
    )
    answer = await client.call(node, message, 9, floor=2)
    return {
        TopicPartition(topic.name, p.partition_index): p.error_code
        for topic in answer.topics
        for p in topic.partitions
        if p.error_code
    }


async def _coordinators(
    client: Client, groups: Sequence[str], refused: dict[str, int] | None = None
) -> dict[int, list[str]]:
    """Groups by the broker that looks after them; those without one at the moment are left out, and `refused`."""
    found: dict[int, list[str]] = {}
    for at in range(0, len(groups), _GROUPS_AT_ONCE):
        names = groups[at : at + _GROUPS_AT_ONCE]
        if client.offer.best(FindCoordinatorRequest.API_KEY, 5, 4) >= 0:
            answer = await client.call_any(FindCoordinatorRequest(key_type=0, coordinator_keys=names), 5, floor=4)
            rows = [(row.key, row) for row in answer.coordinators]
        else:
            rows = [
                (name, await client.call_any(FindCoordinatorRequest(key=name, key_type=0), 3, floor=0))
                for name in names
            ]
        for name, row in rows:
            if not row.error_code:
                client.nodes.setdefault(row.node_id, (row.host, row.port))
                found.setdefault(row.node_id, []).append(name)
            elif refused is not None:
                refused[name] = row.error_code
    return found


def _refused(client: Client, what: str, error: int) -> BrokerRefused:
    return BrokerRefused(f"{what}: {codes.name(error)}", error, where=f"cluster {client.cluster.alias}")
