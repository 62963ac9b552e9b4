"""How the partitions of one topic stand, found by looking at both clusters and at the record.

What can be seen is looked at anew (is the topic there, is it the same, does its log hold the next offset, and what was
copied before it); the rest is what lanes said when they stopped. The same for a look from outside and for the driver.
What must stay true: the ledger is given by the caller, who has fenced if something is to be changed. A truncation
begins where the logs part, not where the source's log ends now: that may have grown again. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from isthmus.engine.control import ControlView
from isthmus.engine.ledger import Ledger
from isthmus.engine.orders import Range, Stop
from isthmus.engine.refusals import truncated
from isthmus.engine.reigns import Reign, parse_reign
from isthmus.engine.resolve import record
from isthmus.engine.survey import LET_GO, changed_identity, gone_stop, look_again
from isthmus.errors import BrokerUnreachable, SourceError
from isthmus.model import Flow, TopicPartition
from isthmus.wire import codes
from isthmus.wire.batch import damaged_span
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, Limits, Want, fetch, settled_offsets

_GLANCE = Limits(max_bytes=1, partition_bytes=1, wait_ms=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One partition. `position`: the next source offset (-1: nothing was copied). Without a `stop` it flows."""

    source: TopicPartition
    position: int
    stop: Stop | None = None

    @property
    def code(self) -> str:
        return "" if self.stop is None else self.stop.code


async def look(
    flow: Flow,
    source: Client,
    target: Client,
    view: ControlView,
    ledger: Ledger,
    topic: str,
    *,
    surely: bool = False,
) -> list[State]:
    """Every partition of the topic; SourceError if the flow has nothing to do with it. `surely`: before something is
    forgotten, a copy that is not there is looked for again, as a driver does."""
    await source.refresh(None)
    await target.refresh(None)
    known = view.values.get(f"topic/{topic}")
    said = record.stops(view, topic)
    if known is None and not said:
        raise SourceError(
            f"the flow does not carry {topic}",
            where=f"flow {flow.name}, cluster {flow.source.alias}",
            hint="`isthmus positions FILE` lists what it carries",
            code="UNKNOWN_TOPIC",
        )
    positions = ledger.positions
    numbers = {tp.partition for tp in (*positions, *said) if tp.topic == topic}
    numbers |= set(source.topics[topic].partitions) if topic in source.topics else set()
    plain = [State(source=tp, position=positions.get(tp, -1)) for tp in _sorted(topic, numbers or {0})]
    if topic not in source.topics:
        if known is not None and known.get(LET_GO):
            return plain
        return [_with(state, gone_stop(state.source, state.position)) for state in plain]
    if surely and known is not None:
        await look_again(target, flow, [topic])
    if (changed := changed_identity(source, target, flow, topic, known)) is not None:
        return [_with(state, _lost_by(changed, state)) for state in plain]
    return await _in_their_logs(source, plain, {tp: _doubted(stop) for tp, stop in said.items()}, ledger)


def _sorted(topic: str, numbers: set[int]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in sorted(numbers)]


def _doubted(stop: Stop) -> Stop:
    """What was said to be gone, and is there as it was: nothing may be forgotten for it, it is tried again."""
    if stop.code not in ("SOURCE_GONE", "TARGET_RECREATED", "TARGET_RENAMED"):
        return stop
    code = "SOURCE_REFUSED" if stop.code == "SOURCE_GONE" else "TARGET_REFUSED"
    return replace(stop, code=code, message=f"{stop.message}; but it is there now", lost=None)


def _with(state: State, stop: Stop) -> State:
    return replace(state, stop=replace(stop, source=state.source))


def _lost_by(stop: Stop, state: State) -> Stop:
    """Which source offsets a topic that is another by now has taken along."""
    if stop.code == "SOURCE_RECREATED":
        return replace(stop, lost=(max(0, state.position), -1))
    return replace(stop, lost=(0, state.position) if state.position > 0 else None)


async def _in_their_logs(
    source: Client, plain: list[State], said: Mapping[TopicPartition, Stop], ledger: Ledger
) -> list[State]:
    there = [state for state in plain if state.source.partition in source.topics[state.source.topic].partitions]
    begins = await settled_offsets(source, [state.source for state in there], EARLIEST)
    ends = await settled_offsets(source, [state.source for state in there], LATEST)
    found = []
    for state in there:
        low, high, at = begins[state.source], ends[state.source], state.position
        before = said.get(state.source)
        if 0 <= at < low:
            found.append(_with(state, _overtaken(state, low)))
        elif (cut := await _parted(source, state, parse_reign(ledger.epochs.get(state.source, "")))) is not None:
            found.append(replace(state, stop=cut))
        elif at > high:
            found.append(_with(state, _cut_off(state, _lower(high, before))))
        else:
            found.append(replace(state, stop=_as_it_stands(before, at)))
    return found


async def _parted(source: Client, state: State, reign: Reign) -> Stop | None:
    """Whether the log ever had the last record that was copied; None: it had, or that cannot be told."""
    if reign.epoch < 0:
        return None
    want = Want(state.source, source.topic_id(state.source.topic), state.position, last_epoch=reign.epoch)
    try:
        (answer,) = await fetch(source, source.leader(state.source), [want], _GLANCE, "resolve")
    except BrokerUnreachable:
        return None
    if answer.error != codes.NONE or answer.diverging is None:
        return None
    epoch, end = answer.diverging
    return truncated(state.source, epoch, reign.cut(epoch, end), state.position)


def _lower(high: int, said: Stop | None) -> int:
    """A log that was cut may have grown since a lane saw where."""
    known = said.lost if said is not None and said.code == "TRUNCATED" else None
    return high if known is None else min(high, known[0])


def _as_it_stands(said: Stop | None, at: int) -> Stop | None:
    """What the lane had in hand when it stopped may not have been committed after all."""
    if said is None or said.code != "TRUNCATED" or said.lost is None:
        return said
    return replace(said, lost=(min(said.lost[0], at), at))


def _overtaken(state: State, low: int) -> Stop:
    text = f"offsets {state.position} to {low - 1} were removed on the source before they were copied"
    return Stop(source=state.source, code="GAP", message=text, lost=(state.position, low))


def _cut_off(state: State, high: int) -> Stop:
    text = f"offset {state.position} is beyond the source's end {high}: its log was truncated"
    return Stop(source=state.source, code="TRUNCATED", message=text, lost=(high, state.position))


async def damaged_range(source: Client, tp: TopicPartition, first: int) -> Range | None:
    """Offsets of the first damaged batch from here on; None: not even its header tells."""
    want = Want(tp, source.topic_id(tp.topic), first)
    (answer,) = await fetch(source, source.leader(tp), [want], Limits(), "resolve")
    return damaged_span(answer.records, first)
