"""A flow with a transform against MirrorMaker 2 exactly-once without any, on the `json` case, in turn.

Rates are of records that are read: what the transform leaves out was read and judged as well. What must stay true: the
transform looks into the JSON of every record and changes each that it keeps; both run as in every other case, one at a
time; nothing counts before every record that is due was counted on the target.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from isthmus.bench import ours
from isthmus.bench.cases import CASES, Filled, fill
from isthmus.bench.results import THEIRS, Crossed
from isthmus.bench.run import COMMANDS, CaseBench, Plan
from isthmus.bench.warm import warm_up
from isthmus.lab.mix import order_bodies

BAR = 2.0
# What is no JSON passes as it is: latency is measured with records of its own.
SQL = """SELECT * EXCEPT (value),
  IF(value LIKE '{%', CAST(regexp_replace(value, '"token": "[0-9a-f]+"', '"token": "***"') AS BINARY), value) AS value
FROM records WHERE coalesce(get_json_object(CAST(value AS STRING), '$.currency'), '') <> 'GBP'"""
_OURS = "isthmus-sql"
_ROUNDS = 2
_LATENCY_S = 20.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformed:
    """Records read per second in each round, CPU-seconds of all processes of a side, latency of ours at 500/s."""

    records: int
    kept: int
    sql_per_s: tuple[float, ...]
    sql_cpu_s: tuple[float, ...]
    mm2_per_s: tuple[float, ...]
    mm2_cpu_s: tuple[float, ...]
    peak_mb: float
    p50_ms: float
    p99_ms: float

    @property
    def times(self) -> float:
        """The best round of each counts."""
        return max(self.sql_per_s) / max(self.mm2_per_s)

    def as_json(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in self.__slots__}
        return {"bar": BAR, "times_as_fast": round(self.times, 2), "within_bar": self.times >= BAR, **found}


def measure_transforming(source: str, target: str, scale: float, logs: Path, say: Say) -> Transformed:
    """Both, in turn, on two running clusters."""
    COMMANDS[_OURS] = lambda crossing, folder: ours.command(crossing, folder, {"transform": SQL})
    plan = Plan(scale=scale, cases=("json",), systems=(), latency_seconds=0.0, logs=logs)
    say("filling the source")
    filled = fill(source, CASES["json"], scale)
    say("warming the brokers")
    warm_up(source, CASES["json"], target)
    due = replace(filled, records=_kept(filled.records))
    found: dict[str, list[Crossed]] = {_OURS: [], THEIRS: []}
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        bench = CaseBench(source, target, Path(folder), plan, say)
        for number in range(_ROUNDS):
            for system in (_OURS, THEIRS) if number % 2 == 0 else (THEIRS, _OURS):
                say(f"{system}, round {number + 1} of {_ROUNDS}")
                last = number == _ROUNDS - 1 and system == _OURS
                wanted = due if system == _OURS else filled
                found[system].append(bench.cross(system, number, wanted, _LATENCY_S if last else 0.0))
    return _result(filled, due, found)


def _kept(records: int) -> int:
    """How many the transform keeps, counted in plain Python."""
    bodies = order_bodies()
    keeps = [b'"currency": "GBP"' not in body for body in bodies]
    whole, rest = divmod(records, len(bodies))
    return whole * sum(keeps) + sum(keeps[:rest])


def _result(filled: Filled, due: Filled, found: dict[str, list[Crossed]]) -> Transformed:
    share = due.records / filled.records
    latency = next(each.latency for each in found[_OURS] if each.latency is not None)
    return Transformed(
        records=filled.records,
        kept=due.records,
        sql_per_s=tuple(round((each.records_per_s or 0) / share) for each in found[_OURS]),
        sql_cpu_s=tuple(round(each.cpu_s, 1) for each in found[_OURS]),
        mm2_per_s=tuple(round(each.records_per_s or 0) for each in found[THEIRS]),
        mm2_cpu_s=tuple(round(each.cpu_s, 1) for each in found[THEIRS]),
        peak_mb=round(max(each.peak_bytes for each in found[_OURS]) / 1e6),
        p50_ms=round(latency.p50, 1),
        p99_ms=round(latency.p99, 1),
    )


def show(found: Transformed, console: Console) -> None:
    table = Table(title=f"{found.records:,} JSON records: WHERE and a mask, against a plain copy by MirrorMaker 2")
    for column in ("", "records read/s", "CPU-seconds"):
        table.add_column(column, justify="left" if not column else "right")
    for name, rates, cpu in (
        ("Isthmus, transform", found.sql_per_s, found.sql_cpu_s),
        ("MirrorMaker 2 exactly-once, none", found.mm2_per_s, found.mm2_cpu_s),
    ):
        table.add_row(name, " ".join(f"{rate:,.0f}" for rate in rates), " ".join(f"{each:.1f}" for each in cpu))
    console.print(table)
    console.print(f"{found.times:.1f} times as fast (bar {BAR:g}); {found.kept:,} kept; peak {found.peak_mb:,.0f} MB")
    console.print(f"at 500 records/s: {found.p50_ms:.0f} ms (p50), {found.p99_ms:.0f} ms (p99)")
