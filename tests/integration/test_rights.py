"""Clusters that check access: what is missing is named one by one, keeps back what needs it, and nothing else.

Also the copying of access rules. Rules are made by librdkafka; everybody here is User:ANONYMOUS.
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
    ResourcePatternType,
    ResourceType,
)
from tests.crossing import RECORDS_ONLY, Crossing, cross
from tests.integration.command import isthmus, topics_of, yaml_file
from tests.integration.sources import (
    PATIENCE_S,
    START_MS,
    Pair,
    add_partitions,
    admin,
    alter,
    beats,
    codes,
    delete_before,
    forget_clients,
    unique,
    wait_until,
)

from isthmus.engine.checks import Outcome, exit_status
from isthmus.engine.doctor import examine_flow
from isthmus.engine.plan import Plan, make_plan
from isthmus.errors import PartitionStopped, TargetError
from isthmus.lab import ClusterSpec, Lab
from isthmus.lab.brokers import Listener
from isthmus.model import Flow, Sync, Topics

pytestmark = pytest.mark.integration

FOLLOWING = Sync(configs_seconds=0.5)
US = "User:ANONYMOUS"
NO_HOST = "kafka-1.far.invalid"  # a name that never has an address
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
ALL, READ, WRITE = AclOperation.ALL, AclOperation.READ, AclOperation.WRITE
NO_NEW_TOPICS = [
    AclBinding(ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, US, "*", operation, permission)
    for operation, permission in ((ALL, ALLOW), (AclOperation.CREATE, DENY))
]


@pytest.fixture(scope="module", autouse=True)
def _clients() -> Iterator[None]:
    yield
    forget_clients()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Lab]:
    """Two clusters that check access: what no rule is about, everybody may do."""
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    doors = (Listener(), Listener(name="FAR", advertised=NO_HOST))
    with Lab([ClusterSpec(name=name, properties=rules, listeners=doors) for name in ("east", "west")]) as clusters:
        yield clusters


# ---- what is missing -------------------------------------------------------------------------------


@pytest.mark.usefixtures("_topics_again")
def test_missing_rights_are_named_one_by_one_and_keep_back_their_topics_only(guarded: Lab) -> None:
    pair = Pair(guarded)
    east, west = pair.source.bootstrap, pair.target.bootstrap
    unread, unwritten, uncreated, fine = (pair.topic(name) for name in ("unread", "unwritten", "uncreated", "fine"))
    for topic in (unread, unwritten, uncreated, fine):
        pair.write(topic, 10)
    pair.target.create_topic(pair.remote(unwritten))
    _add(east, _acl(unread, US, READ, DENY), _acl(unread, US, AclOperation.DESCRIBE, ALLOW))
    _add(west, _acl(pair.remote(unwritten), US, WRITE, DENY), _acl(pair.remote(unwritten), US, READ, ALLOW))
    _add(west, *NO_NEW_TOPICS, _acl(pair.remote(uncreated), US, AclOperation.CREATE, DENY))
    _add(west, _acl(pair.remote(uncreated), US, WRITE, ALLOW))
    flow, before = pair.flow(on_foreign_write="allow"), topics_of(west)

    plan = _plan(flow)

    lacking = {
        (pair.alias, US, "topic", unread, "READ", "topic"),
        ("west", US, "topic", pair.remote(unwritten), "WRITE", "topic"),
        ("west", US, "topic", pair.remote(uncreated), "CREATE", "topic"),
    }
    assert {(r.cluster, r.principal, r.resource, r.name, r.operation, r.keeps_back) for r in plan.rights} == lacking
    assert topics_of(west) - before <= {"__transaction_state"}

    with Crossing(flow) as crossing:
        crossing.until_copied(10)
        status = crossing.until(lambda now: len(now.stopped) == 3)
        assert codes(status) == {(topic, 0): "RIGHTS" for topic in (unread, unwritten, uncreated)}
        for right in plan.rights:
            (stopped,) = [each for each in status.stopped if each.topic == right.topic]
            assert str(right) in stopped.error
            assert any(f"missing right: {right}" in event for event in status.events), status.events
        assert not topics_of(west) & {pair.remote(unread), pair.remote(uncreated)}
        _forget_rules(east, unread)
        for topic in (unwritten, uncreated):
            _forget_rules(west, pair.remote(topic))
        crossing.until(lambda now: now.records >= 40 and not now.stopped)
    for topic in (unread, unwritten, uncreated, fine):
        pair.proven(topic, 10)


def test_without_what_the_whole_flow_needs_a_run_ends_before_anything_is_created(guarded: Lab) -> None:
    pair = Pair(guarded)
    west, before = pair.target.bootstrap, topics_of(pair.target.bootstrap)
    pair.topic("orders")
    flow = pair.flow()
    ids, literal = ResourceType.TRANSACTIONAL_ID, ResourcePatternType.PREFIXED
    _add(west, AclBinding(ids, f"isthmus.{pair.alias}.", literal, US, "*", WRITE, DENY))
    _add(west, _acl(flow.control_topic, US, READ, DENY), _acl(flow.control_topic, US, WRITE, ALLOW))
    with pytest.raises(TargetError) as caught:
        cross(flow)
    assert caught.value.code == "RIGHTS"
    assert f"READ on topic {flow.control_topic} of cluster west for {US}" in caught.value.message
    assert f"WRITE on transactional id isthmus.{pair.alias}.* (as a prefix) of cluster west" in caught.value.message
    assert topics_of(west) - before <= {"__transaction_state"}


def test_a_topic_that_we_may_not_see_is_not_taken_for_one_that_is_not_there(guarded: Lab) -> None:
    pair = Pair(guarded)
    hidden, seen = pair.topic("hidden"), pair.topic("seen")
    pair.write(seen, 10)
    _add(pair.source.bootstrap, _acl(hidden, US, ALL, DENY))
    status = cross(dataclasses.replace(pair.flow(), topics=Topics(include=(hidden, seen))))
    assert codes(status) == {(hidden, 0): "RIGHTS"}
    assert f"DESCRIBE on topic {hidden} of cluster {pair.alias} for {US}" in status.stopped[0].error
    pair.proven(seen, 10)


def test_a_copy_that_we_may_not_see_any_more_is_not_taken_for_one_that_was_deleted(guarded: Lab) -> None:
    pair = Pair(guarded)
    topic = pair.topic("orders")
    pair.write(topic, 10)
    cross(pair.flow())
    _add(pair.target.bootstrap, _acl(pair.remote(topic), US, ALL, DENY))
    pair.write(topic, 10, first=10)
    assert codes(cross(pair.flow())) == {(topic, 0): "RIGHTS"}
    _forget_rules(pair.target.bootstrap, pair.remote(topic))
    assert codes(cross(pair.flow())) == {}
    pair.proven(topic, 20)


# ---- the doctor --------------------------------------------------------------------------------


def test_the_doctor_names_what_would_go_wrong_and_changes_nothing(guarded: Lab, tmp_path: Path) -> None:
    pair = Pair(guarded)
    east, west = pair.source.bootstrap, pair.target.bootstrap
    topic = pair.topic("orders", partitions=2, settings={"unclean.leader.election.enable": "true"})
    pair.target.create_topic(pair.remote(topic), configs={"min.insync.replicas": "2"})
    _add(west, _acl(pair.remote(topic), US, AclOperation.ALTER, DENY), _acl(pair.remote(topic), US, ALL, ALLOW))
    before = topics_of(east), topics_of(west)
    file = yaml_file(tmp_path, east, west, alias=pair.alias, topics=[topic], lanes=9)

    ended = isthmus("doctor", file, "-o", "json")

    assert ended.code == PartitionStopped.exit_code, ended
    report = json.loads(ended.out)
    assert report["outcome"] == "fail"
    found = {(check["check"], check["about"], check["outcome"]): check["text"] for check in report["checks"]}
    assert "PySpark" in found["spark", "--master local[*]", "ok"]
    assert "1 of 1 answer" in found["brokers", "west", "ok"]
    assert "possible" in found["transactions", "west", "ok"]
    assert f"true for {topic}" in found["source logs", pair.alias, "warn"]
    assert "9 lanes for 2 partitions" in found["lanes", f"{pair.alias}->west", "warn"]
    assert f"{pair.remote(topic)}-0" in found["target topics", "west", "fail"]
    rights = {(r["operation"], r["name"], r["keeps_back"]) for c in report["checks"] if (r := c.get("right"))}
    assert ("ALTER", pair.remote(topic), "partitions") in rights
    assert (topics_of(east), topics_of(west)) == before

    shown = isthmus("doctor", file)
    assert f"missing: ALTER on topic {pair.remote(topic)} of cluster west for {US}" in " ".join(shown.out.split())
    assert "not fit to run as it is" in shown.out


def test_the_doctor_names_a_broker_whose_advertised_name_is_not_known_here(guarded: Lab, tmp_path: Path) -> None:
    pair = Pair(guarded)
    topic = pair.topic("orders")
    far = guarded["west"].bootstrap_of("FAR")
    file = yaml_file(tmp_path, pair.source.bootstrap, far, alias=pair.alias, topics=[topic])
    ended = isthmus("doctor", file, "-o", "json")
    assert ended.code == TargetError.exit_code, ended
    (bad,) = [check for check in ended.json()["checks"] if (check["check"], check["outcome"]) == ("brokers", "fail")]
    port = far.rpartition(":")[2]
    assert f"broker 1 advertises {NO_HOST}:{port}: that name is not known here" in bad["text"]
    assert "advertised.listeners" in bad["hint"]


def test_the_doctor_tells_of_records_that_were_deleted_before_they_were_copied(guarded: Lab) -> None:
    pair = Pair(guarded)
    age_ms = int(time.time() * 1000) - START_MS
    topic = pair.topic("orders", settings={"retention.ms": str(age_ms * 4 // 3)})
    pair.write(topic, 20)
    flow = pair.flow()
    cross(flow)
    pair.write(topic, 20, first=20)
    delete_before(pair.source.bootstrap, topic, {0: 30})
    checks = asyncio.run(examine_flow(flow))
    (gap,) = [check for check in checks if "deleted before they were copied" in check.text]
    assert (gap.outcome, gap.exit_code) == (Outcome.fail, PartitionStopped.exit_code)
    assert f"{topic}-0 20..29" in gap.text
    (late,) = [check for check in checks if "half of the retention is over" in check.text]
    assert f"{topic}-0" in late.text
    checks = asyncio.run(examine_flow(dataclasses.replace(flow, on_gap="skip")))
    assert exit_status(checks) == 0, checks


# ---- copying access rules ----------------------------------------------------------------------


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
        wait_until(lambda: _acls(pair.target.bootstrap, remote) == expected, "access rules on the target", 20)
        _add(pair.source.bootstrap, _acl(topic, bob, AclOperation.DESCRIBE, ALLOW))
        expected.add(_acl(remote, bob, AclOperation.DESCRIBE, ALLOW))
        wait_until(lambda: _acls(pair.target.bootstrap, remote) == expected, "a rule that came later", 10)
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
    assert (pair.alias, "west") in {(b.source, b.target) for b in beats(pair.target.bootstrap, "heartbeats")}
    pair.proven(topic, 10)


@pytest.fixture
def _topics_again(guarded: Lab) -> Iterator[None]:
    """The cluster's own rules would be there for the next test, too."""
    yield
    kind, pattern = ResourceType.BROKER, ResourcePatternType.LITERAL
    rules = AclBindingFilter(kind, None, pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)
    for name in ("east", "west"):
        for future in admin(guarded[name].bootstrap).delete_acls([rules]).values():
            future.result(PATIENCE_S)


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


def _plan(flow: Flow) -> Plan:
    return asyncio.run(make_plan(flow))
