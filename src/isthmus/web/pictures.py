"""What the page is sent: a picture of all flows, and what changed from one picture to the next. Pure.

A picture holds what `isthmus status -o json` holds (observe.health), with partitions as short rows: thousands of them
cross the wire each second. What must stay true: a picture with a change applied is the next picture, whatever the two
are; columns are named once (`COLUMNS`), and the page goes by those names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any

from isthmus.errors import IsthmusError
from isthmus.observe.health import Ages, FlowHealth
from isthmus.observe.metrics import Looked

# Of a row, behind the number of its topic and its partition.
COLUMNS = (
    "verdict",
    "position",
    "end",
    "lag",
    "lag_bytes",
    "lag_seconds",
    "lag_seconds_at_least",
    "trend",
    "records_per_s",
    "eta_seconds",
    "lane",
    "code",
    "error",
    "hint",
)
POINTS = ("time", "records_per_s", "bytes_per_s", "lag", "lag_seconds", "p50_ms", "p99_ms")
_MOST_POINTS = 600
_LATENCY_OVER_S = 15.0  # of a plotted quantile: lanes commit about twice a second
_values = attrgetter(*COLUMNS)

Row = tuple[Any, ...]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPicture:
    """One flow: its summary as in the documented form, its topics, and a row for each partition."""

    summary: Json
    topics: tuple[str, ...]
    places: tuple[tuple[int, int], ...]  # number of the topic, partition
    rows: tuple[Row, ...]
    points: tuple[Row, ...]

    def whole(self) -> Json:
        rows = [(*place, *row) for place, row in zip(self.places, self.rows, strict=True)]
        return {**self.summary, "topics": self.topics, "rows": rows, "points": self.points}

    def since(self, before: FlowPicture) -> Json:
        """What is to be put over the picture before."""
        found: Json = {"flow": self.summary["flow"]}
        known = before.summary
        if changed := {name: value for name, value in self.summary.items() if known.get(name) != value}:
            found["set"] = changed
        if (self.topics, self.places) != (before.topics, before.places):
            whole = self.whole()
            found |= {"topics": whole["topics"], "all": whole["rows"]}
        elif rows := _changed(before.rows, self.rows):
            found["rows"] = rows
        if self.points[-1:] != before.points[-1:]:
            found["point"] = self.points[-1]
        return found


def _changed(before: Sequence[Row], now: Sequence[Row]) -> list[Row]:
    return [(number, *row) for number, (was, row) in enumerate(zip(before, now, strict=True)) if was != row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All flows at one moment; `more` is what else the page shows (a failover under way)."""

    number: int
    time: float
    flows: tuple[FlowPicture, ...]
    lost: tuple[Json, ...] = ()
    more: Json = field(default_factory=dict)

    def whole(self) -> Json:
        return {**self._head(), "flows": [flow.whole() for flow in self.flows]}

    def since(self, before: Picture) -> Json | None:
        """None: there are other flows than before, so it must be sent as a whole."""
        if [flow.summary["flow"] for flow in before.flows] != [flow.summary["flow"] for flow in self.flows]:
            return None
        pairs = zip(before.flows, self.flows, strict=True)
        return {**self._head(), "after": before.number, "flows": [now.since(was) for was, now in pairs]}

    def _head(self) -> Json:
        return {"number": self.number, "time": self.time, "lost": self.lost, **self.more}


class Pictures:
    """Makes one picture after another, and keeps what plots need."""

    def __init__(self) -> None:
        self._number = 0
        self._points: dict[str, tuple[Row, ...]] = {}
        self._ages: dict[str, list[tuple[float, Ages]]] = {}

    def next(self, looked: Looked, failures: Mapping[str, IsthmusError], now: float, more: Json) -> Picture:
        self._number += 1
        flows = tuple(self._flow(found) for found in looked.flows)
        lost = tuple(_lost(name, target, failures.get(name)) for name, target in looked.lost)
        return Picture(number=self._number, time=now, flows=flows, lost=lost, more=more)

    def _flow(self, found: FlowHealth) -> FlowPicture:
        numbers: dict[str, int] = {}
        places = tuple((numbers.setdefault(one.topic, len(numbers)), one.partition) for one in found.partitions)
        latest = self._latest(found)
        quantiles = {"p50_ms": latest.quantile_ms(0.5), "p99_ms": latest.quantile_ms(0.99)}
        # A quantile that is not there is beyond the last bound, if anything was counted at all.
        beyond = latest.bounds_ms[-1] if sum(latest.counts) else None
        summary = {**_summary(found), **quantiles, "beyond_ms": beyond}
        return FlowPicture(
            summary=summary,
            topics=tuple(numbers),
            places=places,
            rows=tuple(map(_values, found.partitions)),
            points=self._pointed(found.flow, tuple(summary[name] for name in POINTS)),
        )

    def _pointed(self, flow: str, point: Row) -> tuple[Row, ...]:
        kept = (*self._points.get(flow, ()), point)[-_MOST_POINTS:]
        self._points[flow] = kept
        return kept

    def _latest(self, found: FlowHealth) -> Ages:
        """Latencies of the last seconds: counters of all time, less what they were."""
        kept = [each for each in self._ages.get(found.flow, []) if each[0] > found.time - _LATENCY_OVER_S]
        before = kept[0][1] if kept else Ages()
        self._ages[found.flow] = [*kept, (found.time, found.latency)]
        return less(found.latency, before)


def less(now: Ages, before: Ages) -> Ages:
    """What was counted in between; if counters went back, or nothing came, everything that is known."""
    if before.bounds_ms != now.bounds_ms:
        return now
    counts = tuple(one - other for one, other in zip(now.counts, before.counts, strict=True))
    if min(counts, default=0) < 0 or sum(counts) == 0:
        return now
    return replace(now, counts=counts, sum_ms=now.sum_ms - before.sum_ms)


def _summary(found: FlowHealth) -> Json:
    """The documented form without what is many: partitions, and the histograms that points are made of."""
    told = {**asdict(replace(found, partitions=())), **found.concluded()}
    del told["partitions"], told["record_age"], told["latency"]
    return told


def _lost(flow: str, target: str, error: IsthmusError | None) -> Json:
    told = {"code": error.code, "error": str(error), "hint": error.hint} if error else {}
    return {"flow": flow, "target": target, "code": "", "error": "", "hint": "", **told}
