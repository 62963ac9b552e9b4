"""Whatever bytes arrive, the answer is a clean one or a `WireError`, and no byte of others moves."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import WireError
from isthmus.wire import compression, kernels
from isthmus.wire.alike import Reading, all_but, pass_alike
from isthmus.wire.batch import NO_STAMP, Batch, find_batches, marker_of, reencode, seal
from isthmus.wire.legacy import convert
from isthmus.wire.prints import opened
from isthmus.wire.records import decode_records, encode_records, plain_batches

fuzz = settings(deadline=None, max_examples=150)

PAIRS: list[tuple[bytes | None, bytes | None]] = [(b"k%d" % i, b"value" * i) for i in range(30)]


def good_batch(codec: int) -> bytes:
    body = encode_records([*PAIRS, (None, None)], 1_700_000_000_000)
    body = body._replace(codec=codec, payload=compression.compress(codec, body.payload))
    return seal(body, NO_STAMP, transactional=False) + body.payload


GOOD = {codec: good_batch(codec) for codec in range(5)}


def with_right_crc(raw: bytearray) -> memoryview:
    struct.pack_into(">I", raw, 17, crc32c(memoryview(raw)[21:]))
    return memoryview(raw)


def tolerate(work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    try:
        return work(*arguments, **named)
    except WireError as error:
        assert error.code == "CORRUPT_BATCH"
        return None


def work_through(buffer: memoryview) -> None:
    """Everything that is ever done with fetched bytes; both ways to find batches see the same."""
    assert tolerate(plain_batches, buffer) == tolerate(find_batches, buffer)
    for batch in tolerate(find_batches, buffer) or []:
        if batch.magic < 2:
            tolerate(convert, buffer, [batch], from_offset=0)
        elif batch.is_control:
            tolerate(marker_of, buffer, batch)
        else:
            tolerate(decode_records, buffer, batch)
            tolerate(reencode, [(buffer, batch)], from_offset=3)
            tolerate(beside_a_good_one, buffer, batch)


def beside_a_good_one(buffer: memoryview, batch: Batch) -> None:
    good = memoryview(GOOD[0])
    both = (good, find_batches(good)[0]), (buffer, batch)
    one, other = (Reading(opened(*each, compression.Room()), all_but(3, 25)) for each in both)
    assert 0 <= pass_alike(one, other) <= 22


@fuzz
@given(raw=st.binary(max_size=300))
def test_random_bytes(raw: bytes) -> None:
    work_through(memoryview(raw))


@fuzz
@given(raw=st.binary(max_size=200), size=st.integers(0, 200), magic=st.integers(0, 2))
def test_random_bytes_behind_a_plausible_start(raw: bytes, size: int, magic: int) -> None:
    start = struct.pack(">qiib", 5, size, 0, magic)
    work_through(memoryview(start + raw))


@fuzz
@given(
    codec=st.integers(0, 4),
    edits=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=6),
    fix_crc=st.booleans(),
)
def test_mutated_batches(codec: int, edits: list[tuple[int, int]], fix_crc: bool) -> None:
    raw = bytearray(GOOD[codec])
    for at, byte in edits:
        raw[at % len(raw)] = byte
    work_through(with_right_crc(raw) if fix_crc else memoryview(raw))


@fuzz
@given(payload=st.binary(max_size=120), count=st.integers(0, 2**31 - 1), codec=st.integers(0, 7))
def test_random_payloads_with_a_right_crc(payload: bytes, count: int, codec: int) -> None:
    raw = bytearray(GOOD[0][:61]) + payload
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">h", raw, 21, codec)
    struct.pack_into(">i", raw, 57, count % (len(payload) // 7 + 2) if count % 3 else count)
    work_through(with_right_crc(raw))


@fuzz
@given(codec=st.integers(0, 4), cut=st.integers(0, 2**16))
def test_cut_off_buffers_give_the_whole_batches_only(codec: int, cut: int) -> None:
    one = GOOD[codec]
    raw = one + one
    cut %= len(raw) + 1
    found = find_batches(memoryview(raw)[:cut])
    assert [b.position for b in found] == [0, len(one)][: cut // len(one)]


@fuzz
@given(codec=st.integers(1, 7), data=st.binary(max_size=100))
def test_random_compressed_data(codec: int, data: bytes) -> None:
    for room in (None, compression.Room()):
        tolerate(compression.decompress, codec, data, 1 << 20, room)
    tolerate(compression.decompress_old_lz4, data, 1 << 20)


@fuzz
@given(
    blocks=st.lists(st.binary(max_size=60), max_size=4),
    compressed=st.booleans(),
    end=st.sampled_from([b"", b"\0\0\0\0", b"\0\0\0\0\0"]),
    limit=st.integers(0, 300),
)
def test_random_lz4_blocks_in_a_frame(blocks: list[bytes], compressed: bool, end: bytes, limit: int) -> None:
    plain = 0 if compressed else 1 << 31
    frame = GOOD[3][61:68] + b"".join(struct.pack("<I", len(each) | plain) + each for each in blocks) + end
    found = tolerate(compression.decompress, compression.LZ4, frame, limit, compression.Room())
    assert found is None or len(found) <= limit


numbers = st.integers(-(2**63), 2**63 - 1)


@fuzz
@given(
    data=st.binary(max_size=200) | st.just(GOOD[0][61:]),
    spans=st.lists(
        st.tuples(st.integers(-2, 250), st.integers(-2, 60), *[numbers | st.integers(0, 99)] * 4),
        max_size=3,
    ),
    from_offset=numbers,
    room=st.integers(0, 500),
    rows=st.integers(0, 40),
)
def test_the_merge_kernel_stays_inside_its_arrays(
    data: bytes, spans: list[tuple[int, ...]], from_offset: int, room: int, rows: int
) -> None:
    """Neither room nor rows are what the kernel asks for; guards around both must not change."""
    table = np.array(spans, np.int64).reshape(len(spans), kernels.SPAN_COLUMNS)
    guarded_out = np.full(room + 128, 0xA5, np.uint8)
    guarded_runs = np.full((rows + 16, 2), -77, np.int64)
    state = np.zeros(kernels.STATE_SIZE, np.int64)
    kernels.merge_records(
        np.frombuffer(data, np.uint8),
        table,
        from_offset,
        guarded_out[64 : 64 + room],
        guarded_runs[8 : 8 + rows],
        state,
    )
    assert (guarded_out[:64] == 0xA5).all()
    assert (guarded_out[64 + room :] == 0xA5).all()
    assert (guarded_runs[:8] == -77).all()
    assert (guarded_runs[8 + rows :] == -77).all()
    assert 0 <= state[kernels.WRITTEN] <= room


@pytest.mark.parametrize(("room", "rows"), [(0, 31), (40, 31), (700, 31), (3000, 0), (3000, 30)])
def test_the_merge_kernel_stops_when_room_runs_out(room: int, rows: int) -> None:
    data = np.frombuffer(GOOD[0][61:], np.uint8)
    spans = np.array([[len(data), 31, 0, 30, 0, kernels.NO_FIXED_TIME]], np.int64)
    guarded_out = np.full(room + 8192, 0xA5, np.uint8)
    guarded_runs = np.full((rows + 64, 2), -77, np.int64)
    state = np.zeros(kernels.STATE_SIZE, np.int64)
    bad = kernels.merge_records(data, spans, 0, guarded_out[:room], guarded_runs[:rows], state)
    assert bad == 0
    assert (guarded_out[room:] == 0xA5).all()
    assert (guarded_runs[rows:] == -77).all()


def test_a_batch_is_a_plain_tuple_of_ints() -> None:
    """Numpy integers would overflow where Python's do not."""
    (batch,) = find_batches(memoryview(GOOD[0]))
    assert {type(field) for field in batch} == {int}
