"""A log is known again by a batch that was copied; what compaction and retention do to it is told from another log."""

from __future__ import annotations

import gzip

import pytest
from tests.unit.test_batch import with_right_crc
from tests.unit.test_engine import SOURCE, a_batch, a_track, fetched
from tests.unit.test_legacy import message

from isthmus.engine.intake import take_in
from isthmus.engine.marks import Likeness, Mark, likeness, mark_of, parse_mark
from isthmus.engine.orders import Stop
from isthmus.engine.track import Track
from isthmus.mm2.progress import Position, parse_progress, progress_key, progress_value
from isthmus.wire import codes
from isthmus.wire.batch import find_batches

COUNT_AT = 57
GZIP = 1


def mark(raw: bytes) -> Mark:
    return mark_of(memoryview(raw), find_batches(memoryview(raw))[-1])


def wrapper(last: int, *inner: bytes) -> bytes:
    """A format 1 message with others inside, whose offsets are relative."""
    return message(last, gzip.compress(b"".join(inner)), attributes=GZIP)


def marking_track() -> Track:
    track = a_track()
    track.keep_marks()
    return track


# ---- comparing ---------------------------------------------------------------------------------


def test_the_same_batch_is_known_again_wherever_the_answer_ends() -> None:
    raw = a_batch(5, b"a", b"b", b"c")
    assert likeness(mark(raw), fetched(raw + a_batch(8, b"d"))) is Likeness.same


@pytest.mark.parametrize(
    "there",
    [
        a_batch(5, b"a", b"b", b"x"),
        a_batch(4, b"a", b"b", b"c", b"d"),
        a_batch(6, b"a", b"b"),
        a_batch(7, b"c"),
        message(7, b"c"),
    ],
    ids=["other content", "begins before", "begins later", "alone", "of an old format"],
)
def test_another_batch_in_its_place_is_another_log(there: bytes) -> None:
    assert likeness(mark(a_batch(5, b"a", b"b", b"c")), fetched(there)) is Likeness.other


def test_a_batch_that_compaction_took_records_from_is_no_other_log() -> None:
    raw = bytearray(a_batch(5, b"a", b"b", b"c"))
    before = mark(bytes(raw))
    raw[COUNT_AT : COUNT_AT + 4] = (2).to_bytes(4, "big")
    assert likeness(before, fetched(with_right_crc(raw))) is Likeness.unknown


def test_a_batch_that_is_gone_says_nothing() -> None:
    before = mark(a_batch(5, b"a"))
    assert likeness(before, fetched(a_batch(6, b"b"))) is Likeness.unknown
    assert likeness(before, fetched(b"")._replace(error=codes.OFFSET_OUT_OF_RANGE)) is Likeness.unknown
    assert likeness(before, fetched(b"")._replace(high_watermark=5)) is Likeness.unknown


def test_an_answer_that_had_no_room_for_it_is_asked_for_again() -> None:
    assert likeness(mark(a_batch(5, b"a")), fetched(b"")) is Likeness.unanswered


def test_messages_of_the_old_formats_are_known_by_themselves_not_by_their_wrapper() -> None:
    a, b, c = message(0, b"a"), message(1, b"b"), message(2, b"c")
    before = mark(wrapper(7, a, b, c))
    assert before.last == 7
    assert likeness(before, fetched(wrapper(7, a, b, c))) is Likeness.same
    assert likeness(before, fetched(wrapper(7, a, c))) is Likeness.same
    assert likeness(before, fetched(wrapper(7, a, b, message(2, b"x")))) is Likeness.other
    assert likeness(before, fetched(message(9, b"c"))) is Likeness.unknown


def test_a_mark_survives_being_written_down_and_damage_is_as_none() -> None:
    made = mark(a_batch(5, b"a", b"b"))
    assert parse_mark(str(made)) == made
    assert [parse_mark(text) for text in ("", "1:2", "a:b:c:d", "1:2:3:zz", "1:2:3:4:5")] == [None] * 5


# ---- keeping -----------------------------------------------------------------------------------


def test_a_track_knows_the_last_batch_below_what_it_reports() -> None:
    track = marking_track()
    first, second = a_batch(0, b"a", b"b"), a_batch(2, b"c")
    take_in(track, fetched(first + second))
    assert track.mark_below(3) == mark(second)
    assert track.mark_below(2) == mark(first)
    assert track.mark_below(1) is None
    track.committed = track.sent = 2
    track.drop_marks()
    assert (track.mark, list(track.marks)) == (mark(first), [mark(second)])
    track.rewind()
    assert track.newest_mark == mark(first)


def test_where_topics_have_ids_nothing_is_kept() -> None:
    track = a_track()
    take_in(track, fetched(a_batch(0, b"a")))
    track.doubt()
    assert (track.mark_below(1), track.doubted) == (None, False)


def test_a_track_that_stops_keeps_what_the_open_transaction_holds() -> None:
    """I1: data that was sent will be committed; its progress must be, too."""
    track = marking_track()
    take_in(track, fetched(a_batch(0, b"a") + a_batch(1, b"b") + a_batch(2, b"c")))
    track.sent = track.pop().past
    track.cease(Stop(source=SOURCE, code="SOURCE_REFUSED", message="no"))
    assert (track.committed, track.sent, track.position) == (0, 1, 1)
    assert (len(track.queue), track.queued_bytes) == (0, 0)
    assert track.mark_below(track.sent) == mark(a_batch(0, b"a"))


# ---- with the progress -------------------------------------------------------------------------


def test_a_mark_rides_with_the_progress_and_is_text_as_connect_demands() -> None:
    made = mark(a_batch(5, b"a", b"b"))
    key, value = progress_key("C", "east", "t", 0), progress_value(6, str(made))
    assert value == b'{"offset":6,"mark":"6:5:2:%08x"}' % made.crc
    position = parse_progress(key, value)
    assert position == Position(connector="C", source="east", topic="t", partition=0, offset=6, mark=str(made))
    assert progress_value(6) == b'{"offset":6}'
    assert parse_progress(key, b'{"offset":6,"mark":7}') == parse_progress(key, b'{"offset":6}')
