"""Naming a difference: which record is missing, doubled, out of order or altered, and at which offsets.

Only what lies near the place is looked at, so the name is the likeliest one; that there is a difference, and where the
first one is, is certain. Contents are never shown: only which part of a record differs.
"""

from __future__ import annotations

import numpy as np

from isthmus.engine.verify.values import ALTERED, DOUBLED, EXTRA, MISSING, REORDERED, Difference, Stretch
from isthmus.engine.verify.walk import Walk
from isthmus.model import TopicPartition
from isthmus.wire.batch import Batch
from isthmus.wire.cluster import Client
from isthmus.wire.kernels import Table
from isthmus.wire.legacy import unwrapped
from isthmus.wire.prints import OFFSET, PRINT
from isthmus.wire.records import Record, decode_records

_NEAR = 2_000


async def diagnose(source: Client, target: Client, stretch: Stretch, here: Walk, there: Walk) -> Difference:
    """What is wrong where both logs stand. The target has a record there; the source may have none."""
    expected, found = await here.ahead(_NEAR), await there.ahead(_NEAR)
    before = await _before(source, stretch, int(expected[0, OFFSET]) if len(expected) else stretch.source_end)
    kind, count = _named(expected[:, PRINT], found[:, PRINT], before)
    at = int(expected[0, OFFSET]) if len(expected) else -1
    on_target = int(found[0, OFFSET])
    text = _words(kind, count)
    if kind == ALTERED and at >= 0:
        text = f"the record differs in its {await _parts(source, target, stretch, at, on_target)}"
    return Difference(kind=kind, source_offset=at, target_offset=on_target, text=text)


def _named(expected: Table, found: Table, before: Table) -> tuple[str, int]:
    """The kind of difference, and how many records it concerns."""
    if not len(expected):
        return (DOUBLED if found[0] in before else EXTRA), len(found)
    comes_later = np.flatnonzero(expected[1:] == found[0])
    came_late = np.flatnonzero(found[1:] == expected[0])
    if len(came_late) and found[0] in before:
        return DOUBLED, int(came_late[0]) + 1
    if len(came_late) and len(comes_later):
        return REORDERED, int(max(came_late[0], comes_later[0])) + 1
    if len(comes_later):
        return MISSING, int(comes_later[0]) + 1
    if len(came_late):
        return EXTRA, int(came_late[0]) + 1
    return ALTERED, 1


def _words(kind: str, count: int) -> str:
    records = "1 record" if count == 1 else f"{count:,} records"
    return {
        MISSING: f"{records} of the source missing on the target",
        DOUBLED: f"{records} on the target a second time",
        EXTRA: f"{records} on the target that the source does not have there",
        REORDERED: f"records in another order, {count:,} places apart",
        ALTERED: f"{records} with another content",
    }[kind]


async def _before(source: Client, stretch: Stretch, offset: int) -> Table:
    """Prints of what precedes the place on the source."""
    walk = Walk(source, stretch.source, max(stretch.low, offset - _NEAR), offset)
    try:
        return (await walk.ahead(_NEAR))[:, PRINT]
    finally:
        await walk.close()


async def _parts(source: Client, target: Client, stretch: Stretch, here: int, there: int) -> str:
    one, other = await _record(source, stretch.source, here), await _record(target, stretch.target, there)
    if one is None or other is None:
        return "content"
    unlike = [name for name in ("key", "value", "headers") if getattr(one, name) != getattr(other, name)]
    if one.timestamp != other.timestamp:
        unlike.append(f"timestamp ({one.timestamp} on the source, {other.timestamp} on the target)")
    return ", ".join(unlike) or "encoding"


async def _record(client: Client, tp: TopicPartition, offset: int) -> Record | None:
    walk = Walk(client, tp, offset, offset + 1)
    try:
        while await walk.fill():
            for record in _decoded(*walk.take()):
                if record.offset == offset:
                    return record
    finally:
        await walk.close()
    return None


def _decoded(buffer: memoryview, batch: Batch) -> list[Record]:
    return decode_records(buffer, batch) if batch.magic == 2 else unwrapped(buffer, batch)[1]
