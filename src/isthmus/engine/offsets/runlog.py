"""The lane's half of the index: what its commits have landed, appended to the index topic every second or two.

Appended after the commit and outside of transactions, so it costs them nothing: a run is a fact, true whoever writes
it and however often. What must stay true: only committed runs are written, and a span begins where the last one of
its partition ended, so that a run that was lost with its lane shows as a hole and never as "nothing was there".
Holes are closed by `align`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from isthmus.engine.offsets.runs import Span, encode_key, encode_value, table
from isthmus.engine.track import Track
from isthmus.errors import BrokerUnreachable, WireError
from isthmus.wire.journal import Journal

FLUSH_EVERY_S = 1.0
_PATIENCE_S = 5.0
_PAIRS_AT_ONCE = 2_000
_MOST_RUNS = 50_000  # of one partition in memory, when the topic cannot be written for long


class RunLog:
    """Writes what the tracks of one lane have committed."""

    def __init__(self, journal: Journal, tracks: Sequence[Track], note: Callable[[str], None]) -> None:
        self._journal = journal
        self._tracks = tracks
        self._note = note
        self._told = False

    async def run(self) -> None:
        """Until cancelled; `flush` once more after that."""
        while True:
            await asyncio.sleep(FLUSH_EVERY_S)
            await self.flush()

    async def flush(self) -> None:
        due = [(track, span) for track in self._tracks if (span := _due(track)) is not None]
        for at in range(0, len(due), _PAIRS_AT_ONCE):
            part = due[at : at + _PAIRS_AT_ONCE]
            pairs = [(encode_key(span.tp, span.start), encode_value(span)) for _, span in part]
            try:
                await self._journal.append(pairs, _PATIENCE_S)
            except WireError as error:
                self._failed(error, part)
                return
            for track, span in part:
                _written(track, span)

    def _failed(self, error: WireError, due: Sequence[tuple[Track, Span]]) -> None:
        if not self._told and not isinstance(error, BrokerUnreachable):
            self._told = True
            self._note(f"where records land is not put on record: {error}; group offsets may be less exact")
        for track, span in due:
            if len(track.runs) > _MOST_RUNS:
                _written(track, span)  # given up: a hole


def _due(track: Track) -> Span | None:
    if track.committed <= track.indexed:
        return None
    return Span(track.assignment.source, track.indexed, track.committed, table(track.runs))


def _written(track: Track, span: Span) -> None:
    """More may have been committed meanwhile."""
    track.indexed = span.end
    del track.runs[: len(span.runs)]
