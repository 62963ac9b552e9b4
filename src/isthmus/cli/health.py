"""How the health of a flow looks on a terminal: one line of verdict, then a table of what needs attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from isthmus.cli.render import amount, duration

if TYPE_CHECKING:
    from isthmus.observe.health import Ages, FlowHealth, PartitionHealth

STYLES = {
    "ok": "green",
    "catching up": "cyan",
    "paused": "yellow",
    "unknown": "yellow",
    "falling behind": "bold yellow",
    "stalled": "bold red",
    "stopped": "bold red",
}
_FINE = ("ok", "paused")
TRENDS = {-1: "↓", 0: "", 1: "↑"}
_SHOWN = 40


def flow_view(found: FlowHealth, everything: bool) -> RenderableType:
    parts: list[RenderableType] = [_verdict(found), Text(f"  {_speed(found)}")]
    parts += [Text(f"  {line}") for line in circumstances(found)]
    rows = [each for each in found.partitions if everything or each.verdict not in _FINE]
    if rows:
        parts.append(_table(rows if everything else rows[:_SHOWN], everything))
    if len(rows) > _SHOWN and not everything:
        parts.append(Text(f"  and {len(rows) - _SHOWN:,} more; --all shows every partition"))
    parts += [Text(f"  {each.topic}-{each.partition} {_stop(each)}", "bold red") for each in rows if each.code]
    return Group(*parts)


def _verdict(found: FlowHealth) -> Text:
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(found.counts.items()))
    cause = found.cause
    good = cause.exit_code == 0
    told = found.verdict if found.state == "running" else found.state
    style = STYLES.get(found.verdict, "") if good else "bold red"
    code = "" if good or not cause.code else f" [{cause.code}]"
    return Text.assemble(
        (found.flow, "bold"), " ", (f"{told}{code}", style), f": {_driver(found)}; partitions: {counts or 'none'}"
    )


def _driver(found: FlowHealth) -> str:
    if not found.driver:
        return "nobody has ever driven it"
    where = f"{found.driver}{' (this machine)' if found.here else ''} as {found.replicator}"
    if found.state in ("running", "paused"):
        return f"driven by {where}"
    return f"last driven by {where}, {duration(found.silent_s or 0)} ago"


def _speed(found: FlowHealth) -> str:
    seconds = "-" if found.lag_seconds is None else duration(found.lag_seconds)
    parts = [
        f"lag {amount(found.lag)} records, about {amount(found.lag_bytes)}B, {seconds}",
        f"{amount(found.records_per_s)} records/s, {amount(found.bytes_per_s)}B/s",
    ]
    if told := latency(found.latency):
        parts.append(f"latency {told}")
    return "; ".join(parts)


def latency(ages: Ages) -> str:
    half, most = ages.quantile_ms(0.5), ages.quantile_ms(0.99)
    if half is None:
        return ""
    return f"p50 up to {half:,} ms" + ("" if most is None else f", p99 up to {most:,} ms")


def circumstances(found: FlowHealth) -> list[str]:
    lines = []
    for side, name in ((found.source, "source"), (found.target, "target")):
        way = f" through the tunnel at {side.tunnel}" if side.tunnel else ""
        if not side.answers:
            lines.append(f"{name} {side.alias} does not answer{way} [{side.code}]: {side.error}")
        elif way:
            lines.append(f"{name} {side.alias} answers{way}")
    if found.paused_topics:
        lines.append(f"paused topics: {', '.join(found.paused_topics)}")
    if found.throttle:
        lines.append(f"throttled to {amount(found.throttle)}B/s")
    if found.gaps:
        lines.append(f"{len(found.gaps):,} gaps on record, {found.lost:,} offsets lost (`isthmus gaps` lists them)")
    if found.error:
        lines.append(f"ended by [{found.code}]: {found.error} (`isthmus explain {found.code}`)")
    lines += [f"lane {lane.lane} {lane.state}: {lane.error}" for lane in found.lanes if lane.state == "recovering"]
    if found.groups.error:
        lines.append(f"consumer groups: {found.groups.error}")
    return [*lines, *_places(found)]


def _places(found: FlowHealth) -> list[str]:
    """Where lanes run."""
    hosts: dict[str, list[int]] = {}
    for lane in found.lanes:
        if lane.host and found.state in ("running", "paused"):
            hosts.setdefault(lane.host, []).append(lane.lane)
    if not hosts:
        return []
    told = "; ".join(f"{', '.join(map(str, lanes))} on {host}" for host, lanes in sorted(hosts.items()))
    return [f"lanes: {told}" + (f" (up to {found.most_lanes}, as lag asks for)" if found.most_lanes else "")]


def _table(rows: list[PartitionHealth], everything: bool) -> Table:
    """Positions are shown where every partition is: eight columns are as many as a narrow terminal holds."""
    table = Table(box=SIMPLE)
    table.add_column("partition", overflow="fold", min_width=16)
    table.add_column("verdict", no_wrap=True)
    more = ("position", "end") if everything else ()
    for name in (*more, "lag", "waits", "", "records/s", "ETA"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in rows:
        verdict = Text(f"{each.verdict} [{each.code}]" if each.code else each.verdict, STYLES[each.verdict])
        places = ("-" if each.position < 0 else str(each.position), _known(each.end)) if everything else ()
        eta = "-" if each.eta_seconds is None else duration(each.eta_seconds)
        speed = _known(each.lag), waits(each), TRENDS[each.trend], amount(each.records_per_s), eta
        table.add_row(f"{each.topic}-{each.partition}", verdict, *places, *speed)
    return table


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)


def waits(each: PartitionHealth) -> str:
    if each.lag_seconds is None:
        return "?"
    return f"{'> ' if each.lag_seconds_at_least else ''}{duration(each.lag_seconds)}"


def _stop(each: PartitionHealth) -> str:
    return f"[{each.code}] {each.error}. {each.hint or f'isthmus resolve FILE --topic {each.topic}'}"
