"""Compiled kernels stay inside their arrays whatever bytes come in, and answer as their source says.

Each kernel is run three times on the same input (`tests.twins`): its source by Python with every index checked, and
compiled, between two kinds of surroundings. That this finds a kernel which leaves its arrays is proven by planted ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.test_codec_fuzz import GOOD
from tests.twins import Beyond, Kernels, Strict, Work, alike_everywhere, twins

from isthmus.wire.records import Record, encode_stamped, varint

fuzz = settings(deadline=None, max_examples=40)

TWIN = twins()
Hold = Callable[[Any], Any]
NO_TIME = -(2**63)
numbers = st.integers(-(2**63), 2**63 - 1)
SMALL = encode_stamped(
    [Record(0, 7, b"k", b"value", (("name", b"x"), ("n\xff", None))), Record(0, 9, None, b""), Record(0, 8, b"", None)]
).payload
hostile = st.sampled_from([-1, -2, 2**31 - 1, 2**62, 2**63 - 1, -(2**63)]).map(varint)
piece = st.binary(max_size=12) | hostile | st.just(SMALL) | st.just(b"\xff" * 9)


@st.composite
def record_bytes(draw: st.DrawFn) -> bytes:
    """Sound records with some bytes replaced, cut off or put in; or anything."""
    raw = draw(st.just(SMALL) | st.lists(piece, max_size=4).map(b"".join))
    for _ in range(draw(st.integers(0, 3))):
        at, gone = draw(st.integers(0, len(raw))), draw(st.integers(0, 3))
        raw = raw[:at] + draw(piece) + raw[at + gone :]
    return raw[: draw(st.just(len(raw)) | st.integers(0, len(raw)))]


def array(raw: bytes) -> Any:
    return np.frombuffer(raw, np.uint8)


def zeros(*shape: int, kind: Any = np.int64) -> Any:
    return np.zeros(shape, kind)


# --- what each kernel is given -------------------------------------------------------------------


def indexed(set_of: Kernels, hold: Hold, raw: bytes, rows: int) -> Any:
    table = hold(zeros(rows, set_of.kernels.COLUMNS))
    return set_of.kernels.index_batches(hold(array(raw)), table), table


def varints(set_of: Kernels, hold: Hold, raw: bytes, count: int) -> Any:
    out = hold(zeros(count))
    at = set_of.kernels.read_varints(hold(array(raw)), out)
    written = hold(zeros(10 * count, kind=np.uint8))
    return at, out, set_of.kernels.write_varints(out, written), written


def merged(
    set_of: Kernels, hold: Hold, raw: bytes, spans: list[tuple[int, ...]], low: int, room: int, rows: int
) -> Any:
    """Neither room nor rows are what the kernel asks for."""
    table = hold(np.array(spans, np.int64).reshape(len(spans), 6))
    out, runs, state = hold(zeros(room, kind=np.uint8)), hold(zeros(rows, 2)), hold(zeros(6))
    return set_of.kernels.merge_records(hold(array(raw)), table, low, out, runs, state), out, runs, state


def columned(set_of: Kernels, hold: Hold, raw: bytes, spans: list[tuple[int, ...]], low: int, end: int) -> Any:
    """As `columns` does it: room is allotted by what was counted."""
    ck, data = set_of.column_kernels, hold(array(raw))
    table = hold(np.array(spans, np.int64).reshape(len(spans), ck.SPAN_COLUMNS))
    counts = hold(zeros(ck.COUNTS))
    bad = ck.measure(data, table, low, end, counts, hold(zeros(ck.COUNTS)))
    if bad >= 0:
        return bad
    rows, headers = int(counts[ck.ROWS]), int(counts[ck.HEADERS])
    key, value = (_blobs(hold, rows, int(counts[total])) for total in (ck.KEYS, ck.VALUES))
    names, contents = (_blobs(hold, headers, int(counts[total])) for total in (ck.NAMES, ck.CONTENTS))
    lists = hold(zeros(rows + 1, kind=np.int32)), hold(zeros(rows + 7 >> 3, kind=np.uint8))
    times = hold(zeros(rows)), hold(zeros(rows)), hold(zeros(rows, kind=np.int32))
    ck.fill(data, table, low, end, *times, *key, *value)
    ck.fill_headers(data, table, low, end, *lists, *names, *contents)
    return counts, times, key, value, lists, names, contents


def _blobs(hold: Hold, rows: int, size: int) -> tuple[Any, Any, Any]:
    sizes = (rows + 1, np.int32), (size, np.uint8), (rows + 7 >> 3, np.uint8)
    offsets, data, valid = (hold(zeros(count, kind=kind)) for count, kind in sizes)
    return offsets, data, valid


def printed(set_of: Kernels, hold: Hold, raw: bytes, rows: int, fixed: int) -> Any:
    table = hold(zeros(rows, set_of.prints.COLUMNS))
    bad = set_of.prints._print_records(hold(array(raw)), 5, 6, np.int64(fixed), table)
    return (bad, table) if bad == 0 else bad


def compared(set_of: Kernels, hold: Hold, raw: bytes, other: bytes, rows: int, unwanted: list[tuple[int, int]]) -> Any:
    ranges, none = hold(np.array(unwanted, np.int64).reshape(-1, 2)), hold(zeros(0))
    sides = [(hold(array(each)), hold(np.array((0, 0, rows, 5, 6, NO_TIME)))) for each in (raw, other)]
    (left, here), (right, there) = sides
    return set_of.alike._pass_alike(left, none, ranges, here, right, none, ranges, there), here, there


# --- any bytes -----------------------------------------------------------------------------------


@fuzz
@given(
    raw=st.binary(max_size=90) | st.tuples(record_bytes(), st.integers(0, 99)).map(lambda x: GOOD[0][: x[1]] + x[0]),
    copies=st.integers(1, 3),
    rows=st.integers(0, 3),
    edits=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3),
)
def test_finding_batches_stays_inside(raw: bytes, copies: int, rows: int, edits: list[tuple[int, int]]) -> None:
    data = bytearray(raw * copies)
    for at, byte in edits if data else ():
        data[at % len(data)] = byte
    alike_everywhere(lambda set_of, hold: indexed(set_of, hold, bytes(data), rows), TWIN)


@fuzz
@given(raw=record_bytes(), count=st.integers(0, 30))
def test_markers_and_numbers_stay_inside(raw: bytes, count: int) -> None:
    alike_everywhere(lambda set_of, hold: set_of.kernels.marker_type(hold(array(raw))), TWIN)
    alike_everywhere(lambda set_of, hold: varints(set_of, hold, raw, count), TWIN)


def _spans(draw: st.DrawFn, raw: bytes, columns: int) -> list[tuple[int, ...]]:
    sizes = st.just(len(raw)) | st.integers(-2, 250) | st.just(2**63 - 1)
    some = numbers | st.integers(0, 9)
    row = st.tuples(sizes, st.integers(-1, 5), some, some, some, some | st.just(NO_TIME), st.integers(-1, 1))
    return [each[:columns] for each in draw(st.lists(row, max_size=3))]


@fuzz
@given(
    raw=record_bytes(),
    data=st.data(),
    low=numbers | st.just(0),
    sizes=st.tuples(st.integers(0, 400), st.integers(0, 5)),
)
def test_merging_stays_inside(raw: bytes, data: st.DataObject, low: int, sizes: tuple[int, int]) -> None:
    spans = data.draw(st.composite(_spans)(raw, 6))
    alike_everywhere(lambda set_of, hold: merged(set_of, hold, raw, spans, low, *sizes), TWIN)


@fuzz
@given(raw=record_bytes(), data=st.data(), low=st.integers(0, 2), end=st.integers(0, 3) | numbers)
def test_columns_stay_inside(raw: bytes, data: st.DataObject, low: int, end: int) -> None:
    sound: list[tuple[int, ...]] = [(len(raw), 3, 0, 2, 5, NO_TIME, 0)]
    spans = data.draw(st.just(sound) | st.composite(_spans)(raw, 7))
    alike_everywhere(lambda set_of, hold: columned(set_of, hold, raw, spans, low, end), TWIN)


@fuzz
@given(raw=record_bytes(), rows=st.integers(0, 5), fixed=numbers | st.just(NO_TIME))
def test_prints_stay_inside(raw: bytes, rows: int, fixed: int) -> None:
    alike_everywhere(lambda set_of, hold: printed(set_of, hold, raw, rows, fixed), TWIN)


@fuzz
@given(
    raw=record_bytes(),
    other=record_bytes(),
    rows=st.integers(0, 5),
    unwanted=st.lists(st.tuples(numbers | st.integers(4, 9), numbers | st.integers(4, 9)), max_size=2),
)
def test_comparing_stays_inside(raw: bytes, other: bytes, rows: int, unwanted: list[tuple[int, int]]) -> None:
    alike_everywhere(lambda set_of, hold: compared(set_of, hold, raw, other, rows, unwanted), TWIN)


@fuzz
@given(
    blobs=st.lists(st.none() | st.binary(max_size=9), max_size=9),
    headers=st.lists(st.integers(0, 3), max_size=9),
    time=st.lists(numbers, min_size=9, max_size=9),
    partitions=st.integers(1, 2**31 - 1),
    chosen=st.lists(st.integers(0, 8), max_size=9),
)
def test_writing_rows_stays_inside(
    blobs: list[bytes | None], headers: list[int], time: list[int], partitions: int, chosen: list[int]
) -> None:
    rows, ends = len(blobs), np.cumsum([0, *(len(each or b"") for each in blobs)])
    lists = np.minimum(np.cumsum([0, *(headers + [0] * rows)[:rows]]), rows)
    bits = np.packbits(np.array([each is not None for each in blobs], bool), bitorder="little")

    def work(set_of: Kernels, hold: Hold) -> Any:
        rk, picked = set_of.row_kernels, hold(np.array([each for each in chosen if each < rows], np.int64))
        offsets, data = hold(ends.astype(np.int32)), hold(array(b"".join(each or b"" for each in blobs)))
        valid, all_valid, listed = hold(bits), hold(zeros(0, kind=np.uint8)), hold(lists.astype(np.int32))
        column = offsets, data, valid
        picks, size = hold(zeros(rows, kind=np.int32)), hold(zeros(len(picked)))
        rk.choose(*column, partitions, picks)
        rk.sizes(picked, offsets, valid, offsets, valid, listed, all_valid, offsets, offsets, valid, size)
        out = hold(zeros(int(sum(size)) + 21 * len(picked), kind=np.uint8))
        named = offsets, data, all_valid
        at = rk.write(picked, size, hold(np.array(time)), *column, *column, listed, all_valid, *named, *column, out)
        return picks, size, at, out

    alike_everywhere(work, TWIN)


# --- planted --------------------------------------------------------------------------------------

SPAN = (len(SMALL), 3, 0, 2, 0, NO_TIME, 0)
LONG = varint(2**31) + b"\0\0\0"  # a record that says to be much longer
CUT = GOOD[0][:8] + struct.pack(">i", 49) + GOOD[0][12:40]  # a header that ends too early
MARKER = b"\0" * 4 + b"\x02\0"
NAME = b"\x10\0\0\0\x01\x01\x02" + varint(50) + b"\0"  # a header's name that is longer than its record
KEY = b"\x0e\0\0\0" + varint(50) + b"\x01\0\0"  # and a key
PLANTED: dict[str, tuple[str, str, str, Callable[[Kernels], Any]]] = {
    "number": ("kernels", "while position < end and", "while", lambda k: varints(k, Strict, b"\x80\x80", 1)),
    "header": ("kernels", "if len(data) - at < size:", "if False:", lambda k: indexed(k, Strict, CUT, 1)),
    "table": ("kernels", "if found < len(table):", "if True:", lambda k: indexed(k, Strict, GOOD[0] * 2, 1)),
    "marker": ("kernels", "key_size < 4 or", "", lambda k: k.kernels.marker_type(Strict(array(MARKER)))),
    "room": ("kernels", "rest + 32 > len(out) - at", "False", lambda k: merged(k, Strict, SMALL, [SPAN[:6]], 0, 30, 9)),
    "runs": ("kernels", "state[COUNT] >= len(runs) or", "", lambda k: merged(k, Strict, SMALL, [SPAN[:6]], 0, 400, 0)),
    "record": ("column_kernels", "or size > end - at", "", lambda k: columned(k, Strict, LONG, [(8, *SPAN[1:])], 0, 9)),
    "span": (
        "column_kernels",
        "or end > len(data)",
        "",
        lambda k: columned(k, Strict, SMALL, [(99, 4, *SPAN[2:])], 0, 9),
    ),
    "name": (
        "column_kernels",
        "or size > end - at",
        "",
        lambda k: columned(k, Strict, NAME, [(9, 1, *SPAN[2:])], 0, 9),
    ),
    "key": ("prints", "if at < 0 or length > past - at:", "if at < 0:", lambda k: printed(k, Strict, KEY, 1, 0)),
    "other": ("alike", "or size > end - at", "", lambda k: compared(k, Strict, LONG, LONG, 1, [])),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_kernel_that_leaves_its_arrays_is_found(name: str) -> None:
    module, check, instead, work = PLANTED[name]
    with np.errstate(over="ignore"):
        work(TWIN)
        with pytest.raises(Beyond):
            work(twins({module: (check, instead)}))


def test_a_compiled_kernel_that_reads_or_writes_outside_is_found() -> None:
    """Compiled as ours are, without checks."""
    from numba import njit

    @njit("int64(uint8[::1])", boundscheck=False)
    def reads(data: Any) -> int:
        return int(data[len(data)])

    @njit("int64(uint8[::1])", boundscheck=False)
    def writes(data: Any) -> int:
        data[len(data)] = 3
        return 0

    for planted, said in ((reads, None), (writes, "written behind")):
        with pytest.raises(AssertionError, match=said):
            alike_everywhere(_by(planted), TWIN)


def _by(planted: Callable[[Any], Any]) -> Work:
    return lambda _, hold: 0 if hold is Strict else planted(hold(array(b"abc")))
