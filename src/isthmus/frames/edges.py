"""Where the logs of a flow's source begin and end, and whether they are still the logs that were read.

A leader says with its end which epoch it leads in. Everything below that end was written in epochs up to this one. So a
later leader that knows such epochs to end before our position lost records that we have read (an unclean election), be
its log as long as it may by now. Must stay true: a leader is asked before anything is read of it for the first time in
an order, and whenever another one leads; who does not answer is asked again first. What to do about a log that was cut
is left to the lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from isthmus.engine.marks import ASK
from isthmus.engine.orders import Stop
from isthmus.engine.refusals import truncated
from isthmus.engine.reigns import parse_reign
from isthmus.engine.track import Track
from isthmus.errors import BrokerUnreachable
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, READ_COMMITTED, Fetched, Want, fetch, list_edges


class Span(NamedTuple):
    """A log as a reader of committed records has it."""

    start: int
    end: int
    epoch: int  # of its leader


class Edges:
    """The logs that an order reads."""

    def __init__(self, source: Client, tracks: Mapping[TopicPartition, Track]) -> None:
        self._source = source
        self._tracks = tracks
        self._read = {tp: parse_reign(track.assignment.epoch).epoch for tp, track in tracks.items()}
        self._sound: dict[TopicPartition, int] = {}  # the leader's epoch in which a log was last found whole

    async def look(self, wanted: list[TopicPartition]) -> tuple[dict[TopicPartition, Span], dict[TopicPartition, Stop]]:
        """Those that answer, and those that are not the logs any more that were read."""
        try:
            starts = await list_edges(self._source, wanted, EARLIEST)
            ends = await list_edges(self._source, wanted, LATEST, READ_COMMITTED)
            told = {
                tp: Span(starts[tp].offset, ends[tp].offset, ends[tp].epoch)
                for tp in wanted
                if tp in starts and tp in ends and starts[tp].error == ends[tp].error == codes.NONE
            }
            answers = await self._asked([tp for tp in told if self._sound.get(tp) != told[tp].epoch])
        except BrokerUnreachable:
            return {}, {}
        stops = {tp: stop for tp, answer in answers.items() if (stop := self._judged(tp, answer)) is not None}
        silent = {tp for tp, answer in answers.items() if answer.error not in (codes.NONE, codes.OFFSET_OUT_OF_RANGE)}
        self._sound |= {tp: told[tp].epoch for tp in told if tp not in silent and tp not in stops}
        return {tp: span for tp, span in told.items() if tp not in silent and tp not in stops}, stops

    def reached(self, tp: TopicPartition) -> int:
        """All that was planned of it has been read; the epoch that goes with the progress."""
        self._read[tp] = self._sound.get(tp, -1)
        return self._read[tp]

    async def _asked(self, doubted: list[TopicPartition]) -> dict[TopicPartition, Fetched]:
        by_node: dict[int, list[Want]] = {}
        for tp in doubted:
            track = self._tracks[tp]
            if self._read[tp] >= 0 and track.position >= 0:
                want = Want(tp, track.assignment.source_id, track.position, last_epoch=self._read[tp])
                by_node.setdefault(self._source.leader(tp), []).append(want)
        answers = [each for node, wants in by_node.items() for each in await fetch(self._source, node, wants, ASK)]
        return {answer.tp: answer for answer in answers}

    def _judged(self, tp: TopicPartition, answer: Fetched) -> Stop | None:
        """An epoch in which nothing was written is not known to later leaders: what counts is where it would end."""
        if answer.error != codes.NONE or answer.diverging is None:
            return None
        epoch, end = answer.diverging
        position = self._tracks[tp].position
        return truncated(tp, epoch, end, position) if end < position else None
