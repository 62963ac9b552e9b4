"""What need not be equal, because it is on record: gaps, what others wrote, and records among the dead letters.

What must stay true: only what the record names is passed over, in the logs that it names by their ids; and it is told.
A dead letter is passed over only where its record is missing, because a topic that was copied anew may have it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from isthmus.engine.control import ControlView
from isthmus.engine.letters import letter_partition
from isthmus.engine.orders import Range
from isthmus.engine.resolve import record
from isthmus.engine.resolve.record import Gap
from isthmus.engine.verify.values import Stretch
from isthmus.engine.verify.walk import Walk
from isthmus.model import NO_ID, Flow, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, READ_COMMITTED, settled_offsets
from isthmus.wire.records import Record, decode_records

# Of these the source has other records at the same offsets by now.
_WRITTEN_ANEW = frozenset({"TRUNCATED"})


class Exempt:
    """What is on record for one flow."""

    def __init__(self, source: Client, target: Client, gaps: Iterable[Gap], letters: dict[TopicPartition, set[int]]):
        self._source, self._target = source, target
        self._gaps = list(gaps)
        self._letters = letters

    def of(self, topics: Iterable[str]) -> tuple[Gap, ...]:
        """Gaps of these topics, to be told."""
        wanted = set(topics)
        return tuple(gap for gap in self._gaps if gap.topic in wanted)

    def applied(self, stretch: Stretch) -> Stretch:
        gaps = [gap for gap in self._gaps if gap.source == stretch.source]
        return replace(
            stretch,
            without=self._of_source(gaps, stretch.source.topic),
            target_without=self._of_target(gaps, stretch.target.topic),
            letters=frozenset(self._letters.get(stretch.source, ())),
        )

    def _of_source(self, gaps: list[Gap], topic: str) -> tuple[Range, ...]:
        now = self._source.topic_id(topic)
        meant = [gap for gap in gaps if gap.is_of(now) and gap.code not in _WRITTEN_ANEW]
        return tuple((gap.first, gap.past) for gap in meant if 0 <= gap.first < gap.past)

    def _of_target(self, gaps: list[Gap], topic: str) -> tuple[Range, ...]:
        now = str(self._target.topic_id(topic))
        return tuple(span for gap in gaps if gap.target_id in (now, str(NO_ID)) for span in gap.foreign)


async def exempt(flow: Flow, source: Client, target: Client, view: ControlView) -> Exempt:
    return Exempt(source, target, record.gaps(view), await _letters(target, flow))


async def _letters(target: Client, flow: Flow) -> dict[TopicPartition, set[int]]:
    """Source offsets of all dead letters."""
    found: dict[TopicPartition, set[int]] = {}
    if flow.dead_letter_topic not in target.topics:
        return found
    tp = letter_partition(flow)
    low = (await settled_offsets(target, [tp], EARLIEST))[tp]
    walk = Walk(target, tp, low, (await settled_offsets(target, [tp], LATEST, READ_COMMITTED))[tp])
    try:
        while await walk.fill():
            for each in decode_records(*walk.take()):
                if (place := _came_from(each)) is not None:
                    found.setdefault(place[0], set()).add(place[1])
    finally:
        await walk.close()
    return found


def _came_from(letter: Record) -> tuple[TopicPartition, int] | None:
    told = {name: (value or b"").decode(errors="replace") for name, value in letter.headers}
    try:
        return (
            TopicPartition(told["isthmus.topic"], int(told["isthmus.partition"])),
            int(told["isthmus.offset"]),
        )
    except (KeyError, ValueError):
        return None  # somebody else's
