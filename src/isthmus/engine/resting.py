"""Partitions that the target cannot take just now: they rest, so that the others of their lane go on (I7).

A transaction is shared by all partitions of a lane: one whose leader is gone, or has too few replicas, would have it
given up again and again. Its second refusal in a row puts it to rest: nothing of it is fetched or written. It is woken
when its time is over and its leader can be reached; refused again, it rests for twice as long.

What must stay true: a partition that rests has nothing in its queue or in a transaction; it is tried again without end.
That it rests is no stop: its lag shows it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from isthmus.errors import WireError
from isthmus.wire.cluster import Client

if TYPE_CHECKING:
    from isthmus.engine.track import Track

_PATIENT = 1  # refusals in a row that a leader which moves may have
_FIRST_S, _LONGEST_S = 0.5, 5.0
_LOOK_S = 0.25


def rest_s(refusals: int) -> float:
    """How long a partition rests after so many refusals in a row; 0: not yet."""
    return 0.0 if refusals <= _PATIENT else min(_LONGEST_S, _FIRST_S * 2.0 ** min(refusals - _PATIENT - 1, 10))


class Rests:
    """Wakes the partitions of one lane."""

    def __init__(self, target: Client, tracks: Iterable[Track], note: Callable[[str], None]) -> None:
        self._target = target
        self._tracks = list(tracks)
        self._note = note
        self._told: set[Track] = set()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            resting = [track for track in self._tracks if track.rests_until and not track.is_left]
            self._tell(resting)
            now = time.monotonic()
            if due := [track for track in resting if track.rests_until <= now]:
                await self._wake(due)

    def _tell(self, resting: Sequence[Track]) -> None:
        if fresh := [track for track in resting if track not in self._told]:
            more = f" and {len(fresh) - 1} more" if len(fresh) > 1 else ""
            self._note(f"{fresh[0].assignment.target}{more}: the target cannot take it now; others go on")
        self._told = set(resting)

    async def _wake(self, due: Sequence[Track]) -> None:
        """Only when a leader can be reached: another try costs all partitions of the lane their transaction."""
        try:
            await self._target.refresh({track.assignment.target.topic for track in due})
        except WireError:
            return  # the whole cluster is away: the next look asks again
        by_leader: dict[int, list[Track]] = {}
        for track in due:
            by_leader.setdefault(self._target.leader(track.assignment.target), []).append(track)
        await asyncio.gather(*(self._wake_led_by(leader, tracks) for leader, tracks in by_leader.items()))

    async def _wake_led_by(self, leader: int, tracks: Sequence[Track]) -> None:
        try:
            if leader >= 0:
                await self._target.link(leader, "produce")
                for track in tracks:
                    track.rests_until = 0.0
                return
        except WireError:
            pass
        for track in tracks:
            track.rest()
