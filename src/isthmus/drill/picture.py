"""The drill as a picture: who worked where over time, the moves between, how long each took.

One SVG, written by hand, without a script and without anything from elsewhere; light and dark by the viewer's wish;
narrow, so that it can be read on a phone. What must stay true: it shows the outcome's own figures, and every word in
it is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from isthmus.drill.outcome import Outcome, Row
from isthmus.drill.timeline import BUCKET_S, READS, WRITES, Series, Timeline

_WIDTH, _LEFT, _RIGHT = 480, 12, 12
_PLOT = _WIDTH - _LEFT - _RIGHT
_TOP, _LANE, _GAP = 84, 56, 26
_POINTS = 120  # of a line, at most about so many

Line = Sequence[tuple[float, float]]  # time, records per second

_STYLE = """
svg { color-scheme: light dark; }
.ground { fill: #ffffff; } text { font: 13px system-ui, sans-serif; fill: #1f2430; }
.small { font-size: 12px; fill: #5b6270; } .head { font-size: 16px; font-weight: 600; }
.good { fill: #1a7f4b; font-weight: 600; } .bad { fill: #b3261e; font-weight: 600; }
.move { fill: #e8a33d; fill-opacity: .22; } .disaster { fill: #b3261e; fill-opacity: .16; }
.mark { fill: #8a5a00; } .disaster-mark { fill: #b3261e; } .number { fill: #ffffff; font-weight: 600; font-size: 12px; }
.floor { stroke: #8a919e; stroke-width: 1; } .rto { stroke: #8a5a00; stroke-width: 2; }
.s0 { fill: #2f6fd0; stroke: #2f6fd0; } .s1 { fill: #b04fb8; stroke: #b04fb8; } .s2 { fill: #11897a; stroke: #11897a; }
.t1 { fill: #b04fb8; font-weight: 600; } .t2 { fill: #11897a; font-weight: 600; }
.area { fill-opacity: .25; stroke-width: 1.5; stroke-linejoin: round; }
@media (prefers-color-scheme: dark) {
 .ground { fill: #15181e; } text { fill: #e8eaf0; } .small { fill: #a5acb9; }
 .good { fill: #4cc38a; } .bad { fill: #ff8a80; } .mark { fill: #f0b14a; } .disaster-mark { fill: #ff8a80; }
 .number { fill: #15181e; } .rto { stroke: #f0b14a; } .move { fill-opacity: .25; } .disaster { fill-opacity: .3; }
 .s0 { fill: #7fb0ff; stroke: #7fb0ff; } .s1 { fill: #e39bea; stroke: #e39bea; } .s2 { fill: #4fd1bf; stroke: #4fd1bf; }
 .t1 { fill: #e39bea; } .t2 { fill: #4fd1bf; }
}
"""


def picture(outcome: Outcome, timeline: Timeline) -> str:
    """The whole file."""
    return _Drawing(outcome, timeline).svg()


class _Drawing:
    """Places everything; y grows downwards."""

    def __init__(self, outcome: Outcome, timeline: Timeline) -> None:
        self._outcome = outcome
        self._phases = timeline.phases
        self._end = max((phase.ended for phase in timeline.phases), default=1.0)
        self._step = BUCKET_S * max(1, round(self._end / BUCKET_S / _POINTS))
        self._lanes = lanes(timeline.rates(), self._step)
        self._top = _top(self._lanes)
        self._floor = _TOP + len(self._lanes) * (_LANE + _GAP)

    def svg(self) -> str:
        height = self._floor + 26 + 40 * len(self._outcome.rows)
        parts = [*self._head(), *self._bands(), *self._plots(), *self._axis(), *self._legend()]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="100%" '
            f'style="max-width:{2 * _WIDTH}px" role="img" aria-labelledby="title desc">\n'
            f'<title id="title">{self._title()}</title>\n<desc id="desc">{escape(described(self._outcome))}</desc>\n'
            f'<style>{_STYLE}</style>\n<rect class="ground" width="{_WIDTH}" height="{height}"/>\n'
            + "\n".join(parts)
            + "\n</svg>\n"
        )

    def _title(self) -> str:
        return "Drill: failover and failback with live clients"

    def _x(self, at: float) -> float:
        return _LEFT + _PLOT * at / self._end

    def _head(self) -> Iterator[str]:
        yield _text(_LEFT, 26, self._title(), "head")
        all_ = self._outcome.total
        told = f"{all_.lost:,} lost, {all_.reread:,} read again, {all_.reordered:,} out of order"
        good = self._outcome.proven
        yield _text(_LEFT, 46, f"{'proven' if good else 'NOT proven'}: {told}", "good" if good else "bad")

    def _bands(self) -> Iterator[str]:
        """Behind everything: each move from its decision to its end; above it how long clients stood still."""
        bottom = self._floor - 8
        for phase in self._phases:
            if phase.kind == "move":
                kind = "disaster" if self._is_disaster(phase.name) else "move"
                x, width = self._x(phase.began), max(1.0, self._x(phase.ended) - self._x(phase.began))
                yield f'<rect class="{kind}" x="{x:.1f}" y="62" width="{width:.1f}" height="{bottom - 62}"/>'
        for number, row in enumerate(self._outcome.rows, 1):
            first, last = self._x(row.stopped), self._x(row.resumed)
            yield f'<path class="rto" d="M{first:.1f} 64V72M{first:.1f} 68H{last:.1f}M{last:.1f} 64V72"/>'
            yield self._badge((first + last) / 2, 68, number, row)

    def _is_disaster(self, name: str) -> bool:
        return any(row.act == name and row.rpo_records for row in self._outcome.rows)

    def _badge(self, x: float, y: float, number: int, row: Row) -> str:
        kind = "disaster-mark" if row.rpo_records else "mark"
        return (
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y}" r="8"/>'
            f'<text class="number" x="{x:.1f}" y="{y + 4}" text-anchor="middle">{number}</text>'
        )

    def _plots(self) -> Iterator[str]:
        for number, (label, lines) in enumerate(self._lanes):
            floor = _TOP + number * (_LANE + _GAP) + _GAP - 8 + _LANE
            yield _label(floor - _LANE - 4, label, list(lines))
            most = max((rate for line in lines.values() for _, rate in line), default=0.0)
            yield _text(_WIDTH - _RIGHT, floor - _LANE - 4, f"up to {most:,.0f}/s", "small", "end")
            yield f'<path class="floor" d="M{_LEFT} {floor}H{_WIDTH - _RIGHT}"/>'
            for place, (_, line) in enumerate(lines.items()):
                yield self._area(line, floor, _colour(lines, place))

    def _area(self, line: Line, floor: float, colour: str) -> str:
        """One shape for each stretch without a pause, so that a pause shows."""
        found = []
        for stretch in _stretches(line):
            heights = ((at, _LANE * min(1.0, rate / self._top)) for at, rate in stretch)
            points = "".join(f"L{self._x(at):.1f} {floor - height:.1f}" for at, height in heights)
            first, last = self._x(stretch[0][0]), self._x(stretch[-1][0] + self._step)
            found.append(f"M{first:.1f} {floor}{points}H{last:.1f}V{floor}Z")
        return f'<path class="area {colour}" d="{"".join(found)}"/>'

    def _axis(self) -> Iterator[str]:
        step = next((s for s in (5, 10, 20, 30, 60, 120, 300) if self._end / s <= 8), 600)
        for at in range(0, int(self._end) + 1, step):
            anchor = "start" if at == 0 else "middle"
            yield _text(self._x(at), self._floor + 6, f"{at} s", "small", anchor)

    def _legend(self) -> Iterator[str]:
        y = self._floor + 34
        for number, row in enumerate(self._outcome.rows, 1):
            yield self._badge(_LEFT + 8, y - 4, number, row)
            yield _text(_LEFT + 24, y, f"{row.act}, to {row.to}: clients stood still for {row.rto_s:.1f} s (RTO)")
            yield _text(_LEFT + 24, y + 17, figures(row), "small")
            y += 40


def lanes(rates: Mapping[Series, Line], step: float) -> list[tuple[str, dict[str, Line]]]:
    """What is drawn: for each cluster all writers as one, and each group by itself."""
    clusters = sorted({series.cluster for series in rates})
    found: list[tuple[str, dict[str, Line]]] = []
    for cluster in clusters:
        writers = [line for series, line in rates.items() if (series.kind, series.cluster) == (WRITES, cluster)]
        found.append((f"records written to {cluster}", {"": _in_steps(writers, step)}))
    for cluster in clusters:
        groups = {s.who: line for s, line in rates.items() if (s.kind, s.cluster) == (READS, cluster)}
        drawn = {who: _in_steps([line], step) for who, line in sorted(groups.items())}
        found.append((f"records read from {cluster}, by", drawn))
    return found


def _in_steps(series: Sequence[Line], step: float) -> Line:
    """Their sum, over longer times than they were counted in."""
    sums: dict[int, float] = {}
    for line in series:
        for at, rate in line:
            place = int(at / step + 1e-9)
            sums[place] = sums.get(place, 0.0) + rate * BUCKET_S / step
    return [(place * step, rate) for place, rate in sorted(sums.items())]


def _top(drawn: Sequence[tuple[str, Mapping[str, Line]]]) -> float:
    """One scale for all, so that they can be compared; the rush of a group that catches up is cut off."""
    rates = sorted(rate for _, lines in drawn for line in lines.values() for _, rate in line if rate)
    return 1.6 * rates[len(rates) * 3 // 4] if rates else 1.0


def _stretches(line: Line) -> Iterator[list[tuple[float, float]]]:
    """Parts with records in them; two empty buckets in a row are a pause."""
    part: list[tuple[float, float]] = []
    silent = 0
    for at, rate in line:
        silent = 0 if rate else silent + 1
        if rate or (part and silent < 2):
            part.append((at, rate))
        elif part:
            yield part
            part = []
    if part:
        yield part


def _colour(lines: Mapping[str, Line], place: int) -> str:
    return "s0" if "" in lines else f"s{1 + place % 2}"


def _label(y: float, words: str, names: Sequence[str]) -> str:
    """What a lane shows; names have the colours of their lines."""
    coloured = ", ".join(f'<tspan class="t{1 + n % 2}">{escape(name)}</tspan>' for n, name in enumerate(names) if name)
    return f'<text class="small" x="{_LEFT}" y="{y:.1f}">{escape(words)} {coloured}</text>'


def figures(row: Row) -> str:
    """RPO and what readers found, in one short line."""
    rpo = f"{row.rpo_records:,} records, {row.rpo_s:.1f} s" if row.rpo_records else "0"
    count = row.count
    return f"RPO {rpo} · lost {count.lost:,} · read again {count.reread:,} · out of order {count.reordered:,}"


def described(outcome: Outcome) -> str:
    """The picture in words, for those who do not see it."""
    rows = (f"{row.act} to {row.to}: RTO {row.rto_s:.1f} s, {figures(row)}." for row in outcome.rows)
    return f"{outcome.acknowledged:,} records were written. " + " ".join(rows)


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
