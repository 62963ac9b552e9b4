"""What a bench run found: plain values, the ratios between systems, and the bars they are held to.

Rates and CPU are of the *steady state*: from the first commit seen on the target to the last, over
what was committed in between. They are None where the first commit held most of the topic: then
the topic was too short for this system, and a larger scale is needed. GB and MB are 10^9 and 10^6
bytes of keys and values, as a consumer gets them, whatever they take on disk. Of several rounds the better
one counts, for every system by the same rule (`best_of`), as it does for the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from isthmus.bench.cases import Filled
from isthmus.bench.latency import Latency
from isthmus.bench.limit import Limit

OURS, THEIRS, THEIRS_AT_LEAST_ONCE, LIMIT = "isthmus", "mm2-eos", "mm2-alo", "limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossed:
    """One system's copy of one topic."""

    system: str
    case: str
    first_commit_s: float  # from the start of the process
    steady_s: float
    records_per_s: float | None
    mb_per_s: float | None
    cpu_s_per_gb: float | None
    cpu_s: float  # of all: start, copy
    peak_bytes: int
    stored_bytes: int
    latency: Latency | None = None


def best_of(rounds: Sequence[Crossed]) -> Crossed:
    """The fastest copy, the calmest latency (by p99), the soonest start, the highest memory of some rounds."""
    fastest = max(rounds, key=lambda each: each.records_per_s or 0.0)
    delays = [each.latency for each in rounds if each.latency]
    return replace(
        fastest,
        first_commit_s=min(each.first_commit_s for each in rounds),
        peak_bytes=max(each.peak_bytes for each in rounds),
        latency=min(delays, key=lambda latency: latency.p99) if delays else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """All systems on one topic."""

    source: Filled
    source_stored_bytes: int
    crossed: tuple[Crossed, ...]
    rounds: tuple[Crossed, ...] = ()  # what `crossed` is the best of
    limit: Limit | None = None

    @property
    def name(self) -> str:
        return self.source.case.name

    def of(self, system: str) -> Crossed | None:
        return next((each for each in self.crossed if each.system == system), None)

    @property
    def limit_records_per_s(self) -> float | None:
        return self.limit.records_per_s(self.source.records) if self.limit else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One figure against its bar. `at_least` says on which side of the bar is good."""

    case: str
    what: str
    value: float
    bar: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """A whole run."""

    scale: float
    machine: dict[str, str | int | float]
    cases: tuple[CaseResult, ...] = field(default_factory=tuple)

    def case(self, name: str) -> CaseResult | None:
        return next((each for each in self.cases if each.name == name), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "machine": self.machine,
            "cases": [_case_json(each) for each in self.cases],
            "ratios": [{**asdict(each), "met": each.met} for each in ratios(self)],
        }


def _case_json(result: CaseResult) -> dict[str, Any]:
    case = result.source.case
    return {
        "case": case.name,
        "what": case.what,
        "records": result.source.records,
        "bytes": result.source.bytes,
        "partitions": case.partitions,
        "source_stored_bytes": result.source_stored_bytes,
        "systems": {each.system: asdict(each) for each in result.crossed},
        "rounds": [asdict(each) for each in result.rounds],
        "limit": asdict(result.limit) if result.limit else None,
        "limit_records_per_s": result.limit_records_per_s,
    }


# ---- ratios --------------------------------------------------------------------------------

THROUGHPUT_BARS = {"json": 6.0, "random": 5.0, "small": 5.0}
CPU_BAR, LATENCY_BAR, MEMORY_BAR, LIMIT_BAR, WIDE_BAR = 10.0, 0.6, 1.5, 0.7, 2.0


def ratios(result: BenchResult) -> list[Ratio]:
    """Every figure that has a bar and was measured in this run."""
    found = [ratio for case in result.cases for ratio in _case_ratios(case)]
    json, wide = result.case("json"), result.case("wide")
    if json and wide and (narrow := json.of(OURS)) and (broad := wide.of(OURS)):
        found += _ratio("wide", "CPU-s per GB / json's", broad.cpu_s_per_gb, narrow.cpu_s_per_gb, WIDE_BAR, False)
    return found


def _case_ratios(case: CaseResult) -> Iterator[Ratio]:
    ours, theirs = case.of(OURS), case.of(THEIRS)
    if ours is None:
        return
    if theirs is not None:
        yield from _against(case.name, ours, theirs)
    if case.name == "json":
        rates = ours.records_per_s, case.limit_records_per_s
        yield from _ratio(case.name, "share of the limit", *rates, LIMIT_BAR, True)


def _against(case: str, ours: Crossed, theirs: Crossed) -> Iterator[Ratio]:
    if bar := THROUGHPUT_BARS.get(case):
        yield from _ratio(case, "records/s", ours.records_per_s, theirs.records_per_s, bar, True)
    yield from _ratio(case, "CPU-s per GB, times less", theirs.cpu_s_per_gb, ours.cpu_s_per_gb, CPU_BAR, True)
    yield from _ratio(case, "peak memory", ours.peak_bytes, theirs.peak_bytes, MEMORY_BAR, False)
    if ours.latency and theirs.latency:
        yield from _ratio(case, "latency p50", ours.latency.p50, theirs.latency.p50, LATENCY_BAR, False)
        yield from _ratio(case, "latency p99", ours.latency.p99, theirs.latency.p99, LATENCY_BAR, False)


def _ratio(case: str, what: str, value: float | None, by: float | None, bar: float, at_least: bool) -> list[Ratio]:
    if value is None or not by:
        return []
    return [Ratio(case=case, what=what, value=value / by, bar=bar, at_least=at_least)]
