"""What writers wrote, what readers read, and the verdict: lost, read again, out of order, never crossed.

A record is known by its mark: writer, partition, number. Writers number without holes in each partition, and know
of each number what became of it. Readers keep their trail: which numbers they read, in that order, in which stint. A
stint is the time between two moves of the clients, so each move is judged by the stint that it ended and the one that
it began.

What must stay true: the verdict is a function of these notes alone, and the code that moved the records has no part
in it. Numbers of which a writer never learned what became of them (the broker died with the answer) may be there or
not: they are neither lost nor strange. What was acknowledged by a cluster that died, and never reached the other, is
counted apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from isthmus.drill.runs import Runs

Key = tuple[str, int]  # writer and partition
Marks = dict[Key, Runs]


def marked(writer: str, partition: int, number: int) -> bytes:
    """The mark of a record, as it begins its value."""
    return f"{writer} {partition} {number} ".encode()


def read_mark(value: bytes) -> tuple[Key, int]:
    writer, partition, number, _ = value.split(b" ", 3)
    return (writer.decode(), int(partition)), int(number)


@dataclass(slots=True)
class Written:
    """Of one writer, by stint: numbers that were acknowledged, taken back (aborted), or of which it does not know."""

    acknowledged: list[Marks] = field(default_factory=list)
    aborted: Marks = field(default_factory=dict)
    unsure: Marks = field(default_factory=dict)

    def begin_stint(self) -> None:
        self.acknowledged.append({})

    @property
    def count(self) -> int:
        return sum(map(total, self.acknowledged))


@dataclass(slots=True)
class Trail:
    """Of one reader group, by stint: the runs of numbers that it read of each writer and partition, in order."""

    stints: list[dict[Key, list[tuple[int, int]]]] = field(default_factory=list)
    strange: int = 0  # records without a mark

    def begin_stint(self) -> None:
        self.stints.append({})

    def note(self, key: Key, number: int) -> None:
        runs = self.stints[-1].setdefault(key, [])
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))

    def until(self, stint: int) -> Marks:
        """All that was read before this stint."""
        return joined({key: Runs(runs) for key, runs in each.items()} for each in self.stints[:stint])

    def all(self) -> Marks:
        return self.until(len(self.stints))


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What was found of one group, in one stint or in all."""

    lost: int = 0
    reread: int = 0
    reordered: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            lost=self.lost + other.lost,
            reread=self.reread + other.reread,
            reordered=self.reordered + other.reordered,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupVerdict:
    """Of one group. `stints[n].lost`: acknowledged in that stint and never read; the rest: read in that stint."""

    group: str
    stints: tuple[Count, ...]
    phantoms: int  # read, but never acknowledged: aborted, or nobody's
    read: int  # different records

    @property
    def total(self) -> Count:
        return sum(self.stints, Count())


def never_crossed(acknowledged: Iterable[Marks], on_target: Marks) -> Marks:
    """What was acknowledged and is not on the target."""
    return minus(joined(acknowledged), on_target)


def judge(
    group: str, trail: Trail, written: Sequence[Written], excused: Mapping[Key, Runs], stints: int
) -> GroupVerdict:
    """Hold what a group read against what was written. `excused` are records that never crossed."""
    read = trail.all()
    counts = []
    for stint in range(stints):
        acknowledged = joined(each.acknowledged[stint] for each in written if stint < len(each.acknowledged))
        lost = total(minus(minus(acknowledged, read), excused))
        again, late = _repeats(trail, stint)
        counts.append(Count(lost=lost, reread=again, reordered=late))
    possible = joined(marks for each in written for marks in (*each.acknowledged, each.unsure))
    strange = total(minus(read, possible)) + trail.strange
    return GroupVerdict(group=group, stints=tuple(counts), phantoms=strange, read=total(read))


def _repeats(trail: Trail, stint: int) -> tuple[int, int]:
    """How many records of a stint had been read before, and how many came behind later ones."""
    if stint >= len(trail.stints):
        return 0, 0
    before = trail.until(stint)
    again = late = 0
    for key, runs in trail.stints[stint].items():
        seen = before.get(key, Runs())
        for first, last in runs:
            new = Runs([(first, last)]).minus(seen)
            again += last - first + 1 - len(new)
            late += len(new.common(Runs([(0, seen.highest)]))) if seen.highest >= 0 else 0
            seen = seen.union(new)
    return again, late


def joined(parts: Iterable[Marks]) -> Marks:
    found: Marks = {}
    for marks in parts:
        for key, runs in marks.items():
            found[key] = found.get(key, Runs()).union(runs)
    return found


def minus(ours: Marks, theirs: Mapping[Key, Runs]) -> Marks:
    """What is in the one and not in the other."""
    left = {key: runs.minus(theirs.get(key, Runs())) for key, runs in ours.items()}
    return {key: runs for key, runs in left.items() if len(runs)}


def total(marks: Mapping[Key, Runs]) -> int:
    """How many records."""
    return sum(map(len, marks.values()))
