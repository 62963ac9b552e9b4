"""What torture on somebody's clusters will create and run, decided before anything is changed.

Owns the names: every topic that comes of it, on either side, holds the same eight random digits, so all of it is known
again at its end. What must stay true: the owner's topics and flows are not touched. So the flow has aliases of its own
(with them go progress, control and transactional ids), always the `default` names (others are on record in a register
that all flows into a cluster share), no heartbeats and no groups. Names end as those that MirrorMaker 2 and Isthmus
leave out by default, or a flow of all topics would carry these too.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

from isthmus.engine.internal import internal_topics
from isthmus.mm2.policy import remote_topic
from isthmus.model import Cluster, Flow, Mm2Topics, Naming, Topics, Tuning
from isthmus.torture.stage import EAST, TRANSACTION_S, WEST

_PARTITIONS = {"plain": 4, "transactions": 2}
_LEFT_OUT = ".replica"
_MOST_REPLICAS = 3
_COMMIT_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`asked`: the owner's flow; `flow`: the one under torture, without doors yet."""

    mark: str
    asked: Flow
    flow: Flow
    factor: int  # of topics on the source

    @property
    def topics(self) -> dict[str, int]:
        return _topics(self.mark)

    def owner(self, side: str) -> Cluster:
        """A cluster under the alias that its owner gave it."""
        return self.asked.source if side == EAST else self.asked.target

    def copy(self, topic: str) -> str:
        return remote_topic(self.flow, topic)

    def created(self, side: str) -> list[str]:
        names = list(self.topics) if side == EAST else [self.copy(topic) for topic in self.topics]
        on = "source" if side == EAST else "target"
        return [*names, *(each.topic.name for each in internal_topics(self.flow) if each.on == on)]

    def is_ours(self, topic: str) -> bool:
        """Whether a topic came of this, also one that nobody foresaw."""
        return "torture" in topic and self.mark in topic


def plan_for(flow: Flow, brokers: int, mark: str = "") -> Plan:
    """`brokers`: of the source."""
    mark = mark or secrets.token_hex(4)
    return Plan(mark=mark, asked=flow, flow=_trial(flow, mark), factor=min(_MOST_REPLICAS, brokers))


def as_json(plan: Plan, faults: list[str]) -> dict[str, object]:
    """The documented form (docs/json-output.md)."""
    sides = {
        word: {
            "cluster": plan.owner(side).alias,
            "bootstrap": list(plan.owner(side).bootstrap),
            "topics": plan.created(side),
        }
        for word, side in (("source", EAST), ("target", WEST))
    }
    return {**sides, "kinds": faults}


def _topics(mark: str) -> dict[str, int]:
    return {f"isthmus-torture-{mark}-{word}{_LEFT_OUT}": count for word, count in _PARTITIONS.items()}


def _trial(flow: Flow, mark: str) -> Flow:
    alias, kept = f"torture{mark}", flow.mm2_topics
    separator = flow.naming.separator if flow.naming.separator not in alias else Naming().separator
    return Flow(
        source=replace(flow.source, alias=alias),
        target=replace(flow.target, alias=f"{alias}-target"),
        topics=Topics(include=tuple(name.replace(".", r"\.") for name in _topics(mark)), exclude=()),
        naming=Naming(separator=separator, internal_separator=flow.naming.internal_separator),
        replication_factor=flow.replication_factor,
        internal_replication_factor=flow.internal_replication_factor,
        compression=flow.compression,
        # Settings are synced: copies must not fall to retention that the source's topics do not have.
        sync=replace(flow.sync, configs=True, acls=False),
        mm2_topics=Mm2Topics(
            heartbeats=False,
            carry_heartbeats=False,
            checkpoints=False,
            offset_syncs=kept.offset_syncs,
            offset_syncs_on=kept.offset_syncs_on,
            offset_lag_max=kept.offset_lag_max,
        ),
        tuning=_tuning(flow.tuning),
    )


def _tuning(given: Tuning) -> Tuning:
    """The owner's, with times that suit a storm of minutes."""
    return replace(
        given,
        transaction_timeout_ms=int(1000 * TRANSACTION_S),
        commit_interval_ms=min(_COMMIT_MS, given.commit_interval_ms),
        request_timeout_ms=8_000,
    )
