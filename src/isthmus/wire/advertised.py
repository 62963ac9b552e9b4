"""Which brokers a cluster tells its clients to connect to: what a tunnel's exit lets pass.

Each bootstrap server is asked, because what a broker advertises depends on the listener that it is asked through.
"""

from __future__ import annotations

import asyncio
import dataclasses

from isthmus.errors import WireError
from isthmus.model import Cluster
from isthmus.wire.cluster import Client


def advertised(cluster: Cluster) -> set[tuple[str, int]]:
    """The brokers that the bootstrap servers tell of; WireError if none of them answers."""
    return asyncio.run(_advertised(cluster))


async def _advertised(cluster: Cluster) -> set[tuple[str, int]]:
    answers = await asyncio.gather(*(_told_by(cluster, server) for server in cluster.bootstrap), return_exceptions=True)
    found: set[tuple[str, int]] = set()
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, WireError):
            raise answer
        found |= set() if isinstance(answer, BaseException) else answer
    if not found and isinstance(answers[0], WireError):
        raise answers[0]
    return found


async def _told_by(cluster: Cluster, server: str) -> set[tuple[str, int]]:
    client = Client(dataclasses.replace(cluster, bootstrap=(server,)), timeout_s=10.0)
    try:
        await client.start()
        return set(client.nodes.values())
    finally:
        client.close()
