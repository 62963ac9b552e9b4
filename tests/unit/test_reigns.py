"""Leader epochs of what was copied: which one is asked with, and where a log and its copy part."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.test_engine import a_batch, a_track, fetched
from tests.unit.test_legacy import message

from isthmus.engine.intake import take_in
from isthmus.engine.refusals import diverged
from isthmus.engine.reigns import UNKNOWN, Reign, Reigns, parse_reign
from isthmus.engine.track import Track
from isthmus.mm2.progress import parse_progress, progress_key, progress_value


def under(epoch: int, batch: bytes) -> bytes:
    """The batch as a leader of this epoch stores it; the checksum does not cover that field."""
    return batch[:12] + epoch.to_bytes(4, "big", signed=True) + batch[16:]


def going_on(offset: int, epoch: str) -> Track:
    return Track(dataclasses.replace(a_track(offset).assignment, epoch=epoch))


def test_a_reign_rides_with_the_progress_and_what_is_damaged_is_unknown() -> None:
    value = progress_value(41, epoch=str(Reign(5, 30)))
    assert value == b'{"offset":41,"epoch":"5@30"}'
    found = parse_progress(progress_key("C", "east", "t", 0), value)
    assert found is not None
    assert (found.offset, parse_reign(found.epoch)) == (41, Reign(5, 30))
    assert progress_value(41, epoch=str(UNKNOWN)) == b'{"offset":41}'
    for damaged in ("", "5", "@", "5@", "-1@3", "5@x"):
        assert parse_reign(damaged) == UNKNOWN


@pytest.mark.parametrize("value", [b'{"offset":41,"epoch":5}', b'{"offset":41,"epoch":null}', b'{"offset":41}'])
def test_progress_of_others_has_no_reign(value: bytes) -> None:
    found = parse_progress(progress_key("C", "east", "t", 0), value)
    assert found is not None
    assert found.epoch == ""


def test_progress_names_the_epoch_of_the_batch_right_below_it() -> None:
    track = a_track()
    take_in(track, fetched(under(3, a_batch(0, b"a", b"b")) + under(5, a_batch(2, b"c"))))
    assert [track.reigns.below(offset) for offset in (0, 1, 2, 3)] == [UNKNOWN, Reign(3, 0), Reign(3, 0), Reign(5, 2)]


def test_an_order_begins_with_the_epoch_of_the_one_before_and_an_abort_goes_back_to_it() -> None:
    track = going_on(2, "3@0")
    assert track.reigns.newest.epoch == 3
    take_in(track, fetched(under(5, a_batch(2, b"c")), offset=2))
    assert track.reigns.newest.epoch == 5
    track.rewind()
    assert track.reigns.newest == Reign(3, 0)


def test_what_is_committed_is_what_an_abort_goes_back_to() -> None:
    track = going_on(2, "3@0")
    take_in(track, fetched(under(5, a_batch(2, b"c")) + under(6, a_batch(3, b"d")), offset=2))
    track.sent = track.pop().past
    track.commit()
    track.rewind()
    assert track.reigns.newest == Reign(5, 2)


def test_behind_offsets_that_were_passed_over_nothing_is_known() -> None:
    track = Track(dataclasses.replace(a_track(2).assignment, epoch="3@0", given_up=((2, 4),)))
    track.pass_given_up()
    assert (track.position, track.reigns.newest.epoch, str(track.reigns.below(4))) == (4, -1, "")


def test_formats_without_epochs_leave_nothing_to_ask_with() -> None:
    track = going_on(0, "")
    take_in(track, fetched(under(3, a_batch(0, b"a"))))
    take_in(track, fetched(message(1, b"b"), offset=1))
    assert track.reigns.newest.epoch == -1


@pytest.mark.parametrize(
    ("answer", "cut"),
    [((5, 80), 80), ((4, 20), 20), ((4, 50), 30)],
    ids=["cut within our epoch", "cut below it", "has more of an older epoch than we had read"],
)
def test_logs_part_where_both_still_have_the_same_epoch(answer: tuple[int, int], cut: int) -> None:
    stop = diverged(going_on(100, "5@30"), *answer)
    assert stop is not None
    assert (stop.code, stop.lost) == ("TRUNCATED", (cut, 100))


def test_a_cut_behind_what_was_copied_loses_nothing_of_the_copy() -> None:
    track = going_on(2, "3@0")
    take_in(track, fetched(under(3, a_batch(2, b"c", b"d")), offset=2))
    assert diverged(track, 3, 3) is None
    track.unfetch()
    assert (track.position, len(track.queue), track.reigns.newest) == (2, 0, Reign(3, 0))


def test_only_what_may_be_needed_again_is_kept() -> None:
    reigns = Reigns(UNKNOWN)
    for number in range(5):
        reigns.note(number, number * 10)
    reigns.forget_below(25)
    assert [reigns.below(offset).epoch for offset in (5, 25, 35, 99)] == [-1, 2, 3, 4]
    reigns.forget_from(30)
    assert reigns.newest == Reign(2, 20)


def test_nobody_has_caught_up_before_the_leader_answered() -> None:
    track = Track(dataclasses.replace(a_track(100).assignment, until=90))
    assert not track.caught_up
    track.heard = True
    assert track.caught_up
