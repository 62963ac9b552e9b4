"""How many bytes a lane may read per second: its share of the flow's `throttle`, and of what single topics may have.

A debt, not a queue: an answer may be larger than the allowance, and what it was too large is waited for before the
next request. So the average holds whatever the size of answers, and nothing is ever cut in half.
"""

from __future__ import annotations

import asyncio
import time

_LEAST_FETCH = 64 << 10


class Throttle:
    """A rate in bytes per second; 0 means none."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._paid_until = 0.0

    def fetch_bytes(self, wanted: int, partitions: int = 1) -> int:
        """How much to ask for at once: half a second's worth, so that throttled reading is smooth."""
        return min(wanted, max(_LEAST_FETCH, int(self._rate / 2 / partitions))) if self._rate else wanted

    def took(self, size: int) -> None:
        if self._rate:
            self._paid_until = max(self._paid_until, time.monotonic()) + size / self._rate

    @property
    def debt_s(self) -> float:
        """How long until what was taken is paid for; none if not above 0."""
        return self._paid_until - time.monotonic()

    async def wait(self) -> None:
        while (debt := self.debt_s) > 0:
            await asyncio.sleep(min(debt, 1.0))
