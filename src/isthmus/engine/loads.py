"""What each partition carries and what waits for it, measured from what lanes report: the food of `growth`.

What must stay true: a partition that does not move, or that is stopped, paused or throttled, is never in need: more
lanes would not help it. After partitions changed hands everything is measured anew. Times are those of the control
topic, by the target's clock, which goes on while lanes are silent: they report what changed. Judging windows is
`observe.window`'s.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Collection, Mapping
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

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept: dict[TopicPartition, _Kept] = {}
        self._heard: dict[str, int] = {}  # the time of the last report of each lane
        self._newest_ms, self._newest_at = 0, 0.0  # by the target's clock, and by ours
        self._clock = clock

    def clear(self) -> None:
        """Partitions changed hands: what was measured before does not tell what comes."""
        for kept in self._kept.values():
            kept.samples.clear()

    def heard(self, key: str, report: Mapping[str, Any], time_ms: int, span_s: float) -> None:
        """A report of a lane, as it stands in the control topic; one that is read twice counts once."""
        if time_ms <= self._heard.get(key, 0):
            return
        self._heard[key] = time_ms
        if time_ms > self._newest_ms:
            self._newest_ms, self._newest_at = time_ms, self._clock()
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

    def read(
        self, lanes: Mapping[TopicPartition, int], helpless: Collection[TopicPartition], span_s: float
    ) -> list[Load]:
        """What is known of each partition; `helpless` are those that more lanes would not help."""
        now_ms = self._newest_ms + round((self._clock() - self._newest_at) * 1000)
        return [self._load(tp, lane, tp not in helpless, now_ms, span_s) for tp, lane in lanes.items()]

    def _load(self, tp: TopicPartition, lane: int, may_need: bool, now_ms: int, span_s: float) -> Load:
        kept = self._kept.get(tp)
        if kept is None or not kept.samples:
            return Load(tp, lane, 0.0, 0.0)
        seen = _within(kept.samples, now_ms, span_s)
        (first, before), (last, after) = seen[0], seen[-1]
        if last.position > first.position:
            kept.per_offset = (after - before) / (last.position - first.position)
        found = course([sample for sample, _ in seen])
        wanted = kept.per_offset * (found.written_per_s + last.lag / SOON_S)
        carried = (after - before) * 1000 / max(1, last.time_ms - first.time_ms)
        return Load(tp, lane, carried, wanted, may_need and _is_in_need(found))


def _within(samples: collections.deque[tuple[Sample, int]], now_ms: int, span_s: float) -> list[tuple[Sample, int]]:
    """The window that ends now: what was said last before it began held then, and what was said last holds now."""
    began = now_ms - round(span_s * 1000)
    seen = [each for each in samples if each[0].time_ms > began]
    if len(seen) < len(samples):
        sample, size = samples[-len(seen) - 1]
        seen.insert(0, (sample._replace(time_ms=began), size))
    sample, size = seen[-1]
    return [*seen, (sample._replace(time_ms=max(now_ms, sample.time_ms)), size)]


def _is_in_need(found: Course) -> bool:
    if found.copied_per_s <= 0:
        return False
    if found.verdict is Verdict.falling_behind:
        return True
    return found.verdict is Verdict.catching_up and found.eta_s is not None and found.eta_s > SOON_S
