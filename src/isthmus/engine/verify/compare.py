"""Putting one stretch of both logs side by side, until the first difference.

Batches that are the same byte for byte are passed as they are, which is nearly all of them: a batch crosses untouched.
Where they differ (other codec, merged, split, holes of compaction) both are opened, and records are compared one by
one; prints of them are made only to name a difference. What must stay true: everything that the target holds up to
`target_end` has been found in the source, in the same order; everything of the source below `until` has been found in
the target.
"""

from __future__ import annotations

import asyncio

import numpy as np

from isthmus.engine.verify.diagnosis import diagnose
from isthmus.engine.verify.values import ALTERED, DAMAGED, EXTRA, MISSING, Compared, Difference, Stretch
from isthmus.engine.verify.walk import Walk, same_bytes
from isthmus.errors import IsthmusError, WireError
from isthmus.wire.alike import pass_alike
from isthmus.wire.cluster import Client
from isthmus.wire.kernels import Table
from isthmus.wire.prints import KEY, OFFSET, PRINT, TOMBSTONE


class _Sides:
    """Both logs, and how far they are the same."""

    def __init__(self, source: Client, target: Client, stretch: Stretch) -> None:
        self.stretch = stretch
        self.here = Walk(source, stretch.source, stretch.low, stretch.source_end, stretch.without)
        self.there = Walk(target, stretch.target, stretch.target_low, stretch.target_end, stretch.target_without)
        self.records = self.alike = self.letters = 0

    async def step(self) -> bool:
        """Pass what is the same; False at the end of either, or at a difference."""
        # Asked for at the same time; most steps have what they need, and a task for each would cost more than they do.
        waits = not (self.here.is_filled and self.there.is_filled)
        if waits and not all(await asyncio.gather(self.here.fill(), self.there.fill())):
            return False
        one, other = self.here.whole(), self.there.whole()
        if one is not None and other is not None and same_bytes(one, other):
            self.here.take()
            self.there.take()
            self.alike += 1
            self.records += one.batch.count
            return True
        here, there = self.here.open(), self.there.open()
        self.records += pass_alike(here, there)
        return here.is_done or there.is_done

    async def pass_letter(self) -> bool:
        """Where both differ: whether the source's next record is a dead letter, which is passed over then."""
        offset = await self.here.next_offset() if self.stretch.letters else None
        if offset is None or offset not in self.stretch.letters:
            return False
        self.here.open().pass_over(offset)
        self.letters += 1
        return True

    async def close(self) -> None:
        await asyncio.gather(self.here.close(), self.there.close())

    def found(self, difference: Difference | None) -> Compared:
        stretch = self.stretch
        return Compared(
            source=stretch.source,
            target=stretch.target,
            low=stretch.low,
            until=stretch.until,
            records=self.records,
            bytes=self.here.bytes,
            alike=self.alike,
            opened=self.here.opened,
            by_key=stretch.by_key,
            dead_letters=self.letters,
            difference=difference,
        )


async def compare(source: Client, target: Client, stretch: Stretch) -> Compared:
    """Never raises for what the logs hold: damage is a difference, a log that cannot be read is a reason."""
    sides = _Sides(source, target, stretch)
    try:
        difference = await (_by_key(sides) if stretch.by_key else _in_order(sides, source, target))
    except WireError as error:
        if error.code == "CORRUPT_BATCH":
            return sides.found(Difference(kind=DAMAGED, source_offset=-1, target_offset=-1, text=str(error)))
        return _not_compared(stretch, error)
    except IsthmusError as error:
        return _not_compared(stretch, error)
    finally:
        await sides.close()
    return sides.found(difference)


def _not_compared(stretch: Stretch, error: IsthmusError) -> Compared:
    return Compared(
        source=stretch.source, target=stretch.target, low=stretch.low, until=stretch.until, reason=str(error)
    )


async def _in_order(sides: _Sides, source: Client, target: Client) -> Difference | None:
    while await sides.step() or await sides.pass_letter():
        pass
    if len(await sides.there.ahead(1)):
        return await diagnose(source, target, sides.stretch, sides.here, sides.there)
    left = await sides.here.ahead(1)
    offset = int(left[0, OFFSET]) if len(left) else sides.stretch.until
    if offset >= sides.stretch.until:
        return None  # committed on the source after the target was looked at
    text = f"the target ends before the record at source offset {offset}"
    return Difference(kind=MISSING, source_offset=offset, target_offset=-1, text=text)


# --- compacted topics -------------------------------------------------------------------------


async def _by_key(sides: _Sides) -> Difference | None:
    """The last value of each key; a key that was deleted, and one that never was, are the same."""
    here, there = await asyncio.gather(_all(sides.here), _all(sides.there))
    if sides.stretch.letters:
        lettered = np.isin(here[:, OFFSET], np.array(sorted(sides.stretch.letters), np.int64))
        sides.letters, here = int(lettered.sum()), here[~lettered]
    sides.records = len(here)
    # What was written after `until` may be on the target already, or not.
    late = here[:, OFFSET] >= sides.stretch.until
    open_keys = np.unique(here[late, KEY])
    left, right = (_last_values(rows, open_keys) for rows in (here[~late], there))
    return _first_unlike(left, right)


async def _all(walk: Walk) -> Table:
    tables = [np.empty((0, 4), np.int64)]
    while await walk.fill():
        tables.append(walk.rows())
    return np.concatenate(tables)


def _last_values(rows: Table, without: Table) -> Table:
    """The last row of each key, by key; without those of deleted keys."""
    newest = rows[::-1]
    _, first = np.unique(newest[:, KEY], return_index=True)
    last: Table = newest[first]
    kept: Table = last[(last[:, TOMBSTONE] == 0) & ~np.isin(last[:, KEY], without)]
    return kept


def _first_unlike(left: Table, right: Table) -> Difference | None:
    missing = left[~np.isin(left[:, KEY], right[:, KEY])]
    if len(missing):
        offset = int(missing[:, OFFSET].min())
        text = f"{len(missing):,} keys have a last value on the source and none on the target"
        return Difference(kind=MISSING, source_offset=offset, target_offset=-1, text=text)
    extra = right[~np.isin(right[:, KEY], left[:, KEY])]
    if len(extra):
        offset = int(extra[:, OFFSET].min())
        text = f"{len(extra):,} keys have a last value on the target and none on the source"
        return Difference(kind=EXTRA, source_offset=-1, target_offset=offset, text=text)
    unlike = np.flatnonzero(left[:, PRINT] != right[:, PRINT])
    if not len(unlike):
        return None
    at = unlike[np.argmin(left[unlike, OFFSET])]
    text = f"{len(unlike):,} keys have another last value on the target"
    return Difference(
        kind=ALTERED, source_offset=int(left[at, OFFSET]), target_offset=int(right[at, OFFSET]), text=text
    )
