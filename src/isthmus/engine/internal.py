"""Topics that a flow keeps for itself and for MirrorMaker 2's tools: which, where, of what shape.

What must stay true: progress, control and registers of producer ids are needed (and dead letters, where the flow wants
them), so a run without them ends with its reason; all others are a courtesy to MirrorMaker 2's tools, and a cluster
that refuses them (a source is often read-only) costs a note. What is written into them is left to others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from isthmus.engine import control
from isthmus.engine.letters import DEAD_LETTER, letter_topic
from isthmus.engine.register import TOPIC_SETTINGS
from isthmus.errors import IsthmusError, SourceError, TargetError, WireError
from isthmus.mm2.formats import HEARTBEATS, checkpoints_topic, offset_syncs_topic
from isthmus.model import REGISTER, Flow
from isthmus.wire.admin import NewTopic, create_topics, wait_for_topics
from isthmus.wire.cluster import Client

_COMPACT = {"cleanup.policy": "compact"}
PROGRESS_SETTINGS = _COMPACT | {"segment.bytes": str(16 << 20), "min.cleanable.dirty.ratio": "0.1"}
_PATIENCE_S = 15.0


class InternalTopic(NamedTuple):
    on: str  # "source" | "target"
    topic: NewTopic
    needed: bool = False


def internal_topics(flow: Flow) -> list[InternalTopic]:
    """Every topic of the flow that is not a copy."""
    factor, kept = flow.internal_replication_factor, flow.mm2_topics
    progress = NewTopic(flow.progress_topic, flow.tuning.progress_partitions, factor, PROGRESS_SETTINGS)
    wanted = [
        InternalTopic("target", progress, needed=True),
        InternalTopic("target", NewTopic(flow.control_topic, 1, factor, control.TOPIC_SETTINGS), needed=True),
    ]
    register = NewTopic(REGISTER, 1, factor, TOPIC_SETTINGS)
    wanted += [InternalTopic("target", register, needed=True)] if flow.keeps_register else []
    wanted += [InternalTopic("source", register, needed=True)] if flow.all_cuts else []
    if flow.on_too_large == DEAD_LETTER:
        wanted.append(InternalTopic("target", letter_topic(flow), needed=True))
    if kept.heartbeats:
        wanted += [InternalTopic(on, NewTopic(HEARTBEATS, 1, factor, _COMPACT)) for on in ("source", "target")]
    if kept.offset_syncs:
        wanted.append(InternalTopic(kept.offset_syncs_on, NewTopic(offset_syncs_topic(flow), 1, factor, _COMPACT)))
    if flow.keeps_index:
        wanted.append(InternalTopic("target", NewTopic(flow.index_topic, 1, factor, PROGRESS_SETTINGS)))
    if kept.checkpoints:
        wanted.append(InternalTopic("target", NewTopic(checkpoints_topic(flow), 1, factor, _COMPACT)))
    return wanted


async def create_internal_topics(source: Client, target: Client, flow: Flow, note: Callable[[str], None]) -> None:
    """Create what is missing; only what is needed can fail."""
    wanted = internal_topics(flow)
    await create_needed(target, [each.topic for each in wanted if each.needed and each.on == "target"], TargetError)
    await create_needed(source, [each.topic for each in wanted if each.needed and each.on == "source"], SourceError)
    for each in wanted:
        if not each.needed:
            await _create_if_allowed(source if each.on == "source" else target, each.topic, note)


async def create_needed(client: Client, topics: list[NewTopic], kind: type[IsthmusError]) -> None:
    """Create what is missing of these; raises `kind` with what to do."""
    if not topics:
        return
    try:
        await _create(client, topics)
    except WireError as error:
        raise kind(
            error.message,
            where=error.where,
            hint="set internal_replication_factor (offset.storage.replication.factor) to what the cluster can hold, or "
            "create it by hand (1 partition, cleanup.policy=compact)",
            code="INTERNAL_TOPICS",
        ) from error


async def _create(client: Client, topics: list[NewTopic], patience_s: float = 60.0) -> None:
    names = [topic.name for topic in topics]
    await client.refresh(names)
    missing = [topic for topic in topics if topic.name not in client.topics]
    await create_topics(client, missing)
    if missing:
        await wait_for_topics(client, names, patience_s)


async def _create_if_allowed(client: Client, topic: NewTopic, note: Callable[[str], None]) -> None:
    try:
        await _create(client, [topic], _PATIENCE_S)
    except WireError as error:
        note(
            f"{error}; records flow all the same, but tools of MirrorMaker 2 miss it: create it (1 partition, "
            "cleanup.policy=compact), grant CREATE, or switch it off in the file"
        )
