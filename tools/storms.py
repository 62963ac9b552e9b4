"""The table of faults in docs/guarantees.md: what the last storms left in bench/results/torture*.json.

Owns the lines between two marks of that page. Must stay true: no figure is written by hand, and a storm that was not
proven says so. `make reference` writes it (tools/reference.py); `isthmus torture --report` writes the files.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "bench" / "results"
BEGIN, END = "<!-- storms: written by the program, `make reference` -->", "<!-- storms end -->"

Storm = Mapping[str, Any]


def put_into(page: str) -> str:
    """The page with the table as the files tell it."""
    before, rest = page.split(BEGIN, 1)
    return "\n".join([before + BEGIN, *_lines(_storms()), END + rest.split(END, 1)[1]])


def _storms() -> list[Storm]:
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("torture*.json"))]


def _lines(storms: Sequence[Storm]) -> Iterator[str]:
    yield ""
    for storm in storms:
        yield f"- {_told(storm)}"
    yield ""
    # No bars at the edges: lines with them are promises, of which each names its test.
    yield (
        "fault | times | records meanwhile | lost | again | recovered: median s | worst s | "
        "others silent: median s | worst s"
    )
    yield "---|--:|--:|--:|--:|--:|--:|--:|--:"
    for name, rows in sorted(_by_kind(storms).items()):
        yield _row(name, rows)
    yield ""


def _told(storm: Storm) -> str:
    machine, uses = storm["machine"], storm["uses"]
    wrong = (
        "" if storm["proven"] else f" **Not proven: {'; '.join(each.splitlines()[0] for each in storm['faults'])}.**"
    )
    return (
        f"`isthmus torture` {machine['time']}, seed {storm['seed']}, {storm['seconds'] / 60:.0f} minutes on "
        f"{machine['cores']} cores, Kafka {machine['kafka']}: {storm['injected']} faults of "
        f"{len(storm['kinds'])} kinds, "
        f"{storm['starts']} starts of the program. Both sides compared at the end: {storm['records']:,} records, "
        f"{storm['lost']} lost, {storm['duplicated']} duplicated, {storm['reordered']} reordered, {storm['altered']} "
        f"altered{', no transaction left open' if storm['proven'] else ''}.{wrong} {_held(uses)}"
    )


def _held(uses: Sequence[Mapping[str, Any]]) -> str:
    """What the program held in the first and in the last third, by the median."""
    third = max(1, len(uses) // 3)
    told = []
    for name, unit, one in (("bytes", "MB of memory", 1e6), ("files", "open files", 1), ("threads", "threads", 1)):
        begun, ended = (statistics.median(use[name] for use in part) / one for part in (uses[:third], uses[-third:]))
        told.append(f"{begun:,.0f} and {ended:,.0f} {unit}")
    return f"Held in the first and in the last third: {', '.join(told)}."


def _by_kind(storms: Sequence[Storm]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for storm in storms:
        for row in storm["kinds"]:
            found.setdefault(row["kind"], []).append(row)
    return found


def _row(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Of several storms: sums, the median of all by the storm with the most, the worst of all."""
    most = max(rows, key=lambda row: row["times"])
    counts = (sum(row[key] for row in rows) for key in ("times", "records", "missing", "again"))
    worst = max(row["worst_seconds"] for row in rows)
    told = [f"{each:,}" for each in counts]
    told += [f"{most['median_seconds']:.1f}", f"{worst:.1f}"]
    if most["others_seconds"] is not None:
        told += [f"{most['others_seconds']:.1f}", f"{max(row['others_worst_seconds'] for row in rows):.1f}"]
    return " | ".join([name, *told])
