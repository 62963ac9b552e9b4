"""What each partition carries and what waits for it, measured from what lanes report: the food of `growth`.

What must stay true: a partition that does not move, or that is stopped, paused or throttled, is never in need: more
lanes would not help it. After partitions changed hands everything is measured anew. Times are those of the control
topic, by the target's clock. Judging windows is `observe.window`'s.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping
from typing import Any

from isthmus.engine.growth import SOON_S, Load
from isthmus.model import TopicPartition
from isthmus.observe.window import Course, Sample, Verdict, course

_SAMPLES = 12  # of a window: finer does not tell more


class _Kept:
    """One partition: samples of the window, and bytes since it is measured."""

    __slots__ = ("bytes", "order", "per_offset", "samples", "seen")

    def __init__(self) -> None:
        self.samples: collections.deque[tuple[Sample, int]] = collections.deque()
        self.bytes = 0
        self.order, self.seen = "", 0  # what the order that runs has carried, as far as it is counted
        self.per_offset = 0.0  # bytes; the last that was known

    def count(self, order: str, carried: int) -> None:
        before = self.seen if order == self.order else 0
        self.bytes += max(0, carried - before)
        self.order, self.seen = order, carried


class Loads:
    """Fed with the reports of lanes."""

    def __init__(self) -> None:
        self._kept: dict[TopicPartition, _Kept] = {}
        self._heard: dict[str, int] = {}  # the time of the last report of each lane
        self._newest_ms = 0

    def clear(self) -> None:
        """Partitions changed hands: what was measured before does not tell what comes."""
        for kept in self._kept.values():
            kept.samples.clear()

    def heard(self, key: str, report: Mapping[str, Any], time_ms: int, span_s: float) -> None:
        """A report of a lane, as it stands in the control topic; one that is read twice counts once."""
        if time_ms <= self._heard.get(key, 0):
            return
        self._heard[key], self._newest_ms = time_ms, max(self._newest_ms, time_ms)
        for row, carried in zip(report["positions"], report.get("carried", ()), strict=False):
            topic, number, position, end = row
            kept = self._kept.setdefault(TopicPartition(topic, number), _Kept())
            kept.count(str(report["order"]), carried)
            if end >= 0:
                self._add(kept, Sample(time_ms, max(0, position), end), span_s)

    @staticmethod
    def _add(kept: _Kept, sample: Sample, span_s: float) -> None:
        samples = kept.samples
        while len(samples) > 1 and samples[1][0].time_ms <= sample.time_ms - span_s * 1000:
            samples.popleft()
        if len(samples) > 1 and sample.time_ms - samples[-2][0].time_ms < span_s * 1000 / _SAMPLES:
            samples.pop()
        samples.append((sample, kept.bytes))

    def read(self, lanes: Mapping[TopicPartition, int], helpless: Collection[TopicPartition]) -> list[Load]:
        """What is known of each partition; `helpless` are those that more lanes would not help."""
        return [self._load(tp, lane, tp not in helpless) for tp, lane in lanes.items()]

    def _load(self, tp: TopicPartition, lane: int, may_need: bool) -> Load:
        kept = self._kept.get(tp)
        if kept is None or len(kept.samples) < 2:
            return Load(tp, lane, 0.0, 0.0)
        (first, before), (last, after) = kept.samples[0], kept.samples[-1]
        seconds = max(0.001, (self._newest_ms - first.time_ms) / 1000)
        if last.position > first.position:
            kept.per_offset = (after - before) / (last.position - first.position)
        now = Sample(max(self._newest_ms, last.time_ms), last.position, last.end)
        found = course([*(sample for sample, _ in kept.samples), now])
        wanted = kept.per_offset * (found.written_per_s + last.lag / SOON_S)
        return Load(tp, lane, (after - before) / seconds, wanted, may_need and _is_in_need(found))


def _is_in_need(found: Course) -> bool:
    if found.copied_per_s <= 0:
        return False
    if found.verdict is Verdict.falling_behind:
        return True
    return found.verdict is Verdict.catching_up and found.eta_s is not None and found.eta_s > SOON_S
