"""All that a flow may have to do on its two clusters, as one table: what is checked (`rights`) and what is printed as
access rules (`grants`) both come from here.

What must stay true: least privilege. The table is all that a flow ever uses; each row says what it is for and what is
kept back without it. Rows are about kinds of things (each topic of the flow, each group); which names those are is
filled in by whoever uses the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from isthmus.engine.internal import internal_topics
from isthmus.mm2.policy import checkpoints_topic, offset_syncs_topic
from isthmus.model import REGISTER, Flow

FLOW, TOPIC, PARTITIONS, NOTHING = "flow", "topic", "partitions", "nothing"
CLUSTER_NAME = "kafka-cluster"
EACH = ""  # instead of a name: every topic (on the target: every copy), group or transactional id of the flow
ALWAYS, UNMADE, SHORT = "always", "while it is not there", "while it has too few partitions"


class Need(NamedTuple):
    """One operation on one thing, or on each thing of a kind."""

    on: str  # "source" | "target"
    resource: str  # "topic" | "group" | "transactional id" | "cluster"
    name: str  # or EACH
    operation: str
    why: str
    keeps_back: str  # FLOW, TOPIC, PARTITIONS (that the target has not yet), NOTHING (of the records)
    due: str = ALWAYS


def needs(flow: Flow) -> list[Need]:
    """The whole table of one flow."""
    return [*_of_own_topics(flow), *_of_ids(), *_of_rules(flow), *_of_topics(flow), *_of_groups(flow)]


def follows_groups(flow: Flow) -> bool:
    return flow.mm2_topics.checkpoints or flow.mm2_topics.group_offsets


def _rows(
    on: str, resource: str, name: str, wanted: Mapping[str, str], keeps_back: str, due: str = ALWAYS
) -> list[Need]:
    return [Need(on, resource, name, operation, why, keeps_back, due) for operation, why in wanted.items()]


def _of_topics(flow: Flow) -> list[Need]:
    read = {"DESCRIBE": "find its leaders", "READ": "fetch"}
    written = {"DESCRIBE": "find its leaders", "WRITE": "produce"}
    found = [
        *_rows("source", "topic", EACH, read, TOPIC),
        *_rows("target", "topic", EACH, written, TOPIC),
        *_rows("target", "topic", EACH, {"CREATE": "create it"}, TOPIC, UNMADE),
        *_rows("target", "topic", EACH, {"ALTER": "add the partitions that it lacks"}, PARTITIONS, SHORT),
    ]
    if flow.sync.configs:
        reads, follows = {"DESCRIBE_CONFIGS": "read its settings"}, {"ALTER_CONFIGS": "keep its settings in step"}
        found += _rows("source", "topic", EACH, reads, NOTHING)
        found += _rows("target", "topic", EACH, reads | follows, NOTHING)
    if follows_groups(flow):
        found += _rows(
            "target", "topic", EACH, {"READ": "find the exact record of groups, write their offsets"}, NOTHING
        )
    elif flow.guards_copies:
        found += _rows("target", "topic", EACH, {"READ": "see whether somebody else writes into it"}, NOTHING)
    return found


def _of_own_topics(flow: Flow) -> list[Need]:
    """Progress, control, registers, dead letters, MirrorMaker 2's topics."""
    found: list[Need] = []
    read_back = {flow.index_topic, checkpoints_topic(flow)}
    # Syncs that MirrorMaker 2 has written tell where its copies are.
    read_back |= {offset_syncs_topic(flow)} if follows_groups(flow) else set()
    for on, topic, needed in internal_topics(flow):
        name, keeps_back = topic.name, FLOW if needed else NOTHING
        wanted = {"DESCRIBE": "find its leader"}
        wanted |= {} if (on, name) == ("source", REGISTER) else {"WRITE": "write into it"}
        wanted |= {"READ": "read what is on record"} if needed or name in read_back else {}
        found += _rows(on, "topic", name, wanted, keeps_back)
        found += _rows(on, "topic", name, {"CREATE": "create it"}, keeps_back, UNMADE)
    if flow.keeps_register and not flow.all_cuts:
        look = {"DESCRIBE": "see whether a flow leads back", "READ": "see whether a flow leads back"}
        found += _rows("source", "topic", REGISTER, look, NOTHING)
    return found


def _of_ids() -> list[Need]:
    return _rows("target", "transactional id", EACH, {"WRITE": "write in transactions"}, FLOW)


def _of_rules(flow: Flow) -> list[Need]:
    if not flow.sync.acls:
        return []
    reads, adds = {"DESCRIBE": "read access rules"}, {"ALTER": "add access rules"}
    return [
        *_rows("source", "cluster", CLUSTER_NAME, reads, NOTHING),
        *_rows("target", "cluster", CLUSTER_NAME, reads | adds, NOTHING),
    ]


def _of_groups(flow: Flow) -> list[Need]:
    found = _rows("source", "group", EACH, {"DESCRIBE": "see where it stands"}, NOTHING) if follows_groups(flow) else []
    if flow.mm2_topics.group_offsets:
        wanted = {"DESCRIBE": "see whether anybody works in it", "READ": "write its offsets"}
        found += _rows("target", "group", EACH, wanted, NOTHING)
    return found
