"""Access rules for a flow: expressions as rules can say them, and what is left out because another rule gives it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.engine.grants import Grant, grants
from isthmus.errors import ConfigError
from isthmus.mm2.javaregex import compile_java
from isthmus.mm2.spans import Span, spans
from isthmus.model import Cluster, Flow, Groups, Mm2Topics, Naming, Sync, Topics

BARE = Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=False, checkpoints=False)
FLOW = Flow(
    source=Cluster(alias="us", bootstrap=("a:1", "a:2")),
    target=Cluster(alias="eu", bootstrap=("b:1",)),
    topics=Topics(include=("orders", r"shop\..*")),
    sync=Sync(configs=False),
    mm2_topics=BARE,
    on_foreign_write="allow",
)


@pytest.mark.parametrize(
    ("expressions", "rules"),
    [
        (["orders"], ["orders"]),
        (["shop.orders", r"shop\.bills"], ["shop.orders", "shop.bills"]),
        ([r"shop\..*", "shop.orders"], ["shop.* (as a prefix)"]),
        (["orders-.+"], ["orders-* (as a prefix)"]),
        (["a|b.*"], ["a", "b* (as a prefix)"]),
        (["(a|b)"], ["a", "b"]),
        ([r"\Qa.b+c\E"], ["a.b+c"]),
        (["orders.*", ".*"], ["*"]),
    ],
)
def test_an_expression_is_a_name_or_a_prefix_where_it_can_be(expressions: list[str], rules: list[str]) -> None:
    found = spans(expressions)
    assert [str(span) for span in found] == rules
    assert not any(span.wider for span in found)


@pytest.mark.parametrize(
    ("expression", "rule"),
    [("x(1|2)y", "x* (as a prefix)"), (".*-eu", "*"), ("ab?c", "a* (as a prefix)"), ("a[bc]", "a* (as a prefix)")],
)
def test_a_rule_that_allows_more_than_its_expression_says_so(expression: str, rule: str) -> None:
    (span,) = spans([expression])
    assert (str(span), span.wider) == (rule, True)


@given(st.lists(st.text(alphabet="ab-.*+?|()[]\\", max_size=8), max_size=3), st.text(alphabet="ab-", max_size=6))
def test_no_name_that_an_expression_matches_is_outside_of_its_rules(expressions: list[str], name: str) -> None:
    usable = [text for text in expressions if text and _compiles(text)]
    if any(compile_java(text).fullmatch(name) for text in usable) and not _bare_dots(usable):
        assert any(span.holds(name) for span in spans(usable)), (usable, spans(usable))


def _compiles(text: str) -> bool:
    try:
        compile_java(text)
    except ConfigError:
        return False
    return True


def _bare_dots(expressions: list[str]) -> bool:
    """A bare dot is taken as one: the exception that is meant."""
    return any("." in text.replace(r"\.", "").replace(".*", "").replace(".+", "") for text in expressions)


def _rules(flow: Flow, **principals: str) -> set[tuple[str, str, str, str]]:
    return {(g.cluster, g.resource, str(g.span), g.operation) for g in grants([flow], principals)}


def test_the_list_of_a_bare_flow_is_complete_and_holds_no_more() -> None:
    own = ("mm2-isthmus.us.internal", "mm2-offsets.us.internal")
    assert _rules(FLOW) == {
        *(("us", "topic", name, "READ") for name in ("orders", "shop.* (as a prefix)")),
        *(
            ("eu", "topic", name, operation)
            for name in ("us.orders", "us.shop.* (as a prefix)")
            for operation in ("WRITE", "CREATE", "ALTER")
        ),
        *(("eu", "topic", name, operation) for name in own for operation in ("WRITE", "READ", "CREATE")),
        ("eu", "transactional id", "isthmus.us.* (as a prefix)", "WRITE"),
    }


def test_groups_are_asked_for_by_what_is_done_with_them() -> None:
    groups = Groups(include=("app-.*",))
    followed = dataclasses.replace(FLOW, groups=groups, mm2_topics=dataclasses.replace(BARE, checkpoints=True))
    written = dataclasses.replace(followed, mm2_topics=dataclasses.replace(BARE, group_offsets=True))
    seen = {rule for rule in _rules(followed) if rule[1] == "group"}
    assert seen == {("us", "group", "app-* (as a prefix)", "DESCRIBE")}
    assert {rule for rule in _rules(written) if rule[1] == "group"} - seen == {
        ("eu", "group", "app-* (as a prefix)", "READ")
    }
    assert ("eu", "topic", "us.orders", "READ") in _rules(followed) - _rules(FLOW)
    guarded = dataclasses.replace(FLOW, on_foreign_write="stop")
    assert {rule[-1] for rule in _rules(guarded) - _rules(FLOW)} == {"READ"}, "to see who else writes there"


def test_copies_are_called_as_the_policy_says() -> None:
    def copies(naming: Naming, *topics: str) -> set[str]:
        flow = dataclasses.replace(FLOW, naming=naming, topics=Topics(include=topics))
        return {name for cluster, _, name, operation in _rules(flow) if (cluster, operation) == ("eu", "ALTER")}

    assert copies(Naming(policy="identity"), "orders", "a.*") == {"orders", "a* (as a prefix)"}
    assert copies(Naming(policy="rename", prefix="x-"), "orders", ".*") == {"x-* (as a prefix)"}
    exact = Naming(policy="rename", prefix="x-", exact=(("apples", "fruit"),))
    assert copies(exact, "a.*") == {"x-a* (as a prefix)", "fruit"}
    assert copies(Naming(), ".*") == {"us.* (as a prefix)"}


def test_whom_brokers_take_us_for_is_told_by_the_option_or_the_file_and_else_asked_for() -> None:
    keyed = {"security.protocol": "SSL", "ssl.keystore.location": "k"}
    flow = dataclasses.replace(FLOW, target=dataclasses.replace(FLOW.target, settings=keyed))
    with pytest.raises(ConfigError, match="the user of the client certificate") as caught:
        grants([flow], {})
    assert caught.value.code == "PRINCIPAL"
    found = grants([flow], {"eu": "User:CN=isthmus"})
    assert {(g.cluster, g.principal) for g in found} == {("us", "User:ANONYMOUS"), ("eu", "User:CN=isthmus")}


def test_a_right_that_another_rule_gives_is_not_listed_twice() -> None:
    def grant(span: Span, operation: str) -> Grant:
        return Grant("us", "a:1", "User:x", "topic", span, operation, "")

    every, one = Span("literal", "*"), Span("literal", "orders")
    assert grant(every, "READ").covers(grant(one, "DESCRIBE"))
    assert not grant(one, "READ").covers(grant(every, "READ"))
    assert not grant(every, "DESCRIBE").covers(grant(one, "READ"))
