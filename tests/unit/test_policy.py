"""Names on the target, internal topics and circles: as MirrorMaker 2 decides them."""

from __future__ import annotations

import pytest

from isthmus.mm2 import policy
from isthmus.model import Cluster, Flow, Mm2Topics, Naming

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
        "mm2-isthmus.east.internal",
        "isthmus.east.dead-letters",
    ],
)
def test_internal_topics_are_known_by_name(topic: str) -> None:
    assert policy.is_internal(topic)


@pytest.mark.parametrize(
    "topic", ["orders", "internal", "internal.orders", "_schemas", "a_internal", "my.dead-letters"]
)
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


COPY = Naming(policy="rename", suffix=".copy")
BOTH = Naming(policy="rename", prefix="a-", suffix="-z", exact=(("orders", "sales"),))


def test_renaming_puts_exact_names_before_prefix_and_suffix() -> None:
    assert policy.remote_topic(flow(COPY), "orders") == "orders.copy"
    assert policy.remote_topic(flow(BOTH), "orders") == "sales"
    assert policy.remote_topic(flow(BOTH), "bills") == "a-bills-z"
    assert policy.remote_topic(flow(COPY), "heartbeats") == "east.heartbeats"


@pytest.mark.parametrize(
    ("naming", "topic", "upstream"),
    [
        (COPY, "orders.copy", "orders"),
        (COPY, "orders", None),
        (COPY, ".copy", None),
        (BOTH, "a-bills-z", "bills"),
        (BOTH, "a-bills", None),
        (BOTH, "bills-z", None),
        (BOTH, "sales", "orders"),
        (Naming(policy="rename", prefix="aba", suffix="ba"), "aba", None),
    ],
)
def test_a_new_name_tells_the_old_one(naming: Naming, topic: str, upstream: str | None) -> None:
    assert policy.upstream_topic(naming, topic) == upstream
    assert policy.original_topic(naming, topic) == (upstream or topic)
    assert policy.topic_source(naming, topic, "east") == ("east" if upstream else None)


def test_what_carries_the_new_name_is_not_carried_again() -> None:
    assert policy.is_cycle(flow(COPY), "orders.copy")
    assert not policy.is_cycle(flow(COPY), "orders")
    assert policy.is_cycle(flow(BOTH), "sales")
    swap = Naming(policy="rename", exact=(("a", "b"), ("b", "a")))
    assert not policy.is_cycle(flow(swap), "a")
    assert policy.original_topic(swap, "a") == "b"
    assert policy.is_cycle(flow(COPY), "west.heartbeats")


def test_mirrormakers_own_topics_have_its_names() -> None:
    plain = flow()
    assert policy.offset_syncs_topic(plain) == "mm2-offset-syncs.west.internal"
    on_target = Flow(source=EAST, target=WEST, mm2_topics=Mm2Topics(offset_syncs_on="target"))
    assert policy.offset_syncs_topic(on_target) == "mm2-offset-syncs.east.internal"
    assert policy.checkpoints_topic(plain) == "east.checkpoints.internal"
    assert policy.checkpoints_topic(flow(Naming(separator="_"))) == "east_checkpoints_internal"
    dotted = flow(Naming(separator="_", internal_separator="."))
    assert policy.checkpoints_topic(dotted) == "east.checkpoints.internal"
    assert policy.heartbeats_topic(dotted) == "east_heartbeats"
