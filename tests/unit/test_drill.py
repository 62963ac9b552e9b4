"""The verdict of a drill, its picture and its table: by notes that were made up, each with one fault at most."""

from __future__ import annotations

import io
import itertools
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.integration.command import called

from isthmus.cli.drill import as_json, outcome_table
from isthmus.dr.values import Leftover, Report
from isthmus.drill.clients import Clients
from isthmus.drill.ledger import Count, GroupVerdict, Marks, Trail, Written, judge, marked, minus, read_mark, total
from isthmus.drill.logs import Log
from isthmus.drill.outcome import Outcome, Row, outcome_of
from isthmus.drill.picture import picture
from isthmus.drill.runs import Runs
from isthmus.drill.story import DISASTER, RETURN, Loss, Move, Played
from isthmus.drill.timeline import READS, WRITES, Phase, Series, Timeline

KEY = ("shop", 0)
Pairs = list[tuple[int, int]]


# --- runs -----------------------------------------------------------------------------------------

pieces = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def numbers(runs: Pairs | Runs) -> set[int]:
    return {number for first, last in runs for number in range(first, last + 1)}


@given(pieces, pieces)
def test_runs_answer_as_sets_do(ours: Pairs, theirs: Pairs) -> None:
    a, b = Runs(ours), Runs(theirs)
    assert numbers(a) == numbers(ours)
    assert len(a) == len(numbers(ours))
    assert numbers(a.minus(b)) == numbers(ours) - numbers(theirs)
    assert numbers(a.common(b)) == numbers(ours) & numbers(theirs)
    assert numbers(a.union(b)) == numbers(ours) | numbers(theirs)
    assert a.highest == max(numbers(ours), default=-1)
    assert all((number in a) == (number in numbers(ours)) for number in range(-1, 70))
    edges = list(a)
    assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(edges)), "they do not touch"


# --- the verdict ----------------------------------------------------------------------------------


def wrote(*stints: Pairs, **more: Marks) -> Written:
    return Written(acknowledged=[{KEY: Runs(runs)} for runs in stints], **more)


def read(*stints: list[int]) -> Trail:
    trail = Trail()
    for numbers_read in stints:
        trail.begin_stint()
        for number in numbers_read:
            trail.note(KEY, number)
    return trail


def judged(trail: Trail, written: Written, excused: Marks | None = None) -> GroupVerdict:
    return judge("billing", trail, [written], excused or {}, stints=len(written.acknowledged))


def test_what_is_read_once_and_in_order_is_well() -> None:
    verdict = judged(read([0, 1, 2], [3, 4]), wrote([(0, 2)], [(3, 4)]))
    assert (verdict.stints, verdict.phantoms, verdict.read) == ((Count(), Count()), 0, 5)


def test_a_backlog_that_is_read_after_the_move_is_well() -> None:
    assert judged(read([0], [1, 2, 3, 4]), wrote([(0, 2)], [(3, 4)])).total == Count()


def test_what_is_never_read_was_lost_in_the_stint_that_wrote_it() -> None:
    verdict = judged(read([0, 2], [3, 4]), wrote([(0, 2)], [(3, 5)]))
    assert verdict.stints == (Count(lost=1), Count(lost=1))


def test_what_is_read_twice_counts_where_it_came_again() -> None:
    verdict = judged(read([0, 1, 2], [1, 2, 3, 4]), wrote([(0, 2)], [(3, 4)]))
    assert verdict.stints == (Count(), Count(reread=2))
    assert judged(read([0, 1, 1, 2], []), wrote([(0, 2)], [])).stints == (Count(reread=1), Count())


def test_what_comes_behind_a_later_one_is_out_of_order() -> None:
    verdict = judged(read([0, 2], [1, 3, 4]), wrote([(0, 2)], [(3, 4)]))
    assert verdict.stints == (Count(), Count(reordered=1))


def test_what_never_crossed_is_not_lost_and_may_be_read_all_the_same() -> None:
    written, left = wrote([(0, 9)], [(10, 12)]), {KEY: Runs([(6, 9)])}
    assert judged(read([0, 1, 2, 3, 4, 5], [10, 11, 12]), written, left).total == Count()
    assert judged(read([*range(10)], [10, 11, 12]), written, left).total == Count()
    assert judged(read([0, 1, 2, 3], [10, 11, 12]), written, left).total == Count(lost=2)


def test_aborted_records_are_phantoms_and_those_without_an_answer_are_not() -> None:
    written = wrote([(0, 2)], aborted={KEY: Runs([(3, 4)])}, unsure={KEY: Runs([(5, 6)])})
    assert judged(read([0, 1, 2, 5]), written).phantoms == 0
    assert judged(read([0, 1, 2, 3, 5]), written).phantoms == 1
    stranger = read([0, 1, 2])
    stranger.strange = 1
    assert judged(stranger, written).phantoms == 1


def test_a_mark_can_be_read_back_and_nothing_else_can() -> None:
    assert read_mark(marked("shop", 3, 17) + b"filling of any kind") == (("shop", 3), 17)
    for other in (b"", b"shop 1 2", b"shop x 2 ", b"some text of somebody else"):
        with pytest.raises(ValueError, match=r"."):
            read_mark(other)


def test_marks_are_subtracted_by_writer_and_partition() -> None:
    ours: Marks = {("a", 0): Runs([(0, 4)]), ("b", 0): Runs([(0, 4)])}
    assert minus(ours, {("a", 0): Runs([(0, 4)])}) == {("b", 0): Runs([(0, 4)])}
    assert total(ours) == 10


def played(*, kept: Pairs, told: int, twice: int = 0, again: bool = False) -> Played:
    """A disaster in which 6 to 9 of ten records never crossed, and what became of them."""
    timeline = Timeline()
    clients = Clients(100, timeline)
    clients.writers[0].written = wrote([(0, 9)], [(10, 12)], [(13, 14)])
    for reader in clients.readers:
        reader._trail = read([0, 1, 2, 3, 4, 5], [4, 5, 10, 11, 12], [12, 13, 14] if again else [13, 14])
    left = Leftover(topic="drill-orders", partition=0, first=6, past=10, records=told)
    common = {
        "flow": "east->west",
        "began_ms": 0,
        "ended_ms": 1,
        "bootstrap": (),
        "rows": (),
        "groups": (),
        "steps": (),
    }
    reports = (
        Report(kind="failover", to="west", **common),  # type: ignore[arg-type]
        Report(kind="failback", to="east", never_crossed=(left,), **common),  # type: ignore[arg-type]
    )
    moves = tuple(
        Move(act=act, to=report.to, stopped=1.0, resumed=2.0, report=report)
        for act, report in zip((DISASTER, RETURN), reports, strict=True)
    )
    there = {KEY: Runs([(0, 5), (10, 14)])}
    logs = (("east", Log(marks={}, doubled=twice)), ("west", Log(marks=there)))
    loss = Loss(marks={KEY: Runs([(6, 9)])}, seconds=1.0, kept={KEY: Runs(kept)})
    return Played(moves=moves, clients=clients, loss=loss, logs=logs, timeline=timeline)


def test_a_disaster_may_leave_records_behind_and_let_some_be_read_again() -> None:
    found = outcome_of(played(kept=[(6, 9)], told=4))
    assert found.faults == ()
    assert [(row.rpo_records, row.count) for row in found.rows] == [(4, Count(reread=4)), (0, Count())]


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        ({"kept": [(6, 8)], "told": 3}, "1 records that never crossed are not in the side topics"),
        ({"kept": [(6, 9)], "told": 5}, "failback told of 5 records that never crossed, but 4 were kept"),
        ({"kept": [(5, 9)], "told": 5}, "1 records are in the side topics although they had crossed"),
        ({"kept": [(6, 9)], "told": 4, "twice": 2}, "east holds 2 records twice"),
        ({"kept": [(6, 9)], "told": 4, "again": True}, "failback after failover: 2 records were read again"),
    ],
)
def test_everything_else_is_a_fault(planted: dict, told: str) -> None:
    assert outcome_of(played(**planted)).faults == (told,)


# --- what is shown --------------------------------------------------------------------------------


def row(act: str, at: float, **more: object) -> Row:
    figures = {"rpo_records": 0, "rpo_s": 0.0, "rto_s": 1.5, "command_s": 1.0, "count": Count()}
    return Row(act=act, to="west", stopped=at, resumed=at + 1.5, **(figures | more))  # type: ignore[arg-type]


@pytest.fixture
def outcome() -> Outcome:
    rows = (row("switchover", 4.0), row("failover <&>", 10.0, rpo_records=12, rpo_s=2.0, count=Count(reread=7)))
    group = GroupVerdict(group="billing", stints=(Count(), Count(), Count(reread=7)), phantoms=0, read=1_000)
    return Outcome(rows=rows, groups=(group,), acknowledged=1_012, faults=())


@pytest.fixture
def timeline() -> Timeline:
    found = Timeline()
    found.phases += [Phase(name="switchover", kind="move", began=3.0, ended=6.0)]
    found.phases += [Phase(name="work", kind="work", began=6.0, ended=14.0)]
    for who, kind in (("shop", WRITES), ("billing", READS)):
        found.count(Series(kind, "east", who), 50)
    found.say("clients stop")
    return found


def test_the_picture_is_sound_and_says_in_words_what_it_shows(outcome: Outcome, timeline: Timeline) -> None:
    root = ET.fromstring(picture(outcome, timeline))
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    words = " ".join("".join(each.itertext()) for each in root.iter() if each.tag != f"{space}style")
    for wanted in (
        "failover <&>, to west",
        "RPO 12 records, 2.0 s",
        "read again 7",
        "1.5 s (RTO)",
        "billing",
        "proven",
    ):
        assert wanted in words, wanted
    described = root.find(f"{space}desc")
    assert described is not None
    assert "1,012 records were written" in (described.text or "")
    assert "prefers-color-scheme: dark" in (root.findtext(f"{space}style") or "")
    width = float((root.get("viewBox") or "").split()[2])
    across = [float(each.get(name, 0)) for each in root.iter() for name in ("x", "cx")]
    assert 0 <= min(across) <= max(across) <= width


def test_a_drill_that_failed_says_so_in_its_picture(outcome: Outcome, timeline: Timeline) -> None:
    failed = Outcome(rows=outcome.rows, groups=outcome.groups, acknowledged=1, faults=("billing: 3 were never read",))
    assert not failed.proven
    assert "NOT proven" in picture(failed, timeline)


def test_an_empty_timeline_still_is_a_picture(outcome: Outcome) -> None:
    ET.fromstring(picture(outcome, Timeline()))


def test_the_table_fits_into_80_columns_and_the_json_has_every_figure(outcome: Outcome, timeline: Timeline) -> None:
    printed = io.StringIO()
    Console(width=80, file=printed).print(outcome_table(outcome))
    lines = printed.getvalue().splitlines()
    assert any("failover <&>" in line and "12" in line and "…" not in line for line in lines), lines
    found = as_json(outcome, timeline)
    assert [act["rpo_records"] for act in found["acts"]] == [0, 12]
    assert found["acts"][1]["reread"] == 7
    assert found["proven"] is True
    assert [event["text"] for event in found["events"]] == ["clients stop"]


def test_a_file_that_cannot_be_written_is_told_before_anything_starts(tmp_path: object) -> None:
    ended = called("drill", "--picture", f"{tmp_path}/nowhere/drill.svg")
    assert ended.code == 2
    assert "cannot be written" in ended.err
