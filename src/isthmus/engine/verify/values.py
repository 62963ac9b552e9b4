"""What is compared, and what was found: plain picklable values, because they travel through Spark."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.engine.orders import Range
from isthmus.model import Flow, TopicPartition

MISSING, DOUBLED, EXTRA, REORDERED, ALTERED, DAMAGED = (
    "missing",
    "doubled",
    "extra",
    "reordered",
    "altered",
    "damaged",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The part of one source partition, and of its copy, that should be the same.

    The copy is read up to `target_end`, and the source as far as it takes: a flow that runs has copied more by then
    than `until`, which is what must be there. `by_key`: compaction has taken records out on either side, so the last
    value of each key is compared instead of every record.
    """

    source: TopicPartition
    target: TopicPartition
    low: int
    until: int
    source_end: int
    target_low: int
    target_end: int
    by_key: bool = False
    without: tuple[Range, ...] = ()  # source offsets that are not on the target, as recorded
    target_without: tuple[Range, ...] = ()  # target offsets that are not from the source, as recorded
    letters: frozenset[int] = frozenset()  # source offsets of dead letters

    @property
    def size(self) -> int:
        return max(0, self.until - self.low) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place where the two are not the same. An offset of -1: that side has nothing there."""

    kind: str
    source_offset: int
    target_offset: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What came out for one stretch. `reason`: why it could not be compared."""

    source: TopicPartition
    target: TopicPartition
    low: int
    until: int
    records: int = 0
    bytes: int = 0
    alike: int = 0  # batches that were the same byte for byte
    opened: int = 0  # batches that had to be looked into
    by_key: bool = False
    dead_letters: int = 0  # records that are among the dead letters instead
    difference: Difference | None = None
    reason: str = ""

    @property
    def equal(self) -> bool:
        return self.difference is None and not self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Stretches that one Spark task compares, one after the other."""

    flow: Flow
    stretches: tuple[Stretch, ...]
