"""The engine's pure parts: which batches cross, how tracks move, who gets which lane, what a refusal means."""

from __future__ import annotations

import dataclasses

from isthmus.engine.intake import take_in
from isthmus.engine.orders import Assignment
from isthmus.engine.packing import pack
from isthmus.engine.refusals import judge_produce
from isthmus.engine.resting import rest_s
from isthmus.engine.survey import assign
from isthmus.engine.track import Track
from isthmus.model import NO_ID, TopicPartition, Tuning
from isthmus.wire import codes
from isthmus.wire.batch import Stamp, find_batches, seal
from isthmus.wire.fetch import Fetched
from isthmus.wire.produce import Landed
from isthmus.wire.records import encode_records

SOURCE, TARGET = TopicPartition("orders", 0), TopicPartition("east.orders", 0)


def a_track(offset: int = 0) -> Track:
    return Track(Assignment(source=SOURCE, source_id=NO_ID, target=TARGET, target_id=NO_ID, offset=offset))


def a_batch(base_offset: int, *values: bytes, producer: int = -1, transactional: bool = False) -> bytes:
    body = encode_records([(b"k", value) for value in values], 1_000)
    stamp = Stamp(producer, 0 if producer >= 0 else -1, 0 if producer >= 0 else -1)
    return base_offset.to_bytes(8, "big") + seal(body, stamp, transactional=transactional)[8:] + body.payload


def fetched(data: bytes, *aborted: tuple[int, int], offset: int = 0) -> Fetched:
    return Fetched(SOURCE, offset, 0, 100, 100, 0, aborted, memoryview(data), None)


def test_batches_pass_as_they_lie_and_move_the_position() -> None:
    track = a_track()
    take_in(track, fetched(a_batch(0, b"a", b"b") + a_batch(2, b"c")))
    assert [(unit.past, unit.records) for unit in track.queue] == [(2, 2), (3, 1)]
    assert (track.position, track.sent, track.committed) == (3, 0, 0)


def test_batches_of_aborted_transactions_are_dropped_but_passed_over() -> None:
    track = a_track()
    data = a_batch(0, b"good", producer=7, transactional=True) + a_batch(1, b"bad", producer=9, transactional=True)
    take_in(track, fetched(data, (9, 1)))
    assert [unit.past for unit in track.queue] == [1]
    assert track.position == 2


def test_batches_of_producers_to_be_dropped_are_passed_over_and_leave_a_hole() -> None:
    track = a_track()
    data = (
        a_batch(0, b"a", producer=7)
        + a_batch(1, b"x", b"y", producer=9)
        + a_batch(3, b"b")
        + a_batch(4, b"z", producer=9)
    )
    take_in(track, fetched(data), {9, 11})
    assert [unit.past for unit in track.queue] == [1, 4]
    assert track.position == 5
    assert pack(track, Tuning()).runs == ((0, 1), (3, 1))


def test_a_start_inside_a_batch_drops_what_lies_before() -> None:
    track = a_track(offset=2)
    take_in(track, fetched(a_batch(0, b"a", b"b", b"c", b"d"), offset=2))
    assert [(unit.past, unit.records) for unit in track.queue] == [(4, 2)]


def test_a_rewind_forgets_what_is_not_committed() -> None:
    track = a_track()
    take_in(track, fetched(a_batch(0, b"a") + a_batch(1, b"b")))
    track.sent = track.pop().past
    track.rewind()
    assert (track.position, track.sent, track.committed, len(track.queue)) == (0, 0, 0, 0)


def test_small_batches_that_wait_are_merged_into_one() -> None:
    track = a_track()
    take_in(track, fetched(a_batch(0, b"a") + a_batch(1, b"b") + a_batch(2, b"c")))
    packed = pack(track, Tuning())
    header = packed.header(Stamp(5, 1, 0))
    (found,) = find_batches(memoryview(header + bytes(packed.payload)))
    assert (packed.past, packed.records, found.count, found.producer_id) == (3, 3, 3, 5)


def test_partitions_keep_their_lane_and_new_ones_fill_the_emptiest() -> None:
    old = [TopicPartition("a", number) for number in range(4)]
    before = assign(old, dict.fromkeys(old, 1), 2, {})
    assert sorted(before.values()) == [0, 0, 1, 1]
    more = [*old, TopicPartition("b", 0), TopicPartition("b", 1)]
    after = assign(more, dict.fromkeys(more, 1), 2, before)
    assert {tp: after[tp] for tp in old} == before
    assert sorted(after.values()) == [0, 0, 0, 1, 1, 1]


def test_lanes_are_grouped_by_target_leader() -> None:
    tps = [TopicPartition("a", number) for number in range(6)]
    leaders = {tp: tp.partition % 2 for tp in tps}
    lanes = assign(tps, leaders, 2, {})
    assert {(leaders[tp], lanes[tp]) for tp in tps} == {(0, 0), (1, 1)}


def test_a_moving_leader_is_tried_again_without_end_and_a_refusal_stops() -> None:
    track = a_track()
    for _ in range(50):
        assert judge_produce(track, Landed(TARGET, codes.NOT_LEADER, -1, -1, "")) is None
    stop = judge_produce(track, Landed(TARGET, codes.INVALID_TIMESTAMP, -1, -1, "too old"))
    assert stop is not None
    assert stop.code == "TARGET_REFUSED"
    assert "message.timestamp" in stop.hint


def test_a_refused_merge_is_tried_apart_before_the_partition_stops() -> None:
    track = a_track()
    assert judge_produce(track, Landed(TARGET, codes.MESSAGE_TOO_LARGE, -1, -1, "")) is None
    assert track.merging is False


def test_a_partition_that_a_moving_target_refuses_again_rests_longer_each_time_and_a_commit_forgets_it() -> None:
    track = a_track()
    busy = Landed(track.assignment.target, codes.NOT_ENOUGH_REPLICAS, -1, -1, "")
    wanted = []
    for _ in range(2):
        judge_produce(track, busy)
        wanted.append(track.is_wanted)
    assert wanted == [True, False]  # a leader that moves is found by the second try
    pauses = [rest_s(count) for count in range(40)]
    assert pauses[:4] == [0, 0, 0.5, 1.0]
    assert pauses == sorted(pauses)
    assert max(pauses) == 5.0
    track.rests_until = 0.0
    track.commit()
    judge_produce(track, busy)
    assert track.is_wanted


def test_an_order_that_follows_a_void_one_begins_with_the_rest() -> None:
    assert Track(dataclasses.replace(a_track().assignment, refusals=1)).is_wanted
    assert not Track(dataclasses.replace(a_track().assignment, refusals=2)).is_wanted


def test_i7_a_partition_that_is_refused_for_a_moment_rests_so_that_others_are_committed_meanwhile() -> None:
    track = a_track()
    assert judge_produce(track, Landed(TARGET, codes.CORRUPT_MESSAGE, -1, -1, "")) is None
    assert track.rests_until > 0
    assert not track.is_wanted
