"""What `isthmus top` draws and what its keys do; no terminal, no cluster."""

from __future__ import annotations

import pytest
from rich.console import Console, Group

from isthmus.cli import keys
from isthmus.cli.keys import keys_in
from isthmus.cli.topview import Course, Picture, Seen, View, chosen, picture, pressed, sparkline
from isthmus.errors import TargetError
from isthmus.observe.health import ClusterHealth, FlowHealth, PartitionHealth
from isthmus.observe.window import Verdict

WELL = ClusterHealth(alias="east", answers=True)


def part(topic: str, number: int, verdict: Verdict = Verdict.ok, lag: int = 0, code: str = "") -> PartitionHealth:
    return PartitionHealth(
        topic=topic, partition=number, verdict=verdict, position=5, end=5 + lag, lag=lag, lag_seconds=1.0, code=code
    )


def flow(*partitions: PartitionHealth, name: str = "east->west") -> FlowHealth:
    return FlowHealth(flow=name, time=0.0, state="running", source=WELL, target=WELL, partitions=partitions)


MANY = Seen(
    flows=[
        flow(
            *(part("orders", number, lag=number % 7) for number in range(5000)),
            part("clicks", 3, Verdict.stalled, lag=900),
            part("audit", 1, Verdict.stopped, lag=10, code="GAP"),
        )
    ],
    clock="12:00:00",
)


def names(view: View, seen: Seen = MANY) -> list[str]:
    return [f"{each.topic}-{each.partition}" for _, each in chosen(view, seen)]


def drawn(view: View, seen: Seen = MANY, width: int = 80, height: int = 24) -> tuple[Picture, list[str]]:
    """As a terminal of that size shows it."""
    found = picture(view, seen, width, height)
    console = Console(width=width, height=height, legacy_windows=False)
    with console.capture() as caught:
        console.print(Group(*found.lines))
    return found, caught.get().splitlines()


def typed(view: View, *words: str) -> View:
    for key in words:
        view = pressed(view, key, MANY.names, page=10)
    return view


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 8), (200, 60), (20, 4)])
def test_the_picture_fits_the_screen_also_with_thousands_of_partitions(width: int, height: int) -> None:
    for view in (View(), View(shows_help=True), View(first=10**9), View(is_typing=True, search="x" * 300)):
        _, lines = drawn(view, width=width, height=height)
        assert len(lines) <= height
        assert max(map(len, lines)) <= width


def test_the_worst_come_first_and_the_flow_says_so() -> None:
    _, lines = drawn(View())
    assert lines[1].startswith("east->west stopped [GAP]: 5,000 ok, 1 stalled, 1 stopped")
    first = next(number for number, line in enumerate(lines) if line.startswith("partition")) + 1
    assert lines[first].startswith("audit-1")
    assert "GAP" in lines[first]
    assert lines[first + 1].startswith("clicks-3")
    assert lines[-1].startswith("1-19 of 5,002 partitions · by worst")


@pytest.mark.parametrize(
    ("key", "first"), [("w", "audit-1"), ("l", "clicks-3"), ("n", "audit-1"), ("t", "audit-1"), ("r", "audit-1")]
)
def test_keys_sort(key: str, first: str) -> None:
    assert names(typed(View(), key))[0] == first
    assert names(typed(View(), key, "R"))[-1] == first


def test_a_search_is_typed_narrows_down_and_is_cleared() -> None:
    view = typed(View(), "/", *"cliq", keys.ERASE, *"ck")
    assert view.is_typing
    assert names(view) == ["clicks-3"]
    kept = typed(view, keys.ENTER)
    assert (kept.is_typing, names(kept)) == (False, ["clicks-3"])
    assert names(typed(View(), "/", *"gap", keys.ENTER)) == ["audit-1"]
    assert len(names(typed(kept, keys.ESCAPE))) == 5002


def test_letters_of_a_search_are_not_taken_for_keys() -> None:
    assert not typed(View(), "/", "q").is_over
    assert typed(View(), "q").is_over


def test_scrolling_stays_within_the_partitions() -> None:
    end = drawn(typed(View(), "G"))[0]
    assert end.view.first == 5002 - end.page
    assert drawn(typed(end.view, keys.DOWN))[0].view.first == end.view.first
    assert typed(end.view, keys.PAGE_UP).first == end.view.first - 10
    assert typed(end.view, keys.HOME, keys.UP).first == 0


def test_f_shows_one_flow_after_another() -> None:
    seen = Seen(flows=[flow(part("a", 0)), flow(part("b", 0), name="west->east")])
    view = View()
    shown = []
    for _ in range(3):
        view = pressed(view, "f", seen.names, page=10)
        shown.append(names(view, seen))
    assert shown == [["a-0"], ["b-0"], ["a-0", "b-0"]]


def test_many_flows_leave_room_for_partitions_and_are_counted() -> None:
    seen = Seen(flows=[flow(part("a", 0), name=f"east{n}->west") for n in range(30)])
    _, lines = drawn(View(), seen)
    assert any("more flows: f shows one alone" in line for line in lines)
    assert sum(line.startswith("a-0") for line in lines) >= 5


def test_a_target_that_does_not_answer_is_shown_beside_the_others() -> None:
    lost = {"north->west": TargetError("no broker\nanswers", code="UNREACHABLE")}
    _, lines = drawn(View(), Seen(flows=MANY.flows, lost=lost))
    assert lines[1] == "north->west target does not answer [UNREACHABLE]: no broker answers"
    assert any(line.startswith("east->west stopped") for line in lines)


def test_rate_and_lag_are_drawn_as_they_went() -> None:
    course = Course()
    for lag in (0, 50, 100):
        course.note(flow(part("a", 0, lag=lag)))
    _, lines = drawn(View(), Seen(flows=[flow(part("a", 0, lag=100))], courses={"east->west": course}))
    assert "▁▅█" in lines[2]
    assert sparkline([], 4) == "    "
    assert sparkline([0, 0, 7], 2) == "▁█"


def test_what_a_terminal_sends_is_taken_apart() -> None:
    sent = "a\x1b[B\x1bOA\x1b[5~\x1b[1;5C\x1b[99~é\r\x7f\x1b"
    assert list(keys_in(sent)) == ["a", keys.DOWN, keys.UP, keys.PAGE_UP, "é", keys.ENTER, keys.ERASE, keys.ESCAPE]
