"""Carrying a decision out: first on record, then done, in an order in which a death in between stops again, loudly.

Done by the driver of a flow that runs, while the lanes of that topic have no order, and by a command that holds the
lease of one that does not: in both cases every id was fenced that could write of the topic, and progress was read after
that (I2), which the caller sees to.

Order, where a topic is forgotten: decision, then progress, then the index, then its ids. Whoever starts after a death
in between finds the old ids and stops as before; old progress never meets a new topic. What must stay true: a decision
that is made again, because nobody knows whether the first one was carried out, does no harm.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from isthmus.engine import control
from isthmus.engine.control import ControlView
from isthmus.engine.ledger import Ledger
from isthmus.engine.offsets.index import Index
from isthmus.engine.orders import Range, Stop
from isthmus.engine.resolve import record
from isthmus.engine.resolve.choices import Choice, Wanted, refused
from isthmus.engine.resolve.record import Decision, Gap
from isthmus.engine.resolve.states import State, damaged_range, look
from isthmus.engine.survey import ANY_TARGET, LET_GO
from isthmus.errors import ConfigError, TargetError
from isthmus.mm2.policy import remote_topic
from isthmus.model import NO_ID, Flow, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, settled_offsets
from isthmus.wire.journal import Journal

# What these leave on the target is no copy of what the source has.
_LEAVES = frozenset({"FOREIGN_WRITE", "TRUNCATED", "SOURCE_RECREATED", "SOURCE_GONE"})


# What the index says of the log that was is erased after these.
_OF_ANOTHER_LOG = frozenset({"SOURCE_GONE", "SOURCE_RECREATED", "TRUNCATED", "TARGET_RECREATED", "TARGET_RENAMED"})


class Ground(NamedTuple):
    """What a decision is carried out on."""

    flow: Flow
    source: Client
    target: Client
    journal: Journal
    view: ControlView
    ledger: Ledger
    landings: Index | None = None  # the index, as far as it was read already

    async def write(self, values: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Into the control topic, and into what is known of it."""
        await control.write(self.journal, values)
        for key, value in values.items():
            if value is None:
                self.view.values.pop(key, None)
            else:
                self.view.values[key] = dict(value)


async def read_ahead(ground: Ground, wanted: Wanted) -> Ground:
    """With the index, where the decision will need it. It may be long: to be called while no lane is held yet, then
    only its tail is left to read."""
    codes = {stop.code for stop in record.stops(ground.view, wanted.topic).values()}
    needed = wanted.choice is Choice.restart or (wanted.choice is Choice.accept_gap and codes & _OF_ANOTHER_LOG)
    if not needed or ground.flow.index_topic not in ground.target.topics:
        return ground
    index = _index(ground)
    await index.catch_up()
    return ground._replace(landings=index)


async def planned(ground: Ground, wanted: Wanted, *, surely: bool = False) -> list[Decision]:
    """What would be decided, with exact ranges; refuses what makes no sense. Nothing is changed."""
    flow = ground.flow
    states = await look(flow, ground.source, ground.target, ground.view, ground.ledger, wanted.topic, surely=surely)
    stops = chosen(states, wanted, f"flow {flow.name}")
    await _refuse_full_copy(ground, wanted)
    return [await _decision(ground, stop, wanted) for stop in stops]


async def resolve(ground: Ground, wanted: Wanted) -> list[Decision]:
    """Put the decision on record, and do it."""
    decided = await planned(ground, wanted, surely=True)
    gaps = [_gap(ground, each) for each in decided] if wanted.choice is Choice.accept_gap else []
    await ground.write(dict([record.decision_pair(each) for each in decided] + [g for g in gaps if g is not None]))
    if wanted.choice is Choice.restart:
        await _forget(ground, wanted.topic, lost=True)
    elif wanted.choice is Choice.accept_gap:
        await _accept(ground, decided)
    await forget_stops(ground.journal, ground.view, wanted.topic, {each.partition for each in decided})
    await ground.write({"snapshot": ground.ledger.snapshot()})
    return decided


async def forget_stops(journal: Journal, view: ControlView, topic: str, partitions: set[int] | None = None) -> None:
    """Take stops of a topic off the record; all of them, and its gaps, where it is begun anew."""
    gone = record.forgotten(view, topic, lost=partitions is None)
    if partitions is not None:
        kept = {record.stop_key(TopicPartition(topic, number)) for number in partitions}
        gone = {key: None for key in gone if key in kept}
    if gone:
        await control.write(journal, gone)  # first: what cannot be taken off the record is still known to stand there
    for key in gone:
        view.values.pop(key, None)


# --- which partitions, and what of them -------------------------------------------------------


def chosen(states: list[State], wanted: Wanted, where: str) -> list[Stop]:
    """The stops that are meant; ConfigError if there are none, or if the choice makes no sense."""
    meant = [state.stop for state in states if wanted.partition in (-1, state.source.partition) and state.stop]
    if not meant:
        what = f"{wanted.topic}-{wanted.partition}" if wanted.partition >= 0 else wanted.topic
        raise ConfigError(
            f"{what} is not stopped: there is nothing to resolve",
            where=where,
            hint="`isthmus gaps FILE` shows what stopped and what was decided",
            code="NOT_STOPPED",
        )
    for stop in meant:
        if (error := refused(stop.code, wanted, where)) is not None:
            raise error
    return meant


async def _refuse_full_copy(ground: Ground, wanted: Wanted) -> None:
    """What is copied again would stand behind what is there: every record twice."""
    remote = remote_topic(ground.flow, wanted.topic)
    if wanted.choice is not Choice.restart or remote not in ground.target.topics:
        return
    there = [TopicPartition(remote, number) for number in ground.target.topics[remote].partitions]
    begins = await settled_offsets(ground.target, there, EARLIEST)
    ends = await settled_offsets(ground.target, there, LATEST)
    if any(begins[tp] < ends[tp] for tp in there):
        raise TargetError(
            f"{remote} on the target still has records: copied again, they would be there twice",
            where=f"flow {ground.flow.name}, cluster {ground.flow.target.alias}",
            hint=f"delete it (kafka-topics.sh --delete --topic {remote}), then say the same again",
            code="COPY_NOT_EMPTY",
        )


async def _decision(ground: Ground, stop: Stop, wanted: Wanted) -> Decision:
    first, past = await _range(ground, stop, wanted)
    return Decision(
        topic=wanted.topic,
        partition=stop.source.partition,
        choice=wanted.choice,
        code=stop.code,
        at=wanted.at,
        host=wanted.host,
        user=wanted.user,
        first=first,
        past=past,
        foreign=await _foreign(ground, stop) if wanted.choice is Choice.accept_gap else (),
    )


async def _range(ground: Ground, stop: Stop, wanted: Wanted) -> Range:
    lost = stop.lost
    if wanted.choice is not Choice.accept_gap or stop.code not in record.GIVEN_UP:
        return lost or (-1, -1)
    if stop.code == "CORRUPT_BATCH" and lost is not None:
        lost = await damaged_range(ground.source, stop.source, lost[0])
    if lost is None:
        raise ConfigError(
            f"which offsets of {stop.source} to pass over is not known: {stop.message}",
            where=f"flow {ground.flow.name}",
            hint="lift the cause and --retry, or end the flow and move it by hand: `isthmus positions FILE --set`",
            code="CHOICE",
        )
    return lost


async def _foreign(ground: Ground, stop: Stop) -> tuple[Range, ...]:
    """Target offsets that are no copies of the source's log as it is now."""
    remote = TopicPartition(remote_topic(ground.flow, stop.source.topic), stop.source.partition)
    there = ground.target.topics.get(remote.topic)
    if stop.code not in _LEAVES or there is None or remote.partition not in there.partitions:
        return ()
    end = (await settled_offsets(ground.target, [remote], LATEST))[remote]
    if stop.code == "FOREIGN_WRITE":
        closed = [(first, end if past < 0 else past) for first, past in stop.foreign]
        return tuple((first, past) for first, past in closed if first < past)
    if stop.code == "TRUNCATED":
        return await _above(ground, stop, end)
    return ((0, end),) if end else ()


async def _above(ground: Ground, stop: Stop, end: int) -> tuple[Range, ...]:
    """Where the target has what the source has lost at its end, if the index knows."""
    if stop.lost is None or ground.flow.index_topic not in ground.target.topics:
        return ()
    index = _index(ground)
    await index.catch_up()
    low = (await index.translate(stop.source, stop.lost[0])).target
    return ((low, end),) if 0 <= low < end else ()


# --- doing it ---------------------------------------------------------------------------------


def _gap(ground: Ground, decided: Decision) -> tuple[str, dict[str, Any]] | None:
    if decided.first < 0 and not decided.foreign:
        return None
    known = ground.view.values.get(f"topic/{decided.topic}", {})
    gap = Gap(
        topic=decided.topic,
        partition=decided.partition,
        code=decided.code,
        at=decided.at,
        first=decided.first,
        past=decided.past,
        source_id=str(known.get("source_id", NO_ID)),
        foreign=decided.foreign,
        target_id=str(ground.target.topic_id(remote_topic(ground.flow, decided.topic))),
        accepted=record.DECIDED,
    )
    return record.gap_pair(gap, of_old_log=decided.code in ("SOURCE_GONE", "SOURCE_RECREATED"))


async def _accept(ground: Ground, decided: list[Decision]) -> None:
    code, topic = decided[0].code, decided[0].topic
    if code == "SOURCE_RECREATED":
        await _forget(ground, topic, lost=False)
    elif code == "SOURCE_GONE":
        # Its ids and progress stay: should it return, it goes on exactly; should another come, that stops.
        await ground.write({f"topic/{topic}": ground.view.values[f"topic/{topic}"] | {LET_GO: True}})
    elif code in ("TARGET_RECREATED", "TARGET_RENAMED"):
        await _go_on_elsewhere(ground, topic)
    else:
        await _move(ground, decided)


async def _move(ground: Ground, decided: list[Decision]) -> None:
    """GAP: to what is left. TRUNCATED: back to where the logs part; its index entries above that are of a log that is
    gone, and so is the leader's epoch in the progress: a position that is put has none."""
    changes: dict[TopicPartition, int | None] = {}
    for each in decided:
        tp = TopicPartition(each.topic, each.partition)
        if each.code == "GAP" and each.first >= 0:
            changes[tp] = each.past
        elif each.code == "TRUNCATED" and tp in ground.ledger.positions:
            changes[tp] = each.first if each.first >= 0 else ground.ledger.positions[tp]
    if any(each.code == "TRUNCATED" for each in decided):
        await _erase_index(ground, decided[0].topic)
    if changes:
        await ground.ledger.put(changes)


async def _forget(ground: Ground, topic: str, *, lost: bool) -> None:
    await ground.ledger.erase([topic])
    await _erase_index(ground, topic)
    await ground.write({f"topic/{topic}": None, **record.forgotten(ground.view, topic, lost=lost)})


async def _erase_index(ground: Ground, topic: str) -> None:
    if ground.flow.index_topic in ground.target.topics:
        await _index(ground).erase([topic])


def _index(ground: Ground) -> Index:
    return ground.landings or Index(Journal(ground.target, ground.flow.index_topic))


async def _go_on_elsewhere(ground: Ground, topic: str) -> None:
    """The source's id stays on record, so a source that is made anew at this very moment stops."""
    key = f"topic/{topic}"
    began = {str(tp.partition): at for tp, at in ground.ledger.positions.items() if tp.topic == topic}
    value = ground.view.values[key] | {
        "target": remote_topic(ground.flow, topic),
        "target_id": str(uuid.UUID(int=0)),
        "starts": ground.view.values[key].get("starts", {}) | began,
        ANY_TARGET: True,
    }
    await _erase_index(ground, topic)
    await ground.write({key: value})
