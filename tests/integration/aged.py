"""Transactional ids whose epochs are nearly used up, as after 32,767 transactions: the next few use up the rest, and
the broker hands out another producer id.

The coordinator's own record of each id is written anew with a high epoch, and its broker started again, which reads
it. Everything after that is the broker's real doing.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterable

from tests.integration.sources import partition_count, producer, send, unique

from isthmus.lab import LabCluster
from isthmus.model import Cluster
from isthmus.wire.cluster import Client
from isthmus.wire.transaction import Identity, fence

_STATE = "__transaction_state"
_LAST_EPOCH = 32_766  # an id at this epoch is used up


def age(cluster: LabCluster, names: Iterable[str], left: int) -> list[int]:
    """Leave so many epochs to these ids, on a cluster of one broker, which is started again. Their producer ids."""
    identities = asyncio.run(_identities(cluster.bootstrap, names))
    partitions = partition_count(cluster.bootstrap, _STATE)
    # By this name a broker knows those who may write to its own topics.
    writer = producer(cluster.bootstrap, client_id="__admin_client")
    for who in identities:
        place = {"partition": _partition(who.transactional_id, partitions)}
        send(writer, _STATE, [{"key": _key(who.transactional_id), "value": _value(who, _LAST_EPOCH - left), **place}])
    cluster.shut_down(1)
    cluster.restart(1)
    return [who.producer_id for who in identities]


async def _identities(bootstrap: str, names: Iterable[str]) -> list[Identity]:
    client = Client(Cluster(alias=unique("aged"), bootstrap=tuple(bootstrap.split(","))))
    await client.start()
    try:
        return [await fence(client, name, 60_000, 60) for name in names]
    finally:
        client.close()


def _partition(name: str, partitions: int) -> int:
    """By Java's String.hashCode, as the broker finds the coordinator."""
    code = 0
    for letter in name:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return abs(code - (code >> 31 << 32)) % partitions  # hash codes are signed


def _key(name: str) -> bytes:
    """TransactionLogKey, version 0."""
    return struct.pack(">hh", 0, len(name)) + name.encode()


def _value(who: Identity, epoch: int) -> bytes:
    """TransactionLogValue, version 0: an id with nothing under way."""
    now_ms, empty, no_partitions = int(time.time() * 1000), 0, -1
    return struct.pack(">hqhibiqq", 0, who.producer_id, epoch, 60_000, empty, no_partitions, now_ms, now_ms)
