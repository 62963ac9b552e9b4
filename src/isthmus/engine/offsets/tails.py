"""Where a copy ends: up to which record of the source the target has everything, told by the records themselves.

MirrorMaker 2 without exactly-once stores its offsets once a minute, so the copy is mostly further than they say.
What must stay true: an answer is given only where it can be no other: the target ends with the record that was stored
as the last one and exactly those that follow it on the source, and in only one way. Whoever compacts, loses or adds
records there gets no answer instead of a wrong one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from isthmus.engine.offsets.align import Seen, read
from isthmus.model import TopicPartition
from isthmus.wire.cluster import Client

_WINDOWS = (1_000, 30_000, 900_000)  # offsets at the end of the target that are looked at, until it is told
_MOST = 2_000_000  # records that are compared where nothing was stored
_BACK = 10_000  # offsets in which the last record before a stored offset is looked for


class Logs(NamedTuple):
    """One partition on both sides, with the offsets of committed records that each has."""

    source: TopicPartition
    target: TopicPartition
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    hidden: bool = False  # an open transaction keeps back what stands at the end of the target


async def end_of_copy(source: Client, target: Client, logs: Logs, stored: int) -> int | None:
    """The source offset after the last record that is on the target; None where that is not certain.

    `stored` is what its owner would go on at; -1: it has stored nothing.
    """
    if stored < 0:
        return await _whole(source, target, logs)
    if not logs.source_start <= stored <= logs.source_end:
        return None
    before = await read(source, logs.source, max(logs.source_start, stored - _BACK), stored, _BACK)
    if not len(before):
        return stored if logs.target_end <= logs.target_start and stored == logs.source_start else None
    for size in _WINDOWS:
        start = max(logs.target_start, logs.target_end - size)
        tail = await read(target, logs.target, start, logs.target_end, size)
        head = await read(source, logs.source, before.offsets[-1], logs.source_end, max(1, len(tail)))
        found = borders(head.prints, tail.prints)
        if len(found) > 1 or (not found and start == logs.target_start):
            return None
        # A window just as long as what was found could hide a second way in which it fits.
        if found and (2 * found[0] <= len(tail) or start == logs.target_start):
            return max(stored, head.offsets[found[0] - 1] + 1)
    return None


async def _whole(source: Client, target: Client, logs: Logs) -> int | None:
    """Nothing was stored: the target has the first records of the source, or none."""
    there = await read(target, logs.target, logs.target_start, logs.target_end, _MOST + 1)
    if not len(there):
        return logs.source_start
    here = await _first(source, logs, len(there))
    equal = len(there) <= _MOST and here.prints == there.prints
    return here.offsets[-1] + 1 if equal else None


async def _first(source: Client, logs: Logs, count: int) -> Seen:
    return await read(source, logs.source, logs.source_start, logs.source_end, count)


def borders(head: Sequence[int], tail: Sequence[int]) -> list[int]:
    """All lengths, longest first, with which a beginning of `head` is the end of `tail` (Knuth, Morris, Pratt)."""
    shorter = array("q", [0]) * len(head)
    matched = 0
    for at in range(1, len(head)):
        while matched and head[at] != head[matched]:
            matched = shorter[matched - 1]
        matched += head[at] == head[matched]
        shorter[at] = matched
    matched = 0
    for each in tail:
        while matched and (matched == len(head) or each != head[matched]):
            matched = shorter[matched - 1]
        matched += len(head) > 0 and each == head[matched]
    found = []
    while matched:
        found.append(matched)
        matched = shorter[matched - 1]
    return found
