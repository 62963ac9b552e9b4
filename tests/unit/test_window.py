"""Verdicts from windows of positions: what must hold for every window, and the cases that operators ask about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.observe.window import QUIET_MS, SPAN_MS, STILL_MS, Course, Sample, Verdict, course, window

NOW = 1_700_000_000_000
SECONDS = SPAN_MS // 1000


def judged(samples: list[Sample], now_ms: int = NOW, end: int = -1) -> Course:
    return course(window(samples, now_ms, end))


def each_second(positions: list[int], ends: list[int]) -> list[Sample]:
    """Ends now."""
    first = NOW - 1000 * (len(positions) - 1)
    return [Sample(first + 1000 * n, *pair) for n, pair in enumerate(zip(positions, ends, strict=True))]


steps = st.lists(st.integers(0, 1000), min_size=1, max_size=SECONDS)


@st.composite
def windows(draw: st.DrawFn) -> list[Sample]:
    """Positions that never pass the end, and neither goes back."""
    start, written = draw(st.integers(0, 10**6)), draw(steps)
    end = start + draw(st.integers(0, 10**6))
    position, rows = start, []
    for grown in written:
        end += grown
        position = draw(st.integers(position, end))
        rows.append((position, end))
    return each_second([row[0] for row in rows], [row[1] for row in rows])


@given(windows())
def test_a_partition_that_moved_lately_is_never_stalled(samples: list[Sample]) -> None:
    recent = [sample.position for sample in samples if sample.time_ms >= NOW - STILL_MS]
    if recent[-1] > recent[0]:
        assert judged(samples).verdict is not Verdict.stalled


@given(windows())
def test_what_has_nothing_left_to_copy_is_ok_whatever_came_before(samples: list[Sample]) -> None:
    done = [*samples, samples[-1]._replace(position=samples[-1].end)]
    assert judged(done).verdict is Verdict.ok
    assert judged(done).eta_s == 0.0


@given(windows(), st.integers(1, 1000), st.integers(0, 1000))
def test_a_position_that_stands_below_a_growing_end_is_stalled(samples: list[Sample], lag: int, growth: int) -> None:
    at = samples[-1].position
    seconds = STILL_MS // 1000 + 1
    ends = [at + lag + growth * n for n in range(seconds)]
    assert judged(each_second([at] * seconds, ends)).verdict is Verdict.stalled


@given(windows())
def test_only_what_shrinks_is_catching_up_and_only_what_is_behind_has_an_eta(samples: list[Sample]) -> None:
    found = judged(samples)
    if found.verdict is Verdict.catching_up:
        assert found.trend < 0
    if found.eta_s:
        assert found.lag
        assert found.copied_per_s > found.written_per_s


@given(windows(), st.integers(0, 3600_000))
def test_time_that_passes_without_a_word_never_makes_it_better(samples: list[Sample], later_ms: int) -> None:
    """Reports come when something changes: silence means that the position stood."""
    before, after = judged(samples), judged(samples, NOW + later_ms)
    if before.verdict is Verdict.stalled:
        assert after.verdict is Verdict.stalled
    assert (after.behind_s or 0.0) >= (before.behind_s or 0.0) or after.at_least


@pytest.mark.parametrize(
    ("positions", "ends", "verdict"),
    [
        ([100] * 61, [100] * 61, Verdict.ok),
        (list(range(0, 6100, 100)), list(range(90, 6190, 100)), Verdict.ok),  # always 90 records behind: on their way
        (list(range(0, 61000, 1000)), [10**6] * 61, Verdict.catching_up),
        (list(range(0, 6100, 100)), list(range(10**6, 10**6 + 61000, 1000)), Verdict.falling_behind),
        ([100] * 61, list(range(200, 261)), Verdict.stalled),
        ([100] * 61, [100] * 60 + [500], Verdict.ok),  # written just now
        ([0, 0], [10, 10], Verdict.unknown),  # seen for a second
        ([], [], Verdict.unknown),
    ],
)
def test_verdicts(positions: list[int], ends: list[int], verdict: Verdict) -> None:
    assert judged(each_second(positions, ends)).verdict is verdict


def test_a_lane_that_commits_every_ten_seconds_keeps_up_whenever_one_looks() -> None:
    """As one with a transform does: positions go up in steps, the log grows all the time."""
    for now in range(120, 150):
        rows = [(1000 * (second // 10), 100 * second + 50) for second in range(now - 90, now + 1)]
        found = judged(each_second([row[0] for row in rows], [row[1] for row in rows]))
        assert found.verdict in (Verdict.ok, Verdict.catching_up), (now, found)


def test_a_log_that_was_made_anew_begins_a_new_window() -> None:
    samples = each_second([5000] * 20 + [0, 10, 20], [5000] * 20 + [1000, 1000, 1000])
    assert window(samples, NOW)[0].position == 0
    assert judged(samples).verdict is Verdict.catching_up


def test_an_order_that_has_just_begun_does_not_know_the_end_and_the_window_goes_on() -> None:
    samples = each_second([0, 10, 20, 30], [100, 100, -1, 100])
    assert [sample.end for sample in window(samples, NOW)] == [100] * 5


def test_seconds_behind_are_told_by_when_the_log_ended_where_the_copy_stands() -> None:
    found = judged(each_second([0] * 21, list(range(0, 2100, 100))))
    assert found.lag == 2000
    assert found.behind_s == 19.0
    assert not found.at_least


@pytest.mark.parametrize(
    ("silent_ms", "verdict"), [(1000, Verdict.ok), (QUIET_MS, Verdict.ok), (QUIET_MS + STILL_MS, Verdict.stalled)]
)
def test_what_was_written_just_now_is_no_lag_unless_the_lane_has_been_silent(silent_ms: int, verdict: Verdict) -> None:
    found = judged([Sample(NOW - silent_ms, 10, 10)], end=15)
    assert (found.lag, found.verdict) == (5, verdict)


def test_worse_verdicts_rank_higher() -> None:
    ranked = sorted(Verdict, key=lambda verdict: verdict.rank)
    assert ranked[0] is Verdict.ok
    assert ranked[-1] is Verdict.stopped
