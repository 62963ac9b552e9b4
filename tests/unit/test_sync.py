"""What follows the source and what does not, by MirrorMaker 2's rules."""

from __future__ import annotations

import pytest

from isthmus.engine.sync import Change, SettingRules, missing_acls, remote_acl
from isthmus.model import Sync
from isthmus.wire.access import ALL, ALLOW, DENY, READ, WRITE, TopicAcl
from isthmus.wire.settings import DEFAULT, SET_ON_TOPIC, STATIC_BROKER, Setting

DYNAMIC_BROKER_DEFAULT = 3
RULES = SettingRules(Sync())
SOURCE_RULES = SettingRules(Sync(defaults_from="source"))


def own(value: str) -> Setting:
    return Setting(value, SET_ON_TOPIC)


def default(value: str) -> Setting:
    return Setting(value, DEFAULT)


# ---- settings ----------------------------------------------------------------------------------


def test_what_the_source_sets_is_set_where_the_target_does_not_set_the_same() -> None:
    source = {"retention.ms": own("1"), "segment.ms": own("2"), "max.message.bytes": own("3")}
    target = {"retention.ms": own("1"), "segment.ms": own("9"), "max.message.bytes": default("3")}
    assert RULES.changes("t", source, target) == [
        Change("t", "segment.ms", "9", "2"),
        Change("t", "max.message.bytes", None, "3"),
    ]


def test_what_only_the_target_sets_is_removed() -> None:
    assert RULES.changes("t", {"segment.ms": default("7")}, {"segment.ms": own("9")}) == [
        Change("t", "segment.ms", "9", None)
    ]


def test_other_defaults_of_the_target_are_left_alone() -> None:
    assert RULES.changes("t", {"segment.ms": default("7")}, {"segment.ms": default("8")}) == []


def test_with_the_sources_defaults_its_value_counts_even_where_it_sets_nothing() -> None:
    source = {"a": default("7"), "b": default("7"), "c": default("7")}
    target = {"a": default("8"), "b": own("7"), "c": default("7")}
    assert SOURCE_RULES.changes("t", source, target) == [Change("t", "a", None, "7")]


def test_a_default_that_the_sources_brokers_were_given_at_run_time_counts_as_set() -> None:
    source = {"retention.ms": Setting("5", DYNAMIC_BROKER_DEFAULT)}
    assert RULES.changes("t", source, {"retention.ms": default("6")}) == [Change("t", "retention.ms", None, "5")]


@pytest.mark.parametrize("rules", [RULES, SOURCE_RULES])
@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("min.insync.replicas", own("2")),
        ("message.timestamp.type", own("LogAppendTime")),
        ("message.format.version", own("2.8")),
        ("message.downconversion.enable", own("false")),
        ("retention.ms", Setting("5", STATIC_BROKER)),
        ("retention.ms", Setting("5", SET_ON_TOPIC, read_only=True)),
        ("retention.ms", Setting(None, SET_ON_TOPIC, sensitive=True)),
    ],
)
def test_what_is_the_sources_own_stays_there(rules: SettingRules, name: str, source: Setting) -> None:
    assert rules.changes("t", {name: source}, {name: own("something else")}) == []
    assert rules.at_creation({name: source}, {name: default("something else")}) == {}


def test_names_are_excluded_by_regex_in_full() -> None:
    rules = SettingRules(Sync(config_exclude=(r"retention\..*", "segment")))
    source = {"retention.ms": own("1"), "segment.ms": own("2")}
    target = {"retention.ms": own("8"), "segment.ms": own("9")}
    assert rules.changes("t", source, target) == [Change("t", "segment.ms", "9", "2")]


def test_what_the_target_does_not_know_is_not_sent() -> None:
    assert RULES.changes("t", {"new.in.5.0": own("1")}, {}) == []
    assert RULES.at_creation({"new.in.5.0": own("1")}, {"segment.ms": default("1")}) == {}
    assert RULES.at_creation({"segment.ms": own("1")}, {}) == {"segment.ms": "1"}


def test_a_topic_is_created_with_what_the_source_sets_and_with_other_defaults_where_those_of_the_source_count() -> None:
    source = {"a": own("1"), "b": default("2"), "c": default("3"), "d": default("4")}
    there = {"a": default("0"), "b": default("0"), "c": default("3"), "d": own("0")}
    assert RULES.at_creation(source, there) == {"a": "1"}
    assert SOURCE_RULES.at_creation(source, there) == {"a": "1", "b": "2"}


def test_a_target_that_was_changed_as_told_needs_no_more_changes() -> None:
    source = {"a": own("1"), "b": default("2"), "c": Setting("3", DYNAMIC_BROKER_DEFAULT)}
    for rules, after in (
        (RULES, {"a": own("1"), "b": default("9"), "c": own("3")}),
        (SOURCE_RULES, {"a": own("1"), "b": own("2"), "c": own("3")}),
    ):
        assert rules.changes("t", source, after) == []


def test_a_change_says_what_it_does() -> None:
    assert str(Change("t", "segment.ms", "9", None)) == "t: segment.ms removed (was 9)"
    assert str(Change("t", "segment.ms", "9", "2")) == "t: segment.ms=2 (was 9)"
    assert str(Change("t", "segment.ms", None, "2")) == "t: segment.ms=2"


# ---- access rules ------------------------------------------------------------------------------

PREFIXED = 4
DESCRIBE = 8


def acl(operation: int, permission: int = ALLOW, topic: str = "orders", pattern: int = 3) -> TopicAcl:
    return TopicAcl(topic, "User:ada", "*", operation, permission, pattern)


@pytest.mark.parametrize(
    ("there", "remote"),
    [
        (acl(READ), acl(READ, topic="east.orders")),
        (acl(ALL), acl(READ, topic="east.orders")),
        (acl(WRITE), None),
        (acl(DESCRIBE), acl(DESCRIBE, topic="east.orders")),
        (acl(WRITE, DENY), acl(WRITE, DENY, topic="east.orders")),
        (acl(ALL, DENY), acl(ALL, DENY, topic="east.orders")),
        (acl(READ, pattern=PREFIXED), None),
    ],
)
def test_rules_are_taken_along_as_mirrormaker_does(there: TopicAcl, remote: TopicAcl | None) -> None:
    assert remote_acl(there, "east.orders") == remote


def test_only_rules_that_are_missing_are_added_and_only_of_topics_that_are_carried() -> None:
    source = [acl(READ), acl(ALL), acl(DESCRIBE), acl(READ, topic="other"), acl(READ, topic="*")]
    target = frozenset({acl(DESCRIBE, topic="east.orders"), acl(WRITE, topic="east.orders")})
    assert missing_acls(source, target, {"orders": "east.orders"}) == [acl(READ, topic="east.orders")]


def test_a_rule_reads_as_a_sentence() -> None:
    assert str(acl(READ)) == "ALLOW READ on topic orders for User:ada from *"
