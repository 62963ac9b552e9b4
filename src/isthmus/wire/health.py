"""How a cluster fares, seen from this machine: every broker by the address that it advertises, replicas of partitions,
settings and disks of brokers. Nothing is changed.

What must stay true: each broker is dialled by its own address, with no short cut through one that answers, because
that is what lanes will do. Judging what is found is left to the engine.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.admin.cluster import DescribeLogDirsRequest
from kafka.protocol.admin.transactions import DescribeProducersRequest
from kafka.protocol.metadata import MetadataRequest

from isthmus.errors import BrokerRefused, WireError
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.admin import refusal
from isthmus.wire.cluster import Client

_BROKER_RESOURCE = 4


class Broker(NamedTuple):
    """One broker of the metadata: `error` is empty when it answered; `unknown_name` when its name has no address."""

    node: int
    host: str
    port: int
    error: str = ""
    unknown_name: bool = False
    code: str = ""  # of the error


class Shown(NamedTuple):
    """What a broker showed in the handshake of TLS."""

    name: str
    der: bytes
    version: str


class Disk(NamedTuple):
    """A folder that a broker keeps logs in; bytes of the volume that it is on, -1 where a broker does not tell."""

    node: int
    folder: str
    error: str
    total: int
    usable: int


class OpenTransaction(NamedTuple):
    """Of a partition: its first offset there, and when its producer last wrote to it."""

    producer_id: int
    epoch: int
    first: int
    last_ms: int


class Replicas(NamedTuple):
    leader: int
    all: int
    in_sync: int


async def try_brokers(client: Client) -> list[Broker]:
    """Dial every broker of the metadata, all at once."""
    found = [(node, *address) for node, address in sorted(client.nodes.items())]
    return list(await asyncio.gather(*(_try_broker(client, *each) for each in found)))


async def _try_broker(client: Client, node: int, host: str, port: int) -> Broker:
    try:
        if client.cluster.security.tunnel is None:  # else names are the business of the tunnel's exit
            await asyncio.to_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return Broker(node, host, port, error.strerror or str(error), unknown_name=True)
    try:
        await client.link(node)
    except WireError as error:
        return Broker(node, host, port, error.message, code=error.code)
    return Broker(node, host, port)


async def shown_certificates(client: Client) -> list[Shown]:
    """Of every broker that answers by TLS."""
    found: list[Shown] = []
    for node, (host, port) in sorted(client.nodes.items()):
        try:
            peer = (await client.link(node)).peer()
        except WireError:
            continue  # told where brokers are tried
        if peer is not None:
            found.append(Shown(f"broker {node} ({host}:{port})", *peer))
    return found


async def replicas(client: Client, topics: Iterable[str]) -> dict[TopicPartition, Replicas]:
    """Leader, and how many replicas there are and follow, of each partition of topics that exist."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    if not wanted:
        return {}
    answer = await client.call_any(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12, floor=4)
    return {
        TopicPartition(topic.name, each.partition_index): Replicas(
            each.leader_id, len(each.replica_nodes), len(each.isr_nodes)
        )
        for topic in answer.topics
        for each in topic.partitions
    }


async def open_transactions(client: Client, tp: TopicPartition) -> list[OpenTransaction]:
    """As the partition's leader knows them (2.8 and newer; needs READ on the topic)."""
    asked = DescribeProducersRequest.TopicRequest(name=tp.topic, partition_indexes=[tp.partition])
    answer = await client.call(client.leader(tp), DescribeProducersRequest(topics=[asked]), 0)
    return [
        OpenTransaction(each.producer_id, each.producer_epoch, each.current_txn_start_offset, each.last_timestamp)
        for topic in answer.topics
        for partition in topic.partitions
        for each in partition.active_producers or ()
        if each.current_txn_start_offset >= 0
    ]


async def disks(client: Client) -> list[Disk]:
    """Of every broker that answers and lets us ask."""
    found: list[Disk] = []
    for node in sorted(client.nodes):
        try:
            answer = await client.call(node, DescribeLogDirsRequest(topics=[]), 4, floor=1)
        except WireError:
            continue  # one that does not answer is told where brokers are tried
        for each in answer.results if not getattr(answer, "error_code", 0) else ():
            error = codes.name(each.error_code) if each.error_code else ""
            found.append(
                Disk(node, each.log_dir, error, getattr(each, "total_bytes", -1), getattr(each, "usable_bytes", -1))
            )
    return found


async def broker_settings(client: Client, node: int) -> dict[str, str]:
    """Settings of one broker that are no secrets. BrokerRefused without DESCRIBE_CONFIGS on the cluster."""
    kind = DescribeConfigsRequest.DescribeConfigsResource
    resource = kind(resource_type=_BROKER_RESOURCE, resource_name=str(node), configuration_keys=None)
    answer = await client.call(node, DescribeConfigsRequest(resources=[resource], include_synonyms=False), 4)
    (result,) = answer.results
    if result.error_code != codes.NONE:
        raise _refused(client, result)
    return {entry.name: entry.value for entry in result.configs if entry.value is not None and not entry.is_sensitive}


def _refused(client: Client, result: object) -> BrokerRefused:
    return refusal(client, "settings of brokers cannot be read", result)
