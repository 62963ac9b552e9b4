"""What a flow keeps in step beside records: settings of topics, access rules, heartbeats; and the plan of all that.

Judged by librdkafka, and by MirrorMaker 2's own client.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.crossing import Crossing, cross, flow_between
from tests.integration.command import called, topics_of, yaml_file
from tests.integration.java import kafka_java, mirror_answers
from tests.integration.sources import (
    PATIENCE_S,
    Pair,
    add_partitions,
    admin,
    alter,
    beats,
    own_settings,
    partition_count,
    wait_until,
)

from isthmus.engine.plan import Plan, make_plan
from isthmus.errors import TargetError
from isthmus.lab import Lab
from isthmus.model import Flow, Mm2Topics, Sync

pytestmark = pytest.mark.integration

FOLLOWING = Sync(configs_seconds=0.5)
BEATING = Mm2Topics(heartbeat_seconds=0.2)


# ---- settings ----------------------------------------------------------------------------------


def test_settings_follow_the_source_while_the_flow_runs_but_not_the_excluded_ones(pair: Pair) -> None:
    topic = pair.topic("follows", settings={"segment.ms": "7000000"})
    pair.write(topic, 10)
    west, remote = pair.target.bootstrap, pair.remote(topic)
    with Crossing(pair.flow(sync=FOLLOWING)) as crossing:
        crossing.until_copied(10)
        assert own_settings(west, remote) == {"retention.ms": "-1", "segment.ms": "7000000"}
        alter(pair.source.bootstrap, topic, min_insync_replicas="2", segment_ms="8000000", max_message_bytes="2000000")
        changed = {"retention.ms": "-1", "segment.ms": "8000000", "max.message.bytes": "2000000"}
        wait_until(lambda: own_settings(west, remote) == changed, "changed settings")
        _remove(pair.source.bootstrap, topic, "segment.ms")
        left = {"retention.ms": "-1", "max.message.bytes": "2000000"}
        wait_until(lambda: own_settings(west, remote) == left, "a removed setting")
        pair.write(topic, 10, first=10)
        status = crossing.until_copied(20)
    assert any("segment.ms removed (was 8000000)" in event for event in status.events), status.events
    pair.proven(topic, 20)


@pytest.mark.parametrize(("defaults", "left"), [("target", None), ("source", "604800000")])
def test_what_only_the_target_sets_goes_unless_it_is_excluded(pair: Pair, defaults: str, left: str | None) -> None:
    topic = pair.topic("default")
    pair.write(topic, 10)
    own = {"segment.ms": "7000000", "min.insync.replicas": "1", "retention.ms": "-1"}
    pair.target.create_topic(pair.remote(topic), configs=own)

    cross(pair.flow(sync=dataclasses.replace(FOLLOWING, defaults_from=defaults)))

    kept = {"min.insync.replicas": "1", "retention.ms": "-1"}
    expected = kept if left is None else kept | {"segment.ms": left}
    assert own_settings(pair.target.bootstrap, pair.remote(topic)) == expected
    pair.proven(topic, 10)


def _remove(bootstrap: str, topic: str, name: str) -> None:
    entry = ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin(bootstrap).incremental_alter_configs([resource]).values():
        future.result(PATIENCE_S)


# ---- the plan ----------------------------------------------------------------------------------


def test_a_plan_changes_nothing_and_a_run_does_what_it_said(pair: Pair) -> None:
    flow = pair.flow(sync=FOLLOWING, mm2_topics=Mm2Topics(offset_syncs_on="target"))
    new = pair.topic("new", partitions=3, settings={"segment.ms": "7000000", "min.insync.replicas": "1"})
    grown, altered = pair.topic("grown"), pair.topic("altered")
    for topic in (grown, altered):
        pair.target.create_topic(pair.remote(topic), configs={"retention.ms": "5"})
    add_partitions(pair.source.bootstrap, grown, 4)
    pair.write(new, 30, partitions=3)
    before = _state(pair, grown, altered)

    plan = _plan(flow)

    assert _state(pair, grown, altered) == before
    assert {t.name for t in plan.create} - {f"{pair.alias}.heartbeats"} == {pair.remote(new)}
    created = next(t for t in plan.create if t.name == pair.remote(new))
    assert (created.partitions, created.configs) == (3, {"retention.ms": "-1", "segment.ms": "7000000"})
    assert [(g.target, g.before, g.partitions) for g in plan.grow] == [(pair.remote(grown), 1, 4)]
    assert {(c.topic, c.name, c.old, c.new) for c in plan.alter} == {
        (pair.remote(topic), "retention.ms", "5", "-1") for topic in (grown, altered)
    }
    assert {t.topic.name for t in plan.internal} >= {
        flow.progress_topic,
        flow.control_topic,
        f"mm2-offset-syncs.{pair.alias}.internal",
        f"{pair.alias}.checkpoints.internal",
    }
    assert plan.problems == ()

    ended = cross(flow)

    assert any(plan.summary() in event for event in ended.events), ended.events
    assert own_settings(pair.target.bootstrap, pair.remote(new)) == created.configs
    assert partition_count(pair.target.bootstrap, pair.remote(grown)) == 4
    for topic in (grown, altered):
        assert own_settings(pair.target.bootstrap, pair.remote(topic)) == {"retention.ms": "-1"}
    assert {t.topic.name for t in plan.internal if t.on == "target"} <= topics_of(pair.target.bootstrap)
    after = _plan(flow)
    assert after.changes_nothing, after
    begins = {start.topic: start.positions for start in after.starts}
    assert begins[new] == {0: 10, 1: 10, 2: 10}
    pair.proven(new, 30)


def test_the_plan_command_says_what_is_skipped_and_why(pair: Pair, tmp_path: Path) -> None:
    topic = pair.topic("orders", partitions=2)
    pair.topic("other")
    file = yaml_file(tmp_path, pair.source.bootstrap, pair.target.bootstrap, alias=pair.alias, topics=[topic])
    ended = called("plan", file, "-o", "json")
    assert ended.code == 0, ended
    (plan,) = json.loads(ended.out)
    (created,) = [t for t in plan["create"] if not t["topic"].endswith("heartbeats")]
    assert created == {
        "topic": pair.remote(topic),
        "partitions": 2,
        "replication_factor": -1,
        "settings": {"retention.ms": "-1"},
    }
    assert f"{pair.prefix}-other" in plan["skipped"]["not matched"]
    assert pair.remote(topic) not in topics_of(pair.target.bootstrap)

    ended = called("plan", file)

    assert ended.code == 0, ended
    assert "plan: create" in ended.out
    assert "skipped, not matched: " in ended.out


def _plan(flow: Flow) -> Plan:
    return asyncio.run(make_plan(flow))


def _state(pair: Pair, *topics: str) -> object:
    return (
        topics_of(pair.source.bootstrap),
        topics_of(pair.target.bootstrap),
        [own_settings(pair.target.bootstrap, pair.remote(topic)) for topic in topics],
        [partition_count(pair.target.bootstrap, pair.remote(topic)) for topic in topics],
    )


# ---- heartbeats --------------------------------------------------------------------------------


def test_mirrormakers_own_client_sees_the_flow_and_its_heartbeats(pair: Pair) -> None:
    topic = pair.topic("orders")
    pair.write(topic, 10)
    began = int(time.time() * 1000)
    carried = f"{pair.alias}.heartbeats"
    with Crossing(pair.flow(mm2_topics=BEATING)) as crossing:
        crossing.until_copied(13)
    carried_beats = beats(pair.target.bootstrap, carried)
    own = [beat for beat in carried_beats if (beat.source, beat.target) == ("west", pair.alias)]
    assert len(own) >= 2
    assert all(began <= beat.timestamp_ms <= time.time() * 1000 for beat in own)
    there = beats(pair.target.bootstrap, "heartbeats")
    assert (pair.alias, "west") in {(beat.source, beat.target) for beat in there}
    assert own_settings(pair.target.bootstrap, carried) == {"cleanup.policy": "compact"}

    with kafka_java() as jvm:
        told = mirror_answers(jvm, pair.target.bootstrap, pair.alias)

    remote = {f"SOURCE.{topic}", "SOURCE.heartbeats"}
    assert told == {
        "replicationHops": 1,
        "upstreamClusters": {"SOURCE"},
        "heartbeatTopics": {"SOURCE.heartbeats"},
        "checkpointTopics": {"SOURCE.checkpoints.internal"},
        "remoteTopics": remote,
        "remoteTopics of the source": remote,
    }


# ---- access rules ------------------------------------------------------------------------------


def test_a_cluster_without_an_authorizer_is_told_once(pair: Pair) -> None:
    topic = pair.topic("orders")
    pair.write(topic, 10)
    with Crossing(pair.flow(sync=Sync(configs=False, acls=True, acls_seconds=0.2))) as crossing:
        crossing.until_copied(10)
        time.sleep(1)
        status = crossing.status
    assert status is not None
    (note,) = [event for event in status.events if "access rules" in event]
    assert "SECURITY_DISABLED" in note
    pair.proven(topic, 10)


def test_within_one_cluster_a_flow_does_not_copy_its_own_copies(lab: Lab, topic_name: str) -> None:
    lab["east"].create_topic(topic_name)
    circle = flow_between(lab, f".*{topic_name}", source="east", target="east", alias="self")
    with pytest.raises(TargetError) as refused:
        cross(circle)
    assert refused.value.code == "SAME_CLUSTER"
    assert f"self.{topic_name}" in refused.value.message
    assert f"self.{topic_name}" not in topics_of(lab["east"].bootstrap)
    assert cross(flow_between(lab, topic_name, source="east", target="east", alias="self")).lag == 0
