"""Verdicts without thresholds, as Burrow gives them: how a partition fares is read off a window of its positions.

A sample says where the copy stood (`position`, the next source offset) and where the source's log ended (`end`) at one
moment. From a window of them: is it behind at all, since when, does it move, does the distance grow. What must stay
true: a partition that moves is never called stalled; one that has nothing left to copy is always ok; a position that
goes back (a topic made anew, a position set by hand) begins a new window. The two spans below are how finely
lanes report and brokers settle, not limits of what is good. Pure: no clock, times are milliseconds by one clock.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

SPAN_MS = 60_000  # of a window
BLUR_MS = 5_000  # what came within it may be on its way: reports come once a second
STILL_MS = 20_000  # a lane that works commits more often than that, also one with a transform
QUIET_MS = 15_000  # a lane that lives reports more often than that, also when nothing changes


class Sample(NamedTuple):
    """One partition at one moment; an end of -1: not known (windows have none of those)."""

    time_ms: int
    position: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position)


class Verdict(enum.StrEnum):
    """Worse ones have a higher `rank`."""

    ok = "ok"
    unknown = "unknown"  # seen for too short a time, or nobody knows where the log ends
    paused = "paused"
    catching_up = "catching up"
    falling_behind = "falling behind"
    stalled = "stalled"
    stopped = "stopped"

    @property
    def rank(self) -> int:
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What a window tells. Rates are offsets per second; None: it cannot be told."""

    verdict: Verdict
    lag: int | None = None  # offsets
    behind_s: float | None = None  # for how long the next record has been waiting
    at_least: bool = False  # it waits longer than the window knows
    copied_per_s: float = 0.0
    written_per_s: float = 0.0
    trend: int = 0  # of the lag: -1 shrinks, 1 grows
    eta_s: float | None = None  # until it is caught up, if both go on as they do


def window(samples: Iterable[Sample], now_ms: int, end: int = -1) -> list[Sample]:
    """What counts of a history, oldest first, up to now. `end`: where the log ends now, if that was asked.

    Lanes report what changed, so what was said last still holds: the last sample before the window is its first one,
    and the last of all is repeated for now.
    """
    found: list[Sample] = []
    for sample in samples:
        if found and sample.position < found[-1].position:
            found = []  # another log, or another place in it
        # An order that has just begun does not know the end; what was known before still holds.
        if found and sample.end < found[-1].end:
            found.append(Sample(sample.time_ms, sample.position, found[-1].end))
        elif sample.end >= 0:
            found.append(sample)
    if not found:
        return []
    began_ms = now_ms - SPAN_MS
    inside = [sample for sample in found if sample.time_ms > began_ms]
    if len(inside) < len(found):
        inside.insert(0, found[-len(inside) - 1]._replace(time_ms=began_ms))
    last = inside[-1]
    inside.append(Sample(max(now_ms, last.time_ms), last.position, max(end, last.end)))
    return inside


def course(samples: Sequence[Sample]) -> Course:
    """Judge a window, oldest sample first."""
    if not samples:
        return Course(verdict=Verdict.unknown)
    first, last = samples[0], samples[-1]
    copied, written = _rates(samples)
    since_ms = _behind_since(samples)
    waited_ms = last.time_ms - (first.time_ms if since_ms is None else since_ms)
    trend = (last.lag > first.lag) - (last.lag < first.lag)
    gain = copied - written
    return Course(
        verdict=_verdict(samples, waited_ms, is_known=since_ms is not None, trend=trend),
        lag=last.lag,
        behind_s=waited_ms / 1000 if last.lag else 0.0,
        at_least=last.lag > 0 and since_ms is None,
        copied_per_s=copied,
        written_per_s=written,
        trend=trend,
        eta_s=0.0 if not last.lag else last.lag / gain if gain > 0 else None,
    )


def _verdict(samples: Sequence[Sample], waited_ms: int, *, is_known: bool, trend: int) -> Verdict:
    last = samples[-1]
    if last.lag == 0 or (is_known and waited_ms < BLUR_MS):
        return Verdict.ok
    has_moved = _has_moved(samples)
    if not has_moved and waited_ms >= STILL_MS:
        return Verdict.stalled
    if not has_moved and not is_known:
        return Verdict.unknown
    if trend < 0:
        return Verdict.catching_up
    # All that was there when the window began is copied: it keeps up, later, as long as the lag shrinks now and then.
    keeps_up = is_known and any(after.lag < before.lag for before, after in pairwise(samples))
    return Verdict.ok if keeps_up else Verdict.falling_behind


def _has_moved(samples: Sequence[Sample]) -> bool:
    """Within the last STILL_MS, or as far back as is known."""
    last = samples[-1]
    since = last.time_ms - STILL_MS
    before = [sample for sample in samples if sample.time_ms <= since]
    return last.position > (before[-1] if before else samples[0]).position


def _behind_since(samples: Sequence[Sample]) -> int | None:
    """Since when the log has been longer than what is copied now; None: since before the window."""
    position, later = samples[-1].position, samples[-1]
    for sample in reversed(samples):
        if sample.end <= position:
            # A lane says at once when more is there; of a silent one nothing is known.
            return min(later.time_ms, sample.time_ms + QUIET_MS)
        later = sample
    return None


def _rates(samples: Sequence[Sample]) -> tuple[float, float]:
    first, last = samples[0], samples[-1]
    seconds = (last.time_ms - first.time_ms) / 1000
    if seconds <= 0:
        return 0.0, 0.0
    return (last.position - first.position) / seconds, (last.end - first.end) / seconds
