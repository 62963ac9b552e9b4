"""The control topic: what is wanted of a flow, who drives it, who claimed which order, how it stands.

Keys, all JSON values:
    lease                 the driver that owns the flow, renewed every LEASE_EVERY_S, released at a clean end
    fleet                 the most lanes that any run ever had (their transactional ids must be fenced)
    want/<lane>           what the driver wants of a lane: revision, "run" or "stop", topics to leave alone
    claim/<order>/<who>   one attempt at an order; the first in log order owns it (I3)
    status/<lane>         what a lane did lately, about once a second
    alive/<lane>          that a lane lives, of one that has nothing to report
    driver                what only the driver knows: states of lanes, events, groups, what it ended of (`report`)
    topic/<name>          ids of a source topic and its target, as first copied (I5)
    gap/<topic>/<p>/<n>   source offsets that were lost for good (I6); see `resolve.record`
    stop/<topic>/<p>      why a partition stands still
    decision/<topic>/...  what an operator chose to do about it
    wish/<what>           what an operator asks: pause, throttle, settings, a decision
    switch                which side clients work on, and how far a change of sides got (`switch`)
    heard                 the newest wish that the driver carried out or refused
    snapshot              progress up to a cut, so that a start reads only the tail

What must stay true: a claim's key is unique to its attempt, so that compaction can never remove the first
claim of an order in favour of the second. Nothing here is needed to be exact: progress is in transactions. A record
that cannot be read (`shapes`) leaves what was known; where that is not enough to go on safely, a start is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from isthmus.engine.shapes import is_sound
from isthmus.errors import TargetError
from isthmus.model import Flow, TopicPartition
from isthmus.wire.journal import Appended, Journal
from isthmus.wire.records import Record

LEASE_EVERY_S = 2.0
LEASE_DEAD_AFTER_S = 7.0  # for a rival driver that wants to start
DRIVER_GONE_AFTER_S = 15.0  # for a lane that hears nothing from its driver

# What a start may not do without: who could write, what was copied and lost, where clients work.
LASTING = ("fleet", "topic/", "register", "stop/", "gap/", "decision/", "wish/pause", "switch")

TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",  # lease ages are told by the target's own clock
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}


def encode(key: str, value: Mapping[str, Any] | None) -> tuple[bytes, bytes | None]:
    body = None if value is None else json.dumps(value, separators=(",", ":")).encode()
    return key.encode(), body


def decode(record: Record) -> tuple[str, dict[str, Any] | None]:
    """Key and value of a control record; damaged ones come back with an empty key."""
    try:
        key = (record.key or b"").decode()
        value = json.loads(record.value) if record.value is not None else None
    except (ValueError, RecursionError):  # no text, no JSON, or nested to make us fall over
        return "", None
    if record.value is None:
        return key, None
    # Else `5` would be taken for a tombstone.
    return (key, value) if isinstance(value, dict) and is_sound(key, value) else ("", None)


def gap_key(source: TopicPartition, first: int | str) -> str:
    return f"gap/{source.topic}/{source.partition}/{first}"


def never_run(flow: Flow, hint: str) -> TargetError:
    """There is no control topic: nothing was ever copied, and nobody hears what is asked."""
    where = f"cluster {flow.target.alias}, topic {flow.control_topic}"
    return TargetError(f"flow {flow.name} has never run", where=where, hint=hint, code="NO_PROGRESS")


def damage(flow: Flow, view: ControlView) -> TargetError | None:
    """The reason why nobody may go by what is on record."""
    if not view.damaged:
        return None
    key, offset = min(view.damaged.items(), key=lambda each: each[1])
    more = f", nor can {len(view.damaged) - 1} others" if len(view.damaged) > 1 else ""
    return TargetError(
        f"the record {key!r} of the control topic cannot be read{more}: what it said is not known",
        where=f"cluster {flow.target.alias}, topic {flow.control_topic}, offset {offset}",
        hint="find out who wrote it, and write it anew as it was; one with this key and no value takes it away, and "
        "what it said is forgotten then",
        code="CONTROL_DAMAGED",
    )


def refuse_damaged(flow: Flow, view: ControlView) -> None:
    if (error := damage(flow, view)) is not None:
        raise error


class ControlView:
    """The last value of every key, fed record by record; remembers when each was appended."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.times_ms: dict[str, int] = {}
        self.troubles = 0  # how often a stop or a gap came or went: whoever counts them need not look more often
        self.damaged: dict[str, int] = {}  # lasting records that cannot be read, and where they stand

    def apply(self, record: Record) -> str:
        key, value = decode(record)
        if key:
            self.damaged.pop(key, None)
        elif (name := (record.key or b"").decode(errors="replace")).startswith(LASTING):
            self.damaged[name] = record.offset
        self.troubles += key.startswith(("stop/", "gap/"))
        if value is None:
            self.values.pop(key, None)
        elif key:
            self.values[key] = value
            self.times_ms[key] = record.timestamp
        return key

    def under(self, prefix: str) -> dict[str, dict[str, Any]]:
        return {key: value for key, value in self.values.items() if key.startswith(prefix)}


async def write(journal: Journal, values: Mapping[str, Mapping[str, Any] | None]) -> Appended:
    return await journal.append([encode(key, value) for key, value in values.items()])


def claim_key(order_id: str, attempt: str) -> str:
    return f"claim/{order_id}/{attempt}"


async def claim(journal: Journal, order_id: str, attempt: str, since: int) -> bool:
    """Claim an order for this attempt; True when it is the first claim in log order (I3)."""
    key = claim_key(order_id, attempt)
    appended = await write(journal, {key: {"order": order_id, "attempt": attempt}})
    for record in await journal.read(since, appended.offset + 1):
        name, _ = decode(record)
        if name.startswith(f"claim/{order_id}/"):
            return name == key
    return False
