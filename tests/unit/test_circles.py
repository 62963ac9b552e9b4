"""Flows that lead back: what each leaves out, and which topologies are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.config.load import Loaded, load
from isthmus.engine.wishes import fixed_differences
from isthmus.errors import ConfigError
from isthmus.model import Cut, Flow, Topics


def loaded(tmp_path: Path, *ends: str, naming: str = "identity", **topics: str) -> Loaded:
    """Flows such as `a->b`; topics by flow, as `ab`."""
    clusters = sorted({alias for pair in ends for alias in pair.split("->")})
    lines = ["clusters:", *(f"  {alias}: {{bootstrap: '{alias}:1'}}" for alias in clusters), "flows:"]
    for pair in ends:
        source, target = pair.split("->")
        carried = topics.get(source + target, ".*")
        lines.append(f"  - {{from: {source}, to: {target}, naming: {naming}, topics: ['{carried}']}}")
    file = tmp_path / "flows.yaml"
    file.write_text("\n".join(lines))
    return load(file)


def origins(flow: Flow) -> set[str]:
    return {cut.origin for cut in flow.all_cuts}


def test_two_ways_leave_out_what_came_from_the_other(tmp_path: Path) -> None:
    there, back = loaded(tmp_path, "a->b", "b->a").flows
    both = Topics(include=(".*",))
    assert (there.all_cuts, back.all_cuts) == ((Cut(origin="b", brings=both),), (Cut(origin="a", brings=both),))
    assert there.keeps_register and back.keeps_register


def test_names_that_tell_their_source_need_no_cut(tmp_path: Path) -> None:
    for flow in loaded(tmp_path, "a->b", "b->a", "b->c", "c->a", naming="default").flows:
        assert not flow.all_cuts
        assert not flow.keeps_register


def test_exact_names_that_lead_back_are_cut(tmp_path: Path) -> None:
    file = tmp_path / "flows.yaml"
    file.write_text(
        "clusters: {a: {bootstrap: 'a:1'}, b: {bootstrap: 'b:1'}}\nflows:\n"
        "  - {from: a, to: b, topics: orders, naming: {policy: rename, exact: {orders: sales}}}\n"
        "  - {from: b, to: a, topics: sales, naming: {policy: rename, exact: {sales: orders}}}\n"
    )
    result = load(file)
    assert [origins(flow) for flow in result.flows] == [{"b"}, {"a"}]
    assert result.warnings == ()


def test_mirrormakers_identity_policy_in_both_directions_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = a, b\na.bootstrap.servers = a:1\nb.bootstrap.servers = b:1\na->b.enabled = true\n"
        "b->a.enabled = true\nreplication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
    )
    assert [origins(flow) for flow in load(file).flows] == [{"b"}, {"a"}]


def test_a_chain_carries_everything_on(tmp_path: Path) -> None:
    first, second = loaded(tmp_path, "a->b", "b->c").flows
    assert not first.all_cuts and not second.all_cuts
    both_ways = loaded(tmp_path, "a->b", "b->a", "b->c", "c->b").flows
    assert [origins(flow) for flow in both_ways] == [{"b"}, {"a"}, {"c"}, {"b"}]


def test_in_a_full_mesh_each_flow_carries_only_what_was_written_at_its_source(tmp_path: Path) -> None:
    mesh = ("a->b", "b->a", "a->c", "c->a", "b->c", "c->b")
    for flow in loaded(tmp_path, *mesh).flows:
        assert origins(flow) == {"a", "b", "c"} - {flow.source.alias}


def test_a_direct_flow_cuts_only_the_topics_that_it_carries(tmp_path: Path) -> None:
    flows = loaded(tmp_path, "a->b", "b->c", "a->c", ac="orders").flows
    assert flows[1].all_cuts == (Cut(origin="a", topics=Topics(include=("orders",)), brings=Topics()),)


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        (("a->b", "b->c", "c->a"), "would go round: a->b->c->a"),
        (("a->b", "b->c", "c->d", "d->a"), "would go round: a->b->c->d->a"),
        (("a->b", "a->c", "b->d", "c->d"), "would arrive twice: a->b->d and a->c->d"),
        (("a->b", "b->a", "b->c", "c->b", "c->d", "d->c", "d->a", "a->d"), "would arrive twice"),
    ],
)
def test_rings_and_two_ways_of_equal_right_are_refused(tmp_path: Path, ends: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        loaded(tmp_path, *ends)
    assert caught.value.hint


@pytest.mark.parametrize("pattern", ["orders", "orders.*", "(orders|sales)-[0-9]+", "(?i)shop\\..*"])
def test_a_ring_is_seen_whatever_its_patterns(tmp_path: Path, pattern: str) -> None:
    same = dict.fromkeys(("ab", "bc", "ca"), pattern)
    with pytest.raises(ConfigError, match="would go round"):
        loaded(tmp_path, "a->b", "b->c", "c->a", **same)


def test_flows_in_a_ring_with_topics_of_their_own_are_no_ring(tmp_path: Path) -> None:
    assert len(loaded(tmp_path, "a->b", "b->c", "c->a", ab="x", bc="y", ca="z").flows) == 3


def test_flows_in_other_files_are_named_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "flows.yaml"
    file.write_text(
        "clusters: {a: {bootstrap: 'a:1'}, b: {bootstrap: 'b:1'}}\nflows:\n"
        "  - {from: a, to: b, naming: identity, cut_from: 'b, c'}\n"
    )
    (flow,) = load(file).flows
    assert flow.cut_from == ("b", "c")
    assert origins(flow) == {"b", "c"}


def test_group_offsets_of_topics_that_are_written_on_both_sides_are_doubted(tmp_path: Path) -> None:
    file = tmp_path / "flows.yaml"
    flow = "naming: identity, mm2_topics: {group_offsets: true}"
    file.write_text(
        "clusters: {a: {bootstrap: 'a:1'}, b: {bootstrap: 'b:1'}}\nflows:\n"
        f"  - {{from: a, to: b, {flow}}}\n  - {{from: b, to: a, naming: identity}}\n"
    )
    (warning,) = load(file).warnings
    assert warning.startswith("flows.yaml:3: flow a->b: topics are written on both sides")


def test_topics_of_the_flow_back_may_change_while_both_run(tmp_path: Path) -> None:
    before = loaded(tmp_path, "a->b", "b->a", ba="x").flows[0]
    after = loaded(tmp_path, "a->b", "b->a", ba="y").flows[0]
    alone = loaded(tmp_path, "a->b").flows[0]
    assert before.cuts != after.cuts
    assert fixed_differences(before, after) == []
    assert fixed_differences(alone, after) == ["flows that lead back"]
