"""Records that a transform fails on: which ones, found by halving, and read one by one.

Must stay true: a record is called bad only when it was tried alone. What is done with it is the lane's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from isthmus.engine.orders import Assignment
from isthmus.frames.ranges import Range
from isthmus.frames.reading import read
from isthmus.model import Cluster, TopicPartition
from isthmus.wire.columns import Blobs, Columns
from isthmus.wire.records import Headers, Record

Judge = Callable[[Sequence[Range]], str]  # why it fails; empty: it does not


def bad_records(judge: Judge, ranges: Sequence[Range], most: int) -> Mapping[TopicPartition, dict[int, str]]:
    """Records that fail by themselves, and why: the first ones of each partition, at most so many."""
    found: dict[TopicPartition, dict[int, str]] = {}
    for each in ranges:
        known, left = found.get(each.tp, {}), each
        while len(known) < most and left.size and judge([left]) and (bad := _halved(judge, left)):
            known[bad[0]] = bad[1]
            found[each.tp] = known
            left = replace(left, low=bad[0] + 1)
    return found


def _halved(judge: Judge, bad: Range) -> tuple[int, str] | None:
    """`bad` fails as a whole; None where no single record of it does."""
    while bad.size > 1:
        middle = (bad.low + bad.end) // 2
        left, right = replace(bad, end=middle), replace(bad, low=middle)
        bad = left if judge([left]) else right
    reason = judge([bad])
    return (bad.low, reason) if reason else None


def record_at(cluster: Cluster, tp: TopicPartition, offset: int, assignment: Assignment) -> Record | None:
    """That one record; None where there is none at this offset."""
    wanted = Range(tp=tp, low=offset, end=offset + 1, topic_id=assignment.source_id)
    for part in read(cluster, wanted):
        return _record(part)
    return None


def _record(part: Columns) -> Record:
    pairs: Headers = ()
    if part.headers is not None:
        names, contents = part.headers.names, part.headers.contents
        numbers = range(int(part.headers.offsets[0]), int(part.headers.offsets[1]))
        pairs = tuple(((_blob(names, n) or b"").decode(), _blob(contents, n)) for n in numbers)
    return Record(int(part.offset[0]), int(part.time[0]) // 1000, _blob(part.key, 0), _blob(part.value, 0), pairs)


def _blob(column: Blobs, row: int) -> bytes | None:
    if column.valid is not None and not column.valid[row // 8] >> (row % 8) & 1:
        return None
    return bytes(column.data[column.offsets[row] : column.offsets[row + 1]])
