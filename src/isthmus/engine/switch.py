"""Which side clients work on: the state of a failover, on record in the control topic of the flow that it concerns.

    draining    a switchover has begun; the flow still copies
    frozen      the flow may not copy any more; groups are being moved
    switched    clients work on the target; the flow stays frozen
    returning   a failback has begun; the flow stays frozen
    returned    clients work on the source again; the flow may run

What must stay true: a driver that hears of a freeze ends, and none starts while the flow is frozen: what clients write
on the target must never mix with copies. The state also has, for each partition, where both logs stood at the
freeze: a failback begins there. Changing sides is left to `isthmus.dr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from isthmus.engine.control import ControlView
from isthmus.engine.shapes import PHASES
from isthmus.errors import RivalError
from isthmus.model import Flow, TopicPartition

SWITCH = "switch"  # key in the control topic
DRAINING, FROZEN, SWITCHED, RETURNING, RETURNED = PHASES
_HALTED = frozenset({FROZEN, SWITCHED, RETURNING})


class Place(NamedTuple):
    """A partition at the freeze. Offsets of -1: not known."""

    source: int  # everything below is on the target
    target: int  # the end of the copy: what clients write there begins here
    seen_end: int = -1  # the source's end, as it was last heard of
    back: int = -1  # the source's end when it came back: what a failback brings begins here


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """The state; `steps` says what was done, and when (milliseconds)."""

    phase: str
    kind: str  # "switchover" | "failover"
    decided_ms: int
    by: str  # user and host
    places: Mapping[TopicPartition, Place] = field(default_factory=dict)
    steps: tuple[tuple[str, int], ...] = ()
    never_crossed: str = ""  # what a failback does with it
    fenced: bool = False  # writers are shut out of the source by access rules, or are about to be
    heard_ms: int = 0  # when the source was last heard of, if it did not answer

    @property
    def is_halted(self) -> bool:
        return self.phase in _HALTED

    @property
    def is_open(self) -> bool:
        """A switchover that has not frozen anything for good: writers and copies are still to be waited for."""
        return self.phase == DRAINING or (
            self.phase == FROZEN and self.kind == "switchover" and not self.done("freeze")
        )

    @property
    def shuts_out(self) -> bool:
        """Whether our access rules may be on the source."""
        return self.fenced and self.phase != RETURNED

    def done(self, step: str) -> bool:
        return any(name == step for name, _ in self.steps)

    def with_step(self, step: str, now_ms: int) -> Switch:
        return self if self.done(step) else replace(self, steps=(*self.steps, (step, now_ms)))

    def as_value(self) -> dict[str, Any]:
        topics: dict[str, list[list[int]]] = {}
        for tp, place in self.places.items():
            topics.setdefault(tp.topic, []).append([tp.partition, *place])
        return {
            "phase": self.phase,
            "kind": self.kind,
            "decided_ms": self.decided_ms,
            "by": self.by,
            "places": topics,
            "steps": [list(step) for step in self.steps],
            "never_crossed": self.never_crossed,
            "fenced": self.fenced,
            "heard_ms": self.heard_ms,
        }


def switch_of(view: ControlView) -> Switch | None:
    """The state on record; None: clients never changed sides."""
    value = view.values.get(SWITCH)
    if value is None:
        return None
    return Switch(
        phase=value["phase"],
        kind=value["kind"],
        decided_ms=int(value["decided_ms"]),
        by=value["by"],
        places={
            TopicPartition(topic, row[0]): Place(*row[1:])
            for topic, rows in value.get("places", {}).items()
            for row in rows
        },
        steps=tuple((name, at) for name, at in value.get("steps", ())),
        never_crossed=value.get("never_crossed", ""),
        fenced=bool(value.get("fenced")),
        heard_ms=int(value.get("heard_ms", 0)),
    )


def unfinished(flow: Flow, view: ControlView) -> str:
    """What a change of sides has left for somebody to end or to take back; empty: nothing."""
    switch = switch_of(view)
    if switch is None or not (switch.is_open or switch.shuts_out):
        return ""
    began = f"a {switch.kind} by {switch.by} has begun and is not done" if switch.is_open else "clients changed sides"
    shut = f"writers are shut out of {flow.source.alias} by access rules (DENY WRITE)" if switch.shuts_out else ""
    way_back = "`isthmus failback FILE` lets them in again"
    if switch.is_open:
        way_back = "`isthmus failover FILE` goes on with it, with --abandon it takes everything back"
    return "; ".join(filter(None, (began, shut, way_back)))


def halted(flow: Flow, view: ControlView) -> RivalError | None:
    """The reason why this flow may not copy now."""
    switch = switch_of(view)
    if switch is None or not switch.is_halted:
        return None
    words = {
        FROZEN: ("is being failed over", unfinished(flow, view) or "`isthmus failover` goes on with it"),
        SWITCHED: ("was failed over", "`isthmus failback` brings clients back and lets it go on"),
        RETURNING: ("is being failed back", "`isthmus failback` goes on with it"),
    }
    what, hint = words[switch.phase]
    return RivalError(
        f"flow {flow.name} {what} ({switch.kind} by {switch.by}): clients work on {flow.target.alias}",
        where=f"cluster {flow.target.alias}, topic {flow.control_topic}",
        hint=hint,
        code="FAILED_OVER",
    )
