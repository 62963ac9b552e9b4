"""The report of a proof as one page that needs nothing else: verdict, a bar for each topic, every difference.

No script, nothing from elsewhere; it can be kept as evidence, or mailed. What must stay true: everything that comes
from a cluster is escaped.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --good: #1a7f4b; --bad: #b3261e; --line: #8884; --bar: #3b7dd8; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .3rem .6rem; }
td, th { border-bottom: 1px solid var(--line); } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
rect.alike { fill: var(--bar); } rect.opened { fill: #8a63d2; } rect.unequal { fill: var(--bad); }
"""
_WIDTH = 300


def page(reports: Sequence[dict[str, Any]]) -> str:
    """Of reports in their documented form."""
    equal = all(report["equal"] for report in reports)
    title = "Source and target are equal" if equal else "Source and target are not equal"
    body = "\n".join(map(_flow, reports))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f'<body><h1 class="{_colour(equal)}">{title}</h1>\n{body}\n</body></html>\n'
    )


def _colour(equal: bool) -> str:
    return "good" if equal else "bad"


def _flow(report: dict[str, Any]) -> str:
    began = datetime.datetime.fromtimestamp(report["began"], datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    facts = (
        f"{report['records']:,} records, {report['bytes'] / 1e6:,.1f} MB in {report['seconds']:.1f} s; begun {began}"
    )
    parts = [f"<h2>{escape(report['flow'])}</h2><p>{facts}</p>", _topics(report["partitions"])]
    parts.append(_list("Differences", [_difference(row) for row in report["partitions"] if not row["equal"]]))
    parts.append(_list("Settings that differ", report["settings"]))
    parts.append(_list("Recorded gaps, passed over", [_gap(each) for each in report["gaps"]]))
    groups = [f"{count} {state}" for state, count in sorted(report["groups"].items())]
    parts.append(_list("Places of consumer groups", groups))
    return "\n".join(filter(None, parts))


def _topics(rows: Sequence[dict[str, Any]]) -> str:
    topics: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        topics.setdefault(row["topic"], []).append(row)
    most = max((sum(row["records"] for row in parts) for parts in topics.values()), default=0)
    lines = "\n".join(_topic(name, parts, most) for name, parts in topics.items())
    head = '<tr><th>topic</th><th class="n">partitions</th><th class="n">records</th><th></th><th>verdict</th></tr>'
    return f"<table>{head}\n{lines}</table>"


def _topic(name: str, parts: Sequence[dict[str, Any]], most: int) -> str:
    records, unequal = sum(row["records"] for row in parts), sum(not row["equal"] for row in parts)
    kind = "equal, by the last value of each key" if parts[0]["by_key"] else "equal"
    verdict = f"{unequal} of {len(parts)} not equal" if unequal else kind
    return (
        f'<tr><td>{escape(name)}</td><td class="n">{len(parts)}</td><td class="n">{records:,}</td>'
        f'<td>{_bar(parts, records, most)}</td><td class="{_colour(not unequal)}">{verdict}</td></tr>'
    )


def _bar(parts: Sequence[dict[str, Any]], records: int, most: int) -> str:
    """How many records, and how many of their batches were the same byte for byte."""
    alike, opened = (sum(row[f"batches_{kind}"] for row in parts) for kind in ("alike", "opened"))
    width = _WIDTH * records / most if most else 0
    share = alike / (alike + opened) if alike + opened else 0
    kind = "alike" if all(row["equal"] for row in parts) else "unequal"
    label = f"{alike:,} batches the same byte for byte, {opened:,} compared record by record"
    return (
        f'<svg width="{_WIDTH}" height="14" role="img" aria-label="{label}"><title>{label}</title>'
        f'<rect class="{kind}" width="{width * share:.1f}" height="14"/>'
        f'<rect class="opened" x="{width * share:.1f}" width="{width * (1 - share):.1f}" height="14"/></svg>'
    )


def _gap(gap: dict[str, Any]) -> str:
    what = f"offsets {gap['first']} to {gap['past'] - 1 if gap['past'] >= 0 else '?'}" if gap["first"] >= 0 else ""
    spans = "; ".join(f"{first} to {past - 1}" for first, past in gap["target"])
    return f"{gap['topic']}-{gap['partition']}: {gap['code']}: {what}{f' target offsets {spans}' if spans else ''}"


def _difference(row: dict[str, Any]) -> str:
    place = f"{row['topic']}-{row['partition']}"
    found = row["difference"]
    if found is None:
        return f"{place}: not compared: {row['not_compared']}"
    offsets = f"source offset {found['source_offset']}, target offset {found['target_offset']}"
    return f"{place} ({offsets}): {found['kind']}: {found['text']}"


def _list(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<h2>{title}</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
