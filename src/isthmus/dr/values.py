"""Values of a change of sides: what is wanted, what happens, what came of it. Pure; nothing here does I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from isthmus.model import Flow

SWITCHOVER, FAILOVER, FAILBACK = "switchover", "failover", "failback"
BEGUN, WAITS, DONE = "begun", "waits", "done"
KEEP, DISCARD = "keep", "discard"  # what a failback does with records that never crossed

Check = Callable[[], None]  # raises when the flow that is carried does not copy any more
Carry = Callable[[Flow], AbstractAsyncContextManager[Check]]  # a flow runs as long as this is entered


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that begins, is being waited for, or is done."""

    name: str
    state: str
    text: str = ""
    at: float = 0.0  # seconds since the epoch


Tell = Callable[[Step], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How clients change sides."""

    carry: Carry  # for what nobody else copies
    kind: str = SWITCHOVER
    quiet_s: float = 3.0  # writers have stopped when nothing was appended for so long
    patience_s: float = 600.0  # for writers to stop, for the rest to be copied, for consumers to leave
    reach_s: float = 10.0  # after that the source counts as gone
    source_is_lost: bool = False  # the operator says so, although it answers
    fence_writers: bool = False  # shut them out of the source by access rules
    move_active: bool = False  # do not wait for consumers that still work on the side that is left
    never_crossed: str = ""  # KEEP | DISCARD; empty: refuse when there is something
    two_way: bool = False  # the file has a flow back of its own
    rebuilt: bool = False  # the source is a new and empty one: all copies go back


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One source partition and its copy."""

    topic: str
    partition: int
    target_topic: str
    copied: int  # source offsets below are on the target
    source_end: int  # now, or as it was last heard of; -1: never
    target_end: int

    @property
    def missing(self) -> int:
        """Offsets of the source that are known not to be on the target; some may be markers."""
        return max(0, self.source_end - self.copied) if self.source_end >= 0 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """One group in one partition of the side that clients go to."""

    group: str
    topic: str
    partition: int
    offset: int  # committed there; -1: none
    state: str  # of the translation; "in use" when somebody already works in the group there


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Offsets [first, past) of the source that never crossed, and how many records they are."""

    topic: str
    partition: int
    first: int
    past: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a change of sides would do, from what is seen now; nothing was changed."""

    flow: str
    kind: str
    phase: str  # of an earlier change; empty: none
    source_alive: bool
    driven_by: str  # who runs the flow now; empty: nobody
    rows: tuple[Row, ...]
    groups: Mapping[str, str]  # their state on the side that is left, where it can be asked
    never_crossed: tuple[Leftover, ...] = ()
    heard_ms: int = 0  # when the source was last heard of

    @property
    def steps(self) -> tuple[str, ...]:
        return STEPS[self.kind]


STEPS = {
    SWITCHOVER: (
        "writers: wait until nobody writes to the source's topics any more",
        "drain: wait until everything is on the target; if nobody runs the flow, copy it here",
        "freeze: end the flow, fence its lanes, put on record where both logs stand",
        "groups: wait until consumers have left the source, commit their exact places on the target",
        "switch: clients may start on the target",
    ),
    FAILOVER: (
        "freeze: end the flow, fence its lanes, put on record where both logs stand",
        "groups: commit the places of consumer groups on the target, as last heard of",
        "switch: clients may start on the target",
    ),
    FAILBACK: (
        "look: find what the source holds that never crossed",
        "aside: keep that in side topics on the target, or leave it out",
        "prepare: let the flow back begin exactly where the freeze was",
        "carry: copy back what is new on the target",
        "writers: wait until nobody writes to the target's copies any more",
        "drain: copy the rest",
        "groups: wait until consumers have left the target, commit their exact places on the source",
        "return: the flow goes on behind what came back; clients may start on the source",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of it."""

    flow: str
    kind: str
    began_ms: int  # when it was decided
    ended_ms: int
    to: str  # alias of the cluster that clients use now
    bootstrap: tuple[str, ...]
    rows: tuple[Row, ...]
    groups: tuple[GroupPlace, ...]
    steps: tuple[tuple[str, int], ...]
    heard_ms: int = 0  # of the source, last; 0: it was there
    never_crossed: tuple[Leftover, ...] = ()
    side_topics: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def rto_s(self) -> float:
        """From the decision until clients may start."""
        return (self.ended_ms - self.began_ms) / 1000

    @property
    def records_at_risk(self) -> int:
        """What is known to be on the source alone."""
        return sum(row.missing for row in self.rows)

    @property
    def rpo_s(self) -> float:
        """What was written during so long may be on the source alone, at most."""
        return max(0, self.began_ms - self.heard_ms) / 1000 if self.heard_ms else 0.0
