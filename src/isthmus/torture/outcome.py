"""What a storm left: each fault with its recovery, what the oracle found, what the program used.

Pure values and how they are put together. The words of the table are those of `docs/guarantees.md`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from isthmus.lab.oracle import Verdict


class Silence(NamedTuple):
    """How long nothing came of one partition, and until when."""

    seconds: float = 0.0
    place: str = ""
    until: float = 0.0  # as clocks tell

    def __str__(self) -> str:
        until = time.strftime("%H:%M:%S", time.localtime(self.until))
        return f"{self.seconds:.1f} s ({self.place} until {until})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """One fault. `recovered_s`: until every partition had a record that was written after it, -1: never.
    `silences`: of each partition how long nothing came of it meanwhile, the shortest first; `others`: how many
    of them the fault did not hit."""

    kind: str
    at: float  # seconds since the storm began
    recovered_s: float
    silences: tuple[Silence, ...] = ()
    others: int = 0
    records: int = 0  # that arrived meanwhile
    missing: int = 0
    again: int = 0

    @property
    def others_silence(self) -> Silence | None:
        """The longest of those that were not hit; None where none was spared."""
        return self.silences[self.others - 1] if self.others and self.silences else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What the program held on to at one moment, over all its processes."""

    at: float
    bytes: int
    files: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All faults of one kind."""

    kind: str
    times: int
    median_s: float
    worst_s: float
    others_s: float | None  # median of how long partitions were silent that it did not hit
    others_worst_s: float | None
    records: int
    missing: int
    again: int

    @property
    def seconds(self) -> tuple[float | None, ...]:
        return self.median_s, self.worst_s, self.others_s, self.others_worst_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A storm. `missing` and `again` were seen by the reader that ran all along."""

    seed: int
    seconds: float
    blows: tuple[Blow, ...]
    verdicts: tuple[Verdict, ...]
    missing: int
    again: int
    starts: int
    uses: tuple[Use, ...]
    faults: tuple[str, ...]  # what went wrong, in words; empty: nothing

    @property
    def proven(self) -> bool:
        return not self.faults

    @property
    def records(self) -> int:
        return sum(each.records for each in self.verdicts)

    def rows(self) -> tuple[Row, ...]:
        by_kind: dict[str, list[Blow]] = {}
        for blow in self.blows:
            by_kind.setdefault(blow.kind, []).append(blow)
        return tuple(_row(kind, each) for kind, each in sorted(by_kind.items()))


def _row(kind: str, blows: Sequence[Blow]) -> Row:
    seconds = [blow.recovered_s for blow in blows]
    others = [blow.others_silence.seconds for blow in blows if blow.others_silence is not None]
    return Row(
        kind=kind,
        times=len(blows),
        median_s=statistics.median(seconds),
        worst_s=max(seconds),
        others_s=statistics.median(others) if others else None,
        others_worst_s=max(others, default=None),
        records=sum(blow.records for blow in blows),
        missing=sum(blow.missing for blow in blows),
        again=sum(blow.again for blow in blows),
    )


def wrongs(verdicts: Sequence[Verdict], missing: int, again: int, told: Sequence[str]) -> list[str]:
    """What must not be, in words."""
    found = [f"{each.topic}: {each.first_difference}" for each in verdicts if not each.equal]
    if missing:
        found.append(f"a reader missed {missing} records: {told[0]}")
    if again:
        found.append(f"a reader saw {again} records twice or out of order: {told[0]}")
    return found


def as_json(outcome: Outcome) -> dict[str, object]:
    """The documented form (docs/json-output.md)."""
    return {
        "proven": outcome.proven,
        "faults": list(outcome.faults),
        "seed": outcome.seed,
        "seconds": round(outcome.seconds, 1),
        "injected": len(outcome.blows),
        "records": outcome.records,
        "lost": sum(each.lost for each in outcome.verdicts),
        "duplicated": sum(each.duplicated for each in outcome.verdicts),
        "reordered": sum(each.reordered for each in outcome.verdicts),
        "altered": sum(each.altered + each.foreign for each in outcome.verdicts),
        "reader": {"missing": outcome.missing, "again": outcome.again},
        "starts": outcome.starts,
        "kinds": [
            {
                "kind": r.kind,
                "times": r.times,
                "records": r.records,
                "missing": r.missing,
                "again": r.again,
                "median_seconds": round(r.median_s, 2),
                "worst_seconds": round(r.worst_s, 2),
                "others_seconds": None if r.others_s is None else round(r.others_s, 2),
                "others_worst_seconds": None if r.others_worst_s is None else round(r.others_worst_s, 2),
            }
            for r in outcome.rows()
        ],
        "uses": [
            {"at": round(use.at, 1), "bytes": use.bytes, "files": use.files, "threads": use.threads}
            for use in outcome.uses
        ],
    }
