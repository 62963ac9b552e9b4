"""What lanes reported lately, as the control topic still has it: positions over time, and what was committed.

A compacted topic keeps the last report of each lane for ever, and those of the last minutes until the cleaner comes by:
that is a window of positions which nobody has to publish. What must stay true: reports of one order count up, so a new
order begins at nothing; totals and counts only rise while one `History` is fed. Judging is left to `observe.window`.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from isthmus.engine import control
from isthmus.engine.ages import BOUNDS_MS
from isthmus.engine.control import ControlView
from isthmus.model import TopicPartition
from isthmus.observe.health import Ages, Totals
from isthmus.observe.window import SPAN_MS, Sample
from isthmus.wire.records import Record

_STATUS = b"status/"
_KEPT_MS = SPAN_MS + 10_000
_RATE_MS = 10_000
_GROWS_MS = 3_000
_MANY = 500  # partitions of one lane: then a sample for every _STEP_MS is enough
_STEP_MS = 3_000
_LARGE = 30_000  # bytes of such a report
_COUNTED = ("records", "bytes", "transactions", "aborts", "dead_letters")


class _Grown(NamedTuple):
    time_ms: int
    records: int
    bytes: int


class History:
    """Fed with every record of a control topic, in order; keeps the last minute of each partition."""

    def __init__(self) -> None:
        self.view = ControlView()
        self.newest_ms = 0  # by the target's clock
        self._samples: dict[TopicPartition, collections.deque[Sample]] = {}
        self._reports: dict[str, dict[str, Any]] = {}
        self._step: dict[str, int] = {}
        self._since_ms: dict[str, int] = {}  # the first report of a lane that is known
        self._grown: collections.deque[_Grown] = collections.deque()
        self._totals = dict.fromkeys(_COUNTED, 0)
        self._ages = {name: [0] * (len(BOUNDS_MS) + 2) for name in ("age", "latency")}  # counts, then the sum

    def feed(self, records: list[Record]) -> None:
        for record in _worth_reading(records):
            key = self.view.apply(record)
            self.newest_ms = max(self.newest_ms, record.timestamp)
            if key.startswith("status/") and key in self.view.values:
                self._hear(key, self.view.values[key], record.timestamp)
        self._forget(self.newest_ms - _KEPT_MS)

    # -- what is asked ---------------------------------------------------------------------------

    def samples(self, tp: TopicPartition, lane: int | None = None) -> list[Sample]:
        """What was said of a partition; what its lane said last still held when it last gave a sign of life."""
        found = list(self._samples.get(tp, ()))
        alive_ms = self.view.times_ms.get(f"alive/{lane}", 0)
        if found and alive_ms > found[-1].time_ms and self._is_of_its_order(lane):
            found.append(Sample(alive_ms, found[-1].position, found[-1].end))
        return found

    def _is_of_its_order(self, lane: int | None) -> bool:
        words, report = self.view.values.get(f"alive/{lane}", {}), self.view.values.get(f"status/{lane}", {})
        return words.get("order") == report.get("order")

    def note_ends(self, time_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        """Where logs ended at this moment, as the source itself said."""
        for tp, end in ends.items():
            kept = self._samples.get(tp)
            if kept and end > kept[-1].end:
                kept.append(Sample(max(time_ms, kept[-1].time_ms), kept[-1].position, end))

    def unseen(self, now_ms: int, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Ends of logs that have grown, while lanes have said for a while that there is nothing more."""
        idle = {
            tp: kept[-1].end
            for tp, kept in self._samples.items()
            if kept[-1].lag == 0 and _grew_ms(kept) < now_ms - _GROWS_MS
        }
        return {tp: end for tp, end in ends.items() if tp in idle and end > idle[tp]}

    def heard_of(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether lanes have said by now that logs reach this far."""
        return all(self._samples[tp][-1].end >= end for tp, end in ends.items())

    def totals(self) -> Totals:
        return Totals(**self._totals)

    def ages(self, name: str) -> Ages:
        *counts, total = self._ages[name]
        return Ages(bounds_ms=BOUNDS_MS, counts=tuple(counts), sum_ms=total)

    def rates(self, now_ms: int) -> tuple[float, float]:
        """Records and bytes per second, over the last seconds."""
        since = max(now_ms - _RATE_MS, min(self._since_ms.values(), default=now_ms))
        recent = [each for each in self._grown if each.time_ms > since]
        seconds = (now_ms - since) / 1000
        if seconds <= 0:
            return 0.0, 0.0
        return sum(each.records for each in recent) / seconds, sum(each.bytes for each in recent) / seconds

    # -- what is heard ---------------------------------------------------------------------------

    def _hear(self, key: str, value: dict[str, Any], time_ms: int) -> None:
        try:
            self._report(key, value, time_ms)
        except (KeyError, TypeError, ValueError):
            del self.view.values[key]  # no lane wrote that; the next report tells

    def _report(self, key: str, value: dict[str, Any], time_ms: int) -> None:
        rows = value.get("positions", ())
        is_dense = len(rows) > _MANY and time_ms // _STEP_MS == self._step.get(key)
        self._step[key] = time_ms // _STEP_MS
        for topic, partition, position, end in rows:
            kept = self._samples.setdefault(TopicPartition(topic, partition), collections.deque())
            if is_dense and kept:
                kept.pop()
            kept.append(Sample(time_ms, max(0, position), end))
        before = self._reports.get(key)
        begun = before is None or before.get("order") != value.get("order")
        base = {} if begun or before is None else before
        grown = {name: int(value.get(name, 0)) - int(base.get(name, 0)) for name in _COUNTED}
        for name, count in grown.items():
            self._totals[name] += max(0, count)
        self._add_ages(base, value)
        if before is None:
            self._since_ms[key] = time_ms  # what it did before was not seen being done
        else:
            self._grown.append(_Grown(time_ms, grown["records"], grown["bytes"]))
        self._reports[key] = value

    def _add_ages(self, base: dict[str, Any], value: dict[str, Any]) -> None:
        for name, kept in self._ages.items():
            old, new = _row(base.get(name)), _row(value.get(name))
            if len(new) == len(kept):  # steps of another version cannot be added
                old = old or [0] * len(new)
                kept[:] = [total + after - before for total, before, after in zip(kept, old, new, strict=True)]

    def _forget(self, before_ms: int) -> None:
        """The last sample before that stays: it still held when the window began."""
        for kept in self._samples.values():
            while len(kept) > 1 and kept[1].time_ms <= before_ms:
                kept.popleft()
        while self._grown and self._grown[0].time_ms <= before_ms:
            self._grown.popleft()


def _grew_ms(kept: collections.deque[Sample]) -> int:
    """When the end was last seen to grow."""
    return next((newer.time_ms for newer, older in pairwise(reversed(kept)) if older.end < newer.end), 0)


def _row(value: dict[str, Any] | None) -> list[int]:
    return [] if not value else [*value["counts"], value["sum"]]


def _worth_reading(records: list[Record]) -> Iterable[Record]:
    """Reports are large and many. Of those before the window the last one of each lane is enough, and so is, where they
    are very large, the last one of every step."""
    since = max((record.timestamp for record in records), default=0) - _KEPT_MS
    places = [_place(record, since) for record in records]
    last = {place: record.offset for place, record in zip(places, records, strict=True)}
    for place, record in zip(places, records, strict=True):
        if place is None or last[place] == record.offset:
            yield record


def _place(record: Record, since_ms: int) -> tuple[bytes, int] | None:
    """Of reports that tell the same, as far as anybody asks."""
    if record.key is None or not record.key.startswith(_STATUS):
        return None
    if record.timestamp <= since_ms:
        return record.key, 0
    return (record.key, record.timestamp // _STEP_MS) if len(record.value or b"") > _LARGE else None


def driven_by(view: ControlView) -> str:
    """Who drives the flow, or did last."""
    return str(view.values.get("lease", {}).get("driver", ""))


def reports(view: ControlView) -> dict[int, dict[str, Any]]:
    """The last report of each lane of the driver that is, or was the last one."""
    driver = driven_by(view)
    return {
        int(key.partition("/")[2]): value
        for key, value in view.under("status/").items()
        if value.get("driver") == driver
    }


def is_released(view: ControlView) -> bool:
    return bool(view.values.get("lease", {"released": True}).get("released"))


def lease_age_ms(view: ControlView, now_ms: int) -> int:
    return max(0, now_ms - view.times_ms.get("lease", 0))


def is_dead(view: ControlView, now_ms: int) -> bool:
    return lease_age_ms(view, now_ms) > control.LEASE_DEAD_AFTER_S * 1000
