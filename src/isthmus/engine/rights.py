"""Which of the rights that a flow needs it lacks on its clusters: named one by one, before anything is created.

What must stay true: asking changes nothing; a right that is missing keeps back what needs it and nothing else: the
flow, one topic, or only what is kept in step beside records. A broker that does not tell (before 2.3) is taken to
allow, and its refusals are met where they happen. What is needed is the table in `needs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from isthmus.config.credentials import principal
from isthmus.engine.needs import ALWAYS, EACH, FLOW, NOTHING, PARTITIONS, SHORT, TOPIC, Need, follows_groups, needs
from isthmus.engine.orders import Stop
from isthmus.errors import TargetError, WireError
from isthmus.mm2.filters import GroupFilter, named_topics
from isthmus.mm2.policy import remote_topic
from isthmus.mm2.spans import LITERAL, spans
from isthmus.model import Flow, TopicPartition
from isthmus.wire import codes
from isthmus.wire.admin import NewTopic, try_create_topics
from isthmus.wire.cluster import Client
from isthmus.wire.groups import list_groups
from isthmus.wire.rights import (
    Allowed,
    allowed_on_cluster,
    allowed_on_groups,
    allowed_on_topics,
    may_write_transactions,
)

_AT_ONCE = 20
_GROUPS_ASKED = 500  # an answer holds all members of a group


class Right(NamedTuple):
    """One operation on one resource, and what is kept back without it."""

    on: str  # "source" | "target"
    cluster: str  # its alias
    principal: str
    resource: str  # "topic" | "group" | "cluster" | "transactional id"
    name: str
    operation: str
    keeps_back: str  # FLOW, TOPIC, PARTITIONS (that the target has not yet), NOTHING (of the records)
    why: str
    topic: str = ""  # the source topic that it is about

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name} of cluster {self.cluster} for {self.principal}"


# -- what is needed, as both clusters are now ----------------------------------------------------


def _right(flow: Flow, need: Need, name: str, topic: str = "") -> Right:
    end = flow.source if need.on == "source" else flow.target
    who = principal(end.settings)
    return Right(need.on, end.alias, who, need.resource, name, need.operation, need.keeps_back, need.why, topic)


def needs_of_topics(flow: Flow, names: Iterable[str], source: Client, target: Client) -> list[Right]:
    """For each topic that the flow carries."""
    table = [need for need in needs(flow) if (need.resource, need.name) == ("topic", EACH)]
    return [
        _right(flow, need, name if need.on == "source" else remote_topic(flow, name), name)
        for name in names
        for need in table
        if _is_due(flow, need, name, source, target)
    ]


def _is_due(flow: Flow, need: Need, name: str, source: Client, target: Client) -> bool:
    there = target.topics.get(remote_topic(flow, name))
    if need.due == ALWAYS:
        return True
    if need.due == SHORT:
        here = source.topics.get(name)
        return bool(there and here and len(there.partitions) < len(here.partitions))
    return there is None


def needs_of_flow(flow: Flow, source: Client, target: Client) -> list[Right]:
    """Apart from its topics and groups: progress, control, transactional ids, MirrorMaker 2's topics, access rules."""
    found: list[Right] = []
    for need in needs(flow):
        known = (source if need.on == "source" else target).topics
        if need.resource == "transactional id":
            found += [_right(flow, need, name) for name in _transactional_ids(flow)]
        elif need.name != EACH and (need.due == ALWAYS or need.name not in known):
            found.append(_right(flow, need, need.name))
    return found


def needs_of_groups(flow: Flow, names: Mapping[str, str]) -> list[Right]:
    """`names`: groups to ask for, each with what it stands for."""
    table = [need for need in needs(flow) if need.resource == "group"]
    return [_right(flow, need, name) for name in names for need in table]


def _transactional_ids(flow: Flow) -> list[str]:
    lanes = [flow.transactional_id(lane, turn) for lane in range(flow.lanes) for turn in (0, 1)]
    return [probe_id(flow), *lanes]


def probe_id(flow: Flow) -> str:
    """The id by which a start finds out that the target can do transactions."""
    return f"isthmus.{flow.source.alias}.probe"


# -- what is missing -----------------------------------------------------------------------------


async def missing_rights(source: Client, target: Client, flow: Flow, names: Sequence[str]) -> list[Right]:
    """All that the flow lacks; both clients know the topics of their cluster."""
    groups = await _groups_to_ask_for(source, flow)
    wanted = [
        *needs_of_flow(flow, source, target),
        *needs_of_topics(flow, names, source, target),
        *needs_of_groups(flow, groups),
    ]
    found = [*await _lacking(source, "source", wanted), *await _lacking(target, "target", wanted)]
    shown = [right._replace(name=groups[right.name]) if right.resource == "group" else right for right in found]
    return _by_prefix(flow, shown)


async def _groups_to_ask_for(source: Client, flow: Flow) -> dict[str, str]:
    """Groups of the source that the flow takes along, each with how to call it.

    Those that we may not see are not listed. A group that the file names is asked for all the same; where an
    expression shows us none, one that it would match stands for all of them.
    """
    if not follows_groups(flow):
        return {}
    wanted = GroupFilter(flow.groups.include, flow.groups.exclude)
    try:
        seen = [name for name in await list_groups(source) if wanted.matches(name)][:_GROUPS_ASKED]
    except WireError:
        return {}  # told where groups are followed
    found = {name: name for name in seen}
    for span in spans(flow.groups.include):
        if span.pattern == LITERAL and span.name != "*":
            found |= {span.name: span.name} if wanted.matches(span.name) else {}
        elif not any(span.holds(name) for name in seen):
            found[probe_id(flow) if span.name == "*" else span.name] = str(span)
    return found


async def kept_back(source: Client, target: Client, flow: Flow, names: Sequence[str]) -> dict[str, Stop]:
    """Topics that cannot be carried for want of a right, each with all that it lacks."""
    wanted = [right for right in needs_of_topics(flow, names, source, target) if right.keeps_back == TOPIC]
    lacking: dict[str, list[Right]] = {}
    for right in (*await _lacking(source, "source", wanted), *await _lacking(target, "target", wanted)):
        lacking.setdefault(right.topic, []).append(right)
    return {name: _stop(name, rights) for name, rights in lacking.items()}


def _stop(name: str, rights: Sequence[Right]) -> Stop:
    hint = "grant that; it is asked for again every few seconds, and the topic begins where it would have begun"
    message = f"rights are missing: {'; '.join(map(str, rights))}"
    return Stop(source=TopicPartition(name, 0), code="RIGHTS", message=message, hint=hint)


async def _lacking(client: Client, on: str, wanted: Sequence[Right]) -> list[Right]:
    """Those of one cluster that its brokers do not allow."""
    mine = [right for right in wanted if right.on == on]
    topics = await allowed_on_topics(client, {right.name for right in mine if right.resource == "topic"})
    cluster = await allowed_on_cluster(client) if any(_asks_cluster(right, topics) for right in mine) else None
    answers = {
        "topic": topics,
        "group": await allowed_on_groups(client, {right.name for right in mine if right.resource == "group"}),
        "cluster": {right.name: cluster for right in mine if right.resource == "cluster"},
        "transactional id": {
            right.name: await may_write_transactions(client, right.name)
            for right in mine
            if right.resource == "transactional id"
        },
    }
    found = [right for right in mine if not _is_allowed(right, answers[right.resource], cluster)]
    return await _really_not_creatable(client, found)


def _asks_cluster(need: Right, topics: Mapping[str, Allowed | None]) -> bool:
    allowed = topics.get(need.name)
    return need.resource == "cluster" or (
        need.operation == "CREATE" and allowed is not None and "CREATE" not in allowed
    )


def _is_allowed(need: Right, told: Mapping[str, Allowed | None], cluster: Allowed | None) -> bool:
    if need.operation == "CREATE" and cluster and "CREATE" in cluster:
        return True
    allowed = told.get(need.name)
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
