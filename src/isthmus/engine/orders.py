"""What the driver hands to a lane (an order) and what a lane hands back (a receipt).

An order names everything that a lane may touch: partitions by topic id, start offsets, and the producer
ids and epochs that it writes with. It is good for one attempt and one epoch (I3, I8). Both are plain
picklable values: they travel through Spark.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from isthmus.engine.register import Origin
from isthmus.model import NO_ID, Flow, TopicPartition
from isthmus.wire.transaction import Identity

Range = tuple[int, int]  # half-open


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One source partition, its target, and the next source offset to copy."""

    source: TopicPartition
    source_id: uuid.UUID
    target: TopicPartition
    target_id: uuid.UUID
    offset: int  # -1: nothing copied yet, begin at the start of the log
    until: int = -1  # caught up when this source offset is reached; -1: no end
    strikes: int = 0  # refusals by the target that ended earlier orders: above 0, nothing is merged
    refusals: int = 0  # by a target that was moving: it rests before it is tried again (`resting`)
    most_records: int = 0  # in one batch, where the target found larger ones too large; 0: no limit
    mark: str = ""  # of a batch copied before: the source's log must still hold it (`marks`)
    epoch: str = ""  # of the leader that took the last record copied: the source's log must know it (`reigns`)
    letters: tuple[tuple[int, str], ...] = ()  # source offsets that go to the dead letters, and why
    given_up: tuple[Range, ...] = ()  # source offsets that an operator decided to pass over


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One epoch of one lane."""

    order_id: str
    flow: Flow
    lane: int
    driver: str  # whose lease must stay alive
    revision: int
    assignments: tuple[Assignment, ...]
    identities: tuple[Identity, Identity]
    second_protocol: bool
    progress_id: uuid.UUID
    progress_partitions: int
    dead_letters_id: uuid.UUID | None  # of the topic; None: what is too large stops its partition
    topic_rates: Mapping[str, float]  # bytes per second that this lane may read of single topics
    control_from: int  # end of the control topic before its partitions were chosen: it is followed from here
    origin: Origin | None = None  # what new producer ids are put on record with; None: they are not
    register_id: uuid.UUID = NO_ID  # of the source's register, which the lane reads


def for_travel(order: Order) -> Order:
    """The order without settings that hold secrets in clear; a lane needs the typed `security` alone."""
    flow = order.flow
    return replace(order, flow=replace(flow, source=flow.source.for_travel(), target=flow.target.for_travel()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A partition that stopped loudly, and why. `lost`: source offsets, its end -1 where that is not known. `foreign`:
    offsets of the target that somebody else wrote."""

    source: TopicPartition
    code: str
    message: str
    hint: str = ""
    lost: Range | None = None
    foreign: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """How an order ended. Positions are committed ones: the next source offset of each partition."""

    order_id: str
    lane: int
    reason: str  # "epoch" | "stop" | "revision" | "caught up" | "driver gone" | "claimed by another" | "fenced"
    positions: dict[TopicPartition, int]
    detail: str = ""  # what made the order void
    stops: tuple[Stop, ...] = ()
    strikes: Mapping[TopicPartition, int] = field(default_factory=dict)  # refusals that may heal
    refusals: Mapping[TopicPartition, int] = field(default_factory=dict)  # by a target that was moving
    most_records: Mapping[TopicPartition, int] = field(default_factory=dict)  # limits that were found
    letters: Mapping[TopicPartition, tuple[tuple[int, str], ...]] = field(
        default_factory=dict
    )  # found, not yet written
    learned: bool = False  # what was refused will be tried in another way: no reason to wait
    records: int = 0
    dead_letters: int = 0
    bytes: int = 0
    transactions: int = 0
    aborts: int = 0


class LaneRunner(Protocol):
    """Runs one order somewhere and returns its receipt; raises when the attempt was lost."""

    async def run(self, order: Order) -> Receipt: ...
