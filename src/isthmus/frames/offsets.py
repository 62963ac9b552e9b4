"""Where a query begins and ends, asked of the brokers: from options to offsets.

Must stay true: "latest" is the last stable offset, so what is planned can be read by a reader of committed records;
every partition that is selected gets an offset, or there is an error that says which and why. What was lost is judged
by `judge`, in one place: an error, or where the user said so a warning in Spark's log.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping

from isthmus.errors import SourceError
from isthmus.frames.jsons import EARLIEST, LATEST, Offsets
from isthmus.frames.options import Bound, Selection, wrong
from isthmus.frames.ranges import Loss
from isthmus.model import TopicPartition
from isthmus.wire import fetch
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import READ_COMMITTED, settled_offsets

_OF_BROKERS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_log = logging.getLogger("isthmus.frames")


def judge(losses: Iterable[Loss], fail_on_loss: bool) -> None:
    """An error at the first loss, or a warning for each."""
    for loss in losses:
        if fail_on_loss:
            raise SourceError(
                f"records of {loss.tp} are lost: {loss.what}",
                where=str(loss.tp),
                hint="retention may have taken them; to go on with what is there, set failOnDataLoss to false",
                code="DATA_LOSS",
            )
        _log.warning("records of %s are lost: %s (DATA_LOSS)", loss.tp, loss.what)


async def selected(client: Client, selection: Selection) -> list[TopicPartition]:
    """All partitions that are asked for, as they are now."""
    if selection.pattern:
        await client.refresh(None)
        topics = [name for name in client.topics if name not in _OF_BROKERS and selection.matches(name)]
        return _partitions(client, topics)
    wanted = selection.topics or tuple({tp.topic for tp in selection.assign})
    await client.refresh(wanted)
    if any(name not in client.topics for name in wanted):
        await client.refresh(None)  # all of them, to name the nearest where one is missing
    for name in wanted:
        if name not in client.topics:
            raise _no_topic(client, name)
    return _assigned(client, selection.assign) if selection.assign else _partitions(client, wanted)


def _partitions(client: Client, topics: Iterable[str]) -> list[TopicPartition]:
    return sorted(TopicPartition(name, number) for name in topics for number in client.topics[name].partitions)


def _assigned(client: Client, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
    for tp in wanted:
        if tp.partition not in client.topics[tp.topic].partitions:
            raise SourceError(
                f"topic {tp.topic} has no partition {tp.partition}",
                where="option `assign`",
                hint=f"it has {len(client.topics[tp.topic].partitions)}, from 0",
                code="UNKNOWN_PARTITION",
            )
    return sorted(wanted)


def _no_topic(client: Client, name: str) -> SourceError:
    near = difflib.get_close_matches(name, client.topics, 1)
    return SourceError(
        f"there is no topic {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
        where=f"cluster {client.cluster.alias}",
        hint="correct the name, or use subscribePattern to wait for topics to come",
        code="UNKNOWN_TOPIC",
    )


async def latest(client: Client, partitions: Iterable[TopicPartition]) -> Offsets:
    """The last stable offset of each."""
    return await settled_offsets(client, partitions, fetch.LATEST, READ_COMMITTED)


async def earliest(client: Client, partitions: Iterable[TopicPartition]) -> Offsets:
    return await settled_offsets(client, partitions, fetch.EARLIEST)


async def resolved(client: Client, partitions: list[TopicPartition], bound: Bound, fail_on_loss: bool) -> Offsets:
    """The offset of each partition that a bound means."""
    if bound.at == "earliest":
        return await earliest(client, partitions)
    last = await latest(client, partitions)
    if bound.at == "latest":
        return last
    if bound.at == "time":
        return await _at_times(client, dict.fromkeys(partitions, bound.time), bound, last)
    _refuse_others(bound, partitions)
    if bound.at == "times":
        return await _at_times(client, bound.places, bound, last)
    return _at_offsets(bound.places, await earliest(client, partitions), last, fail_on_loss)


def _refuse_others(bound: Bound, partitions: Iterable[TopicPartition]) -> None:
    """As with Spark's own source: all partitions are named, or none."""
    there = set(partitions)
    missing, foreign = sorted(there - set(bound.places)), sorted(set(bound.places) - there)
    if missing:
        raise wrong(bound.option, f"{missing[0]} is read and not named there", "name all: -2 earliest, -1 latest")
    if foreign:
        raise wrong(bound.option, f"{foreign[0]} is named and not read", "leave it out, or select it")


def _at_offsets(places: Mapping[TopicPartition, int], first: Offsets, last: Offsets, fail_on_loss: bool) -> Offsets:
    found: Offsets = {}
    losses = []
    for tp, place in places.items():
        if place in (EARLIEST, LATEST):
            found[tp] = first[tp] if place == EARLIEST else last[tp]
            continue
        found[tp] = min(max(place, first[tp]), last[tp])
        if found[tp] != place:
            losses.append(Loss(tp, f"offset {place} was asked for, and {first[tp]} to {last[tp]} are there"))
    judge(losses, fail_on_loss)
    return found


async def _at_times(client: Client, times: Mapping[TopicPartition, int], bound: Bound, last: Offsets) -> Offsets:
    by_time: dict[int, list[TopicPartition]] = {}
    for tp, time in times.items():
        by_time.setdefault(time, []).append(tp)
    found: Offsets = {}
    for time, partitions in by_time.items():
        for tp, offset in (await settled_offsets(client, partitions, time)).items():
            if offset < 0 and not bound.or_latest:
                hint = "set startingOffsetsByTimestampStrategy to latest, or take an earlier time"
                raise wrong(bound.option, f"{tp} has no record as late as {time}", hint)
            found[tp] = last[tp] if offset < 0 else min(offset, last[tp])
    return found
