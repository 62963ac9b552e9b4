"""How old records were, counted in steps: cheap enough for a lane, and small enough for a report.

Ages go by the records' own times, as MirrorMaker 2's `record-age-ms` and `replication-latency-ms` do, so a lane that
copies yesterday's records counts a day. One count per batch that counts, not per record. What must stay true: counts
only rise within one order.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

BOUNDS_MS = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000)


class AgeCounts:
    """A histogram that grows."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0

    def add(self, now_ms: int, stamp_ms: int) -> None:
        """A clock that runs ahead makes no negative age; records without a time have none."""
        if stamp_ms < 0:
            return
        age = max(0, now_ms - stamp_ms)
        self.counts[bisect_left(BOUNDS_MS, age)] += 1
        self.sum_ms += age

    def as_value(self) -> dict[str, Any]:
        return {"counts": list(self.counts), "sum": self.sum_ms}
