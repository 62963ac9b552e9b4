"""Runs read the other way: a reflected span knows every record of its stretch, and tells no wrong place."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from isthmus.dr.mirror import Border, reflected
from isthmus.engine.control import ControlView
from isthmus.engine.control import encode as encode_control
from isthmus.engine.offsets.runs import Span, table
from isthmus.engine.switch import RETURNING, SWITCH, Place, Switch, halted, switch_of
from isthmus.model import Cluster, Flow, TopicPartition
from isthmus.wire.records import Record

TP, IMAGE = TopicPartition("orders", 0), TopicPartition("east.orders", 0)

# A log: steps of (offsets without a record, records), on both sides of one copy.
_STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=12)


def _log(steps: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Runs of (source, target, length), rising in both."""
    source = target = 0
    runs = []
    for skip, markers, length in steps:
        source, target = source + skip, target + markers
        runs.append((source, target, length))
        source, target = source + length, target + length
    return runs


def _pairs(runs: list[tuple[int, int, int]]) -> dict[int, int]:
    """Target offset to source offset, record by record."""
    return {target + n: source + n for source, target, length in runs for n in range(length)}


@given(steps=_STEPS, missing=st.sets(st.integers(0, 11)), known=st.integers(0, 20), tail=st.integers(0, 3))
def test_a_reflected_span_has_every_record_of_its_stretch(
    steps: list[tuple[int, int, int]], missing: set[int], known: int, tail: int
) -> None:
    runs = _log(steps)
    end, end_there = runs[-1][0] + runs[-1][2] + tail, runs[-1][1] + runs[-1][2] + tail
    starts = [0, *(run[0] for run in runs[1:])]
    ends = [*starts[1:], end]
    stretches: list[Span] = []
    for number, run in enumerate(runs):
        if number in missing:
            continue
        if stretches and stretches[-1].end == starts[number]:
            before = stretches.pop()
            stretches.append(Span(TP, before.start, ends[number], table([*before.runs.tolist(), run])))
        else:
            stretches.append(Span(TP, starts[number], ends[number], table([run])))
    truth = _pairs(runs)

    found = reflected(stretches, Border(TP, IMAGE, 0, -1, end, end_there), known)

    for span in found:
        told = {
            int(target) + n: int(source) + n for target, source, length in span.runs.tolist() for n in range(length)
        }
        assert told == {at: truth[at] for at in truth if span.start <= at < span.end}
        assert span.start >= known or not told
    assert all(one.end <= after.start for one, after in itertools.pairwise(found))
    if not missing and known == 0:
        assert (found[0].start, found[-1].end, len(found)) == (runs[0][1], end_there, 1)


def test_what_came_back_covers_what_never_crossed_as_nothing() -> None:
    """The mirror brought target offsets 10 to 14 to source offsets 25 to 29; 20 to 24 never crossed."""
    mirrored = Span(IMAGE, 0, 16, table([(0, 0, 10), (10, 25, 5)]))
    (span,) = reflected([mirrored], Border(IMAGE, TP, 10, 20, 16, 31), known=20)
    assert (span.start, span.end, span.runs.tolist()) == (20, 31, [[25, 10, 5]])
    (nothing,) = reflected([Span(IMAGE, 0, 12, table([(0, 0, 10)]))], Border(IMAGE, TP, 10, 20, 12, 26), known=20)
    assert (nothing.start, nothing.end, len(nothing.runs)) == (20, 26, 0)


def test_the_state_of_a_failover_is_read_as_it_was_written() -> None:
    switch = Switch(
        phase=RETURNING,
        kind="failover",
        decided_ms=5,
        by="ann on host",
        places={TP: Place(1, 2, 3, 4), TopicPartition("orders", 1): Place(5, 6)},
        steps=(("freeze", 7),),
        never_crossed="keep",
        heard_ms=8,
    )
    key, value = encode_control(SWITCH, switch.as_value())
    view = ControlView()
    view.apply(Record(offset=0, timestamp=9, key=key, value=value, headers=()))
    flow = Flow(source=Cluster(alias="east", bootstrap=("a:1",)), target=Cluster(alias="west", bootstrap=("b:1",)))
    assert switch_of(view) == switch
    reason = halted(flow, view)
    assert reason is not None
    assert (reason.code, reason.exit_code) == ("FAILED_OVER", 8)
    assert "ann on host" in reason.message
