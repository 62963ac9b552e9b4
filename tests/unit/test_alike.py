"""Two logs side by side: the same records however they are cut into batches, and the first place where they are not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import WireError
from isthmus.wire.alike import Reading, all_but, pass_alike
from isthmus.wire.batch import NO_STAMP, Body, find_batches, recompressed, seal
from isthmus.wire.compression import Room
from isthmus.wire.prints import OFFSET, opened
from isthmus.wire.records import Record, encode_stamped

SOME = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=5), SOME), max_size=3).map(tuple)
RECORD = st.builds(Record, offset=st.just(0), timestamp=st.integers(0, 2**42), key=SOME, value=SOME, headers=HEADERS)
RECORDS = st.lists(RECORD, min_size=1, max_size=12)
CODECS = st.sampled_from([0, 1, 2, 3, 4])
EVERYTHING = (0, 1 << 40)


def _sealed(body: Body) -> memoryview:
    return memoryview(seal(body, NO_STAMP, transactional=False) + body.payload)


def _batch(records: list[Record], codec: int = 0) -> memoryview:
    return _sealed(recompressed(encode_stamped(records), codec))


def _reading(
    buffer: memoryview,
    room: Room | None = None,
    bounds: tuple[int, int] = EVERYTHING,
    without: list[tuple[int, int]] | None = None,
) -> Reading:
    (batch,) = find_batches(buffer)
    return Reading(opened(buffer, batch, room), all_but(*bounds, without or []))


@given(RECORDS, CODECS, CODECS, st.data())
@settings(max_examples=60, deadline=None)
def test_records_are_alike_however_they_are_cut(
    records: list[Record], one: int, other: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(records)))
    room = Room()
    whole = _reading(_batch(records, one), Room())
    passed = 0
    for part in (records[:cut], records[cut:]):
        if part:
            passed += pass_alike(whole, reading := _reading(_batch(part, other), room))
            assert reading.is_done
    assert (passed, whole.is_done) == (len(records), True)


@given(RECORDS, RECORD, CODECS, st.data())
@settings(max_examples=100, deadline=None)
def test_the_first_record_that_differs_in_anything_is_where_it_ends(
    records: list[Record], another: Record, codec: int, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(records) - 1))
    part = data.draw(st.sampled_from(["timestamp", "key", "value", "headers"]))
    altered = records[place]._replace(**{part: getattr(another, part)})
    here = _reading(_batch(records, codec), Room())
    there = _reading(_batch([*records[:place], altered, *records[place + 1 :]]), Room())

    passed = pass_alike(here, there)

    if altered == records[place]:
        assert (passed, here.is_done, there.is_done) == (len(records), True, True)
    else:
        assert (passed, here.is_done, there.is_done) == (place, False, False)
        assert here.rows()[:, OFFSET].tolist() == list(range(place, len(records)))


PLACES = st.tuples(st.integers(0, 12), st.integers(0, 12))


@given(RECORDS, PLACES, st.lists(PLACES, max_size=2))
@settings(max_examples=80, deadline=None)
def test_only_wanted_offsets_count(
    records: list[Record], bounds: tuple[int, int], without: list[tuple[int, int]]
) -> None:
    wanted = [
        offset
        for offset in range(len(records))
        if bounds[0] <= offset < bounds[1] and not any(first <= offset < past for first, past in without)
    ]
    here = _reading(_batch(records), None, bounds, without)
    assert here.rows()[:, OFFSET].tolist() == wanted
    if not wanted:
        return
    there = _reading(_batch([records[offset] for offset in wanted]))
    assert pass_alike(here, there) == len(wanted)
    assert here.is_done
    assert there.is_done


def test_a_record_that_only_one_side_has_can_be_passed_over() -> None:
    records = [Record(n, 5, b"k%d" % n, b"v") for n in range(4)]
    here, there = _reading(_batch(records)), _reading(_batch([*records[:2], records[3]]))
    assert pass_alike(here, there) == 2
    assert int(here.rows()[0, OFFSET]) == 2
    here.pass_over(2)
    assert pass_alike(here, there) == 1
    assert here.is_done
    assert there.is_done


def test_a_room_is_used_again_and_what_was_in_it_is_gone() -> None:
    room = Room()
    long, short = [Record(n, 5, b"k", b"long" * 9_000) for n in range(9)], [Record(0, 5, b"k", b"short")]
    for codec in (1, 3, 4):
        for records in (long, short, long):
            there = _reading(_batch(records))
            assert pass_alike(_reading(_batch(records, codec), room), there) == len(records)


def test_what_is_no_list_of_records_is_refused_on_either_side_whatever_its_checksum() -> None:
    body = encode_stamped([Record(0, 1, b"k", b"v")])
    for payload in (b"\xff" * 20, body.payload[:-1], body.payload + b"\0", b"\x02" + body.payload):
        lying = _sealed(body._replace(payload=payload))
        for sides in ((lying, _sealed(body)), (_sealed(body), lying)):
            try:
                pass_alike(*(_reading(side) for side in sides))
            except WireError as error:
                assert error.code == "CORRUPT_BATCH"
            else:
                raise AssertionError(payload)
