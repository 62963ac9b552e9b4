"""What `isthmus top` shows, and what its keys do: values in, lines out; no terminal, no clock, no cluster.

What must stay true: the picture never has more lines or columns than the screen; only rows that are shown are drawn,
so thousands of partitions cost one sort; a key changes the view and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.text import Text

from isthmus.cli import keys
from isthmus.cli.health import STYLES, TRENDS, circumstances, latency, waits
from isthmus.cli.render import amount, duration
from isthmus.errors import IsthmusError
from isthmus.observe.health import FlowHealth, PartitionHealth

_BARS = "▁▂▃▄▅▆▇█"
_KEPT = 120  # looks that a sparkline may show
_TOLD = 3  # lines of circumstances for each flow
_WIDE = 120  # columns, from which on more is told
_MIN_ROWS = 6  # of partitions, however many flows there are
HELP = (
    "up, down, j, k, page up, page down, g, G: scroll",
    "/ search by topic, verdict or code; Enter keeps it, Escape clears it",
    "w worst first · l lag · t longest wait · r rate · n name · R turns the order round",
    "f the next flow alone, then all again",
    "p the view stands still, and goes on",
    "q quit · ? this help",
)
Row = tuple[str, PartitionHealth]


# --- what was seen ----------------------------------------------------------------------------


@dataclass(slots=True)
class Course:
    """Rates and lags of one flow over the last looks."""

    rates: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    lags: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def note(self, found: FlowHealth) -> None:
        self.rates.append(found.records_per_s)
        self.lags.append(found.lag)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look: flows, those that could not be looked at, and when."""

    flows: Sequence[FlowHealth] = ()
    lost: Mapping[str, IsthmusError] = field(default_factory=dict)
    clock: str = ""
    courses: Mapping[str, Course] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [*(each.flow for each in self.flows), *self.lost]


# --- what is wanted ---------------------------------------------------------------------------

_SORTS: dict[str, tuple[str, Callable[[Row], tuple[float, ...]]]] = {
    "w": ("worst", lambda row: (-row[1].verdict.rank, -(row[1].lag or 0))),
    "l": ("lag", lambda row: (-(row[1].lag or 0),)),
    "t": ("wait", lambda row: (-(row[1].lag_seconds or 0),)),
    "r": ("rate", lambda row: (-row[1].records_per_s,)),
    "n": ("name", lambda row: ()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How it is looked at."""

    sort: str = "w"
    reverse: bool = False
    search: str = ""
    is_typing: bool = False
    first: int = 0  # row at the top
    flow: str = ""  # alone
    is_still: bool = False
    shows_help: bool = False
    is_over: bool = False


def pressed(view: View, key: str, names: Sequence[str], page: int) -> View:
    """The view after a key; `page`: rows that are shown at once."""
    if view.is_typing:
        return _typed(view, key)
    if key in _SORTS:
        return replace(view, sort=key, first=0)
    step = _steps(page).get(key)
    if step is not None:
        return replace(view, first=max(0, view.first + step))
    return _told(view, key, names)


def _typed(view: View, key: str) -> View:
    if key in (keys.ENTER, keys.ESCAPE):
        return replace(view, is_typing=False, search="" if key == keys.ESCAPE else view.search, first=0)
    if key in (keys.ERASE, keys.ERASE_ALL):
        return replace(view, search=view.search[:-1] if key == keys.ERASE else "", first=0)
    return replace(view, search=view.search + key, first=0) if len(key) == 1 else view


def _steps(page: int) -> dict[str, int]:
    ends = {keys.HOME: -(10**9), "g": -(10**9), keys.END: 10**9, "G": 10**9}
    pages = {keys.PAGE_UP: -page, keys.PAGE_DOWN: page, " ": page}
    return {keys.UP: -1, "k": -1, keys.DOWN: 1, "j": 1, **pages, **ends}


def _told(view: View, key: str, names: Sequence[str]) -> View:
    changes: dict[str, View] = {
        "/": replace(view, is_typing=True),
        keys.ESCAPE: replace(view, search="", shows_help=False, first=0),
        "R": replace(view, reverse=not view.reverse, first=0),
        "f": replace(view, flow=_after(view.flow, names), first=0),
        "p": replace(view, is_still=not view.is_still),
        "?": replace(view, shows_help=not view.shows_help),
        "h": replace(view, shows_help=not view.shows_help),
        "q": replace(view, is_over=True),
    }
    return changes.get(key, view)


def _after(name: str, names: Sequence[str]) -> str:
    order = ["", *names]
    return order[(order.index(name) + 1) % len(order)] if name in order else ""


def chosen(view: View, seen: Seen) -> list[Row]:
    """Partitions in the order of the view."""
    wanted = view.search.casefold()
    found = [
        (flow.flow, each)
        for flow in seen.flows
        if view.flow in ("", flow.flow)
        for each in flow.partitions
        if wanted in f"{each.topic}-{each.partition} {each.verdict.value} {each.code}".casefold()
    ]
    by = _SORTS[view.sort][1]
    found.sort(key=lambda row: (by(row), row[1].topic, row[1].partition, row[0]), reverse=view.reverse)
    return found


# --- the picture ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Lines of the screen; `view` as it is after what lies beyond the end was taken back."""

    lines: list[Text]
    view: View
    page: int


def picture(view: View, seen: Seen, width: int, height: int) -> Picture:
    """Title, flows, partitions, and at the bottom what the view is."""
    rows = chosen(view, seen)
    head = [_title(view, seen, width), *_heads(view, seen, width, max(1, height - 3 - _MIN_ROWS))]
    page = max(1, height - len(head) - 2)
    view = replace(view, first=max(0, min(view.first, len(rows) - page)))
    if view.shows_help:
        body = [Text(f"  {line}") for line in HELP][: page + 1]
    else:
        shown = rows[view.first : view.first + page]
        body = _table(shown, width, several=len(seen.names) > 1 and not view.flow)
    body += [Text("")] * (page + 1 - len(body))
    lines = [*head, *body, _foot(view, len(rows), page)]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
        line.truncate(width, overflow="ellipsis")
    return Picture(lines=lines[-height:] if height < len(lines) else lines, view=view, page=page)


def _title(view: View, seen: Seen, width: int) -> Text:
    left = f"isthmus top  {seen.clock}"
    right = "STANDS STILL, p goes on" if view.is_still else "? help  q quit"
    return Text(f"{left}{right:>{max(1, width - len(left))}}", "reverse")


def _heads(view: View, seen: Seen, width: int, most: int) -> list[Text]:
    """Flows, as many as there is place for."""
    blocks = [_lost(name, error) for name, error in seen.lost.items() if view.flow in ("", name)]
    flows = sorted(seen.flows, key=lambda each: (each.cause.exit_code == 0, -each.verdict.rank))
    blocks += [_flow(each, seen.courses.get(each.flow), width) for each in flows if view.flow in ("", each.flow)]
    if not blocks:
        return [Text("looking ...")]
    lines: list[Text] = []
    for number, block in enumerate(blocks):
        room = most - len(lines) - (number + 1 < len(blocks))
        if room < 1:
            return [*lines, Text(f"and {len(blocks) - number} more flows: f shows one alone", "dim")]
        lines += block[:room]
    return lines


def _lost(name: str, error: IsthmusError) -> list[Text]:
    return [
        Text.assemble(
            (name, "bold"),
            " ",
            (f"target does not answer [{error.code}]", "bold red"),
            f": {' '.join(str(error).split())}",
        )
    ]


def _flow(found: FlowHealth, seen: Course | None, width: int) -> list[Text]:
    cause = found.cause
    told = found.verdict.value if found.state == "running" else found.state
    code = f" [{cause.code}]" if cause.code else ""
    style = STYLES.get(found.verdict.value, "") if cause.exit_code == 0 else "bold red"
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(found.counts.items()))
    first = Text.assemble((found.flow, "bold"), " ", (f"{told}{code}", style), f": {counts or 'no partitions'}")
    return [
        first,
        _speed(found, seen or Course(), width),
        *(Text(f"  {' '.join(line.split())}") for line in circumstances(found)[:_TOLD]),
    ]


def _speed(found: FlowHealth, seen: Course, width: int) -> Text:
    seconds = "" if not found.lag_seconds else f", {duration(found.lag_seconds)}"
    rate = f" {amount(found.records_per_s)} rec/s, {amount(found.bytes_per_s)}B/s"
    lag = f" {amount(found.lag)}{seconds}"
    aged = latency(found.latency)
    most = f"  latency {aged}" if aged and width >= _WIDE else ""
    room = max(4, min(_KEPT, (width - (96 if width >= _WIDE else 58)) // 2))  # the same for all numbers
    return Text.assemble(
        "  rate ",
        (sparkline(seen.rates, room), "cyan"),
        rate,
        "  lag ",
        (sparkline(seen.lags, room), "yellow"),
        lag,
        most,
    )


def sparkline(values: Iterable[float], width: int) -> str:
    """The last values as bars, from 0 to the highest of them."""
    shown = list(values)[-width:]
    top = max(shown, default=0)
    bars = "".join(_BARS[0] if top <= 0 else _BARS[round(value / top * (len(_BARS) - 1))] for value in shown)
    return bars.rjust(width)


def _table(rows: Sequence[Row], width: int, *, several: bool) -> list[Text]:
    """A heading, and a line for each row; the name has what the numbers leave."""
    wide = width >= _WIDE
    said = 27 if wide else 16
    name = max(8, width - said - 40)
    lines = [
        Text(f"{'partition':<{name}} {'verdict':<{said}} {'lag':>7}   {'waits':>10} {'rec/s':>7} {'ETA':>9}", "bold")
    ]
    for flow, each in rows:
        label = f"{each.topic}-{each.partition}" + (f" ({flow})" if several else "")
        verdict = _verdict(each, wide)
        lag = "?" if each.lag is None else amount(each.lag)
        eta = "-" if each.eta_seconds is None else duration(each.eta_seconds)
        rest = f" {lag:>7} {TRENDS[each.trend]:1} {waits(each):>10} {amount(each.records_per_s):>7} {eta:>9}"
        lines.append(
            Text.assemble(_fitted(label, name), " ", (f"{verdict:<{said}.{said}}", STYLES[each.verdict]), rest)
        )
    return lines


def _verdict(each: PartitionHealth, wide: bool) -> str:
    """Only what stopped has a code, so on a narrow screen that is enough."""
    if not each.code:
        return each.verdict.value
    return f"{each.verdict.value} [{each.code}]" if wide else each.code


def _fitted(text: str, width: int) -> str:
    """The end of a name tells more than its beginning."""
    return f"{text:<{width}}" if len(text) <= width else f"…{text[-(width - 1) :]}"


def _foot(view: View, rows: int, page: int) -> Text:
    if view.is_typing:
        return Text(f"/{view.search}_", "bold")
    last = min(rows, view.first + page)
    parts = [f"{view.first + 1 if rows else 0:,}-{last:,} of {rows:,} partitions", f"by {_SORTS[view.sort][0]}"]
    parts += ["turned round"] if view.reverse else []
    parts += [f"/{view.search}"] if view.search else []
    parts += [f"flow {view.flow}"] if view.flow else []
    return Text(" · ".join(parts), "dim")
