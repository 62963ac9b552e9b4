"""How far the clocks of brokers are from this machine's, as far as that can be known without writing.

No answer of a broker holds its time, but topics that stamp appends (LogAppendTime) do, the control topic first of
all. The stamp of the newest record there is a bound: the clock is at least so far. While such a topic is written to (a
flow that runs renews its lease every two seconds), a record that appears between two looks tells it from both sides.
What must stay true: what is said is no surer than that; nothing is written unless it was asked for (`measure`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from isthmus.engine import control
from isthmus.engine.checks import Check, ok, warn
from isthmus.engine.control import ControlView
from isthmus.model import Flow, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import LATEST, settled_offsets
from isthmus.wire.journal import Journal
from isthmus.wire.settings import describe_settings

_WATCH_S = 3.0
_LOOK_EVERY_S = 0.05
_FAR_S = 5.0
_TOPICS = 20  # of a source that are looked at
_HINT = "set the clocks right (NTP): tokens, certificates and retention go by them"


class Reading(NamedTuple):
    """The brokers' clock is at least `low` seconds ahead of ours (negative: behind), and at most `high`."""

    low: float
    high: float | None = None


async def of_target(target: Client, flow: Flow, view: ControlView, *, measure: bool) -> list[Check]:
    """By the control topic; `measure` writes one small record into it."""
    await target.refresh([flow.control_topic])
    if flow.control_topic not in target.topics:
        return [told(target.cluster.alias, None)]
    if measure:
        return [told(target.cluster.alias, await _written(Journal(target, flow.control_topic)))]
    driven = not view.values.get("lease", {"released": True}).get("released")
    at = [TopicPartition(flow.control_topic, 0)]
    return [told(target.cluster.alias, await read_clock(target, at, _WATCH_S if driven else 0.0))]


async def of_source(source: Client, names: Iterable[str]) -> list[Check]:
    """By topics of the flow that stamp appends, if there are any."""
    described = (await describe_settings(source, list(names)[:_TOPICS])).topics
    stamped = [
        TopicPartition(name, number)
        for name, settings in described.items()
        if (kind := settings.get("message.timestamp.type")) is not None and kind.value == "LogAppendTime"
        for number in source.topics[name].partitions
    ]
    return [told(source.cluster.alias, await read_clock(source, stamped, 0.0) if stamped else None)]


async def _written(journal: Journal) -> Reading | None:
    before = time.time()
    written = await control.write(journal, {"knock": {"driver": ""}})
    after = time.time()
    stamp = written.time_ms / 1000
    return Reading(stamp - after, stamp - before) if written.time_ms > 0 else None


async def read_clock(client: Client, stamped: Sequence[TopicPartition], watch_s: float) -> Reading | None:
    """By the newest records of partitions that stamp appends; None: there are none."""
    seen_at = time.time()
    ends = await settled_offsets(client, stamped, LATEST)
    stamps = [stamp for tp, end in ends.items() if (stamp := await _stamp(client, tp, end - 1)) is not None]
    low = max(stamps) - time.time() if stamps else None
    until = time.monotonic() + watch_s
    while time.monotonic() < until:
        asked_at = time.time()
        now = await settled_offsets(client, stamped, LATEST)
        heard_at = time.time()
        for tp in _grown(ends, now):
            if (stamp := await _stamp(client, tp, ends[tp])) is not None:
                return Reading(stamp - heard_at, stamp - seen_at)
        seen_at, ends = asked_at, now
        await asyncio.sleep(_LOOK_EVERY_S)
    return None if low is None else Reading(low)


def _grown(before: Mapping[TopicPartition, int], now: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    return [tp for tp, end in now.items() if end > before.get(tp, end)]


async def _stamp(client: Client, tp: TopicPartition, offset: int) -> float | None:
    """The time of the record there, in seconds."""
    if offset < 0:
        return None
    records = await Journal(client, tp.topic, tp.partition).read(offset, offset + 1)
    return records[0].timestamp / 1000 if records else None


def told(alias: str, reading: Reading | None) -> Check:
    """One line that says no more than is known."""
    if reading is None:
        return ok("clock", alias, "not measured: no topic there tells the brokers' time")
    if reading.high is None:
        if reading.low > _FAR_S:
            return warn("clock", alias, f"brokers are at least {reading.low:.0f} s ahead of this machine", _HINT)
        age = f"the newest stamp there is {-reading.low:.0f} s old"
        return ok("clock", alias, f"not measured: {age}, so brokers are not known to be ahead (--measure-clock tells)")
    middle, spread = (reading.high + reading.low) / 2, (reading.high - reading.low) / 2
    text = (
        f"brokers are {abs(middle):.2f} s {'ahead of' if middle >= 0 else 'behind'} this machine, within {spread:.2f} s"
    )
    far = reading.low > _FAR_S or reading.high < -_FAR_S
    return warn("clock", alias, text, _HINT) if far else ok("clock", alias, text)
