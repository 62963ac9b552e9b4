"""Administration: create topics and partitions, delete probe topics, and ask the controller. Returns plain values.

Creating is idempotent from the caller's view: "exists already" is success; so is deleting what is not there. Settings
of topics are in `settings`, access rules in `access`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest

from isthmus.errors import BrokerRefused, BrokerUnreachable, WireError
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import LATEST, list_offsets
from isthmus.wire.link import Answer

_TIMEOUT_MS = 30_000
_PARTITIONS_AT_ONCE = 2_000
_PATIENCE_S, _PAUSE_S = 30.0, 0.3


class NewTopic(NamedTuple):
    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


async def create_topics(client: Client, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
    """Create these topics; a topic that exists already is fine. Raises with the broker's own words."""
    for error in (await try_create_topics(client, topics, validate_only=validate_only)).values():
        raise error


async def try_create_topics(
    client: Client, topics: Iterable[NewTopic], *, validate_only: bool = False
) -> dict[str, BrokerRefused]:
    """As `create_topics`, but hands refusals back, by topic: the others are created."""
    refused: dict[str, BrokerRefused] = {}
    for batch in by_partitions(topics):
        refused |= {
            topic.name: refusal(client, f"topic {topic.name} cannot be created", topic)
            for topic in await _created(client, batch, validate_only)
            if topic.error_code not in (codes.NONE, codes.TOPIC_EXISTS)
        }
    return refused


async def _created(client: Client, batch: Iterable[NewTopic], validate_only: bool) -> Iterable[Answer]:
    """The last answer about each topic. A controller that moves or is too slow is asked again: what it has created
    meanwhile is there then, which is as good."""
    left, found = {topic.name: topic for topic in batch}, dict[str, Answer]()
    until = time.monotonic() + _PATIENCE_S
    while left:
        answer = await ask_controller(client, _create_request(left.values(), validate_only), 7, floor=1)
        found |= {topic.name: topic for topic in answer.topics}
        moving = {topic.name for topic in answer.topics if topic.error_code in codes.CONTROLLER_MOVING}
        left = {name: topic for name, topic in left.items() if name in moving}
        if time.monotonic() > until:
            break
        await asyncio.sleep(_PAUSE_S if left else 0)
    return found.values()


def by_partitions(topics: Iterable[NewTopic]) -> Iterator[list[NewTopic]]:
    """Batches of a size that a controller takes: it refuses a request for more than 10,000 partitions as a whole."""
    batch: list[NewTopic] = []
    for topic in topics:
        if batch and sum(each.partitions for each in batch) + topic.partitions > _PARTITIONS_AT_ONCE:
            yield batch
            batch = []
        batch.append(topic)
    if batch:
        yield batch


def _create_request(topics: Iterable[NewTopic], validate_only: bool) -> object:
    kind = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[
            kind(
                name=t.name,
                num_partitions=t.partitions,
                replication_factor=t.replication_factor,
                assignments=[],
                configs=[kind.CreatableTopicConfig(name=k, value=v) for k, v in t.configs.items()],
            )
            for t in topics
        ],
        timeout_ms=_TIMEOUT_MS,
        validate_only=validate_only,
    )


async def delete_topic(client: Client, topic: str) -> None:
    """Delete a topic that the caller has made; raises with the broker's own words."""
    answer = await ask_controller(client, DeleteTopicsRequest(topic_names=[topic], timeout_ms=_TIMEOUT_MS), 5, floor=1)
    for result in answer.responses:
        if result.error_code not in (codes.NONE, codes.UNKNOWN_TOPIC):
            raise refusal(client, f"topic {topic} cannot be deleted", result)


async def grow_topic(client: Client, topic: str, partitions: int) -> None:
    """Raise the partition count of a topic."""
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    message = CreatePartitionsRequest(
        topics=[kind(name=topic, count=partitions, assignments=None)],
        timeout_ms=_TIMEOUT_MS,
        validate_only=False,
    )
    until, timed_out = time.monotonic() + _PATIENCE_S, False
    while True:
        try:
            (result,) = (await ask_controller(client, message, 3)).results
        except WireError as error:
            if error.code != "VERSION":
                raise
            what = f"topic {topic} cannot grow to {partitions} partitions: {error.message}"
            raise BrokerRefused(what, where=error.where) from error
        # After an answer that told nothing, "it has as many already" is that it has grown.
        if result.error_code == codes.NONE or (timed_out and result.error_code == codes.INVALID_PARTITIONS):
            return
        if result.error_code not in codes.CONTROLLER_MOVING or time.monotonic() > until:
            raise refusal(client, f"topic {topic} cannot grow to {partitions} partitions", result)
        timed_out = timed_out or result.error_code == codes.REQUEST_TIMED_OUT
        await asyncio.sleep(_PAUSE_S)


async def ask_controller(client: Client, message: object, ceiling: int, floor: int = 0) -> Answer:
    """Send a request that changes something to the node that decides on it."""
    await client.refresh([])
    node = client.controller if client.controller in client.nodes else next(iter(client.nodes))
    return await client.call(node, message, ceiling, floor=floor, timeout_s=60)


def refusal(client: Client, what: str, result: Answer) -> BrokerRefused:
    """What was refused, in the broker's own words."""
    detail = getattr(result, "error_message", None) or ""
    return BrokerRefused(
        f"{what}: {codes.name(result.error_code)} {detail}".strip(),
        result.error_code,
        where=f"cluster {client.cluster.alias}",
        hint=codes.advice(result.error_code, "CREATE and ALTER"),
    )


async def wait_for_topics(
    client: Client, names: Iterable[str], deadline_s: float = 60.0, least: Mapping[str, int] | None = None
) -> None:
    """Wait until every partition of these topics has a leader, and that leader serves it; `least`: so many of each.

    A broker may show a topic that has grown as it was before, for a moment. And metadata names a leader before its
    broker has opened the log: a write in between is refused, and with hundreds of partitions the time in between is
    seconds.
    """
    wanted, least = set(names), least or {}
    loop = asyncio.get_running_loop()
    until = loop.time() + deadline_s
    while loop.time() < until:
        await client.refresh(wanted)
        if all(_led(client, name, least.get(name, 1)) for name in wanted) and await _served(client, wanted):
            return
        await asyncio.sleep(0.1)
    missing = sorted(name for name in wanted if not _led(client, name, least.get(name, 1))) or sorted(wanted)
    raise BrokerRefused(f"no leader within {deadline_s:.0f} s for: {', '.join(missing)}", where=client.cluster.alias)


async def _served(client: Client, names: set[str]) -> bool:
    partitions = [TopicPartition(name, number) for name in names for number in client.topics[name].partitions]
    try:
        answers = await list_offsets(client, partitions, LATEST)
    except BrokerUnreachable:
        return False
    return all(error == codes.NONE for _, error in answers.values())


def _led(client: Client, name: str, least: int) -> bool:
    info = client.topics.get(name)
    return info is not None and len(info.partitions) >= least and all(p.leader >= 0 for p in info.partitions.values())
