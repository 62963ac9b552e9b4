"""Whether clusters are fit for a flow, apart from rights: brokers, transactions, logs that bite, replicas, sizes.

Each function looks at one thing and returns lines of a doctor's report. What must stay true: nothing is changed, also
not by asking for a coordinator, which would make a broker create its transaction log; topics are asked for together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from isthmus.engine.certificates import check_of
from isthmus.engine.checks import Check, fail, ok, some, warn
from isthmus.engine.plan import TopicStart
from isthmus.errors import BrokerRefused, PartitionStopped, SourceError, TargetError
from isthmus.mm2.filters import TopicFilter
from isthmus.mm2.policy import remote_topic
from isthmus.model import Flow, TopicPartition
from isthmus.wire import codes
from isthmus.wire.apis import at_least
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, list_offsets
from isthmus.wire.health import Broker, Replicas, broker_settings, replicas, try_brokers
from isthmus.wire.settings import DEFAULT, STATIC_BROKER, Settings, describe_settings

_LOG = "__transaction_state"
_SHORT_MS = 600_000  # a retention that an hour's outage would always overtake many times
_Kind = type[SourceError | TargetError]


async def brokers(client: Client, kind: _Kind) -> list[Check]:
    """Every broker by the address that it advertises, not only the bootstrap servers."""
    alias, found = client.cluster.alias, await try_brokers(client)
    if any(not each.error for each in found):
        await client.refresh(None)
    led = _leads(client)
    checks = [_unreached(alias, each, led.get(each.node, 0), kind) for each in found if each.error]
    answering = len(found) - len(checks)
    if answering:
        text = f"{answering} of {len(found)} answer by the addresses they advertise; about {at_least(client.offer)}"
        checks.insert(0, ok("brokers", alias, text))
    return checks


def _leads(client: Client) -> dict[int, int]:
    counts: dict[int, int] = {}
    for topic in client.topics.values():
        for partition in topic.partitions.values():
            counts[partition.leader] = counts.get(partition.leader, 0) + 1
    return counts


def _unreached(alias: str, broker: Broker, leads: int, kind: _Kind) -> Check:
    what = f"broker {broker.node} advertises {broker.host}:{broker.port}"
    weight = f"; it leads {leads} partitions, which would wait" if leads else ""
    if broker.unknown_name:
        hint = "make that name known here (DNS), or have brokers advertise another (advertised.listeners)"
        return fail("brokers", alias, f"{what}: that name is not known here ({broker.error}){weight}", hint, kind)
    hint = "is it running? open the way to it from this machine and from Spark's executors"
    return fail(check_of(broker.code), alias, f"{what}: {broker.error}{weight}", hint, kind)


# -- transactions --------------------------------------------------------------------------------


async def transactions(target: Client, flow: Flow) -> list[Check]:
    """Whether the target can do them: its transaction log, or what it would create one with."""
    alias = target.cluster.alias
    try:
        settings = await broker_settings(target, next(iter(target.nodes)))
    except BrokerRefused as error:
        settings = {}
        checks = [warn("transactions", alias, f"{error}: limits of transactions are not known", _CONFIGS_HINT)]
    else:
        checks = _timeouts(alias, flow, settings)
    if _LOG in target.topics:
        return checks + await _log_fares(target)
    return checks + (_log_to_come(alias, len(target.nodes), settings) if settings else [])


_CONFIGS_HINT = "grant DESCRIBE_CONFIGS on the cluster to have this checked; a run does without"


def _timeouts(alias: str, flow: Flow, settings: Mapping[str, str]) -> list[Check]:
    most, wanted = int(settings.get("transaction.max.timeout.ms", 0)), flow.tuning.transaction_timeout_ms
    if not most or wanted <= most:
        return []
    text = f"tuning.transaction_timeout_ms is {wanted}, and brokers take at most {most} (transaction.max.timeout.ms)"
    return [fail("transactions", alias, text, "lower it in the file", TargetError)]


async def _log_fares(target: Client) -> list[Check]:
    alias, least = target.cluster.alias, await _least_in_sync(target, [_LOG])
    found = await replicas(target, [_LOG])
    bad = [tp for tp, now in found.items() if now.leader < 0 or now.in_sync < least.get(_LOG, 1)]
    if bad:
        text = f"{_LOG}: {some(bad)} have no leader, or fewer replicas in sync than min.insync.replicas"
        return [fail("transactions", alias, text, "bring its brokers back, or lower min.insync.replicas", TargetError)]
    return [ok("transactions", alias, f"possible: {_LOG} has {len(found)} partitions, all led and in sync")]


def _log_to_come(alias: str, nodes: int, settings: Mapping[str, str]) -> list[Check]:
    factor = int(settings.get("transaction.state.log.replication.factor", 1))
    least = int(settings.get("transaction.state.log.min.isr", 1))
    if factor > nodes or least > min(factor, nodes):
        text = (
            f"transaction.state.log.replication.factor is {factor} and .min.isr {least}, and the cluster has "
            f"{nodes} broker{'s' * (nodes > 1)}: its transaction log cannot be created"
        )
        return [fail("transactions", alias, text, "lower both on the brokers to what it can hold", TargetError)]
    return [ok("transactions", alias, f"possible: the log will be created with {factor} replicas at the first one")]


async def _least_in_sync(client: Client, topics: Iterable[str]) -> dict[str, int]:
    described = (await describe_settings(client, topics)).topics
    return {name: _number(settings, "min.insync.replicas", 1) for name, settings in described.items()}


def _number(settings: Settings, name: str, default: int) -> int:
    found = settings.get(name)
    return int(found.value) if found is not None and found.value is not None else default


# -- logs of the source --------------------------------------------------------------------------


async def source_logs(source: Client, flow: Flow, starts: Iterable[TopicStart]) -> list[Check]:
    """Settings that bite, and whether retention is about to overtake the flow."""
    begins = {start.topic: start for start in starts}
    described = (await describe_settings(source, begins)).topics
    alias = flow.source.alias
    checks = [
        *_unclean(alias, described),
        *_short_lived(alias, described),
        *_leaderless(alias, source, begins),
        *await _overtaken(source, flow, begins.values()),
        *await _nearly_overtaken(source, begins.values(), described),
    ]
    return checks or [ok("source logs", alias, f"nothing that bites in {len(begins)} topics")]


def _unclean(alias: str, described: Mapping[str, Settings]) -> list[Check]:
    bad = _where(described, lambda settings: _text(settings, "unclean.leader.election.enable") == "true")
    text = f"unclean.leader.election.enable is true for {some(bad)}: acknowledged records may be lost there"
    return [warn("source logs", alias, text, "set it to false; a loss stops the partition (TRUNCATED)")] if bad else []


def _short_lived(alias: str, described: Mapping[str, Settings]) -> list[Check]:
    bad = _where(described, lambda settings: 0 <= _retention_ms(settings) < _SHORT_MS)
    text = f"records of {some(bad)} are deleted within {_SHORT_MS // 60_000} minutes (retention.ms)"
    hint = "keep them longer: what is deleted before it was copied is a gap, and stops its partition"
    return [warn("source logs", alias, text, hint)] if bad else []


def _leaderless(alias: str, source: Client, begins: Mapping[str, TopicStart]) -> list[Check]:
    bad = [
        TopicPartition(name, number)
        for name in begins
        for number, now in source.topics[name].partitions.items()
        if now.leader < 0
    ]
    return [warn("source logs", alias, f"no leader: {some(bad)}", "they flow as soon as they have one")] if bad else []


async def _overtaken(source: Client, flow: Flow, begins: Iterable[TopicStart]) -> list[Check]:
    at = {TopicPartition(b.topic, number): offset for b in begins for number, offset in b.positions.items()}
    first = await list_offsets(source, at, EARLIEST) if at else {}
    lost = {tp: start for tp, (start, error) in first.items() if error == codes.NONE and start > at[tp]}
    if not lost:
        return []
    text = f"deleted before they were copied: {some(f'{tp} {at[tp]}..{start - 1}' for tp, start in lost.items())}"
    if flow.on_gap == "skip":
        return [warn("source logs", flow.source.alias, text, "on_gap is skip: put on record, and passed over")]
    return [fail("source logs", flow.source.alias, text, "on_gap: skip goes on behind the gap", PartitionStopped)]


async def _nearly_overtaken(
    source: Client, begins: Iterable[TopicStart], described: Mapping[str, Settings]
) -> list[Check]:
    """Where the next record to copy has lived more than half of its time: the flow is losing a race."""
    by_life: dict[int, dict[TopicPartition, int]] = {}
    for begin in begins:
        lives_ms = _retention_ms(described.get(begin.topic, {}))
        if lives_ms > 0:
            at = {TopicPartition(begin.topic, number): offset for number, offset in begin.positions.items()}
            by_life.setdefault(lives_ms, {}).update(at)
    late = [tp for lives_ms, at in by_life.items() for tp in await _older(source, at, lives_ms // 2)]
    text = f"half of the retention is over for what comes next: {some(late)}"
    hint = "let the flow catch up, or keep records longer (retention.ms)"
    return [warn("source logs", source.cluster.alias, text, hint)] if late else []


async def _older(source: Client, at: Mapping[TopicPartition, int], age_ms: int) -> list[TopicPartition]:
    """Partitions whose record at this offset is older than that."""
    younger = await list_offsets(source, at, int(time.time() * 1000) - age_ms)
    ends = await list_offsets(source, [tp for tp, (offset, _) in younger.items() if offset < 0], LATEST)
    found = younger | ends  # without any younger record, all up to the end are older
    return [tp for tp, (offset, error) in found.items() if error == codes.NONE and offset > at[tp]]


def _retention_ms(settings: Settings) -> int:
    """-1: without end, or not by time."""
    return -1 if _text(settings, "cleanup.policy") == "compact" else _number(settings, "retention.ms", -1)


def _text(settings: Settings, name: str) -> str:
    found = settings.get(name)
    return (found.value or "") if found is not None else ""


def _where(described: Mapping[str, Settings], bad: Callable[[Settings], bool]) -> list[str]:
    return [name for name, settings in described.items() if bad(settings)]


# -- topics of the target ------------------------------------------------------------------------


async def target_topics(target: Client, flow: Flow, names: Iterable[str]) -> list[Check]:
    """Of those that are there: whether they could be written at all."""
    remotes = {name: remote for name in names if (remote := remote_topic(flow, name)) in target.topics}
    alias, there = flow.target.alias, (await describe_settings(target, remotes.values())).topics
    found = await replicas(target, remotes.values())
    checks = _few_replicas(alias, found, there)
    return checks or [ok("target topics", alias, f"{len(remotes)} of the flow are there, and can be written")]


def _few_replicas(alias: str, found: Mapping[TopicPartition, Replicas], there: Mapping[str, Settings]) -> list[Check]:
    least = {name: _number(settings, "min.insync.replicas", 1) for name, settings in there.items()}
    bad = [tp for tp, now in found.items() if now.leader < 0 or now.in_sync < least.get(tp.topic, 1)]
    text = f"cannot be written (no leader, or fewer replicas in sync than min.insync.replicas): {some(bad)}"
    hint = "bring brokers back, or lower min.insync.replicas to what the topic has"
    return [fail("target topics", alias, text, hint, PartitionStopped)] if bad else []


async def sizes(source: Client, target: Client, flow: Flow, names: Iterable[str]) -> list[Check]:
    """Whether the target takes batches as large as the source may hold: its topics, or the default of its brokers."""
    remotes = {name: remote_topic(flow, name) for name in names}
    here = (await describe_settings(source, remotes)).topics
    there = (await describe_settings(target, [r for r in remotes.values() if r in target.topics])).topics
    default = await _default_size(target)
    limits = {remote: _number(there.get(remote, {}), _SIZE, default) for remote in remotes.values()}
    rows = [
        (remotes[name], _number(settings, _SIZE, 0), limits[remotes[name]])
        for name, settings in here.items()
        if not _size_follows(flow, settings)
    ]
    bad = [f"{remote} ({wanted} on the source, {limit} there)" for remote, wanted, limit in rows if wanted > limit]
    if bad:
        text = f"{_SIZE} is smaller than on the source, and does not follow it: {some(bad)}"
        hint = (
            "raise it there (message.max.bytes for new topics), set it on the source's topics and let settings follow"
        )
        return [warn("sizes", flow.target.alias, text, hint)]
    return [ok("sizes", flow.target.alias, f"{_SIZE} of {len(remotes)} topics: none smaller than on the source")]


_SIZE = "max.message.bytes"
_ANY_SIZE = 1 << 31


async def _default_size(target: Client) -> int:
    """What a topic that is created there would take."""
    try:
        found = (await broker_settings(target, next(iter(target.nodes)))).get("message.max.bytes", "")
    except BrokerRefused:
        return _ANY_SIZE  # not allowed to know: told by the check of transactions
    return int(found or _ANY_SIZE)


def _size_follows(flow: Flow, settings: Settings) -> bool:
    """Whether the target's topic gets the same by keeping settings in step; what stands in a broker's file does not."""
    excluded = TopicFilter(flow.sync.config_exclude).matches(_SIZE)
    found = settings.get(_SIZE)
    if not flow.sync.configs or excluded or found is None or found.origin == STATIC_BROKER:
        return False
    return found.origin != DEFAULT or flow.sync.defaults_from == "source"
