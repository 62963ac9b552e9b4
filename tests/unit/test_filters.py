"""Which topics a flow carries, and Java's regular expressions in Python."""

from __future__ import annotations

import dataclasses

import pytest

from isthmus.errors import ConfigError
from isthmus.mm2.filters import ConfigFilter, GroupFilter, TopicFilter, choose, split_list, why_not
from isthmus.mm2.javaregex import compile_java
from isthmus.model import Cluster, Flow, Groups, Mm2Topics, Naming, Sync, Topics

EAST = Cluster(alias="east", bootstrap=("e:9092",))
WEST = Cluster(alias="west", bootstrap=("w:9092",))


def test_a_comma_list_is_trimmed_and_blanks_are_dropped() -> None:
    assert split_list(" a , b.* ,, c") == ("a", "b.*", "c")
    assert split_list("  ") == ()


def test_a_pattern_must_match_in_full() -> None:
    wanted = TopicFilter(("orders", "inv.*"))
    assert wanted.matches("orders")
    assert wanted.matches("invoices")
    assert not wanted.matches("orders2")
    assert not wanted.matches("my-orders")


def test_an_alternation_is_matched_in_full_on_both_sides() -> None:
    assert not TopicFilter(("a|b",)).matches("ab")
    assert TopicFilter(("a|bc",)).matches("bc")


def test_excludes_win() -> None:
    assert not TopicFilter((".*",), ("secret.*",)).matches("secret-orders")


def test_a_blank_list_matches_nothing() -> None:
    assert not TopicFilter(()).matches("orders")
    assert not TopicFilter(()).matches("")


def test_a_flow_never_carries_internal_topics_nor_circles_whatever_it_asks_for() -> None:
    flow = Flow(source=EAST, target=WEST, topics=Topics(include=(".*",), exclude=()))
    there = [
        "orders",
        "b",
        "__consumer_offsets",
        flow.control_topic,
        flow.progress_topic,
        "west.orders",
        "x-internal",
    ]
    assert choose(flow, there) == ["b", "orders"]


@pytest.mark.parametrize("naming", [Naming(), Naming(policy="identity"), Naming(policy="rename", prefix="x-")])
def test_a_flow_back_does_not_take_dead_letters_along(naming: Naming) -> None:
    there = Flow(source=EAST, target=WEST)
    back = Flow(source=WEST, target=EAST, naming=naming, topics=Topics(include=(".*",), exclude=()))
    assert choose(back, [there.dead_letter_topic, "orders"]) == ["orders"]
    assert why_not(back, [there.dead_letter_topic]) == {there.dead_letter_topic: "internal"}


def test_a_flow_carries_what_came_from_elsewhere() -> None:
    flow = Flow(source=EAST, target=WEST)
    assert choose(flow, ["north.orders", "old.replica"]) == ["north.orders"]


def test_heartbeats_go_along_whatever_the_patterns_say_unless_switched_off_or_in_a_circle() -> None:
    there = ["orders", "heartbeats", "north.heartbeats", "west.heartbeats", "our-heartbeats"]
    flow = Flow(source=EAST, target=WEST, topics=Topics(include=("orders",)))
    assert choose(flow, there) == ["heartbeats", "north.heartbeats", "orders"]
    without = dataclasses.replace(flow, mm2_topics=Mm2Topics(carry_heartbeats=False))
    assert choose(without, there) == ["orders"]


def test_each_topic_that_is_left_out_has_a_reason() -> None:
    flow = Flow(source=EAST, target=WEST, topics=Topics(include=("[a-y_].*",), exclude=("secret.*",)))
    there = ["orders", "zebra", "__consumer_offsets", "west.orders", "secret-orders", "x.internal"]
    assert why_not(flow, there) == {
        "__consumer_offsets": "internal",
        "secret-orders": "excluded",
        "west.orders": "cycle",
        "x.internal": "internal",
        "zebra": "not matched",
    }


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"\Qa.b\E.*", "a.bc", "axbc"),
        (r"\Qa.b", "a.b", "axb"),
        (r"\p{Alpha}+", "orders", "orders1"),
        (r"[\p{Lower}_]+", "a_b", "A_b"),
        (r"\P{Digit}+", "a-b", "a1"),
        (r"\p{L}\p{Nd}", "a1", "1a"),
        (r"\pL+", "ab", "a1"),
        (r"a\p{Punct}b", "a-b", "acb"),
        (r"(?<team>[a-z]+)-\k<team>", "ab-ab", "ab-cd"),
        (r"a*+b", "aab", "aa"),
        (r"(?>a|ab)c", "ac", "abc"),
        (r"(?i)orders", "ORDERS", "order"),
        (r"(?!secret).*", "orders", "secret-orders"),
        (r"(?<=x)?a(?<!b)", "a", "b"),
        (r"orders\z", "orders", "order"),
        (r"[|~&]*a", "a", "b"),
        (r"[]a]+", "a", "b"),
        (r"[^\]]+", "ab", "]"),
        (r"a\\.b", "a\\xb", "a.b"),
    ],
)
def test_java_expressions_mean_the_same_here(pattern: str, matching: str, other: str) -> None:
    compiled = compile_java(pattern)
    assert compiled.fullmatch(matching)
    assert not compiled.fullmatch(other)


def test_word_and_digit_classes_are_ascii_as_in_java() -> None:
    assert not compile_java(r"\w").fullmatch("é")
    assert not compile_java(r"\d").fullmatch("٣")


@pytest.mark.parametrize("pattern", [r"[a-z&&[^x]]", r"[a[bc]]", r"\p{IsGreek}", "a[", "(a", r"\hx", r"*", r"(?P<a>x)"])
def test_what_cannot_mean_the_same_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_java(pattern)
    assert f"`{pattern}`" in caught.value.message
    assert caught.value.hint


def test_a_class_that_no_topic_name_can_hold_matches_nothing() -> None:
    assert not compile_java(r"a\p{Space}").fullmatch("a")
    assert not compile_java(r"\p{Blank}").fullmatch("a")


def test_groups_are_chosen_as_topics_are() -> None:
    wanted = GroupFilter(Groups().include, Groups().exclude)
    assert wanted.matches("billing")
    assert wanted.matches("Zahlungen für Öl")
    assert not wanted.matches("console-consumer-12")
    assert not wanted.matches("connect-x")
    assert not GroupFilter(()).matches("billing")
    assert not GroupFilter((".*",)).matches("a\u2028b")  # Java's `.` stops at each of its line ends
    assert GroupFilter(("[.]x",)).matches(".x")


def test_a_class_of_all_letters_is_refused_where_any_letter_may_come() -> None:
    with pytest.raises(ConfigError, match="any letter may come"):
        GroupFilter((r"\p{L}+",))
    assert GroupFilter((r"\p{Alpha}+",)).matches("abc")


def test_settings_are_kept_in_step_unless_excluded() -> None:
    kept = ConfigFilter(Sync().config_exclude)
    assert kept.matches("retention.ms")
    assert not kept.matches("min.insync.replicas")
    assert ConfigFilter(()).matches("min.insync.replicas")
    assert not ConfigFilter((r"min\..*",)).matches("min.insync.replicas")
