"""Which topics a flow carries right now, what they are called on the target, and whether they still are
what they were: the driver's view before it plans orders.

Creates what is missing on the target (topic with the source's partition count and own settings, partitions
that were added). What must stay true (I5): a pair of topic ids is on record before the first record is
copied; a source or target topic that was made anew stops, it is never continued silently.
"""

from __future__ import annotations

import asyncio
import difflib
import uuid
from collections.abc import Collection
from typing import Any, NamedTuple

from isthmus.engine.control import ControlView
from isthmus.engine.orders import Stop
from isthmus.engine.rights import Watch, hidden_topics
from isthmus.engine.sync import SettingRules
from isthmus.errors import BrokerRefused, SourceError, TargetError, WireError
from isthmus.mm2.filters import TopicFilter, choose, named_topics
from isthmus.mm2.policy import remote_topic
from isthmus.model import NO_ID, Flow, TopicPartition
from isthmus.wire import codes
from isthmus.wire.admin import NewTopic, grow_topic, try_create_topics, wait_for_topics
from isthmus.wire.cluster import Client
from isthmus.wire.groups import CONNECT, IDLE, list_groups
from isthmus.wire.settings import Settings, describe_settings

_LOOKS = 4
_ENDS_PATIENCE_S = 60.0
_NEW_PATIENCE_S = 60.0
LET_GO = "let_go"  # on record: by a decision nobody misses the source topic
ANY_TARGET = "any_target"  # on record: by a decision the copy goes on in whatever topic is there, or is made
_NEW_PARTITION_S = 0.02  # one broker on a small machine opened 10,000 partitions in 80 s


class Route(NamedTuple):
    """A source topic and its target, by name and id."""

    source: str
    source_id: uuid.UUID
    target: str
    target_id: uuid.UUID
    partitions: int


class Growth(NamedTuple):
    """A target topic that is to have more partitions."""

    source: str
    target: str
    before: int
    partitions: int


class Survey(NamedTuple):
    routes: tuple[Route, ...]
    stops: tuple[Stop, ...]
    created: tuple[str, ...]


async def chosen_topics(source: Client, flow: Flow) -> list[str]:
    await source.refresh(None)
    return choose(flow, source.topics)


def refuse_nothing(flow: Flow, topics: list[str], present: list[str], hidden: list[str]) -> None:
    """A flow that carries nothing, or names a topic that is not there, is a mistake in the file. Those that are
    `hidden` may be there."""
    where = f"flow {flow.name}, cluster {flow.source.alias}"
    present = [*present, *hidden]
    for name in named_topics(flow.topics.include):
        if name not in present:
            near = difflib.get_close_matches(name, present, 1)
            raise SourceError(
                f"there is no topic {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                where=where,
                hint="create it, or write a regex (such as 'name.*') to wait for topics to come",
                code="UNKNOWN_TOPIC",
            )
    wanted = TopicFilter(flow.topics.include, flow.topics.exclude)
    if not any(wanted.matches(name) for name in (*topics, *hidden)):
        visible = [name for name in present if not name.startswith("__")]
        raise SourceError(
            f"no topic matches {', '.join(flow.topics.include)}",
            where=where,
            hint=f"topics there: {', '.join(sorted(visible)[:10]) or 'none'} (of those that we may see)",
            code="NO_TOPICS",
        )


def refuse_own_copies(source: Client, target: Client, flow: Flow, names: list[str]) -> None:
    """Where both ends are one cluster, a flow must not choose what it has made: it would never end."""
    copies = [remote_topic(flow, name) for name in names]
    again = [copy for copy in choose(flow, copies) if copy not in names] if source.cluster_id else []
    if again and source.cluster_id == target.cluster_id:
        raise TargetError(
            f"both ends are one cluster ({source.cluster_id}), and the flow would copy its own copies: {again[0]}, ...",
            where=f"flow {flow.name}",
            hint="exclude the copies' names from `topics` (for heartbeats: mm2_topics.carry_heartbeats: false), "
            "or correct the addresses",
            code="SAME_CLUSTER",
        )


async def beside(target: Client, flow: Flow) -> str:
    """A word about a MirrorMaker 2 that works on the same pair of clusters; it may carry other topics, so no more."""
    group = f"{flow.source.alias}-mm2"
    try:
        state = (await list_groups(target, CONNECT)).get(group, "")
    except WireError:
        return ""  # not allowed to know
    if state in IDLE:
        return ""
    return (
        f"MirrorMaker 2 runs beside this flow (Connect group {group} has members): topics that both carry would come "
        "twice; stop it, and take over with `isthmus adopt`"
    )


async def refuse_uncreatable(source: Client, target: Client, flow: Flow, names: list[str]) -> None:
    """Have the target check, without creating anything, that it would create what is missing there."""
    await target.refresh(None)
    missing = [name for name in names if remote_topic(flow, name) not in target.topics]
    wanted = [_new_topic(source, flow, name, {}) for name in missing]
    for error in (await try_create_topics(target, wanted, validate_only=True)).values():
        if error.kafka_code == codes.TOPIC_AUTHORIZATION_FAILED:
            continue  # keeps back that topic only (`rights`)
        few = error.kafka_code == codes.INVALID_REPLICATION_FACTOR
        raise TargetError(
            error.message,
            where=f"flow {flow.name}, {error.where}",
            hint="set replication_factor (replication.factor) to what the cluster can hold"
            if few
            else "see the target broker's log; nothing was created",
            code="REPLICATION_FACTOR" if few else "TARGET_TOPICS",
        ) from error


async def survey(
    source: Client, target: Client, flow: Flow, view: ControlView, watch: Watch, missed: Collection[str] = ()
) -> Survey:
    """Compare both clusters and what is on record; create what is missing. `missed`: topics whose copy was looked for
    in vain before."""
    names = await chosen_topics(source, flow)
    await target.refresh(None)
    # Before all else: a topic that we may not see looks like one that is gone.
    kept_back = await watch.kept_back(source, target, flow, [*names, *await hidden_topics(source, flow)])
    names = [name for name in names if name not in kept_back]
    await look_again(target, flow, [name for name in names if f"topic/{name}" in view.values and name not in missed])
    stops = list(kept_back.values())
    mixed = collisions(flow, names, view)
    wanted: list[str] = []
    for name in names:
        record = view.values.get(f"topic/{name}")
        stop = mixed.get(name) or changed_identity(source, target, flow, name, record)
        if stop is None:
            wanted.append(name)
        else:
            stops.append(stop)
    created, refused = await _create_missing(source, target, flow, wanted)
    routes = [_route(source, target, flow, name) for name in wanted if remote_topic(flow, name) in target.topics]
    return Survey(tuple(routes), (*stops, *refused), tuple(created))


def collisions(flow: Flow, names: list[str], view: ControlView) -> dict[str, Stop]:
    """Topics whose records would mix in one topic of the target; one that is on record already goes on."""
    by_remote: dict[str, list[str]] = {}
    for name in names:
        by_remote.setdefault(remote_topic(flow, name), []).append(name)
    clashes = {remote: sources for remote, sources in by_remote.items() if len(sources) > 1}
    return {
        name: Stop(
            source=TopicPartition(name, 0),
            code="NAME_TAKEN",
            message=f"source topics {', '.join(sources)} would all be {remote} on the target: their records would mix",
            hint="give them names that differ (naming.exact), or exclude all but one",
        )
        for remote, sources in clashes.items()
        for name in sources
        if f"topic/{name}" not in view.values
    }


async def look_again(target: Client, flow: Flow, recorded: list[str]) -> None:
    """A broker that has just started may not list everything yet: a topic counts as gone when it stays away."""
    for _ in range(_LOOKS):
        missing = [remote for name in recorded if (remote := remote_topic(flow, name)) not in target.topics]
        if not missing:
            return
        await asyncio.sleep(0.5)
        await target.refresh(missing)


def changed_identity(
    source: Client, target: Client, flow: Flow, name: str, record: dict[str, Any] | None
) -> Stop | None:
    """The reason not to continue a topic whose ids are on record, if one of them is another by now."""
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
            hint=f"see `isthmus resolve FILE --topic {name}`; or delete {remote} on the target and restart with "
            f"--forget {name} to copy the new topic",
        )
    if record.get(ANY_TARGET):
        return None
    if record["target"] != remote:
        return Stop(
            source=first,
            code="TARGET_RENAMED",
            message=f"so far {name} was copied to {record['target']}, but now the flow's settings name it {remote}",
            hint=f"set the naming back, or see `isthmus resolve FILE --topic {name}`; --forget {name} at a start "
            f"copies all of it to {remote}",
        )
    there, known = target.topic_id(remote), uuid.UUID(record["target_id"])
    if remote not in target.topics or (there != known and NO_ID not in (there, known)):
        return Stop(
            source=first,
            code="TARGET_RECREATED",
            message=f"target topic {remote} was deleted or made anew: what was copied into it is gone",
            hint=f"see `isthmus resolve FILE --topic {name}`; --forget {name} at a start copies the source topic again "
            "from its start",
        )
    return None


def gone_stop(source: TopicPartition, position: int) -> Stop:
    """`position`: the next offset that would have been copied; -1: not known."""
    after = f" after offset {position}" if position >= 0 else ""
    return Stop(
        source=source,
        code="SOURCE_GONE",
        message=f"source topic {source.topic} was deleted{after}; what was copied stays on the target",
        hint=f"`isthmus resolve FILE --topic {source.topic} --accept-gap` lets it go, if that was meant",
        lost=(position, -1) if position >= 0 else None,
    )


async def _create_missing(source: Client, target: Client, flow: Flow, names: list[str]) -> tuple[list[str], list[Stop]]:
    """Create and grow; what the target refuses stops alone (I7). Returns topics created, and stops."""
    new, growing = await new_topics(source, target, flow, names), growths(source, target, flow, names)
    by_remote = {remote_topic(flow, name): name for name in names}
    refused = await try_create_topics(target, new)
    if flow.sync.configs:
        # A setting that the target does not take must not keep its topic back: upkeep tells which one it is.
        bare = {topic.name: topic._replace(configs={}) for topic in new if topic.name in refused and topic.configs}
        still = await try_create_topics(target, bare.values())
        refused = {name: error for name, error in refused.items() if name not in bare or name in still}
    stops = [_not_created(by_remote[name], error) for name, error in refused.items()]
    grown, ungrown = await _grow(target, growing)
    created = [topic.name for topic in new if topic.name not in refused]
    if created or grown:
        count = sum(topic.partitions for topic in new) + sum(each.partitions for each in growing)
        sizes = {topic.name: topic.partitions for topic in new} | {each.target: each.partitions for each in growing}
        await wait_for_topics(target, [*created, *grown], _NEW_PATIENCE_S + count * _NEW_PARTITION_S, sizes)
    return created, stops + ungrown


async def _grow(target: Client, growing: list[Growth]) -> tuple[list[str], list[Stop]]:
    grown: list[str] = []
    stops: list[Stop] = []
    for each in growing:
        try:
            await grow_topic(target, each.target, each.partitions)
            grown.append(each.target)
        except BrokerRefused as error:
            hint = f"grant ALTER on {each.target}, or add the partitions there by hand"
            first = TopicPartition(each.source, each.before)
            stops.append(Stop(source=first, code="TARGET_REFUSED", message=str(error), hint=hint))
    return grown, stops


def _not_created(name: str, error: BrokerRefused) -> Stop:
    hint = "grant CREATE on it to this user, or create it by hand; tried again every few seconds"
    return Stop(source=TopicPartition(name, 0), code="TARGET_REFUSED", message=str(error), hint=hint)


async def new_topics(source: Client, target: Client, flow: Flow, names: list[str]) -> list[NewTopic]:
    """Those that the target lacks, each with the partitions and the settings that it ought to have."""
    missing = [name for name in names if remote_topic(flow, name) not in target.topics]
    if not missing:
        return []
    settings = (await describe_settings(source, missing)).topics
    known, rules = await _yardstick(target, flow), SettingRules(flow.sync)
    return [_new_topic(source, flow, name, rules.at_creation(settings.get(name, {}), known)) for name in missing]


async def _yardstick(target: Client, flow: Flow) -> Settings:
    """Settings of some topic of the target: a broker of another age would refuse names that it does not know."""
    some = flow.control_topic if flow.control_topic in target.topics else min(target.topics, default="")
    return (await describe_settings(target, [some])).topics.get(some, {}) if some else {}


def growths(source: Client, target: Client, flow: Flow, names: list[str]) -> list[Growth]:
    """Topics that have more partitions on the source."""
    pairs = ((name, target.topics.get(remote_topic(flow, name))) for name in names)
    return [
        Growth(name, there.name, len(there.partitions), count)
        for name, there in pairs
        if there is not None and len(there.partitions) < (count := len(source.topics[name].partitions))
    ]


def _new_topic(source: Client, flow: Flow, name: str, configs: dict[str, str]) -> NewTopic:
    count = len(source.topics[name].partitions)
    return NewTopic(remote_topic(flow, name), count, flow.replication_factor, configs)


def _route(source: Client, target: Client, flow: Flow, name: str) -> Route:
    remote = remote_topic(flow, name)
    info = source.topics[name]
    # Fewer on the target where it may not grow: the others are stopped, with the reason.
    count = min(len(info.partitions), len(target.topics[remote].partitions))
    return Route(name, info.topic_id, remote, target.topic_id(remote), count)


def assign(
    partitions: list[TopicPartition],
    leaders: dict[TopicPartition, int],
    lanes: int,
    before: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """A lane for each partition. Those that have one keep it (it changes only by `Roster.move`,
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
