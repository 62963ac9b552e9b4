"""Does `isthmus size` tell the truth? Copies that its constants were not made of, foretold and then measured.

Constants are measured in the same run, on the same machine; in turn with that, topics with other batches, other
partitions and with one lane and two are copied, and the CPU that the lanes took is set against what was foretold. What
must stay true: a foretelling is made from the load alone, as the command makes it. The time that a copy took is shown
and not judged: on a machine that lanes share with brokers it tells of the brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from isthmus.bench.calibrating import IDLE, Copied, Wanted, measure_with
from isthmus.bench.cases import CASES, Case
from isthmus.sizing.constants import Constants
from isthmus.sizing.needs import Load, cpu_per_gb

BAR = 0.3
_FULL_SPEED = 200e6  # bytes per second of a lane that has all it can carry: commits cost little of that

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """One copy. CPU-seconds are for a GB of keys and values, without what a start costs."""

    what: str
    lanes: int
    foretold_s_per_gb: float
    measured_s_per_gb: float
    mb_per_s: float  # as it was, on this machine, with the brokers beside

    @property
    def off(self) -> float:
        return self.foretold_s_per_gb / self.measured_s_per_gb - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretelling:
    """All of them, with the constants that they were made from."""

    copies: tuple[Foretold, ...]
    constants: dict[str, Any]

    @property
    def worst(self) -> float:
        return max(abs(one.off) for one in self.copies)

    def as_json(self) -> dict[str, Any]:
        copies = [{**asdict(one), "off": round(one.off, 3)} for one in self.copies]
        worst = round(self.worst, 3)
        return {"bar": BAR, "worst": worst, "within_bar": worst <= BAR, "copies": copies, "constants": self.constants}


def measure_foretelling(source: str, target: str, scale: float, say: Say) -> Foretelling:
    cases = (
        replace(CASES["json"], name="told-json", batch_records=45, partitions=8),
        replace(CASES["uncompressed"], name="told-plain", batch_records=30),
    )
    wanted = {f"{case.name}, {lanes} lanes": Wanted(case, lanes) for case in cases for lanes in (1, 2)}
    constants, copied = measure_with(source, target, scale, wanted, say)
    fixed = copied[IDLE].cpu_s
    copies = tuple(_foretold(one.case, one.lanes, copied[name], constants, fixed) for name, one in wanted.items())
    return Foretelling(copies=copies, constants=constants.as_json())


def _foretold(case: Case, lanes: int, copied: Copied, constants: Constants, fixed_s: float) -> Foretold:
    load = Load(
        rate=lanes * _FULL_SPEED,
        partitions=case.partitions,
        record=copied.raw_gb * 1e9 / copied.records,
        batch=copied.stored_gb * 1e9 / copied.batches,
        codec=case.codec,
    )
    return Foretold(
        what=f"{case.batch_records} records of a batch, {case.codec}, {case.partitions} partitions",
        lanes=lanes,
        foretold_s_per_gb=round(cpu_per_gb(load, constants, lanes, busy=1.0), 2),
        measured_s_per_gb=round(max(0.001, copied.cpu_s - fixed_s) / copied.raw_gb, 2),
        mb_per_s=round(copied.raw_gb * 1e3 / copied.wall_s, 1),
    )


def show(found: Foretelling, console: Console) -> None:
    table = Table(title="CPU-seconds of lanes for a GB of keys and values")
    for name in ("copy", "lanes", "foretold", "measured", "off", "MB/s here"):
        table.add_column(name, justify="left" if name == "copy" else "right")
    for one in found.copies:
        cells = f"{one.foretold_s_per_gb}", f"{one.measured_s_per_gb}", f"{one.off:+.0%}", f"{one.mb_per_s}"
        table.add_row(one.what, str(one.lanes), *cells)
    console.print(table)
    kept = "kept" if found.worst <= BAR else "NOT kept"
    console.print(f"worst: {found.worst:.0%}; bar: {BAR:.0%}: {kept}")
