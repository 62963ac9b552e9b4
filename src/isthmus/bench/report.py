"""How a bench result is shown: tables for the terminal, a plot, and the files of both.

Reads results only; measures nothing and decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from isthmus.bench.results import (
    OURS,
    THEIRS,
    THEIRS_AT_LEAST_ONCE,
    BenchResult,
    CaseResult,
    Crossed,
    Ratio,
    ratios,
)

COLOURS = {OURS: "#0f766e", THEIRS: "#b45309", THEIRS_AT_LEAST_ONCE: "#f0b775", "limit": "#9ca3af"}
SHORT_RUN = (
    "A short run: it flatters whoever starts quickly, because JVMs (MirrorMaker 2's above all) compile "
    "during the first seconds. --scale 1 gives the figures to quote."
)
QUANTILES = ("p50", "p95", "p99", "p999")

Figure_ = Callable[[Crossed], float | None]
ROWS: tuple[tuple[str, Figure_, str], ...] = (
    ("records/s", lambda one: one.records_per_s, "{:,.0f}"),
    ("MB/s", lambda one: one.mb_per_s, "{:,.1f}"),
    ("CPU-seconds per GB", lambda one: one.cpu_s_per_gb, "{:,.2f}"),
    ("peak memory, MB", lambda one: one.peak_bytes / 1e6, "{:,.0f}"),
    ("stored on the target, MB", lambda one: one.stored_bytes / 1e6, "{:,.1f}"),
    ("start to first commit, s", lambda one: one.first_commit_s, "{:,.1f}"),
    *(
        (f"latency {label}, ms", lambda one, q=quantile: getattr(one.latency, q, None), "{:,.1f}")
        for label, quantile in zip(("p50", "p95", "p99", "p99.9"), QUANTILES, strict=True)
    ),
)


def show(result: BenchResult, console: Console) -> None:
    """One table per case, then the bars."""
    for case in result.cases:
        console.print(_case_table(case))
    found = ratios(result)
    if found:
        console.print(_ratio_table(found))
    if result.scale < 1:
        console.print(SHORT_RUN, style="dim")
    console.print(
        "Steady state: from the first commit seen to the last. CPU and memory are the replicator's whole "
        "process tree (JVMs, drivers, workers); brokers are counted for nobody. "
        f"Load when it began: {result.machine['load_1m']} on {result.machine['cores']} cores.",
        style="dim",
    )


def write(result: BenchResult, folder: Path) -> list[Path]:
    """`bench.json`, `bench.png` and `bench.svg`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "bench.json"
    file.write_text(json.dumps(result.as_json(), indent=2) + "\n")
    figure = plot(result)
    pictures = [folder / "bench.png", folder / "bench.svg"]
    for picture in pictures:
        figure.savefig(picture, dpi=150)
    return [file, *pictures]


# ---- tables --------------------------------------------------------------------------------


def _case_table(case: CaseResult) -> Table:
    source = case.source
    title = (
        f"{case.name}: {source.case.what} · {source.records:,} records, {source.bytes / 1e6:,.0f} MB, "
        f"{case.source_stored_bytes / 1e6:,.0f} MB stored, {source.case.partitions} partitions"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for crossed in case.crossed:
        table.add_column(crossed.system, justify="right")
    both = case.of(OURS) is not None and case.of(THEIRS) is not None
    table.add_column(f"{OURS} / {THEIRS}" if both else "", justify="right")
    for label, figure, form in ROWS:
        values = [figure(crossed) for crossed in case.crossed]
        if any(value is not None for value in values):
            table.add_row(label, *(_shown(value, form) for value in values), _quotient(case, figure))
    if case.limit_records_per_s:
        table.add_section()
        table.add_row("share of the limit", *(_share(one, case.limit_records_per_s) for one in case.crossed), "")
        table.caption = f"the limit: {case.limit_records_per_s:,.0f} records/s"
    return table


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _quotient(case: CaseResult, figure: Figure_) -> str:
    ours, theirs = case.of(OURS), case.of(THEIRS)
    if ours is None or theirs is None:
        return ""
    above, below = figure(ours), figure(theirs)
    return f"{above / below:.2f}x" if above is not None and below else "-"


def _share(crossed: Crossed, limit: float) -> str:
    return f"{crossed.records_per_s / limit:.0%}" if crossed.records_per_s else "-"


def _ratio_table(found: list[Ratio]) -> Table:
    table = Table(title=f"{OURS} against {THEIRS}, and the bars", title_justify="left")
    for column in ("case", "what"):
        table.add_column(column)
    for column in ("ratio", "bar", ""):
        table.add_column(column, justify="right")
    for ratio in found:
        sign = "≥" if ratio.at_least else "≤"
        verdict = "[green]met[/]" if ratio.met else "[red]missed[/]"
        table.add_row(ratio.case, ratio.what, f"{ratio.value:.2f}", f"{sign} {ratio.bar:g}", verdict)
    return table


# ---- the plot ------------------------------------------------------------------------------


def plot(result: BenchResult) -> Figure:
    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    _bars(axes[0][0], result, "records per second", lambda one: one.records_per_s)
    _limits(axes[0][0], result)
    _bars(axes[0][1], result, "CPU-seconds per GB", lambda one: one.cpu_s_per_gb)
    _latencies(axes[1][0], result)
    _bars(axes[1][1], result, "peak memory, MB", lambda one: one.peak_bytes / 1e6)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _systems(result: BenchResult) -> list[str]:
    present = {crossed.system for case in result.cases for crossed in case.crossed}
    return [system for system in COLOURS if system in present]


def _bars(axes: Axes, result: BenchResult, title: str, figure: Figure_) -> None:
    systems = _systems(result)
    width = 0.8 / max(3, len(systems))
    for place, system in enumerate(systems):
        found = [(at, case.of(system)) for at, case in enumerate(result.cases)]
        values = [(at, figure(one) or 0.0) for at, one in found if one is not None]
        spots = [at + (place - (len(systems) - 1) / 2) * width for at, _ in values]
        drawn = axes.bar(spots, [value for _, value in values], width, label=system, color=COLOURS[system])
        axes.bar_label(drawn, labels=[_rounded(value) for _, value in values], fontsize=7, padding=1)
    axes.set_xlim(-0.6, len(result.cases) - 0.4)
    axes.set_xticks(range(len(result.cases)), [case.name for case in result.cases])
    _plain(axes, title)


def _limits(axes: Axes, result: BenchResult) -> None:
    label = "limit"
    for at, case in enumerate(result.cases):
        if case.limit_records_per_s:
            axes.hlines(case.limit_records_per_s, at - 0.45, at + 0.45, colors=COLOURS["limit"], label=label)
            label = ""


def _latencies(axes: Axes, result: BenchResult) -> None:
    for system in _systems(result):
        measured = [one.latency for case in result.cases if (one := case.of(system)) and one.latency]
        if measured:
            values = [getattr(measured[0], quantile) for quantile in QUANTILES]
            axes.plot(("p50", "p95", "p99", "p99.9"), values, marker="o", color=COLOURS[system])
    axes.set_ylim(bottom=0)
    _plain(axes, "latency at 500 records/s, read_committed reader, ms")


def _rounded(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:.0f}k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value else "-"


def _plain(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_formatter("{x:,.0f}")
