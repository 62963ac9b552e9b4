"""Decisions about loud stops: the table has a word for everything, the record reads back as it was written, and what
was given up is passed over exactly.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tests.unit.test_engine import a_batch, a_track, fetched

from isthmus.engine import control
from isthmus.engine.control import ControlView
from isthmus.engine.intake import take_in
from isthmus.engine.orders import Stop
from isthmus.engine.packing import records_of
from isthmus.engine.resolve import record
from isthmus.engine.resolve.carry import forget_stops
from isthmus.engine.resolve.choices import TOPIC_WIDE, Choice, codes, meaning, refused, wanted_here
from isthmus.engine.resolve.record import Decision, Gap
from isthmus.engine.scene import FINAL, Scene
from isthmus.engine.track import Track
from isthmus.errors import BrokerUnreachable
from isthmus.model import Cluster, Flow, TopicPartition
from isthmus.wire.batch import damaged_span
from isthmus.wire.journal import Journal
from isthmus.wire.records import Record

DOCS = Path(__file__).parents[2] / "docs"
SOURCE = TopicPartition("orders", 3)
FLOW = Flow(source=Cluster(alias="east", bootstrap=("e:1",)), target=Cluster(alias="west", bootstrap=("w:1",)))


# --- the table --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", codes())
def test_every_choice_either_does_something_or_says_what_to_do_instead(code: str) -> None:
    for choice in Choice:
        found = meaning(code, choice)
        assert bool(found.does) != bool(found.refused)
        assert bool(found.refused) == bool(found.instead)


def test_every_code_of_a_stop_has_its_row_and_is_documented() -> None:
    rows = set(re.findall(r"^\| `([A-Z_]+)` \|", (DOCS / "errors.md").read_text(), re.MULTILINE))
    assert set(codes()) <= rows
    assert set(codes()) >= FINAL
    assert set(codes()) >= TOPIC_WIDE


def test_a_choice_for_one_partition_of_what_concerns_the_topic_is_refused() -> None:
    wanted = wanted_here("orders", 3, Choice.accept_gap)
    assert refused("GAP", wanted, "") is None
    assert "leave --partition out" in (refused("SOURCE_RECREATED", wanted, "") or ValueError()).__dict__.get("hint", "")


# --- the record -------------------------------------------------------------------------------


def heard(*pairs: tuple[str, dict[str, object]]) -> ControlView:
    """What whoever reads the control topic knows afterwards."""
    view = ControlView()
    for key, value in pairs:
        raw_key, raw_value = control.encode(key, value)
        view.apply(Record(0, 0, raw_key, raw_value, ()))
    return view


def test_what_is_on_record_reads_back_as_it_was_written() -> None:
    stop = Stop(source=SOURCE, code="FOREIGN_WRITE", message="m", hint="h", lost=(1, -1), foreign=((5, 7), (9, -1)))
    gap = Gap(topic="orders", partition=3, code="GAP", at=1.5, first=5, past=9, source_id="s", accepted="policy")
    foreign = replace(gap, code="FOREIGN_WRITE", first=-1, past=-1, foreign=((2, 4),), accepted="decision")
    old = replace(gap, code="SOURCE_RECREATED", past=-1, accepted="decision")
    decision = Decision(
        topic="orders", partition=3, choice="accept-gap", code="GAP", at=2.5, host="h", user="u", first=5, past=9
    )
    pairs = [
        (record.stop_key(SOURCE), record.stop_value(stop, 0.0)),
        record.gap_pair(gap),
        record.gap_pair(foreign),
        record.gap_pair(old, of_old_log=True),
        record.decision_pair(decision),
        record.decision_pair(replace(decision, at=9.0)),
    ]
    view = heard(*pairs)
    assert record.stops(view) == {SOURCE: stop}
    assert set(record.gaps(view)) == {gap, foreign, old}
    assert record.decisions(view) == [replace(decision, at=9.0)], "the same decision, made again, is one"
    assert set(record.forgotten(view, "orders", lost=True)) == {key for key, _ in pairs[:4]}
    assert set(record.forgotten(view, "order", lost=True)) == set(), "another topic whose name begins alike"


def test_lanes_pass_over_what_was_decided_and_only_in_the_log_that_it_was_decided_for() -> None:
    gap = Gap(topic="orders", partition=3, code="TARGET_REFUSED", at=0, first=5, past=6, source_id="one")
    assert record.given_up(heard(record.gap_pair(gap)), SOURCE, "one") == ()
    view = heard(record.gap_pair(replace(gap, accepted=record.DECIDED)))
    assert record.given_up(view, SOURCE, "one") == ((5, 6),)
    assert record.given_up(view, SOURCE, "another") == ()


def test_a_stop_that_leaves_no_trace_in_the_clusters_stands_at_the_next_start() -> None:
    foreign = Stop(source=SOURCE, code="FOREIGN_WRITE", message="m", foreign=((5, 7),))
    view = heard((record.stop_key(SOURCE), record.stop_value(foreign, 0.0)))
    scenes = [Scene(replace(FLOW, on_foreign_write=policy), lambda _: None) for policy in ("stop", "allow")]
    for scene in scenes:
        scene.set_partitions({SOURCE: 0})
        scene.stand_by(view)
        assert scene.news(view) == {}, "it is on record already"
    assert [scene.is_final(SOURCE) for scene in scenes] == [True, False]
    scenes[0].lift([TopicPartition("orders", 4)])
    assert scenes[0].is_final(SOURCE), "a decision about one partition is none about another"


class _Away:
    async def append(self, _pairs: object) -> None:
        raise BrokerUnreachable("away")


def test_a_stop_that_could_not_be_taken_off_the_record_can_be_decided_about_again() -> None:
    view = ControlView()
    view.values["stop/orders/0"] = {"code": "GAP"}
    with pytest.raises(BrokerUnreachable):
        asyncio.run(forget_stops(cast(Journal, _Away()), view, "orders", {0}))
    assert "stop/orders/0" in view.values


def test_the_status_counts_what_was_lost() -> None:
    scene = Scene(FLOW, lambda _: None)
    lost = Gap(topic="orders", partition=3, code="GAP", at=0, first=5, past=9)
    assert scene.news(heard(record.gap_pair(lost), record.gap_pair(replace(lost, first=20, past=-1)))) == {}
    status = scene.show("running")
    assert (status.gaps, status.lost) == (2, 4)


# --- what was given up ------------------------------------------------------------------------


def giving_up(*ranges: tuple[int, int]) -> Track:
    track = a_track()
    track.given_up = ranges
    return track


def queued(track: Track) -> list[tuple[int, bytes | None]]:
    return [(each.offset, each.value) for unit in track.queue for each in records_of(unit)[0]]


def test_single_records_are_taken_out_of_their_batch() -> None:
    track = giving_up((1, 2), (4, 5))
    take_in(track, fetched(a_batch(0, b"a", b"b", b"c") + a_batch(3, b"d", b"e")))
    assert queued(track) == [(0, b"a"), (2, b"c"), (3, b"d")]
    assert track.position == 5


def test_a_batch_that_is_given_up_as_a_whole_is_not_looked_into() -> None:
    damaged = bytearray(a_batch(2, b"c", b"d"))
    damaged[-1] ^= 0xFF
    track = giving_up((2, 4))
    take_in(track, fetched(a_batch(0, b"a", b"b") + bytes(damaged) + a_batch(4, b"e")))
    assert queued(track) == [(0, b"a"), (1, b"b"), (4, b"e")]


def test_what_is_given_up_is_not_even_asked_for() -> None:
    track = giving_up((0, 7))
    track.pass_given_up()
    assert (track.position, track.committed) == (7, 7)


def test_a_damaged_batch_is_found_by_its_header() -> None:
    damaged = bytearray(a_batch(2, b"c", b"d"))
    damaged[-1] ^= 0xFF
    whole = a_batch(0, b"a", b"b") + bytes(damaged) + a_batch(4, b"e")
    assert damaged_span(memoryview(whole), 0) == (2, 4)
    assert damaged_span(memoryview(whole), 3) == (3, 4)
    assert damaged_span(memoryview(b"\xff" * 200), 0) is None
