"""Cutting batches that a target found too large, recompressing, and the arithmetic of a throttle."""

from __future__ import annotations

import uuid

import pytest

from isthmus.engine.orders import Assignment
from isthmus.engine.packing import Packed, pack
from isthmus.engine.refusals import judge_produce
from isthmus.engine.throttle import Throttle
from isthmus.engine.track import Track, Unit
from isthmus.model import NO_ID, TopicPartition, Tuning
from isthmus.wire import codes, compression
from isthmus.wire.batch import Body, Stamp, find_batches, seal
from isthmus.wire.produce import Landed
from isthmus.wire.records import Record, decode_records, encode_stamped

SOURCE, TARGET = TopicPartition("orders", 0), TopicPartition("east.orders", 0)
TUNING = Tuning()
RECORDS = [Record(-1, 1_000 + n, b"k%d" % n, b"v" * n, (("h", b"%d" % n),)) for n in range(10)]


def _track() -> Track:
    assignment = Assignment(source=SOURCE, source_id=uuid.uuid4(), target=TARGET, target_id=NO_ID, offset=100)
    return Track(assignment)


TOO_LARGE = Landed(TARGET, codes.MESSAGE_TOO_LARGE, -1, -1, "")


def _next(track: Track) -> Packed:
    """What is sent first after everything was fetched again."""
    track.rewind()
    _as_fetched(track)
    return pack(track, TUNING)


def _as_fetched(track: Track, base: int = 100) -> None:
    body = encode_stamped(RECORDS)
    stored = bytearray(seal(body, Stamp(-1, -1, -1), transactional=False) + bytes(body.payload))
    stored[0:8] = base.to_bytes(8, "big")
    buffer = memoryview(bytes(stored))
    (batch,) = find_batches(buffer)
    track.push(Unit(base + len(RECORDS), batch.size, batch.count, buffer, batch))


def _decoded(body: Body) -> list[Record]:
    sealed = memoryview(seal(body, Stamp(1, 1, 0)) + bytes(body.payload))
    return decode_records(sealed, find_batches(sealed)[0])


def test_a_batch_is_cut_into_as_few_records_as_the_target_takes() -> None:
    track = _track()
    _as_fetched(track)
    track.most_records, track.merging = 4, False
    pieces = [pack(track, TUNING) for _ in range(3)]
    assert [piece.records for piece in pieces] == [4, 4, 2]
    assert [piece.past for piece in pieces] == [104, 108, 110]
    found = [record for piece in pieces if isinstance(piece.made, Body) for record in _decoded(piece.made)]
    assert [each._replace(offset=-1) for each in found] == RECORDS
    assert not track.queue
    assert track.queued_bytes == 0


def test_a_piece_can_be_cut_again_and_keeps_its_source_offsets() -> None:
    track = _track()
    _as_fetched(track)
    track.most_records, track.merging = 6, False
    pack(track, TUNING)
    track.most_records = 3
    assert [pack(track, TUNING).past for _ in range(2)] == [109, 110]


def test_refusals_halve_the_batch_until_one_record_is_left_and_then_stop() -> None:
    track = _track()
    assert judge_produce(track, TOO_LARGE, _next(track)) is None  # first without merging
    assert (track.merging, track.most_records) == (False, 0)
    for most in (5, 2, 1):
        assert judge_produce(track, TOO_LARGE, _next(track)) is None
        assert track.most_records == most
    stops = [judge_produce(track, TOO_LARGE, _next(track)) for _ in range(4)]
    assert stops[-1] is not None
    assert "offset 100" in stops[-1].message
    assert "max.message.bytes" in stops[-1].hint


def test_a_record_that_is_too_large_alone_becomes_a_letter_and_its_neighbours_stay_together() -> None:
    track = _track()
    track.merging = False
    track.most_records = 1
    pieces = [_next(track)]
    pieces += [pack(track, TUNING) for _ in range(3)]
    assert judge_produce(track, TOO_LARGE, pieces[3], dead_letters=True) is None
    assert (track.letters, track.most_records) == ({103: "MESSAGE_TOO_LARGE (10)"}, 0)

    again = [_next(track), pack(track, TUNING), pack(track, TUNING)]

    assert [(piece.records, piece.past, piece.is_letter) for piece in again] == [
        (3, 103, False),
        (1, 104, True),
        (6, 110, False),
    ]
    assert isinstance(again[1].made, Body)
    (dead,) = _decoded(again[1].made)
    origin = [("topic", b"orders"), ("partition", b"0"), ("offset", b"103"), ("reason", b"MESSAGE_TOO_LARGE (10)")]
    ours = tuple((f"isthmus.{name}", value) for name, value in origin)
    assert dead == RECORDS[3]._replace(offset=0, headers=RECORDS[3].headers + ours)


def test_a_letter_that_is_refused_as_well_stops_its_partition() -> None:
    track = _track()
    track.merging, track.letters = False, {100: "MESSAGE_TOO_LARGE (10)"}
    answers = [judge_produce(track, TOO_LARGE, _next(track), dead_letters=True) for _ in range(4)]
    assert answers[:3] == [None] * 3
    assert answers[3] is not None
    assert "the dead-letter topic" in answers[3].message


def test_letters_are_forgotten_when_they_are_committed_and_kept_when_not() -> None:
    track = _track()
    track.merging, track.letters = False, {100: "why", 105: "why"}
    track.sent = _next(track).past
    track.rewind()
    assert set(track.letters) == {100, 105}
    track.sent = _next(track).past
    track.commit()
    assert set(track.letters) == {105}


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_is_recompressed_and_a_body_of_ours_too(codec: int) -> None:
    track = _track()
    _as_fetched(track)
    first = pack(track, TUNING, codec)
    _as_fetched(track, base=110)
    track.most_records, track.merging = 5, False
    second = pack(track, TUNING, codec)
    for packed, expected in ((first, RECORDS), (second, RECORDS[:5])):
        made_codec = packed.made.codec
        assert compression.NAMES[made_codec] == compression.NAMES[codec]
        if isinstance(packed.made, Body):
            assert [each._replace(offset=-1) for each in _decoded(packed.made)] == expected


def test_a_throttle_asks_for_half_a_second_and_none_asks_for_all() -> None:
    assert Throttle(0).fetch_bytes(1 << 20) == 1 << 20
    assert Throttle(1_000_000).fetch_bytes(16 << 20) == 500_000
    assert Throttle(10).fetch_bytes(16 << 20) == 64 << 10
