"""Kafka's requests by their numbers, and which release first offered which version of them.

Only what tells releases apart or what we depend on stands here. Must stay true: a release is judged by what its
brokers *offer* (ApiVersions), never by a version number that somebody configured; so "at least 2.8" means that
everything up to 2.8 that is listed here is offered.
"""

from __future__ import annotations

from enum import IntEnum

from isthmus.wire.link import Offer


class Api(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    LIST_GROUPS = 16
    CREATE_TOPICS = 19
    INIT_PRODUCER_ID = 22
    DESCRIBE_ACLS = 29
    DESCRIBE_CONFIGS = 32
    CREATE_PARTITIONS = 37
    INCREMENTAL_ALTER_CONFIGS = 44
    LIST_TRANSACTIONS = 66


# (request, version) that a release was the first to offer, oldest first. Brokers of 0.10.0 answer ApiVersions, too.
_FIRST_OFFERED: tuple[tuple[str, Api, int], ...] = (
    ("0.10.1", Api.LIST_OFFSETS, 1),
    ("0.11", Api.INIT_PRODUCER_ID, 0),
    ("1.0", Api.CREATE_PARTITIONS, 0),
    ("1.1", Api.DESCRIBE_CONFIGS, 1),
    ("2.0", Api.DESCRIBE_ACLS, 1),
    ("2.1", Api.PRODUCE, 7),
    ("2.3", Api.INCREMENTAL_ALTER_CONFIGS, 0),
    ("2.4", Api.CREATE_TOPICS, 5),
    ("2.7", Api.FETCH, 12),
    ("2.8", Api.METADATA, 10),
    ("3.0", Api.LIST_TRANSACTIONS, 0),
    ("3.1", Api.FETCH, 13),
    ("4.0", Api.PRODUCE, 12),
)


def offers(offer: Offer, api: Api, version: int = 0) -> bool:
    """Whether this version of a request is offered, or a later one: new brokers drop the oldest."""
    return offer.ranges.get(api, (0, -1))[1] >= version


def at_least(offer: Offer) -> str:
    """The newest release of which everything is offered: the broker is that old, or somewhat newer."""
    release = "0.10.0"
    for name, api, version in _FIRST_OFFERED:
        if not offers(offer, api, version):
            return release
        release = name
    return release
