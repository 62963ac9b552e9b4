"""Names on the target, internal topics and circles: as MirrorMaker 2 decides them."""

from __future__ import annotations

import pytest

from isthmus.mm2 import policy
from isthmus.model import Cluster, Flow, Naming

EAST = Cluster(alias="east", bootstrap=("e:9092",))
WEST = Cluster(alias="west", bootstrap=("w:9092",))
DEFAULT = Naming()
IDENTITY = Naming(policy="identity")


def flow(naming: Naming = DEFAULT) -> Flow:
    return Flow(source=EAST, target=WEST, naming=naming)


def test_the_default_policy_prefixes_with_the_source() -> None:
    assert policy.remote_topic(flow(), "orders") == "east.orders"
    assert policy.remote_topic(flow(Naming(separator="_")), "orders") == "east_orders"


def test_the_identity_policy_keeps_names_except_of_heartbeats() -> None:
    assert policy.remote_topic(flow(IDENTITY), "orders") == "orders"
    assert policy.remote_topic(flow(IDENTITY), "heartbeats") == "east.heartbeats"
    assert policy.remote_topic(flow(IDENTITY), "my-heartbeats") == "east.my-heartbeats"


@pytest.mark.parametrize(
    ("topic", "source", "upstream", "original"),
    [
        ("orders", None, None, "orders"),
        ("east.orders", "east", "orders", "orders"),
        ("west.east.orders", "west", "east.orders", "orders"),
        ("a.", None, None, "a."),  # Java's split drops trailing empty parts
        ("a..", None, None, "a.."),
        ("a..b", "a", ".b", "b"),
        (".b", "", "b", "b"),
    ],
)
def test_prefixes_tell_where_a_topic_came_from(
    topic: str, source: str | None, upstream: str | None, original: str
) -> None:
    assert policy.topic_source(DEFAULT, topic) == source
    assert policy.upstream_topic(DEFAULT, topic) == upstream
    assert policy.original_topic(DEFAULT, topic) == original


def test_identity_names_tell_nothing_of_their_source() -> None:
    assert policy.topic_source(IDENTITY, "east.orders") is None
    assert policy.topic_source(IDENTITY, "east.orders", "east") == "east"
    assert policy.topic_source(IDENTITY, "east.heartbeats") == "east"
    assert policy.original_topic(IDENTITY, "east.orders") == "east.orders"


@pytest.mark.parametrize(
    "topic",
    [
        "__consumer_offsets",
        ".hidden",
        "mm2-offsets.east.internal",
        "mm2-offset-syncs.west.internal",
        "east.checkpoints.internal",
        "connect-configs-internal",
        "isthmus.east.internal",
    ],
)
def test_internal_topics_are_known_by_name(topic: str) -> None:
    assert policy.is_internal(topic)


@pytest.mark.parametrize("topic", ["orders", "internal", "internal.orders", "_schemas", "a_internal"])
def test_other_topics_are_not_internal(topic: str) -> None:
    assert not policy.is_internal(topic)


def test_internal_topics_are_known_under_an_own_separator_too() -> None:
    assert policy.is_internal("mm2-offset-syncs_west_internal", "_")
    assert policy.is_internal("mm2-offsets.east.internal", "_")


@pytest.mark.parametrize("topic", ["west.orders", "north.west.orders", "west.west.orders"])
def test_a_topic_that_passed_the_target_is_a_cycle(topic: str) -> None:
    assert policy.is_cycle(flow(), topic)


@pytest.mark.parametrize("topic", ["orders", "north.orders", "east.orders", "west", "orders.west"])
def test_a_topic_that_never_passed_the_target_is_no_cycle(topic: str) -> None:
    assert not policy.is_cycle(flow(), topic)


def test_identity_cannot_see_cycles_except_of_heartbeats() -> None:
    assert not policy.is_cycle(flow(IDENTITY), "west.orders")
    assert policy.is_cycle(flow(IDENTITY), "west.heartbeats")


def test_heartbeats_are_known_at_any_hop() -> None:
    assert policy.is_heartbeats(DEFAULT, "heartbeats")
    assert policy.is_heartbeats(DEFAULT, "north.east.heartbeats")
    assert not policy.is_heartbeats(DEFAULT, "my-heartbeats")
