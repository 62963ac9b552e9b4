"""The documented JSON form of plans and reports of a change of sides (docs/json-output.md), and what clients need.

Pure, and quick to import; the command line and the web page show the same.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from isthmus.model import Flow

if TYPE_CHECKING:
    from isthmus.dr.values import Plan, Report, Row

_SHOWN = 20


def plan_json(plan: Plan) -> dict[str, Any]:
    found = asdict(plan)
    return {
        **found,
        "steps": list(plan.steps),
        "rows": [_row_json(row) for row in plan.rows],
        "records_at_risk": sum(row.missing for row in plan.rows),
    }


def report_json(flow: Flow, report: Report) -> dict[str, Any]:
    return {
        "flow": report.flow,
        "kind": report.kind,
        "began_ms": report.began_ms,
        "ended_ms": report.ended_ms,
        "rto_seconds": report.rto_s,
        "rpo_records": report.records_at_risk if report.kind != "failback" else 0,
        "rpo_seconds": report.rpo_s,
        "source_last_heard_ms": report.heard_ms,
        "clients_use": {"cluster": report.to, "bootstrap_servers": list(report.bootstrap)},
        "partitions": [_row_json(row) for row in report.rows],
        "groups": [asdict(place) for place in report.groups],
        "never_crossed": [asdict(left) for left in report.never_crossed],
        "side_topics": list(report.side_topics),
        "steps": [{"step": name, "at_ms": at} for name, at in report.steps],
        "notes": list(report.notes),
        "checklist": checklist(flow, report),
    }


def _row_json(row: Row) -> dict[str, Any]:
    return asdict(row) | {"missing": row.missing}


def checklist(flow: Flow, report: Report) -> list[str]:
    """What is left for people to do, in order."""
    back = report.kind == "failback"
    lines = [f"bootstrap.servers={','.join(report.bootstrap)} (cluster {report.to})"]
    names = sorted({(row.topic, row.target_topic) for row in report.rows if row.topic != row.target_topic})
    if names:
        pairs = [f"{copy} -> {name}" if back else f"{name} -> {copy}" for name, copy in names]
        more = f" and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
        lines.append(f"topics have other names there: {', '.join(pairs[:_SHOWN])}{more}")
    lines.append("start consumers under the same group.id: their places are committed; isolation.level=read_committed")
    unsure = sorted({place.group for place in report.groups if place.state != "exact"})
    if unsure:
        lines.append(f"look at groups that are not exact: {', '.join(unsure[:_SHOWN])}")
    lines.append("then start producers")
    left = flow.target if back else flow.source
    lines.append(f"nobody may write to these topics on {left.alias} any more")
    lines.append(
        f"start the flow {flow.name} again: isthmus run FILE"
        if back
        else f"when {flow.source.alias} is to serve again: isthmus failback FILE --flow '{flow.name}' --dry-run"
    )
    return lines
