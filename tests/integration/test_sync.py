"""What a flow keeps in step beside records: settings of topics, access rules, heartbeats; and the plan of all that.

Judged by librdkafka, and by MirrorMaker 2's own client.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from tests.crossing import RECORDS_ONLY, Crossing, cross
from tests.integration.command import called, topics_of, yaml_file
from tests.integration.java import kafka_java
from tests.integration.sources import (
    PATIENCE_S,
    Pair,
    add_partitions,
    admin,
    alter,
    codes,
    own_settings,
    partition_count,
    read,
    unique,
    wait_until,
)

from isthmus.engine.plan import Plan, make_plan
from isthmus.lab import ClusterSpec, Lab
from isthmus.mm2.formats import Heartbeat
from isthmus.model import Flow, Mm2Topics, Sync

pytestmark = pytest.mark.integration

FOLLOWING = Sync(configs_seconds=0.5)
BEATING = Mm2Topics(heartbeat_seconds=0.2)
US = "User:ANONYMOUS"
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
ALL, READ, WRITE = AclOperation.ALL, AclOperation.READ, AclOperation.WRITE
NO_NEW_TOPICS = [
    AclBinding(ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, US, "*", operation, permission)
    for operation, permission in ((ALL, ALLOW), (AclOperation.CREATE, DENY))
]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Lab]:
    """Two clusters that check access: what no rule is about, everybody may do."""
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Lab([ClusterSpec(name=name, properties=rules) for name in ("east", "west")]) as clusters:
        yield clusters


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


def test_mirrormakers_own_client_sees_the_flow_by_its_heartbeats(pair: Pair) -> None:
    topic = pair.topic("orders")
    pair.write(topic, 10)
    began = int(time.time() * 1000)
    carried = f"{pair.alias}.heartbeats"
    with Crossing(pair.flow(mm2_topics=BEATING)) as crossing:
        crossing.until_copied(13)
    beats = _beats(pair.target.bootstrap, carried)
    own = [beat for beat in beats if (beat.source, beat.target) == ("west", pair.alias)]
    assert len(own) >= 2
    assert all(began <= beat.timestamp_ms <= time.time() * 1000 for beat in own)
    there = _beats(pair.target.bootstrap, "heartbeats")
    assert (pair.alias, "west") in {(beat.source, beat.target) for beat in there}
    assert own_settings(pair.target.bootstrap, carried) == {"cleanup.policy": "compact"}

    hops, upstream = _mirror_client(pair.target.bootstrap, pair.alias)

    assert hops == 1
    assert pair.alias in upstream


@pytest.mark.usefixtures("_topics_again")
def test_a_source_that_we_may_only_read_costs_notes_and_no_record(guarded: Lab) -> None:
    pair = Pair(guarded)
    topic = pair.topic("orders")
    pair.write(topic, 10)
    pair.source.create_topic("heartbeats")
    syncs = "mm2-offset-syncs.west.internal"
    _add(pair.source.bootstrap, _acl("heartbeats", US, WRITE, DENY), _acl("heartbeats", US, READ, ALLOW))
    _add(pair.source.bootstrap, _acl(syncs, US, AclOperation.CREATE, DENY), *NO_NEW_TOPICS)
    kept = dataclasses.replace(RECORDS_ONLY, heartbeats=True, offset_syncs=True, heartbeat_seconds=0.2)
    with Crossing(pair.flow(mm2_topics=kept)) as crossing:
        crossing.until(lambda now: any("no heartbeats into" in event for event in now.events))
        status = crossing.until_copied(10)
        time.sleep(1)
    (no_beats,) = [event for event in status.events if "no heartbeats into" in event]
    assert f"cluster {pair.alias}" in no_beats
    assert "TOPIC_AUTHORIZATION_FAILED" in no_beats
    (no_syncs,) = [event for event in status.events if f"{syncs} cannot be created" in event]
    assert f"cluster {pair.alias}" in no_syncs
    assert (pair.alias, "west") in {(b.source, b.target) for b in _beats(pair.target.bootstrap, "heartbeats")}
    pair.proven(topic, 10)


@pytest.fixture
def _topics_again(guarded: Lab) -> Iterator[None]:
    """The cluster's own rules would be there for the next test, too."""
    yield
    kind, pattern = ResourceType.BROKER, ResourcePatternType.LITERAL
    rules = AclBindingFilter(kind, None, pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)
    for future in admin(guarded["east"].bootstrap).delete_acls([rules]).values():
        future.result(PATIENCE_S)


def _beats(bootstrap: str, topic: str) -> list[Heartbeat]:
    found = [Heartbeat.decode(key or b"", value or b"") for _, key, value in read(bootstrap, topic)]
    assert None not in found
    return [beat for beat in found if beat is not None]


def _mirror_client(bootstrap: str, upstream: str) -> tuple[int, set[str]]:
    """Hops and upstream clusters, as MirrorMaker 2's own MirrorClient tells them."""
    with kafka_java() as jvm:
        client = jvm.org.apache.kafka.connect.mirror.MirrorClient({"bootstrap.servers": bootstrap})
        try:
            return client.replicationHops(upstream), set(client.upstreamClusters())
        finally:
            client.close()


# ---- access rules ------------------------------------------------------------------------------


def test_access_rules_are_added_by_mirrormakers_rules(guarded: Lab) -> None:
    pair = Pair(guarded)
    _let_us_work(pair)
    topic, other = pair.topic("orders"), unique("other")
    ada, bob = unique("User:ada"), unique("User:bob")
    _add(pair.source.bootstrap, _acl(topic, ada, ALL, ALLOW), _acl(topic, bob, WRITE, ALLOW))
    _add(pair.source.bootstrap, _acl(topic, bob, WRITE, DENY), _acl(other, bob, READ, ALLOW))
    flow = pair.flow(sync=Sync(configs=False, acls=True, acls_seconds=0.5))
    remote = pair.remote(topic)
    expected = {_acl(remote, ada, READ, ALLOW), _acl(remote, bob, WRITE, DENY)}
    assert len(_plan(flow).acls) == 2
    with Crossing(flow) as crossing:
        wait_until(lambda: _acls(pair.target.bootstrap, remote) == expected, "access rules on the target")
        _add(pair.source.bootstrap, _acl(topic, bob, AclOperation.DESCRIBE, ALLOW))
        expected.add(_acl(remote, bob, AclOperation.DESCRIBE, ALLOW))
        wait_until(lambda: _acls(pair.target.bootstrap, remote) == expected, "a rule that came later")
        assert crossing.error is None
    assert _plan(flow).acls == ()


def test_without_the_right_to_alter_topics_only_that_is_left_undone_until_it_is_granted(guarded: Lab) -> None:
    pair = Pair(guarded)
    _let_us_work(pair)
    topic, other = pair.topic("orders"), pair.topic("other")
    remote, west = pair.remote(topic), pair.target.bootstrap
    pair.write(topic, 10)
    cross(pair.flow())
    _add(west, _acl(remote, US, AclOperation.ALTER, DENY), _acl(remote, US, AclOperation.ALTER_CONFIGS, DENY))
    alter(pair.source.bootstrap, topic, segment_ms="7000000")
    add_partitions(pair.source.bootstrap, topic, 2)
    pair.write(topic, 10, first=10, partitions=2)
    pair.write(other, 10)
    with Crossing(pair.flow(sync=FOLLOWING)) as crossing:
        status = crossing.until_copied(15)
        assert codes(status) == {(topic, 1): "TARGET_REFUSED"}
        (stopped,) = status.stopped
        assert f"grant ALTER on {remote}" in stopped.error
        (note,) = [event for event in status.events if "not taken over" in event]
        assert f"{remote}: segment.ms=7000000" in note
        assert f"grant ALTER_CONFIGS on {remote}" in note
        _forget_rules(west, remote)
        crossing.until(lambda now: now.records >= 20 and not now.stopped)
    pair.proven(topic, 20)


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


def _acl(
    topic: str,
    who: str,
    operation: AclOperation,
    permission: AclPermissionType,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, topic, pattern, who, "*", operation, permission)


def _let_us_work(pair: Pair) -> None:
    """As soon as there is a rule about a topic, what is not allowed is forbidden."""
    prefixed = ResourcePatternType.PREFIXED
    _add(pair.source.bootstrap, _acl(pair.prefix, US, ALL, ALLOW, prefixed))
    _add(pair.target.bootstrap, _acl(pair.alias, US, ALL, ALLOW, prefixed))


def _add(bootstrap: str, *acls: AclBinding) -> None:
    for future in admin(bootstrap).create_acls(list(acls)).values():
        future.result(PATIENCE_S)


def _acls(bootstrap: str, topic: str) -> set[AclBinding]:
    return set(admin(bootstrap).describe_acls(_rules_on(topic)).result(PATIENCE_S))


def _forget_rules(bootstrap: str, topic: str) -> None:
    for future in admin(bootstrap).delete_acls([_rules_on(topic)]).values():
        future.result(PATIENCE_S)


def _rules_on(topic: str) -> AclBindingFilter:
    kind, pattern = ResourceType.TOPIC, ResourcePatternType.LITERAL
    return AclBindingFilter(kind, topic, pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)
