"""The v2 record batch as bytes: find it, judge it, restamp it, seal a new one.

Must stay true:
  * A batch that is passed on keeps its payload untouched, and its new CRC is derived from the old
    one, never from the payload: damage done anywhere between the source broker and the target
    broker still fails the target's check.
  * A batch that is re-encoded has had its CRC checked first, for a new CRC would bless damage.
  * What goes out is what a broker accepts from a client: base offset 0, one dense run of offset
    deltas, no attribute bits but the codec's and the transactional one.

Records are copied here, never interpreted; `records` and `legacy` build bodies in other ways.
Which batches to drop, merge or pass on is decided by the lane.

The compiled loops (`kernels`) take seconds to load, so they are loaded by the functions that need them: a command that
reads a few small records (`records`) starts without. Lanes and drivers load them at their start (`offsets.runs`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from crc32c import crc32c

from isthmus.errors import WireError
from isthmus.wire import compression

if TYPE_CHECKING:
    from isthmus.wire.kernels import Bytes, Table

HEADER_SIZE = 61
CODEC_BITS, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
MAX_SEQUENCE = 2**31 - 1
_MIN_RECORD, _NO_FIXED_TIME = 7, -(2**63)  # as in `kernels`; a test holds them together

# The CRC covers the tail and the payload: offsets and leader epoch stay free for brokers to set.
_LEAD = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_TAIL = struct.Struct(">hiqqqhii")  # attributes ... record count
_TAIL_AT = _LEAD.size


class Batch(NamedTuple):
    """One batch found in a buffer. For magic 0 and 1 only position, size and offset are known."""

    position: int
    size: int
    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants here

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_BITS

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_dense(self) -> bool:
        """No holes left by compaction, at least one record: may be passed on as it is."""
        return self.count == self.last_offset_delta + 1 and self.count > 0


class Stamp(NamedTuple):
    """Whose write a batch is: producer, its epoch, and the sequence of the batch's first record."""

    producer_id: int
    producer_epoch: int
    sequence: int


NO_STAMP = Stamp(-1, -1, -1)


class Body(NamedTuple):
    """Records encoded by us, dense, not yet stamped.

    `runs` are the dense runs of source offsets in it, in order, as (first offset, length).
    """

    payload: bytes
    codec: int
    count: int  # type: ignore[assignment]  # as above
    base_timestamp: int
    max_timestamp: int
    runs: tuple[tuple[int, int], ...]


# --- finding ---------------------------------------------------------------------------------


def find_batches(buffer: memoryview) -> list[Batch]:
    """All whole batches of a fetched buffer, in order; a batch cut off at the end is left out."""
    import numpy as np

    from isthmus.wire import kernels

    data = np.frombuffer(buffer, np.uint8)
    table = np.empty((len(data) // 4096 + 16, kernels.COLUMNS), np.int64)
    found, malformed_at = kernels.index_batches(data, table)
    if malformed_at >= 0:
        raise malformed(buffer, malformed_at)
    if found > len(table):
        table = np.empty((found, kernels.COLUMNS), np.int64)
        kernels.index_batches(data, table)
    return list(map(Batch._make, table[:found].tolist()))


def malformed(buffer: memoryview, position: int) -> WireError:
    """The error for bytes that are no header of a batch."""
    offset = int.from_bytes(buffer[position : position + 8], "big", signed=True)
    return WireError(f"Malformed record batch header at byte {position}, offset {offset}", code="CORRUPT_BATCH")


def corrupt(batch: Batch, what: str) -> WireError:
    """The error for a batch whose bytes are not what they should be."""
    return WireError(
        f"Corrupt record batch at offset {batch.base_offset}: {what}",
        hint="The source broker's copy may be damaged; compare it with another replica.",
        code="CORRUPT_BATCH",
    )


# --- judging ---------------------------------------------------------------------------------


def payload_of(buffer: memoryview, batch: Batch) -> memoryview:
    """What follows the header: the records, compressed as the codec says. No copy."""
    return buffer[batch.position + HEADER_SIZE : batch.position + batch.size]


def crc_is_right(buffer: memoryview, batch: Batch) -> bool:
    """Whether the batch's bytes are those that its CRC was made for (reads all of them)."""
    covered = buffer[batch.position + _TAIL_AT : batch.position + batch.size]
    return bool(crc32c(covered) == batch.crc)


def damaged_span(buffer: memoryview, first: int) -> tuple[int, int] | None:
    """Offsets of the first batch with a wrong CRC, else of the first one, at this offset or later, half-open.

    By headers alone, since what is damaged cannot be read; None where a header makes no sense, either.
    """
    at, earliest = 0, None
    while at + HEADER_SIZE <= len(buffer):
        base, length, magic = struct.unpack_from(">qi4xb", buffer, at)
        crc, delta = struct.unpack_from(">I2xi", buffer, at + 17)
        if magic != 2 or delta < 0 or length < HEADER_SIZE - 12 or at + 12 + length > len(buffer):
            break
        past = base + delta + 1
        if past > first:
            span = (max(base, first), past)
            if crc32c(buffer[at + _TAIL_AT : at + 12 + length]) != crc:
                return span
            earliest = earliest or span
        at += 12 + length
    return earliest


def marker_of(buffer: memoryview, batch: Batch) -> int | None:
    """0 if this control batch aborts a transaction, 1 if it commits one, None if neither.

    The cleaner leaves control batches without any record: those end nothing any more.
    """
    import numpy as np

    from isthmus.wire import kernels

    if batch.count == 0:
        return None
    payload = payload_of(buffer, batch)
    if batch.codec:
        payload = memoryview(compression.decompress(batch.codec, payload))
    kind = kernels.marker_type(np.frombuffer(payload, np.uint8))
    if kind < 0:
        raise corrupt(batch, "a control record without a type")
    return kind if kind <= 1 else None


# --- stamping --------------------------------------------------------------------------------


def next_sequence(sequence: int, count: int) -> int:
    """The sequence after `count` more records; it wraps from 2^31-1 to 0."""
    return (sequence + count) & MAX_SEQUENCE


def restamp(buffer: memoryview, batch: Batch, stamp: Stamp) -> bytes:
    """A new header for the untouched payload of a dense batch of records.

    CRCs are affine, so with H the covered part of the header and P the payload:
    crc(H_new P) = crc(H_old P) ^ shift(crc(H_old) ^ crc(H_new), len(P)).

    The log-append-time bit is cleared without a change of record times: re-encode where they
    matter. Clearing the delete-horizon bit is safe: deltas stay relative to the base timestamp.
    """
    from isthmus.wire import kernels

    if batch.count != batch.last_offset_delta + 1 or batch.attributes & CONTROL or not batch.count:
        _refuse(batch)
    tail = _TAIL.pack(
        batch.attributes & CODEC_BITS | TRANSACTIONAL,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        *stamp,
        batch.count,
    )
    start = batch.position + _TAIL_AT
    difference = crc32c(buffer[start : start + _TAIL.size]) ^ crc32c(tail)
    crc = batch.crc ^ kernels.shift_crc(difference, batch.size - HEADER_SIZE)
    return _LEAD.pack(0, batch.size - 12, -1, 2, crc) + tail


def _refuse(batch: Batch) -> NoReturn:
    # A mistake of ours, not of a broker: such a batch must be dropped or re-encoded.
    raise ValueError(f"the batch at offset {batch.base_offset} cannot be passed on as it is")


def seal(body: Body, stamp: Stamp, transactional: bool = True) -> bytes:
    """The header for a body of our own making; a broker takes it followed by `body.payload`."""
    tail = _TAIL.pack(
        body.codec | (TRANSACTIONAL if transactional else 0),
        body.count - 1,
        body.base_timestamp,
        body.max_timestamp,
        *stamp,
        body.count,
    )
    crc = crc32c(body.payload, crc32c(tail))
    length = HEADER_SIZE - 12 + len(body.payload)
    return _LEAD.pack(0, length, -1, 2, crc) + tail


# --- re-encoding -----------------------------------------------------------------------------


def reencode(pieces: Sequence[tuple[memoryview, Batch]], *, from_offset: int, codec: int | None = None) -> Body | None:
    """The records of these v2 batches, in offset order, as one dense body in the codec given, or in the first's.

    Keys, values, headers and times are what a consumer would see at the source: records of a
    log-append-time batch get that time for their own. Records below `from_offset` are dropped,
    holes closed; None if nothing remains.
    """
    import numpy as np

    from isthmus.wire import kernels

    if not pieces:
        return None
    plains = [_checked_plain(buffer, batch) for buffer, batch in pieces]
    total = sum(batch.count for _, batch in pieces)
    joined = np.frombuffer(plains[0] if len(plains) == 1 else b"".join(plains), np.uint8)
    spans = np.array(list(map(_span, plains, pieces)), np.int64)
    out = np.empty(len(joined) + kernels.MAX_GROWTH * total + 64, np.uint8)
    runs = np.empty((total, 2), np.int64)
    state = np.zeros(kernels.STATE_SIZE, np.int64)
    bad = kernels.merge_records(joined, spans, from_offset, out, runs, state)
    if bad >= 0:
        raise corrupt(pieces[bad][1], "malformed or unordered records")
    return _merged_body(pieces[0][1].codec if codec is None else codec, out, runs, state)


def recompressed(body: Body, codec: int) -> Body:
    """The same records in another codec."""
    plain = compression.decompress(body.codec, body.payload) if body.codec else body.payload
    return body._replace(payload=compression.compress(codec, plain), codec=codec)


def _merged_body(codec: int, out: Bytes, runs: Table, state: Table) -> Body | None:
    size, count, run_count, first_time, highest_time = state.tolist()
    if not count:
        return None
    payload = compression.compress(codec, out.data[:size])
    run_pairs = tuple((first, length) for first, length in runs[:run_count].tolist())
    return Body(payload, codec, count, first_time, highest_time, run_pairs)


def _checked_plain(buffer: memoryview, batch: Batch) -> compression.Buffer:
    if batch.magic != 2 or batch.attributes & CONTROL:
        _refuse(batch)
    if not crc_is_right(buffer, batch):
        raise corrupt(batch, "its checksum does not match")
    plain: compression.Buffer = payload_of(buffer, batch)
    if batch.attributes & CODEC_BITS:
        plain = compression.decompress(batch.attributes & CODEC_BITS, plain)
    # Room is allotted by the count, so it must be believable.
    if batch.count * _MIN_RECORD > len(plain):
        raise corrupt(batch, f"{batch.count} records in {len(plain)} bytes")
    return plain


def _span(plain: compression.Buffer, piece: tuple[memoryview, Batch]) -> tuple[int, ...]:
    batch = piece[1]
    fixed = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME else _NO_FIXED_TIME
    return (
        len(plain),
        batch.count,
        batch.base_offset,
        batch.last_offset_delta,
        batch.base_timestamp,
        fixed,
    )
