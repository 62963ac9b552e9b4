"""Which topics a flow carries right now, what they are called on the target, and whether they still are
what they were: the driver's view before it plans orders.

Creates what is missing on the target (topic with the source's partition count and own settings, partitions
that were added). What must stay true (I5): a pair of topic ids is on record before the first record is
copied; a source or target topic that was made anew stops, it is never continued silently.
"""

from __future__ import annotations

import asyncio
import difflib
import re
import uuid
from typing import Any, NamedTuple

from isthmus.engine.control import ControlView
from isthmus.engine.orders import Stop
from isthmus.errors import BrokerRefused, SourceError, TargetError
from isthmus.mm2.filters import choose
from isthmus.mm2.policy import remote_topic
from isthmus.model import NO_ID, Flow, TopicPartition
from isthmus.wire import codes
from isthmus.wire.admin import NewTopic, create_topics, grow_topic, setting_names, topic_settings, wait_for_topics
from isthmus.wire.cluster import Client

# As MirrorMaker 2 excludes them: they are about the source's own replicas, clocks or trust.
NOT_COPIED = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
        # Gone since 4.0, which refuses them; and in an old format no target could take transactions.
        "message.format.version",
        "message.downconversion.enable",
    }
)
_LOOKS = 4
_LITERAL = re.compile(r"[A-Za-z0-9_\-]+|[A-Za-z0-9_\-]+(\\?\.[A-Za-z0-9_\-]+)+")


class Route(NamedTuple):
    """A source topic and its target, by name and id."""

    source: str
    source_id: uuid.UUID
    target: str
    target_id: uuid.UUID
    partitions: int


class Survey(NamedTuple):
    routes: tuple[Route, ...]
    stops: tuple[Stop, ...]
    created: tuple[str, ...]


async def chosen_topics(source: Client, flow: Flow) -> list[str]:
    await source.refresh(None)
    return choose(flow, source.topics)


def refuse_nothing(flow: Flow, topics: list[str], present: list[str]) -> None:
    """A flow that carries nothing, or names a topic that is not there, is a mistake in the file."""
    where = f"flow {flow.name}, cluster {flow.source.alias}"
    for pattern in flow.topics.include:
        name = pattern.replace("\\.", ".")
        if _LITERAL.fullmatch(pattern) and "." not in pattern.replace("\\.", "") and name not in present:
            near = difflib.get_close_matches(name, present, 1)
            raise SourceError(
                f"there is no topic {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                where=where,
                hint="create it, or write a regex (such as 'name.*') to wait for topics to come",
                code="UNKNOWN_TOPIC",
            )
    if not topics:
        visible = [name for name in present if not name.startswith("__")]
        raise SourceError(
            f"no topic matches {', '.join(flow.topics.include)}",
            where=where,
            hint=f"topics there: {', '.join(sorted(visible)[:10]) or 'none'}",
            code="NO_TOPICS",
        )


async def refuse_uncreatable(source: Client, target: Client, flow: Flow, names: list[str]) -> None:
    """Have the target check, without creating anything, that it would create what is missing there."""
    await target.refresh(None)
    missing = [name for name in names if remote_topic(flow, name) not in target.topics]
    try:
        wanted = [_new_topic(source, flow, name, {}) for name in missing]
        await create_topics(target, wanted, validate_only=True)
    except BrokerRefused as error:
        few = error.kafka_code == codes.INVALID_REPLICATION_FACTOR
        raise TargetError(
            error.message,
            where=f"flow {flow.name}, {error.where}",
            hint="set replication_factor (replication.factor) to what the cluster can hold"
            if few
            else "see the target broker's log; nothing was created",
            code="REPLICATION_FACTOR" if few else "TARGET_TOPICS",
        ) from error


async def survey(source: Client, target: Client, flow: Flow, view: ControlView) -> Survey:
    """Compare both clusters and what is on record; create what is missing."""
    names = await chosen_topics(source, flow)
    await target.refresh(None)
    await _look_again(target, flow, [name for name in names if f"topic/{name}" in view.values])
    stops: list[Stop] = []
    wanted: list[str] = []
    for name in names:
        stop = _changed_identity(source, target, flow, name, view.values.get(f"topic/{name}"))
        if stop is None:
            wanted.append(name)
        else:
            stops.append(stop)
    created = await _create_missing(source, target, flow, wanted)
    return Survey(tuple(_route(source, target, flow, name) for name in wanted), tuple(stops), tuple(created))


async def _look_again(target: Client, flow: Flow, recorded: list[str]) -> None:
    """A broker that has just started may not list everything yet: a topic counts as gone when it stays away."""
    for _ in range(_LOOKS):
        missing = [remote for name in recorded if (remote := remote_topic(flow, name)) not in target.topics]
        if not missing:
            return
        await asyncio.sleep(0.5)
        await target.refresh(missing)


def _changed_identity(
    source: Client, target: Client, flow: Flow, name: str, record: dict[str, Any] | None
) -> Stop | None:
    if record is None:
        return None
    remote = remote_topic(flow, name)
    first = TopicPartition(name, 0)
    now, then = source.topic_id(name), uuid.UUID(record["source_id"])
    if now != then and NO_ID not in (now, then):
        return Stop(
            source=first,
            code="SOURCE_RECREATED",
            message=f"source topic {name} was deleted and made anew (id {then} is now {now}): nothing of it is copied",
            hint=f"delete {remote} on the target and restart with --forget {name} to copy the new topic",
        )
    there, known = target.topic_id(remote), uuid.UUID(record["target_id"])
    if remote not in target.topics or (there != known and NO_ID not in (there, known)):
        return Stop(
            source=first,
            code="TARGET_RECREATED",
            message=f"target topic {remote} was deleted or made anew: what was copied into it is gone",
            hint=f"restart with --forget {name} to copy the source topic again from its start",
        )
    return None


async def _create_missing(source: Client, target: Client, flow: Flow, names: list[str]) -> list[str]:
    missing = [name for name in names if remote_topic(flow, name) not in target.topics]
    changed = [remote_topic(flow, name) for name in missing]
    if missing:
        settings = await topic_settings(source, missing)
        known = await setting_names(target, flow.control_topic)
        wanted = {name: _portable(settings.get(name, {}), known) for name in missing}
        await create_topics(target, [_new_topic(source, flow, name, wanted[name]) for name in missing])
    for name in set(names) - set(missing):
        remote, count = remote_topic(flow, name), len(source.topics[name].partitions)
        if len(target.topics[remote].partitions) < count:
            await grow_topic(target, remote, count)
            changed.append(remote)
    if changed:
        await wait_for_topics(target, changed)
    return [remote_topic(flow, name) for name in missing]


def _portable(settings: dict[str, str], known: frozenset[str]) -> dict[str, str]:
    """Without what is the source's own, and without what a broker of another age would refuse to hear of."""
    return {key: value for key, value in settings.items() if key not in NOT_COPIED and (key in known or not known)}


def _new_topic(source: Client, flow: Flow, name: str, configs: dict[str, str]) -> NewTopic:
    count = len(source.topics[name].partitions)
    return NewTopic(remote_topic(flow, name), count, flow.replication_factor, configs)


def _route(source: Client, target: Client, flow: Flow, name: str) -> Route:
    remote = remote_topic(flow, name)
    info = source.topics[name]
    return Route(name, info.topic_id, remote, target.topic_id(remote), len(info.partitions))


def assign(
    partitions: list[TopicPartition],
    leaders: dict[TopicPartition, int],
    lanes: int,
    before: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """A lane for each partition. Those that have one keep it (a partition never changes lanes within a run,
    so two lanes can never own it); new ones go by target leader, so that a broker's trouble stays in few lanes."""
    result = {tp: before[tp] for tp in partitions if tp in before}
    load = [sum(1 for lane in result.values() if lane == number) for number in range(lanes)]
    fresh = sorted((tp for tp in partitions if tp not in result), key=lambda tp: (leaders.get(tp, -1), tp))
    share = -(-(len(result) + len(fresh)) // lanes) if lanes else 0
    lane = 0
    for tp in fresh:
        while load[lane] >= share:
            lane = (lane + 1) % lanes
        result[tp] = lane
        load[lane] += 1
    return result
