"""`isthmus acls`: clusters that allow nothing but what it lists, and a flow that needs no more and no less.

Brokers check access; whoever comes by the listener in clear is the administrator, users log in by name. Rules are made
by librdkafka from the command's JSON, and by Kafka's own tool from its lines; content is compared by librdkafka.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from tests.crossing import QUICK, RECORDS_ONLY, Crossing, carry, cross
from tests.integration.command import called, topics_of, yaml_file
from tests.integration.grouped import commit
from tests.integration.sources import (
    KEPT,
    PATIENCE_S,
    add_partitions,
    admin,
    alter,
    java_tool,
    numbered,
    own_settings,
    partition_count,
    producer,
    send,
    unique,
    wait_until,
    write,
)
from tests.integration.test_failover import Crash, dying
from tests.integration.world import filled

from isthmus.config.credentials import login
from isthmus.config.load import load
from isthmus.dr import failover
from isthmus.dr.failback import fail_back
from isthmus.dr.failover import fail_over
from isthmus.dr.values import Options
from isthmus.engine.plan import make_plan
from isthmus.engine.rights import Right
from isthmus.lab import ClusterSpec, Lab, LabCluster
from isthmus.lab.brokers import Listener
from isthmus.lab.oracle import compare
from isthmus.model import Cluster, Flow

pytestmark = pytest.mark.integration

USERS = {name: f"{name}-password" for name in ("ada", "bob", "eve")}
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
Rule = dict[str, Any]  # as `isthmus acls -o json` has it


@pytest.fixture(scope="module")
def closed() -> Iterator[Lab]:
    """Two clusters where users may do what a rule allows, and nothing else."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    known = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    doors = {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": f"{module} {known};"}
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    listeners = (Listener(), Listener(name="SASL", protocol="SASL_PLAINTEXT", properties=doors))
    specs = [ClusterSpec(name=name, properties=rules, listeners=listeners) for name in ("east", "west")]
    with Lab(specs) as clusters:
        yield clusters


class Tenant(NamedTuple):
    """A user with a file of its own."""

    user: str
    lab: Lab
    file: Path
    source: str  # aliases
    target: str
    prefix: str  # of topics and groups

    @property
    def flow(self) -> Flow:
        (flow,) = load(self.file).flows
        return dataclasses.replace(flow, tuning=QUICK)

    def rules(self) -> list[Rule]:
        found: list[Rule] = called("acls", self.file, "-o", "json").json()
        return found

    def bootstrap(self, alias: str) -> str:
        """The administrator's way in."""
        return self.lab[{self.source: "east", self.target: "west"}[alias]].bootstrap

    def lacking(self) -> list[Right]:
        return list(asyncio.run(make_plan(self.flow)).rights)


def tenant(lab: Lab, folder: Path, user: str, topics: Sequence[str] = (), **more: object) -> Tenant:
    source, target, prefix = unique(f"{user}-e"), unique(f"{user}-w"), unique(user)
    settings = login("PLAIN", user, USERS[user], tls=False)
    ends = {source: lab["east"], target: lab["west"]}
    clusters = {alias: {"bootstrap": end.bootstrap_of("SASL"), "properties": settings} for alias, end in ends.items()}
    flow = {"from": source, "to": target, "topics": [*topics, f"{prefix}[-.].*"], "groups": [f"{prefix}-.*"], **more}
    file = folder / f"{user}.yaml"  # JSON is YAML
    file.touch(mode=0o600)
    file.write_text(json.dumps({"clusters": clusters, "flows": [flow]}))
    return Tenant(user, lab, file, source, target, prefix)


def binding(rule: Rule) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if rule["pattern"] == "prefixed" else ResourcePatternType.LITERAL
    operation = AclOperation[rule["operation"]]
    kind, who = KINDS[rule["resource"]], rule["principal"]
    return AclBinding(kind, rule["name"], pattern, who, "*", operation, AclPermissionType.ALLOW)


def allow(who: Tenant, rules: Sequence[Rule]) -> None:
    for alias in (who.source, who.target):
        mine = [binding(rule) for rule in rules if rule["cluster"] == alias]
        for future in admin(who.bootstrap(alias)).create_acls(mine).values() if mine else ():
            future.result(PATIENCE_S)


def forbid(who: Tenant, rule: Rule) -> None:
    rows = binding(rule)
    one = AclBindingFilter(
        rows.restype, rows.name, rows.resource_pattern_type, rows.principal, "*", rows.operation, rows.permission_type
    )
    for future in admin(who.bootstrap(rule["cluster"])).delete_acls([one]).values():
        assert len(future.result(PATIENCE_S)) == 1


@pytest.mark.timeout(300)
def test_a_flow_with_all_it_keeps_runs_with_exactly_the_rules_that_are_listed(closed: Lab, tmp_path: Path) -> None:
    named = unique("named")
    kept = {"group_offsets": True, "group_offsets_seconds": 0.5, "checkpoint_seconds": 0.5}
    sync = {"configs_seconds": 0.5, "acls": True}
    ada = tenant(closed, tmp_path, "ada", [named], mm2_topics=kept, sync=sync, on_too_large="dead_letter")
    east, west = closed["east"].bootstrap, closed["west"].bootstrap
    closed["east"].create_topic(named, configs=KEPT)
    write(east, named, numbered(20))
    topics = [*_of_all_kinds(closed["east"], ada.prefix), named]
    group = f"{ada.prefix}-readers"
    commit(east, group, named, {0: 7})
    rules = ada.rules()
    allow(ada, [rule for rule in rules if rule["resource"] != "transactional id"])
    _by_kafkas_own_tool(ada)
    wait_until(lambda: ada.lacking() == [], "every right")
    _each_is_needed(ada, rules)

    with Crossing(ada.flow) as crossing:
        copy = f"{ada.source}.{named}"
        wait_until(
            lambda: len(topics_of(west) & {f"{ada.source}.{topic}" for topic in topics}) == len(topics), "copies"
        )
        alter(east, named, segment_ms="7000000")
        add_partitions(east, named, 2)
        write(east, named, numbered(20, first=20, partitions=2))
        wait_until(lambda: own_settings(west, copy).get("segment.ms") == "7000000", "settings follow", 120)
        wait_until(lambda: partition_count(west, copy) == 2, "partitions follow", 120)
        wait_until(lambda: _next(west, group, copy) == b"v7", "offsets of the group follow", 120)
        for topic in topics:
            crossing.until(lambda _, topic=topic: _is_copied(ada, topic), 60)  # type: ignore[misc]
        status = crossing.until(lambda now: now.records > 0)
        said = [event for event in status.events if "AUTHORIZATION" in event or "right" in event]
        assert (status.stopped, said) == ((), [])

    # The flow is there, and its group too: what is taken away now is told, and the rest goes on.
    (offsets,) = [rule for rule in rules if (rule["cluster"], rule["resource"]) == (ada.target, "group")]
    (reads,) = [rule for rule in rules if (rule["name"], rule["operation"]) == (named, "READ")]
    forbid(ada, offsets)
    forbid(ada, reads)
    wait_until(lambda: len(ada.lacking()) >= 2, "missing rights")
    write(east, topics[0], numbered(10, first=40))
    status = cross(ada.flow)
    assert {(stop.topic, stop.code) for stop in status.stopped} == {(named, "RIGHTS")}
    assert f"READ on topic {named} of cluster {ada.source} for User:ada" in status.stopped[0].error
    wanted = f"missing right: READ on group {group} of cluster {ada.target} for User:ada (write its offsets)"
    assert any(wanted in event for event in status.events), status.events
    assert compare(east, topics[0], west, f"{ada.source}.{topics[0]}").records == 50


@pytest.mark.timeout(300)
def test_everything_that_a_topic_can_hold_crosses_with_exactly_these_rules(closed: Lab, tmp_path: Path) -> None:
    world = filled(closed)
    names = [re.escape(name) for name in world.topics]
    ada = tenant(closed, tmp_path, "ada", names, replication_factor=1, internal_replication_factor=1)
    allow(ada, ada.rules())
    wait_until(lambda: ada.lacking() == [], "every right")

    assert cross(ada.flow).stopped == ()

    for name in world.topics:
        verdict = compare(closed["east"].bootstrap, name, closed["west"].bootstrap, f"{ada.source}.{name}")
        assert verdict.equal, (name, verdict)


def _of_all_kinds(cluster: LabCluster, prefix: str) -> list[str]:
    """Topics with headers; with transactions, one of them aborted; compacted, with tombstones."""
    names = [f"{prefix}-heads", f"{prefix}-paid", f"{prefix}.facts"]
    for name in names:
        settings = KEPT | ({"cleanup.policy": "compact"} if name.endswith("facts") else {})
        cluster.create_topic(name, 1, 1, settings)
    write(cluster.bootstrap, names[0], numbered(40, headers=[("trace", b"1"), ("trace", None)]))
    paid = producer(cluster.bootstrap, transactional_id=unique("paid"))
    for turn in range(3):
        paid.begin_transaction()
        send(paid, names[1], numbered(10, first=10 * turn))
        paid.abort_transaction(PATIENCE_S) if turn == 1 else paid.commit_transaction(PATIENCE_S)
    write(cluster.bootstrap, names[2], [*numbered(10), {"key": b"k1", "value": None}])
    return names


def _is_copied(who: Tenant, topic: str) -> bool:
    return compare(who.bootstrap(who.source), topic, who.bootstrap(who.target), f"{who.source}.{topic}").equal


def _by_kafkas_own_tool(who: Tenant) -> None:
    """The rule on transactional ids, as it is printed; who adds rules comes by the administrator's way."""
    lines = called("acls", who.file, "--commands").out.splitlines()
    (line,) = [line for line in lines if "--transactional-id" in line]
    words = shlex.split(line)
    at = words.index("--command-config")
    del words[at : at + 2]
    words[words.index("--bootstrap-server") + 1] = who.bootstrap(who.target)
    java_tool("org.apache.kafka.tools.AclCommand", *words[1:])


def _each_is_needed(who: Tenant, rules: Sequence[Rule]) -> None:
    """One rule of each kind taken away: a plan names what is missing, and nothing else."""
    kinds = {(rule["cluster"], rule["resource"], rule["operation"]): rule for rule in rules}
    kinds = {kind: rule for kind, rule in kinds.items() if kind[1:] not in LATER}
    for rule in kinds.values():
        forbid(who, rule)
        wait_until(functools.partial(_is_named, who, rule), f"{rule} is missed")
        allow(who, [rule])
        wait_until(lambda: who.lacking() == [], f"{rule} again")


# Used when a copy is there, and has fewer partitions.
LATER = {("topic", "ALTER")}


def _is_named(who: Tenant, rule: Rule) -> bool:
    found = who.lacking()
    about = {(right.cluster, right.resource, right.principal) for right in found}
    operations = {right.operation for right in found}
    return about == {(rule["cluster"], rule["resource"], rule["principal"])} and rule["operation"] in operations


def _next(bootstrap: str, group: str, topic: str) -> bytes | None:
    """The record that the group would read next; None while it has no offset."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(settings)
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        if found.offset < 0:
            return None
        consumer.assign([found])
        message = consumer.poll(30)
        return None if message is None or message.error() else message.value()
    except KafkaException:
        return None  # the cluster has its very first group
    finally:
        consumer.close()


@pytest.mark.timeout(300)
def test_two_tenants_of_one_cluster_cannot_read_each_others_topics(closed: Lab, tmp_path: Path) -> None:
    east, west = closed["east"], closed["west"]
    bob, eve = (tenant(closed, tmp_path, user, mm2_topics={"group_offsets": True}) for user in ("bob", "eve"))
    topics = {who: f"{who.prefix}-orders" for who in (bob, eve)}
    for who, topic in topics.items():
        east.create_topic(topic, configs=KEPT)
        write(east.bootstrap, topic, numbered(30))
        allow(who, who.rules())
        wait_until(lambda who=who: who.lacking() == [], "every right")  # type: ignore[misc]
    with Crossing(bob.flow) as one, Crossing(eve.flow) as other:
        for crossing in (one, other):
            crossing.until(lambda now: now.records >= 30 and not now.stopped, 120)
        for who, topic in topics.items():
            wait_until(functools.partial(_is_copied, who, topic), topic, 120)
    for who, topic in topics.items():
        copy, stranger = f"{who.source}.{topic}", eve if who is bob else bob
        assert compare(east.bootstrap, topic, west.bootstrap, copy).records == 30
        for cluster, name in ((east.bootstrap_of("SASL"), topic), (west.bootstrap_of("SASL"), copy)):
            assert _reads(who, cluster, name) == "v0"
            assert _reads(stranger, cluster, name) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def _reads(who: Tenant, bootstrap: str, topic: str) -> object:
    """The first record that a consumer of this user gets, or the code of the refusal."""
    settings = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": who.user,
        "sasl.password": USERS[who.user],
        "group.id": unique(who.prefix),
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        refused = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].error
        if refused is not None:
            return refused.code()
        consumer.assign([TopicPartition(topic, 0, 0)])
        polled = (consumer.poll(1.0) for _ in range(120))  # it may speak of its group first
        return next(str(message.value(), "ascii") for message in polled if message and message.error() is None)
    finally:
        consumer.close()


def test_writers_that_cannot_be_stopped_are_shut_out_by_a_switchover_and_let_in_by_the_failback(
    closed: Lab, tmp_path: Path
) -> None:
    who = tenant(closed, tmp_path, "bob")
    topic = f"{who.prefix}-orders"
    closed["east"].create_topic(topic)
    write(closed["east"].bootstrap, topic, numbered(20))
    rule: Rule = {"cluster": who.source, "resource": "topic", "name": topic, "pattern": "literal"}
    allow(who, [{**rule, "operation": "WRITE", "principal": "User:eve"}])
    writer = producer(closed["east"].bootstrap_of("SASL"), **login_of("eve"))
    send(writer, topic, numbered(1, first=20))
    # Whoever moves clients is an administrator: access rules, and both clusters' topics, are theirs.
    flow = who.flow
    ends = {flow.source.alias: closed["east"], flow.target.alias: closed["west"]}
    source, target = (Cluster(alias=alias, bootstrap=tuple(each.bootstrap.split(","))) for alias, each in ends.items())
    flow = dataclasses.replace(flow, source=source, target=target, mm2_topics=RECORDS_ONLY)
    cross(flow)
    options = Options(carry=carry, quiet_s=0.5, patience_s=120.0)
    file = yaml_file(tmp_path, *(each.bootstrap for each in ends.values()), alias=source.alias, topics=[topic])

    # Killed when its rules stand, and never repeated: whoever looks is told, and there is a way back.
    with pytest.MonkeyPatch.context() as patched:
        for name in ("quiet_ends", "_put_back"):
            patched.setattr(failover, name, dying)
        with pytest.raises(Crash):
            fail_over(flow, dataclasses.replace(options, fence_writers=True))
    wait_until(lambda: is_refused(writer, topic), "writers are shut out")
    told = f"writers are shut out of {source.alias} by access rules"
    assert told in called("doctor", file, "-o", "json").out
    assert told in called("failover", file, "--show").err
    assert any(told in event for event in cross(flow).events)
    given_up = called("failover", file, "--abandon", "--yes", "-o", "json").json()
    assert (given_up["writers_let_in"], given_up["changed"]) == (True, True)
    wait_until(lambda: not is_refused(writer, topic), "writers are let in")
    assert "[NOT_OPEN]" in called("failover", file, "--abandon", "--yes").err
    cross(flow)

    fail_over(flow, dataclasses.replace(options, fence_writers=True))

    assert is_refused(writer, topic)
    fail_back(flow, options)
    send(producer(closed["east"].bootstrap_of("SASL"), **login_of("eve")), topic, numbered(1, first=22))
    assert cross(flow).records == 1


def is_refused(writer: Producer, topic: str) -> bool:
    try:
        send(writer, topic, numbered(1, first=30))
    except (AssertionError, KafkaException) as error:  # librdkafka remembers a refusal for a while
        assert "TOPIC_AUTHORIZATION_FAILED" in str(error), error
        return True
    return False


def login_of(user: str) -> dict[str, str]:
    """librdkafka's settings, with underscores for dots."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanisms": "PLAIN",
        "sasl_username": user,
        "sasl_password": USERS[user],
    }
