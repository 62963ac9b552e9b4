"""Administration: create topics and partitions, read topic settings. Returns plain values.

Creating is idempotent from the caller's view: "exists already" is success. Nothing here deletes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, DescribeConfigsRequest

from isthmus.errors import BrokerRefused, BrokerUnreachable
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import LATEST, list_offsets
from isthmus.wire.link import Answer

_TOPIC_RESOURCE = 2
_SET_ON_TOPIC = 1  # config source DYNAMIC_TOPIC_CONFIG
_TIMEOUT_MS = 30_000


class NewTopic(NamedTuple):
    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


async def create_topics(client: Client, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
    """Create these topics; a topic that exists already is fine. Raises with the broker's own words."""
    wanted = list(topics)
    if not wanted:
        return
    kind = CreateTopicsRequest.CreatableTopic
    message = CreateTopicsRequest(
        topics=[
            kind(
                name=t.name,
                num_partitions=t.partitions,
                replication_factor=t.replication_factor,
                assignments=[],
                configs=[kind.CreatableTopicConfig(name=k, value=v) for k, v in t.configs.items()],
            )
            for t in wanted
        ],
        timeout_ms=_TIMEOUT_MS,
        validate_only=validate_only,
    )
    answer = await _ask_controller(client, message, 7, floor=1)
    for topic in answer.topics:
        if topic.error_code not in (codes.NONE, codes.TOPIC_EXISTS):
            raise _refusal(client, f"topic {topic.name} cannot be created", topic)


async def grow_topic(client: Client, topic: str, partitions: int) -> None:
    """Raise the partition count of a topic."""
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    message = CreatePartitionsRequest(
        topics=[kind(name=topic, count=partitions, assignments=None)],
        timeout_ms=_TIMEOUT_MS,
        validate_only=False,
    )
    answer = await _ask_controller(client, message, 3)
    for result in answer.results:
        if result.error_code:
            raise _refusal(client, f"topic {topic} cannot grow to {partitions} partitions", result)


async def topic_settings(client: Client, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Settings that were made on each topic itself (not inherited ones, not secrets)."""
    kind = DescribeConfigsRequest.DescribeConfigsResource
    resources = [kind(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None) for name in topics]
    answer = await client.call_any(DescribeConfigsRequest(resources=resources, include_synonyms=False), 4, floor=1)
    return {result.resource_name: _own_settings(result) for result in answer.results if not result.error_code}


async def setting_names(client: Client, topic: str) -> frozenset[str]:
    """All settings that the brokers of this cluster know for topics, asked of one that exists; empty: not told."""
    kind = DescribeConfigsRequest.DescribeConfigsResource
    resource = kind(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
    answer = await client.call_any(DescribeConfigsRequest(resources=[resource], include_synonyms=False), 4, floor=1)
    return frozenset(entry.name for result in answer.results if not result.error_code for entry in result.configs)


def _own_settings(result: Answer) -> dict[str, str]:
    return {
        entry.name: entry.value
        for entry in result.configs
        if entry.config_source == _SET_ON_TOPIC and entry.value is not None and not entry.is_sensitive
    }


async def _ask_controller(client: Client, message: object, ceiling: int, floor: int = 0) -> Answer:
    await client.refresh([])
    node = client.controller if client.controller in client.nodes else next(iter(client.nodes))
    return await client.call(node, message, ceiling, floor=floor, timeout_s=60)


def _refusal(client: Client, what: str, result: Answer) -> BrokerRefused:
    detail = getattr(result, "error_message", None) or ""
    return BrokerRefused(
        f"{what}: {codes.name(result.error_code)} {detail}".strip(),
        result.error_code,
        where=f"cluster {client.cluster.alias}",
    )


async def wait_for_topics(client: Client, names: Iterable[str], deadline_s: float = 60.0) -> None:
    """Wait until every partition of these topics has a leader, and that leader serves it.

    Metadata names a leader before its broker has opened the log: a write in between is refused, and with
    hundreds of partitions the time in between is seconds.
    """
    wanted = set(names)
    loop = asyncio.get_running_loop()
    until = loop.time() + deadline_s
    while loop.time() < until:
        await client.refresh(wanted)
        if all(_led(client, name) for name in wanted) and await _served(client, wanted):
            return
        await asyncio.sleep(0.1)
    missing = sorted(name for name in wanted if not _led(client, name)) or sorted(wanted)
    raise BrokerRefused(f"no leader within {deadline_s:.0f} s for: {', '.join(missing)}", where=client.cluster.alias)


async def _served(client: Client, names: set[str]) -> bool:
    partitions = [TopicPartition(name, number) for name in names for number in client.topics[name].partitions]
    try:
        answers = await list_offsets(client, partitions, LATEST)
    except BrokerUnreachable:
        return False
    return all(error == codes.NONE for _, error in answers.values())


def _led(client: Client, name: str) -> bool:
    info = client.topics.get(name)
    return info is not None and bool(info.partitions) and all(p.leader >= 0 for p in info.partitions.values())
