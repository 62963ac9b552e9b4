"""What a run would do, found out without changing anything: topics to create and grow, settings and access rules to
change, what is skipped and why, where each topic begins.

What must stay true: the same functions decide here and in a run (`survey`, `sync`, `internal`), so that a run does
what its plan said; brokers are asked in batches, because a plan over 10,000 partitions must take seconds. Whatever
the target would refuse is a problem of the plan, told in the broker's words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from isthmus.engine.abilities import Finding, lacking
from isthmus.engine.control import ControlView, refuse_damaged
from isthmus.engine.internal import InternalTopic, internal_topics
from isthmus.engine.ledger import Ledger
from isthmus.engine.orders import Stop
from isthmus.engine.rights import Right, hidden_topics, missing_rights
from isthmus.engine.sides import clients, reach
from isthmus.engine.survey import (
    Growth,
    changed_identity,
    chosen_topics,
    collisions,
    growths,
    new_topics,
    refuse_nothing,
)
from isthmus.engine.switch import unfinished
from isthmus.engine.sync import Change, SettingRules, missing_acls
from isthmus.errors import BrokerRefused, SourceError, TargetError, WireError
from isthmus.mm2.filters import choose, why_not
from isthmus.mm2.formats import HEARTBEATS
from isthmus.mm2.javaregex import compile_java
from isthmus.mm2.policy import remote_topic
from isthmus.mm2.progress import CONNECTOR
from isthmus.model import Flow, TopicPartition
from isthmus.wire import codes
from isthmus.wire.access import TopicAcl, topic_acls
from isthmus.wire.admin import NewTopic, try_create_topics
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal
from isthmus.wire.settings import Alteration, alter_settings, describe_settings


class TopicStart(NamedTuple):
    """Where a source topic begins: partitions with progress go on at their next offset, the others begin `at`."""

    topic: str
    partitions: int
    positions: dict[int, int]
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a run of one flow would do at its start."""

    flow: str
    source: str  # aliases
    target: str
    create: tuple[NewTopic, ...] = ()
    internal: tuple[InternalTopic, ...] = ()
    grow: tuple[Growth, ...] = ()
    alter: tuple[Change, ...] = ()
    acls: tuple[TopicAcl, ...] = ()
    stopped: tuple[Stop, ...] = ()
    skipped: dict[str, tuple[str, ...]]  # topics by reason
    starts: tuple[TopicStart, ...] = ()
    problems: tuple[str, ...] = ()
    rights: tuple[Right, ...] = ()  # that are missing
    lacks: tuple[Finding, ...] = ()  # what the clusters are too old for

    @property
    def changes_nothing(self) -> bool:
        return not (self.create or self.internal or self.grow or self.alter or self.acls)

    def summary(self) -> str:
        """One short line."""
        partitions = sum(topic.partitions for topic in self.create)
        parts = [
            f"create {_count(len(self.create), 'topic')} ({_count(partitions, 'partition')})" if self.create else "",
            f"grow {len(self.grow)}" if self.grow else "",
            f"alter {_count(len(self.alter), 'setting')}" if self.alter else "",
            f"add {_count(len(self.acls), 'access rule')}" if self.acls else "",
        ]
        skipped = sum(map(len, self.skipped.values()))
        return f"plan: {', '.join(filter(None, parts)) or 'nothing to create or change'}; {skipped} skipped"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


async def plan_flow(source: Client, target: Client, flow: Flow, view: ControlView | None = None) -> Plan:
    """The plan, apart from progress. `view`: what is on record of a run before; it shows what would stop."""
    names = await chosen_topics(source, flow)
    await target.refresh(None)
    records = view.values if view else {}
    mixed = collisions(flow, names, view or ControlView())
    stops = [
        mixed.get(name) or changed_identity(source, target, flow, name, records.get(f"topic/{name}")) for name in names
    ]
    going = [name for name, stop in zip(names, stops, strict=True) if stop is None]
    internal = [
        each
        for each in internal_topics(flow)
        if each.topic.name not in (source if each.on == "source" else target).topics
    ]
    problems = [left] if view and (left := unfinished(flow, view)) else []
    return Plan(
        flow=flow.name,
        source=flow.source.alias,
        target=flow.target.alias,
        create=(*await new_topics(source, target, flow, going), *_heartbeats_to_come(target, flow, internal)),
        internal=tuple(internal),
        grow=tuple(growths(source, target, flow, going)),
        alter=tuple(await _changes(source, target, flow, going, problems)),
        acls=tuple(await _acls(source, target, flow, going, problems)),
        stopped=tuple(stop for stop in stops if stop is not None),
        skipped=_skipped(flow, source),
        problems=tuple(problems),
        lacks=lacking(source.offer, target.offer, flow),
    )


def _heartbeats_to_come(target: Client, flow: Flow, internal: list[InternalTopic]) -> list[NewTopic]:
    """The copy of a topic that is itself yet to be created."""
    made = [each.topic for each in internal if each.on == "source" and choose(flow, [each.topic.name])]
    copies = [topic._replace(name=remote_topic(flow, topic.name)) for topic in made if topic.name == HEARTBEATS]
    factor = flow.replication_factor
    return [copy._replace(replication_factor=factor) for copy in copies if copy.name not in target.topics]


async def _changes(source: Client, target: Client, flow: Flow, names: list[str], problems: list[str]) -> list[Change]:
    remotes = {name: remote for name in names if (remote := remote_topic(flow, name)) in target.topics}
    if not flow.sync.configs or not remotes:
        return []
    here, there = await describe_settings(source, remotes), await describe_settings(target, remotes.values())
    problems += [*_other_than_rights(here.refused), *_other_than_rights(there.refused)]
    rules = SettingRules(flow.sync)
    return [
        change
        for name, remote in remotes.items()
        if name in here.topics and remote in there.topics
        for change in rules.changes(remote, here.topics[name], there.topics[remote])
    ]


async def _acls(source: Client, target: Client, flow: Flow, names: list[str], problems: list[str]) -> list[TopicAcl]:
    if not flow.sync.acls:
        return []
    try:
        here, there = await topic_acls(source), await topic_acls(target)
    except WireError as error:
        problems.append(str(error))
        return []
    return missing_acls(here, there, {name: remote_topic(flow, name) for name in names})


def _skipped(flow: Flow, source: Client) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for topic, reason in why_not(flow, source.topics).items():
        found.setdefault(reason, []).append(topic)
    return {reason: tuple(topics) for reason, topics in sorted(found.items())}


# -- the command's plan: with connections of its own, progress, and what the target would refuse ----------------


async def make_plan(flow: Flow) -> Plan:
    """Connect to both clusters, look, and leave."""
    async with clients(flow) as (source, target):
        await reach(source, SourceError)
        await reach(target, TargetError)
        return await plan_all(source, target, flow)


async def plan_all(source: Client, target: Client, flow: Flow) -> Plan:
    """With progress, missing rights, and what the target would refuse."""
    names = await chosen_topics(source, flow)
    hidden = await hidden_topics(source, flow)
    refuse_nothing(flow, names, sorted(source.topics), hidden)
    view = await on_record(target, flow)
    plan = await plan_flow(source, target, flow, view)
    rights = await missing_rights(source, target, flow, [*names, *hidden])
    problems = await _refusals(target, plan)
    starts = await _starts(source, target, flow, view)
    return dataclasses.replace(plan, starts=starts, rights=tuple(rights), problems=(*plan.problems, *problems))


async def on_record(target: Client, flow: Flow) -> ControlView:
    view = ControlView()
    await target.refresh([flow.control_topic])
    if flow.control_topic in target.topics:
        journal = Journal(target, flow.control_topic)
        for record in await journal.read(await journal.beginning(), await journal.end()):
            view.apply(record)
    refuse_damaged(flow, view)
    return view


async def stored_positions(target: Client, flow: Flow, view: ControlView) -> dict[TopicPartition, int]:
    """Progress as it is committed now; without a fence, so a run may be ahead of it by the time it is read."""
    await target.refresh([flow.progress_topic])
    if flow.progress_topic not in target.topics:
        return {}
    ledger = Ledger(target, flow.progress_topic, flow.source.alias, CONNECTOR)
    await ledger.open(view.values.get("snapshot"))
    await ledger.advance()
    return ledger.positions


async def _refusals(target: Client, plan: Plan) -> list[str]:
    """What the target says when it is asked to check, without doing anything."""
    problems = _other_than_rights(await try_create_topics(target, plan.create, validate_only=True))
    changes: dict[str, list[Alteration]] = {}
    for change in plan.alter:
        changes.setdefault(change.topic, []).append(Alteration(change.name, change.new))
    if changes:
        refused = await alter_settings(target, changes, validate_only=True)
        problems += _other_than_rights(refused)
    return problems


def _other_than_rights(refused: Mapping[str, BrokerRefused]) -> list[str]:
    """Missing rights have a list of their own."""
    return [str(error) for error in refused.values() if error.kafka_code != codes.TOPIC_AUTHORIZATION_FAILED]


async def _starts(source: Client, target: Client, flow: Flow, view: ControlView) -> tuple[TopicStart, ...]:
    """As progress stands now; a run reads it again after it has fenced whoever writes."""
    positions: dict[str, dict[int, int]] = {}
    for tp, offset in sorted((await stored_positions(target, flow, view)).items()):
        positions.setdefault(tp.topic, {})[tp.partition] = offset
    return tuple(
        TopicStart(name, len(source.topics[name].partitions), positions.get(name, {}), _start(flow, name))
        for name in choose(flow, source.topics)
    )


def _start(flow: Flow, topic: str) -> str:
    for start in flow.starts:
        if compile_java(start.topics).fullmatch(topic):
            return f"timestamp {start.timestamp_ms}" if start.at == "timestamp" else start.at
    return "earliest"
