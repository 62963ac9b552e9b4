"""What a person sees of a running flow: a live table on a terminal, plain lines elsewhere, JSON on request.

Reads `observe.status` values only. Rates and ETA come from two snapshots of the same run.
"""

from __future__ import annotations

import collections
import enum
import json
import sys
import types
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from isthmus.observe.status import FlowStatus

_WINDOW = 20  # snapshots that a rate is taken over
_PLAIN_EVERY_S = 5.0


class Output(enum.StrEnum):
    text = "text"
    json = "json"


def amount(value: float) -> str:
    """1,234,567 as 1.23 M: three digits are enough to read at a glance."""
    for unit in ("", " k", " M", " G", " T"):
        if abs(value) < 1000:
            return f"{value:.0f}{unit}" if unit == "" else f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g} P"


def duration(seconds: float) -> str:
    if seconds < 0 or seconds > 359_999:
        return "-"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    return f"{rest} s" if minutes == 0 else f"{minutes} m {rest:02d} s"


class Rates:
    """Copied offsets per second by topic, over the last snapshots."""

    def __init__(self) -> None:
        self._history: collections.deque[tuple[float, dict[str, int]]] = collections.deque(maxlen=_WINDOW)

    def add(self, status: FlowStatus) -> None:
        self._history.append((status.time, {topic.topic: topic.copied for topic in status.topics()}))

    def of(self, topic: str) -> float:
        if len(self._history) < 2:
            return 0.0
        (began, first), (ended, last) = self._history[0], self._history[-1]
        return max(0.0, (last.get(topic, 0) - first.get(topic, 0)) / max(0.001, ended - began))


def flow_table(status: FlowStatus, rates: Rates) -> Table:
    """One row per topic: bar, rate, lag, ETA."""
    caption = gaps_told(status) if status.gaps else None
    table = Table(title=f"{status.flow}  ({status.state})", title_justify="left", caption=caption, expand=False)
    table.add_column("topic", no_wrap=True)
    table.add_column("progress", width=24)
    for name in ("copied", "records/s", "lag", "ETA"):
        table.add_column(name, justify="right", no_wrap=True)
    for topic in status.topics():
        rate = rates.of(topic.topic)
        total = topic.copied + topic.lag
        bar: Any = (
            Text("STOPPED", style="bold red")
            if topic.stopped
            else ProgressBar(max(1, total), topic.copied or total == 0)
        )
        eta = "0 s" if not topic.lag else duration(topic.lag / rate) if rate else "-"
        table.add_row(topic.topic, bar, amount(topic.copied), amount(rate), amount(topic.lag), eta)
    return table


class Screen:
    """Shows statuses as they come: live on a terminal, as lines in a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._rates: dict[str, Rates] = {}
        self._latest: dict[str, FlowStatus] = {}
        self._printed: dict[str, int] = {}
        self._plain_at: dict[str, float] = {}

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, status: FlowStatus) -> None:
        rates = self._rates.setdefault(status.flow, Rates())
        rates.add(status)
        self._latest[status.flow] = status
        self._say_events(status)
        if self._live is not None:
            self._live.update(Group(*(flow_table(s, self._rates[s.flow]) for s in self._latest.values())))
        elif status.time - self._plain_at.get(status.flow, 0.0) >= _PLAIN_EVERY_S or status.state == "ended":
            self._plain_at[status.flow] = status.time
            speed = sum(rates.of(topic.topic) for topic in status.topics())
            self._console.print(
                f"{status.flow} {status.state}: {amount(status.records)} records, {amount(status.bytes)}B, "
                f"{amount(speed)} records/s, lag {amount(status.lag)}",
                highlight=False,
            )

    def _say_events(self, status: FlowStatus) -> None:
        """Events are a window onto a longer list: print what was not printed yet."""
        known = max(0, self._printed.get(status.flow, 0) - status.earlier_events)
        for event in status.events[known:]:
            style = "bold red" if "STOPPED" in event else ""
            self._console.print(Text(event, style=style))
        self._printed[status.flow] = status.earlier_events + len(status.events)


def summary(ended: list[FlowStatus], output: Output) -> None:
    """Positions reached, per topic and partition, on standard output."""
    if output is Output.json:
        sys.stdout.write(json.dumps([as_json(status) for status in ended]) + "\n")
        return
    console = Console()
    for status in ended:
        table = Table(title=f"{status.flow}: positions reached", title_justify="left")
        for name in ("topic", "partitions", "next offsets", "lag"):
            table.add_column(name, justify="left" if name in ("topic", "next offsets") else "right")
        for topic in status.topics():
            positions = [p.position for p in status.partitions if p.topic == topic.topic]
            text = ", ".join(map(str, positions[:8])) + (", …" if len(positions) > 8 else "")
            table.add_row(topic.topic, str(topic.partitions), text, str(topic.lag))
        console.print(table)
        console.print(
            f"{status.records:,} records, {status.bytes:,} bytes, "
            f"{sum(lane.transactions for lane in status.lanes):,} transactions committed",
            highlight=False,
        )
        if status.dead_letters:
            console.print(f"{status.dead_letters:,} records went to the dead letters", style="bold", highlight=False)
        if status.gaps:
            console.print(gaps_told(status), style="bold", highlight=False)


def gaps_told(status: FlowStatus) -> str:
    gaps = "1 gap" if status.gaps == 1 else f"{status.gaps:,} gaps"
    return f"{gaps} on record, {status.lost:,} offsets lost (`isthmus gaps` lists them)"


def as_json(status: FlowStatus) -> dict[str, Any]:
    """The documented JSON form of a flow's status (docs/json-output.md)."""
    return {
        "flow": status.flow,
        "state": status.state,
        "time": status.time,
        "records": status.records,
        "dead_letters": status.dead_letters,
        "bytes": status.bytes,
        "lag": status.lag,
        "gaps": status.gaps,
        "lost_offsets": status.lost,
        "partitions": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "position": p.position,
                "end": p.end,
                "lag": p.lag,
                "state": p.state,
                "code": p.code,
                "error": p.error,
            }
            for p in status.partitions
        ],
        "lanes": [
            {
                "lane": lane.lane,
                "state": lane.state,
                "records": lane.records,
                "bytes": lane.bytes,
                "transactions": lane.transactions,
                "epochs": lane.epochs,
                "failures": lane.failures,
            }
            for lane in status.lanes
        ],
        "events": list(status.events),
    }
