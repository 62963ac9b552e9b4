"""Which rights a flow needs on both clusters, and which of them it lacks: named one by one, before anything is created.

What must stay true: asking changes nothing; a right that is missing keeps back what needs it and nothing else: the
flow, one topic, or only what is kept in step beside records. A broker that does not tell (before 2.3) is taken to
allow, and its refusals are met where they happen. Least privilege: the list here is all that a flow ever uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from isthmus.config.credentials import principal
from isthmus.engine.internal import internal_topics
from isthmus.engine.orders import Stop
from isthmus.errors import TargetError
from isthmus.mm2.filters import named_topics
from isthmus.mm2.policy import checkpoints_topic, remote_topic
from isthmus.model import REGISTER, Flow, TopicPartition
from isthmus.wire import codes
from isthmus.wire.admin import NewTopic, try_create_topics
from isthmus.wire.cluster import Client
from isthmus.wire.rights import Allowed, allowed_on_cluster, allowed_on_topics, may_write_transactions

FLOW, TOPIC, PARTITIONS, NOTHING = "flow", "topic", "partitions", "nothing"
CLUSTER_NAME = "kafka-cluster"
_AT_ONCE = 20


class Right(NamedTuple):
    """One operation on one resource, and what is kept back without it."""

    on: str  # "source" | "target"
    cluster: str  # its alias
    principal: str
    resource: str  # "topic" | "cluster" | "transactional id"
    name: str
    operation: str
    keeps_back: str  # FLOW, TOPIC, PARTITIONS (that the target has not yet), NOTHING (of the records)
    why: str
    topic: str = ""  # the source topic that it is about

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name} of cluster {self.cluster} for {self.principal}"


# -- what is needed ------------------------------------------------------------------------------


class _Needs:
    """Collects rights of one flow."""

    def __init__(self, flow: Flow) -> None:
        self.found: list[Right] = []
        self._ends = {"source": flow.source, "target": flow.target}

    def add(
        self, on: str, resource: str, name: str, wanted: Mapping[str, str], keeps_back: str, topic: str = ""
    ) -> None:
        end = self._ends[on]
        who = principal(end.settings)
        self.found += [
            Right(on, end.alias, who, resource, name, operation, keeps_back, why, topic)
            for operation, why in wanted.items()
        ]


def needs_of_topics(flow: Flow, names: Iterable[str], source: Client, target: Client) -> list[Right]:
    """For each topic that the flow carries, as both clusters are now."""
    needs = _Needs(flow)
    for name in names:
        remote = remote_topic(flow, name)
        there = target.topics.get(remote)
        needs.add("source", "topic", name, {"DESCRIBE": "find its leaders", "READ": "fetch"}, TOPIC, name)
        wanted = {"DESCRIBE": "find its leaders", "WRITE": "produce"}
        needs.add("target", "topic", remote, wanted | ({} if there else {"CREATE": "create it"}), TOPIC, name)
        if there and name in source.topics and len(there.partitions) < len(source.topics[name].partitions):
            needs.add("target", "topic", remote, {"ALTER": "add the partitions that it lacks"}, PARTITIONS, name)
        if flow.sync.configs:
            reads, follows = {"DESCRIBE_CONFIGS": "read its settings"}, {"ALTER_CONFIGS": "keep its settings in step"}
            needs.add("source", "topic", name, reads, NOTHING, name)
            needs.add("target", "topic", remote, reads | follows, NOTHING, name)
    return needs.found


def needs_of_flow(flow: Flow, source: Client, target: Client) -> list[Right]:
    """Apart from its topics: progress, control, transactional ids, MirrorMaker 2's topics, access rules."""
    needs = _Needs(flow)
    for each in internal_topics(flow):
        name, client = each.topic.name, source if each.on == "source" else target
        wanted = {"DESCRIBE": "find its leader"}
        wanted |= {} if (each.on, name) == ("source", REGISTER) else {"WRITE": "write into it"}
        read_back = each.needed or name in (flow.index_topic, checkpoints_topic(flow))
        wanted |= {"READ": "read what is on record"} if read_back else {}
        wanted |= {} if name in client.topics else {"CREATE": "create it"}
        needs.add(each.on, "topic", name, wanted, FLOW if each.needed else NOTHING)
    for name in _transactional_ids(flow):
        needs.add("target", "transactional id", name, {"WRITE": "write in transactions"}, FLOW)
    if flow.sync.acls:
        reads, adds = {"DESCRIBE": "read access rules"}, {"ALTER": "add access rules"}
        needs.add("source", "cluster", CLUSTER_NAME, reads, NOTHING)
        needs.add("target", "cluster", CLUSTER_NAME, reads | adds, NOTHING)
    return needs.found


def _transactional_ids(flow: Flow) -> list[str]:
    lanes = [flow.transactional_id(lane, turn) for lane in range(flow.lanes) for turn in (0, 1)]
    return [probe_id(flow), *lanes]


def probe_id(flow: Flow) -> str:
    """The id by which a start finds out that the target can do transactions."""
    return f"isthmus.{flow.source.alias}.probe"


# -- what is missing -----------------------------------------------------------------------------


async def missing_rights(source: Client, target: Client, flow: Flow, names: Sequence[str]) -> list[Right]:
    """All that the flow lacks; both clients know the topics of their cluster."""
    needs = [*needs_of_flow(flow, source, target), *needs_of_topics(flow, names, source, target)]
    found = [*await _lacking(source, "source", needs), *await _lacking(target, "target", needs)]
    return _by_prefix(flow, found)


async def kept_back(source: Client, target: Client, flow: Flow, names: Sequence[str]) -> dict[str, Stop]:
    """Topics that cannot be carried for want of a right, each with all that it lacks."""
    needs = [need for need in needs_of_topics(flow, names, source, target) if need.keeps_back == TOPIC]
    lacking: dict[str, list[Right]] = {}
    for right in (*await _lacking(source, "source", needs), *await _lacking(target, "target", needs)):
        lacking.setdefault(right.topic, []).append(right)
    return {name: _stop(name, rights) for name, rights in lacking.items()}


def _stop(name: str, rights: Sequence[Right]) -> Stop:
    hint = "grant that; it is asked for again every few seconds, and the topic begins where it would have begun"
    message = f"rights are missing: {'; '.join(map(str, rights))}"
    return Stop(source=TopicPartition(name, 0), code="RIGHTS", message=message, hint=hint)


async def _lacking(client: Client, on: str, needs: Sequence[Right]) -> list[Right]:
    """Those of one cluster that its brokers do not allow."""
    mine = [need for need in needs if need.on == on]
    topics = await allowed_on_topics(client, {need.name for need in mine if need.resource == "topic"})
    cluster = await allowed_on_cluster(client) if any(_asks_cluster(need, topics) for need in mine) else None
    ids = {
        need.name: await may_write_transactions(client, need.name)
        for need in mine
        if need.resource == "transactional id"
    }
    found = [need for need in mine if not _is_allowed(need, topics, cluster, ids)]
    return await _really_not_creatable(client, found)


def _asks_cluster(need: Right, topics: Mapping[str, Allowed | None]) -> bool:
    allowed = topics.get(need.name)
    return need.resource == "cluster" or (
        need.operation == "CREATE" and allowed is not None and "CREATE" not in allowed
    )


def _is_allowed(
    need: Right, topics: Mapping[str, Allowed | None], cluster: Allowed | None, ids: Mapping[str, bool]
) -> bool:
    if need.resource == "transactional id":
        return ids[need.name]
    if need.operation == "CREATE" and cluster and "CREATE" in cluster:
        return True
    allowed = topics.get(need.name) if need.resource == "topic" else cluster
    return allowed is None or need.operation in allowed


async def _really_not_creatable(client: Client, lacking: list[Right]) -> list[Right]:
    """CREATE on the cluster is enough, and without DESCRIBE on it brokers do not tell: have them check a creation."""
    names = [right.name for right in lacking if right.operation == "CREATE"]
    wanted = [NewTopic(name, 1, -1, {}) for name in names]
    refused = await try_create_topics(client, wanted, validate_only=True)
    not_allowed = {name for name, error in refused.items() if error.kafka_code == codes.TOPIC_AUTHORIZATION_FAILED}
    return [right for right in lacking if right.operation != "CREATE" or right.name in not_allowed]


def _by_prefix(flow: Flow, rights: Sequence[Right]) -> list[Right]:
    """Where all transactional ids lack the same, one right on their prefix says it."""
    ids = [right for right in rights if right.resource == "transactional id"]
    if len(ids) < len(_transactional_ids(flow)):
        return list(rights)
    prefix = probe_id(flow).removesuffix("probe") + "* (as a prefix)"
    return [*(right for right in rights if right not in ids), ids[0]._replace(name=prefix)]


class Watch:
    """Whether topics may be carried, over the life of a driver: asked once, and again while it is not so."""

    def __init__(self) -> None:
        self._clear: set[tuple[str, str]] = set()  # source topic and its target

    async def kept_back(self, source: Client, target: Client, flow: Flow, names: Sequence[str]) -> dict[str, Stop]:
        remotes = {name: remote_topic(flow, name) for name in names}
        # One that is not on the target is asked for too: without DESCRIBE it would look as if it were gone.
        asked = [n for n, remote in remotes.items() if (n, remote) not in self._clear or remote not in target.topics]
        stops = await kept_back(source, target, flow, asked) if asked else {}
        self._clear |= {(name, remotes[name]) for name in asked if name not in stops}
        return stops


# -- at the start of a run -----------------------------------------------------------------------


async def hidden_topics(source: Client, flow: Flow) -> list[str]:
    """Topics that the file names, and whose very existence we may not know: they look as if they were not there."""
    absent = [name for name in named_topics(flow.topics.include) if name not in source.topics]
    allowed = await allowed_on_topics(source, absent) if absent else {}
    return [name for name, operations in allowed.items() if operations is not None and "DESCRIBE" not in operations]


def refuse_unallowed(flow: Flow, rights: Sequence[Right]) -> None:
    """Without these nothing could be copied at all: told together, and nothing was created."""
    lacking = [right for right in rights if right.keeps_back == FLOW]
    if lacking:
        all_of_them = [*lacking, *(right for right in rights if right not in lacking)]
        raise TargetError(
            f"rights are missing: {'; '.join(map(str, all_of_them[:_AT_ONCE]))}",
            where=f"flow {flow.name}",
            hint="grant them; `isthmus doctor` lists all; nothing was created",
            code="RIGHTS",
        )


def told(rights: Sequence[Right]) -> list[str]:
    """A line for each that keeps back less than the flow, those of topics first; a thousand must not hide the rest."""
    order = sorted((r for r in rights if r.keeps_back != FLOW), key=lambda r: (r.keeps_back == NOTHING, r.topic))
    lines = [f"missing right: {right} ({right.why}); keeps back {_what(right)}" for right in order[:_AT_ONCE]]
    more = len(order) - _AT_ONCE
    return [*lines, f"and {more} more missing rights: `isthmus doctor` lists them"] if more > 0 else lines


def _what(right: Right) -> str:
    texts = {
        TOPIC: f"topic {right.topic}, nothing else",
        PARTITIONS: f"new partitions of {right.topic}",
        NOTHING: "no record",
    }
    return texts[right.keeps_back]
