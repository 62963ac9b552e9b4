"""Fetched batches as columns in Arrow's memory layout, with no Python object per record.

Owns which records of an answer a reader of committed records sees, and their columns: offset, time in microseconds,
type of the time, key, value, and headers if wanted. Must stay true: a batch is decoded only after its CRC was checked;
no part is larger than `PART_BYTES` of plain records and `PART_ROWS`, or one batch, so offsets of four bytes always
suffice; names of headers are text (UTF-8), whatever a producer wrote. Arrays are numpy's: whoever needs Arrow's own
wraps them.

Message formats 0 and 1 go through `legacy`, some microseconds a record.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isthmus.wire import column_kernels as ck
from isthmus.wire import compression
from isthmus.wire.batch import Batch, corrupt, crc_is_right, find_batches, payload_of
from isthmus.wire.fetch import Fetched, committed_batches
from isthmus.wire.kernels import MIN_RECORD, NO_FIXED_TIME, Bytes, Table
from isthmus.wire.legacy import unwrapped
from isthmus.wire.records import encode_record

PART_BYTES = 4 << 20  # some ten thousand records of usual size: fewer calls, and fewer batches for Spark
PART_ROWS = 1 << 16  # tiny records have more of columns than of their own
_DESK_BYTES = 16 << 20  # codecs that tell no sizes ask for much; what is never written to takes no memory
NO_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1  # as Kafka's TimestampType
_OLD_LOG_APPEND_TIME = 0x08
_OLD_ATTRIBUTES_AT = 17

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blobs:
    """A column of bytes or text: row i is data[offsets[i]:offsets[i + 1]]; `valid` is None where no row is null."""

    offsets: Ints
    data: Bytes
    valid: Bytes | None

    @property
    def count(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """A column of lists: row i has the headers offsets[i] to offsets[i + 1]; null where there are none."""

    offsets: Ints
    valid: Bytes | None
    names: Blobs
    contents: Blobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Some records of one partition, in order."""

    offset: Longs
    time: Longs  # microseconds since 1970
    time_type: Ints
    key: Blobs
    value: Blobs
    headers: Headers | None  # None: not wanted

    @property
    def count(self) -> int:
        return len(self.offset)


class Desk(compression.Room):
    """Memory in which batches are opened, one behind the other; a reader has one for all of its answers.

    Must stay true: it is no smaller than a part. What lies on it is gone when the next part begins: by then it was
    copied into columns.
    """

    def __init__(self) -> None:
        super().__init__()
        self._memory = np.empty(_DESK_BYTES, np.uint8)
        self.clear()

    def clear(self) -> None:
        self.filled = 0
        self._alone: compression.Buffer | None = None  # a batch that is larger than all of it

    def of(self, size: int) -> memoryview:
        """Behind what lies here already, so that it need not be moved."""
        if self.filled + size > len(self._memory):
            return compression.Room().of(size)  # of its own: a kept one would keep the largest ever
        return self._memory.data[self.filled : self.filled + size]

    def put(self, plain: compression.Buffer) -> None:
        """Keep it, behind what lies here."""
        begin, self.filled = self.filled, self.filled + len(plain)
        if self.filled > len(self._memory):
            self._alone = plain
        elif begin == 0 or not self._holds(plain):
            self._memory[begin : self.filled] = np.frombuffer(plain, np.uint8)

    def _holds(self, plain: compression.Buffer) -> bool:
        owner: object = plain.obj if isinstance(plain, memoryview) else plain
        return owner is self._memory

    def all(self) -> Bytes:
        return self._memory[: self.filled] if self._alone is None else np.frombuffer(self._alone, np.uint8)


def columns_of(
    fetched: Fetched,
    low: int,
    end: int,
    with_headers: bool = True,
    batches: Sequence[Batch] | None = None,
    desk: Desk | None = None,
) -> Iterator[Columns]:
    """The committed records of an answer whose offsets are in [low, end), in parts; none is empty.

    `batches`: those of the answer, where they were looked up before.
    """
    if batches is None:
        batches = find_batches(fetched.records)
    wanted = committed_batches(fetched, batches) if fetched.aborted else batches
    pieces = [(fetched.records, batch) for batch in wanted if _is_wanted(batch, low, end)]
    return decode(pieces, low, end, with_headers, desk or Desk())


def decode(
    pieces: Sequence[tuple[memoryview, Batch]], low: int, end: int, with_headers: bool, desk: Desk
) -> Iterator[Columns]:
    """The records of these batches with offsets in [low, end), in parts; none is empty."""
    desk.clear()
    spans: list[tuple[int, ...]] = []
    parts: list[Batch] = []
    rows = 0
    for buffer, batch in pieces:
        plain, span = _opened(buffer, batch, desk)
        rows += span[ck.RECORDS]
        if spans and (desk.filled + len(plain) > PART_BYTES or rows > PART_ROWS):
            yield from _part(desk.all(), spans, parts, (low, end), with_headers)
            desk.clear()
            spans, parts, rows = [], [], span[ck.RECORDS]
        desk.put(plain)
        spans.append(span)
        parts.append(batch)
    if spans:
        yield from _part(desk.all(), spans, parts, (low, end), with_headers)


def _is_wanted(batch: Batch, low: int, end: int) -> bool:
    if batch.magic < 2:
        return True  # where it begins is not known yet
    holds_records = batch.count and not batch.is_control
    return bool(holds_records and batch.base_offset < end and batch.last_offset >= low)


# --- opening a batch -------------------------------------------------------------------------


def _opened(buffer: memoryview, batch: Batch, desk: Desk) -> tuple[compression.Buffer, tuple[int, ...]]:
    """The plain bytes of a batch's records, and the row that says how to read them."""
    if batch.magic < 2:
        return _opened_old(buffer, batch)
    if not crc_is_right(buffer, batch):
        raise corrupt(batch, "its checksum does not match")
    plain: compression.Buffer = payload_of(buffer, batch)
    if batch.codec:
        plain = compression.decompress(batch.codec, plain, room=desk)
    # Room is allotted by the count, so it must be believable.
    if batch.count * MIN_RECORD > len(plain):
        raise corrupt(batch, f"{batch.count} records in {len(plain)} bytes")
    fixed, kind = NO_FIXED_TIME, CREATE_TIME
    if batch.is_log_append_time:
        fixed, kind = batch.max_timestamp, LOG_APPEND_TIME
    first = batch.base_offset, batch.last_offset_delta, batch.base_timestamp
    return plain, (len(plain), batch.count, *first, fixed, kind)


def _opened_old(buffer: memoryview, batch: Batch) -> tuple[compression.Buffer, tuple[int, ...]]:
    """A message of the older formats, written anew as a batch would hold it, with the offsets that it has."""
    _, records = unwrapped(buffer, batch)
    base, last = records[0].offset, records[-1].offset
    plain = b"".join(
        encode_record(record.offset - base, record.timestamp, record.key, record.value, ()) for record in records
    )
    kind = NO_TYPE
    if batch.magic == 1:
        stamped = buffer[batch.position + _OLD_ATTRIBUTES_AT] & _OLD_LOG_APPEND_TIME
        kind = LOG_APPEND_TIME if stamped else CREATE_TIME
    return plain, (len(plain), len(records), base, last - base, 0, NO_FIXED_TIME, kind)


# --- columns ---------------------------------------------------------------------------------


def _part(
    data: Bytes,
    rows: list[tuple[int, ...]],
    batches: list[Batch],
    wanted: tuple[int, int],
    with_headers: bool,
) -> Iterator[Columns]:
    spans = np.array(rows, np.int64)
    counts, unwanted = np.zeros(ck.COUNTS, np.int64), np.zeros(ck.COUNTS, np.int64)
    bad = ck.measure(data, spans, *wanted, counts, unwanted)
    if bad >= 0:
        raise corrupt(batches[bad], "malformed or unordered records")
    if counts[ck.ROWS]:
        yield _filled(data, spans, wanted, counts, with_headers)


def _filled(data: Bytes, spans: Table, wanted: tuple[int, int], counts: Table, with_headers: bool) -> Columns:
    rows = int(counts[ck.ROWS])
    offset, time = np.empty(rows, np.int64), np.empty(rows, np.int64)
    time_type = np.empty(rows, np.int32)
    key, value = _room(rows, counts[ck.KEYS]), _room(rows, counts[ck.VALUES])
    low, end = wanted
    ck.fill(
        data,
        spans,
        low,
        end,
        offset,
        time,
        time_type,
        key.offsets,
        key.data,
        key.valid,
        value.offsets,
        value.data,
        value.valid,
    )
    return Columns(
        offset=offset,
        time=time,
        time_type=time_type,
        key=_blobs(key, counts[ck.NULL_KEYS]),
        value=_blobs(value, counts[ck.NULL_VALUES]),
        headers=_headers(data, spans, wanted, counts) if with_headers else None,
    )


def _headers(data: Bytes, spans: Table, wanted: tuple[int, int], counts: Table) -> Headers:
    rows, headers = int(counts[ck.ROWS]), int(counts[ck.HEADERS])
    offsets, valid = np.zeros(rows + 1, np.int32), np.zeros(rows + 7 >> 3, np.uint8)
    names, contents = _room(headers, counts[ck.NAMES]), _room(headers, counts[ck.CONTENTS])
    if headers:
        low, end = wanted
        ck.fill_headers(
            data,
            spans,
            low,
            end,
            offsets,
            valid,
            names.offsets,
            names.data,
            names.valid,
            contents.offsets,
            contents.data,
            contents.valid,
        )
    text = _blobs(names, 0)
    return Headers(
        offsets=offsets,
        valid=valid if counts[ck.BARE] else None,
        names=_as_text(text) if counts[ck.ODD_NAMES] else text,
        contents=_blobs(contents, counts[ck.NULL_CONTENTS]),
    )


class _Room(NamedTuple):
    offsets: Ints
    data: Bytes
    valid: Bytes


def _room(rows: int, size: int) -> _Room:
    return _Room(np.zeros(rows + 1, np.int32), np.empty(size, np.uint8), np.zeros(rows + 7 >> 3, np.uint8))


def _blobs(room: _Room, nulls: int) -> Blobs:
    return Blobs(offsets=room.offsets, data=room.data, valid=room.valid if nulls else None)


def _as_text(names: Blobs) -> Blobs:
    """What is no UTF-8 is replaced as Java's clients do it. One by one, but names beyond ASCII are rare."""
    raw, ends = names.data.tobytes(), names.offsets.tolist()
    texts = [raw[a:b].decode(errors="replace").encode() for a, b in itertools.pairwise(ends)]
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return Blobs(offsets=offsets, data=np.frombuffer(b"".join(texts), np.uint8), valid=None)
