"""How plans and reports of a failover look: tables, and the checklist for clients."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from isthmus.dr.form import checklist
from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.dr.values import Leftover, Plan, Report, Row

_SHOWN = 20


def show_plan(flow: Flow, plan: Plan) -> None:
    console = Console(highlight=False)
    back = plan.kind == "failback"
    here, there = (flow.target, flow.source) if back else (flow.source, flow.target)
    console.print(f"[bold]{plan.kind} of {plan.flow}[/bold]: clients move from {here.alias} to {there.alias}")
    if plan.phase:
        console.print(f"  state so far: {plan.phase}; it goes on from there")
    if not back:
        alive = "answers" if plan.source_alive else f"does not answer; last heard of {_when(plan.heard_ms)}"
        console.print(f"  {flow.source.alias} {alive}; the flow is run by {plan.driven_by or 'nobody'}")
    console.print(_rows_table(list(plan.rows), "new" if back else "not copied yet"))
    busy = ", ".join(sorted(plan.groups)[:_SHOWN])
    console.print(f"  consumers at work on {here.alias}: {busy or 'none that can be seen'}")
    _show_left(console, plan.never_crossed)
    for number, step in enumerate(plan.steps, 1):
        console.print(f"  {number}. {step}")


def show_report(flow: Flow, report: Report) -> None:
    console = Console(highlight=False)
    console.print(_rows_table(list(report.rows), "missing" if report.kind != "failback" else "never crossed"))
    states = Counter(place.state for place in report.groups)
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    console.print(f"  places of consumer groups on {report.to}: {told}")
    _show_left(console, report.never_crossed)
    for topic in report.side_topics:
        console.print(f"  kept in {topic} on {flow.target.alias}")
    for note in report.notes:
        console.print(f"  note: {note}")
    console.print(_verdict(report), style="bold")
    console.print("What clients need:")
    for line in checklist(flow, report):
        console.print(f"  [ ] {line}", markup=False)


def _verdict(report: Report) -> str:
    done = f"{report.kind} of {report.flow} is done in {report.rto_s:.1f} s (RTO)"
    if report.kind == "failover":
        return (
            f"{done}; {report.records_at_risk:,} offsets are known to be on the source alone, and whatever was written "
            f"within {report.rpo_s:.1f} s before the decision may be, too (RPO)"
        )
    if report.kind == "switchover":
        left = report.records_at_risk
        return f"{done}; " + (f"{left:,} offsets were left behind" if left else "nothing was left behind (RPO 0)")
    return done


def _rows_table(rows: list[Row], word: str) -> Table:
    """By topic; partitions are in the report file."""
    table = Table()
    table.add_column("topic")
    table.add_column("on the other side")
    for name in ("partitions", word):
        table.add_column(name, justify="right")
    topics: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        topics.setdefault((row.topic, row.target_topic), []).append(row)
    for (name, other), parts in sorted(topics.items())[:_SHOWN]:
        table.add_row(name, other, str(len(parts)), f"{sum(row.missing for row in parts):,}")
    if len(topics) > _SHOWN:
        table.add_row(f"and {len(topics) - _SHOWN} more", "", "", "")
    return table


def _show_left(console: Console, left: tuple[Leftover, ...]) -> None:
    for one in left[:_SHOWN]:
        where = f"{one.topic}-{one.partition} offsets {one.first} to {one.past - 1}"
        console.print(f"  never crossed: {where}, {one.records:,} records")
    if len(left) > _SHOWN:
        console.print(f"  and {len(left) - _SHOWN} partitions more")


def _when(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ms / 1000)) if ms else "never"
