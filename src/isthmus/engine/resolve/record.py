"""What the control topic remembers of loud stops: the stops themselves, what was lost, and who decided what.

    stop/<topic>/<partition>                    why a partition stands still, written by the driver (or a lane, at once)
    gap/<topic>/<partition>/<first>[/<log>]     source offsets that never come, or target offsets that are not copies
    decision/<topic>/<partition>/<choice>/<at>  what an operator chose, before it was carried out

What must stay true: the same fact has the same key, so writing it again is harmless. A range is half-open; -1 as its
end: not known. Offsets belong to one log, so a gap names the ids of both topics. Pure: reading and writing the topic
is left to others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from isthmus.engine.control import ControlView, gap_key
from isthmus.engine.orders import Range, Stop
from isthmus.model import NO_ID, TopicPartition

STOP, GAP, DECISION = "stop/", "gap/", "decision/"
# Records of these that were given up are still on the source: lanes pass over them.
GIVEN_UP = frozenset({"CORRUPT_BATCH", "TARGET_REFUSED", "POISON"})
POLICY, DECIDED = "policy", "decision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """`accepted`: by what it was passed over, "policy" or "decision"; empty: the partition stands before it."""

    topic: str
    partition: int
    code: str
    at: float
    first: int = -1  # source offsets; -1: none of the source are concerned
    past: int = -1
    source_id: str = ""
    foreign: tuple[Range, ...] = ()  # target offsets that are not copies of the source's log as it is
    target_id: str = ""
    accepted: str = ""

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def lost(self) -> int:
        """How many source offsets, as far as that is known."""
        return max(0, self.past - self.first) if self.first >= 0 else 0

    def is_of(self, source_id: object) -> bool:
        """Whether its source offsets are of the log with this id."""
        return str(source_id) in (self.source_id, str(NO_ID)) or self.source_id in ("", str(NO_ID))

    def told(self) -> str:
        where = f"{self.topic}-{self.partition}"
        if self.first >= 0:
            return f"offsets {self.first} to {self.past - 1 if self.past >= 0 else '?'} of {where}"
        return f"{spans_told(self.foreign)} on the target of {where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One choice for one stop."""

    topic: str
    partition: int
    choice: str
    code: str
    at: float
    host: str
    user: str
    first: int = -1
    past: int = -1
    foreign: tuple[Range, ...] = ()


def spans_told(spans: Iterable[Range]) -> str:
    """Ranges in words: offset 5, offsets 7 to 9, 12 and later."""
    found = [_span_told(first, past) for first, past in spans]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return (", ".join(found[:3]) or "nothing") + more


def _span_told(first: int, past: int) -> str:
    if past < 0:
        return f"what comes at {first} and later"
    return f"offset {first}" if past == first + 1 else f"offsets {first} to {past - 1}"


# --- keys and values --------------------------------------------------------------------------


def stop_key(source: TopicPartition) -> str:
    return f"{STOP}{source.topic}/{source.partition}"


def stop_value(stop: Stop, at: float) -> dict[str, Any]:
    return {
        "code": stop.code,
        "message": stop.message,
        "hint": stop.hint,
        "lost": stop.lost,
        "foreign": stop.foreign,
        "at": at,
    }


def gap_pair(gap: Gap, *, of_old_log: bool = False) -> tuple[str, dict[str, Any]]:
    """Key and value. A gap of a log that is gone for good must not meet one of the log that took its place."""
    first = gap.first if gap.first >= 0 else f"t{gap.foreign[0][0] if gap.foreign else 0}"
    key = gap_key(gap.source, first) + (f"/{gap.source_id}" if of_old_log else "")
    value = asdict(gap)
    del value["topic"], value["partition"]
    return key, value


def decision_pair(decision: Decision) -> tuple[str, dict[str, Any]]:
    """The key has no time: the same decision about the same stop, made again, is the same record."""
    where = f"{decision.topic}/{decision.partition}"
    at = decision.first if decision.first >= 0 else f"t{decision.foreign[0][0]}" if decision.foreign else decision.code
    value = asdict(decision)
    del value["topic"], value["partition"]
    return f"{DECISION}{where}/{decision.choice}/{at}", value


# --- reading ----------------------------------------------------------------------------------


def stops(view: ControlView, topic: str | None = None) -> dict[TopicPartition, Stop]:
    found: dict[TopicPartition, Stop] = {}
    for key, value in view.under(STOP).items():
        tp = _partition(key, STOP)
        if tp is not None and topic in (None, tp.topic):
            found[tp] = stop_of(tp, value)
    return found


def stop_of(source: TopicPartition, value: dict[str, Any]) -> Stop:
    lost = value.get("lost")
    return Stop(
        source=source,
        code=str(value.get("code", "")),
        message=str(value.get("message", "")),
        hint=str(value.get("hint", "")),
        lost=None if lost is None else (int(lost[0]), int(lost[1])),
        foreign=_ranges(value.get("foreign")),
    )


def gaps(view: ControlView) -> list[Gap]:
    found = []
    for key, value in view.under(GAP).items():
        if (tp := _partition(key, GAP)) is not None:
            found.append(
                Gap(
                    topic=tp.topic,
                    partition=tp.partition,
                    code=str(value.get("code", "")),
                    at=float(value.get("at", 0)),
                    first=int(value.get("first", -1)),
                    past=int(value.get("past", -1)),
                    source_id=str(value.get("source_id", "")),
                    foreign=_ranges(value.get("foreign")),
                    target_id=str(value.get("target_id", "")),
                    accepted=str(value.get("accepted", "")),
                )
            )
    return sorted(found, key=lambda gap: (gap.source, gap.first, gap.at))


def decisions(view: ControlView, topic: str | None = None) -> list[Decision]:
    found = []
    for key, value in view.under(DECISION).items():
        tp = _partition(key, DECISION)
        if tp is not None and topic in (None, tp.topic):
            found.append(
                Decision(
                    topic=tp.topic,
                    partition=tp.partition,
                    choice=str(value.get("choice", "")),
                    code=str(value.get("code", "")),
                    at=float(value.get("at", 0)),
                    host=str(value.get("host", "")),
                    user=str(value.get("user", "")),
                    first=int(value.get("first", -1)),
                    past=int(value.get("past", -1)),
                    foreign=_ranges(value.get("foreign")),
                )
            )
    return sorted(found, key=lambda decision: decision.at)


def given_up(view: ControlView, source: TopicPartition, source_id: object) -> tuple[Range, ...]:
    """Source offsets that are there, and that lanes pass over by a decision."""
    return tuple(
        (gap.first, gap.past)
        for gap in gaps(view)
        if gap.source == source and gap.accepted and gap.code in GIVEN_UP and gap.is_of(source_id)
    )


def forgotten(view: ControlView, topic: str, *, lost: bool) -> dict[str, None]:
    """Tombstones for the stops of a topic; and for what was lost of it, where it is copied anew."""
    prefixes = (STOP, GAP) if lost else (STOP,)
    keys = [key for prefix in prefixes for key in view.under(f"{prefix}{topic}/")]
    return dict.fromkeys(keys)


def _partition(key: str, prefix: str) -> TopicPartition | None:
    topic, _, rest = key.removeprefix(prefix).partition("/")
    number = rest.partition("/")[0]
    return TopicPartition(topic, int(number)) if topic and number.isascii() and number.isdigit() else None


def _ranges(value: Any) -> tuple[Range, ...]:
    return tuple((int(first), int(past)) for first, past in value or ())
