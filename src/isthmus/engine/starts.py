"""Where topics begin that have no progress yet: what `start` asks for, turned into offsets.

What must stay true: it is asked once, when a topic is put on record, and the answer stands beside the topic's ids
before the first record is copied. Were "latest" looked up again after a crash, everything written in between would
be missed. Partitions that are not named begin at the start of their log; so do those that are added later.
"""

from __future__ import annotations

from collections.abc import Mapping

from isthmus.errors import BrokerUnreachable, SourceError
from isthmus.mm2.javaregex import compile_java
from isthmus.model import Start, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, READ_COMMITTED, settled_offsets

_Offsets = dict[TopicPartition, int]


async def first_offsets(
    source: Client, starts: tuple[Start, ...], topics: Mapping[str, int]
) -> dict[str, dict[int, int]]:
    """Offsets by topic and partition, where they are not the start of the log. `topics` has partition counts."""
    by_rule: dict[Start, list[str]] = {}
    for topic in topics:
        rule = next((each for each in starts if compile_java(each.topics).fullmatch(topic)), None)
        if rule is not None and rule.at != "earliest":
            by_rule.setdefault(rule, []).append(topic)
    found: dict[str, dict[int, int]] = {}
    for rule, names in by_rule.items():
        partitions = [TopicPartition(name, number) for name in names for number in range(topics[name])]
        for tp, offset in (await _by_rule(source, rule, partitions)).items():
            found.setdefault(tp.topic, {})[tp.partition] = offset
    return found


async def _by_rule(source: Client, rule: Start, partitions: list[TopicPartition]) -> _Offsets:
    try:
        # A reader of committed records: what an open transaction holds is still to come, and will be copied.
        ends = await settled_offsets(source, partitions, LATEST, READ_COMMITTED)
        if rule.at == "latest":
            return ends
        if rule.at == "timestamp":
            at = await settled_offsets(source, partitions, rule.timestamp_ms)
            return {tp: min(ends[tp], offset) if offset >= 0 else ends[tp] for tp, offset in at.items()}
        return await _given(source, rule, partitions, ends)
    except BrokerUnreachable as error:
        raise SourceError(error.message, where=error.where) from error


async def _given(source: Client, rule: Start, partitions: list[TopicPartition], ends: _Offsets) -> _Offsets:
    begins = await settled_offsets(source, partitions, EARLIEST)
    wanted = dict(rule.offsets)
    for tp in partitions:
        offset = wanted.get(tp.partition, begins[tp])
        if not begins[tp] <= offset <= ends[tp]:
            raise SourceError(
                f"{tp} cannot start at offset {offset}: its log has {begins[tp]} to {ends[tp]}",
                where=f"cluster {source.cluster.alias}",
                hint=f"give an offset from {begins[tp]} to {ends[tp]} in `start`, or leave the partition out",
                code="START",
            )
    return {tp: wanted[tp.partition] for tp in partitions if tp.partition in wanted}
