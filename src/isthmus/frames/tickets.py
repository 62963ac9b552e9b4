"""What the driver hands to writing tasks (a ticket) and what they hand back (a slip). Plain picklable values.

A ticket is good for one batch, which is one transaction: who writes, where rows may go, and the sequences that each
partition has reached. Must stay true: a batch's name is unique, because tasks claim it (I3).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from isthmus.errors import IsthmusError
from isthmus.model import NO_ID, Cluster, TopicPartition
from isthmus.wire.transaction import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A topic of the target that rows may go to."""

    topic: str
    partitions: int
    topic_id: uuid.UUID = NO_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Where tasks claim their share of a batch: a topic, and its end before the batch began."""

    topic: str
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """All that the writing tasks of one batch need."""

    batch: str
    cluster: Cluster
    places: Mapping[str, Place]  # by the topic's name as rows have it
    who: Identity
    second_protocol: bool
    claims: Claims
    codec: int
    timeout_ms: int
    batch_bytes: int  # most plain bytes of one batch of records
    sequences: Mapping[TopicPartition, int] = field(default_factory=dict)  # where they are not 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """What one task wrote: records and next sequences of each partition. `unknown`: topics that it had no place for."""

    counts: Mapping[TopicPartition, int] = field(default_factory=dict)
    sequences: Mapping[TopicPartition, int] = field(default_factory=dict)
    bytes: int = 0
    row_bytes: int = 0  # of a row, in the batch of rows where that was the most
    makers: frozenset[tuple[int, int]] = frozenset()  # tasks that made its rows, each with its attempt
    claim: str = ""  # its key, to be taken away when nobody can write with this ticket any more
    unknown: tuple[str, ...] = ()
    error: IsthmusError | None = None
