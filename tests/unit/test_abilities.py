"""What a cluster cannot do is told by what its brokers offer. The offers are those of real brokers, noted down."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from isthmus.cli.plan import show
from isthmus.engine.abilities import Severity, refuse_blocked, source_lacks, target_lacks
from isthmus.engine.plan import Plan
from isthmus.engine.plan_form import plan_json
from isthmus.errors import TargetError
from isthmus.model import Cluster, Flow, Sync
from isthmus.wire.apis import Api, at_least
from isthmus.wire.link import Offer

FLOW = Flow(
    source=Cluster(alias="s", bootstrap=("s:1",)),
    target=Cluster(alias="t", bootstrap=("t:1",)),
    replication_factor=1,
    internal_replication_factor=1,
)


def offer(newest: dict[Api, int]) -> Offer:
    return Offer({int(api): (0, version) for api, version in newest.items()}, {})


V0_10_2 = offer({Api.PRODUCE: 2, Api.FETCH: 3, Api.LIST_OFFSETS: 1, Api.METADATA: 2, Api.CREATE_TOPICS: 1})
V0_11 = offer(
    {
        Api.PRODUCE: 3,
        Api.FETCH: 5,
        Api.LIST_OFFSETS: 2,
        Api.METADATA: 4,
        Api.CREATE_TOPICS: 2,
        Api.INIT_PRODUCER_ID: 0,
        Api.DESCRIBE_ACLS: 0,
        Api.DESCRIBE_CONFIGS: 0,
    }
)
V1_1 = offer(
    {
        Api.PRODUCE: 5,
        Api.FETCH: 7,
        Api.LIST_OFFSETS: 2,
        Api.METADATA: 5,
        Api.CREATE_TOPICS: 2,
        Api.INIT_PRODUCER_ID: 0,
        Api.DESCRIBE_ACLS: 0,
        Api.DESCRIBE_CONFIGS: 1,
        Api.CREATE_PARTITIONS: 0,
    }
)
V3_9 = offer(
    {
        Api.PRODUCE: 11,
        Api.FETCH: 17,
        Api.LIST_OFFSETS: 9,
        Api.METADATA: 12,
        Api.CREATE_TOPICS: 7,
        Api.INIT_PRODUCER_ID: 5,
        Api.DESCRIBE_ACLS: 3,
        Api.DESCRIBE_CONFIGS: 4,
        Api.CREATE_PARTITIONS: 3,
        Api.INCREMENTAL_ALTER_CONFIGS: 1,
        Api.LIST_TRANSACTIONS: 1,
    }
)


@pytest.mark.parametrize(("found", "release"), [(V0_10_2, "0.10.1"), (V0_11, "0.11"), (V1_1, "1.1"), (V3_9, "3.1")])
def test_a_release_is_told_by_what_it_offers(found: Offer, release: str) -> None:
    assert at_least(found) == release


def test_a_new_cluster_lacks_nothing() -> None:
    flow = dataclasses.replace(FLOW, sync=Sync(acls=True), replication_factor=-1)
    assert source_lacks(V3_9, flow) == target_lacks(V3_9, flow) == ()


def test_a_target_without_transactions_is_refused_with_what_to_do() -> None:
    findings = target_lacks(V0_10_2, FLOW)
    with pytest.raises(TargetError) as caught:
        refuse_blocked(findings)
    assert caught.value.code == "NO_TRANSACTIONS"
    assert "upgrade" in caught.value.hint
    assert "cluster t" in caught.value.where


def test_a_source_of_that_age_is_told_and_not_refused() -> None:
    findings = source_lacks(V0_10_2, FLOW)
    refuse_blocked(findings)
    assert {each.code for each in findings} >= {"OLD_FORMAT", "NO_TOPIC_IDS", "NO_SETTINGS"}


def test_only_what_the_flow_asks_for_is_told() -> None:
    plain = dataclasses.replace(FLOW, sync=Sync(configs=False), compression="lz4")
    assert {each.code for each in target_lacks(V1_1, plain)} == {"NO_TOPIC_IDS", "NO_LIST_OF_TRANSACTIONS"}
    asking = dataclasses.replace(FLOW, replication_factor=-1)
    told = {each.code: each.severity for each in target_lacks(V1_1, asking)}
    assert told["NO_DEFAULT_REPLICAS"] is Severity.blocks
    assert told["NO_SETTING_CHANGES"] is told["NO_ZSTD"] is Severity.limits


def test_a_finding_names_its_cluster_and_the_release_that_would_do() -> None:
    (told,) = (str(each) for each in source_lacks(V0_11, FLOW) if each.code == "NO_TOPIC_IDS")
    assert told.startswith("source s: ")
    assert "came with 2.8" in told
    assert "about 0.11" in told


def test_a_plan_shows_them_in_words_and_plan_json() -> None:
    plan = Plan(flow=FLOW.name, source="s", target="t", skipped={}, lacks=target_lacks(V0_10_2, FLOW))
    out = io.StringIO()
    show(plan, Console(width=400, file=out))
    text = out.getvalue()
    assert "blocks: target t: it has no transactions" in text
    assert "limits: target t: it does not know zstd" in text
    blocked = {"cluster": "t", "severity": "blocks", "code": "NO_TRANSACTIONS"}
    assert blocked.items() <= plan_json(plan)["lacks"][0].items()
