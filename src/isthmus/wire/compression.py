"""The codecs of record batches, by their number: 1 gzip, 2 snappy, 3 lz4, 4 zstd.

Must stay true: what we write is what every broker reads (snappy in the Java library's framing,
lz4 in independent blocks), and whatever bytes are read, the answer is the plain data or a
`WireError`, never more than `limit` bytes of memory filled by a few hostile ones.

Libraries were chosen by measurement (2 cores, 4 KB and 1 MB of text): lz4.frame beats cramjam
fourfold on small lz4 frames and tenfold in compressing; but it copies what it reads, so whoever has
a `Room` gets lz4 block by block straight into it (JSON batches of 40 KB: 3.6 GB/s against 1.4; of
650 KB: 3.0 against 2.4). cramjam reads gzip as fast as zlib, and has snappy and zstd too. All of
them release the GIL. None knows what a record is.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam
import lz4.frame

from isthmus.errors import WireError

Buffer = bytes | bytearray | memoryview

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
LIMIT = 1 << 30  # a broker takes at most 2 GiB in a batch; sane ones hold a few MiB

_GZIP_LEVEL = 6  # what the Java client uses, as is zstd's 3
_ZSTD_LEVEL = 3
_WITH_GZIP_HEADER = 31  # zlib's way to say "window of 15 bits, gzip framing"
_SNAPPY_BLOCK = 32 << 10
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_LZ4_MAX_RATIO = 255  # one more byte of a match length stands for at most 255 bytes
_LZ4_HEADER = 7
_LZ4_SIZE = 0x7FFFFFFF  # the other bit: not compressed
_WORD = struct.Struct("<I")
_USUAL_RATIO = 64


class Room:
    """Memory to decompress into, used again and again: what it holds is gone with the next batch.

    Fresh memory costs more than filling it: the kernel gives it page by page, and clears each.
    """

    def __init__(self) -> None:
        import numpy as np  # loaded by those who need it: a command that only looks does not

        self._memory = np.empty(0, np.uint8)

    def of(self, size: int) -> memoryview:
        if len(self._memory) < size:
            import numpy as np

            self._memory = np.empty(size, np.uint8)
        return self._memory.data[:size]


def compress(codec: int, data: Buffer) -> bytes:
    """The data as a broker and all clients can read it."""
    return _COMPRESS[codec](data)


def decompress(codec: int, data: Buffer, limit: int = LIMIT, room: Room | None = None) -> Buffer:
    """The plain data, perhaps in `room`; `WireError` if it is damaged or would be more than `limit` bytes."""
    known = _DECOMPRESS.get(codec)
    if known is None:
        raise WireError(f"Unknown compression codec {codec}", code="CORRUPT_BATCH")
    try:
        return known(data, limit, room)
    except _FAILURES as error:
        raise WireError(f"Cannot decompress a record batch: {error}", code="CORRUPT_BATCH") from error


def decompress_old_lz4(data: Buffer, limit: int = LIMIT) -> Buffer:
    """An lz4 frame of message format 0, whose header checksum Kafka computed over too much."""
    frame = bytearray(data)
    if len(frame) < 7:
        raise WireError("Cannot decompress a message set: no lz4 frame", code="CORRUPT_BATCH")
    at = 14 if frame[4] & 0x08 else 6
    frame[at : at + 1] = bytes([xxh32_of_few(bytes(frame[4:at])) >> 8 & 0xFF])
    return decompress(LZ4, frame, limit)


# --- gzip ------------------------------------------------------------------------------------


def _gzip_compress(data: Buffer) -> bytes:
    stream = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _WITH_GZIP_HEADER)
    return stream.compress(data) + stream.flush()


def _gzip_decompress(data: Buffer, limit: int, room: Room | None) -> Buffer:
    return _into_room(cramjam.gzip.decompress_into, data, limit, room)


# --- snappy ----------------------------------------------------------------------------------


def _snappy_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _SNAPPY_BLOCK]))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def _snappy_decompress(data: Buffer, limit: int, _: Room | None) -> Buffer:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _snappy_block(view, limit)
    if len(view) < len(_XERIAL_HEADER):
        raise ValueError("a snappy header that is cut off")
    return b"".join(_snappy_blocks(view[len(_XERIAL_HEADER) :], limit))


def _snappy_blocks(view: memoryview, limit: int) -> Iterator[bytes]:
    at = 0
    while at < len(view):
        (size,) = struct.unpack_from(">i", view, at)
        at += 4
        if size < 0 or size > len(view) - at:
            raise ValueError("a snappy block that leads out of the data")
        block = _snappy_block(view[at : at + size], limit)
        limit -= len(block)
        yield block
        at += size


def _snappy_block(view: memoryview, limit: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(view) > limit:
        raise ValueError(f"more than {limit} bytes")
    return bytes(cramjam.snappy.decompress_raw(view))


# --- lz4 -------------------------------------------------------------------------------------


# Negative levels trade ratio for speed: 980 MB/s at 0.388 against 750 MB/s at 0.371 (JSON records), and a merged
# batch is still smaller than the many small ones it came from.
_LZ4_LEVEL = -2


def _lz4_compress(data: Buffer) -> bytes:
    # Brokers refuse blocks that refer to earlier ones.
    frame: bytes = lz4.frame.compress(
        data,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
        compression_level=_LZ4_LEVEL,
    )
    return frame


def _lz4_decompress(data: Buffer, limit: int, room: Room | None) -> Buffer:
    if room is not None and (most := _LZ4_USUAL.get(bytes(data[:_LZ4_HEADER]))):
        blocks = _lz4_blocks(memoryview(data))
        if blocks is not None:
            return _lz4_from_blocks(blocks, most, room.of(min(limit, len(blocks) * most)))
    claims_size = len(data) >= 14 and data[4] & 0x08
    if claims_size and int.from_bytes(data[6:14], "little") > limit:
        raise ValueError(f"more than {limit} bytes")
    if len(data) * _LZ4_MAX_RATIO <= limit:
        plain: bytes = lz4.frame.decompress(data)
        return plain
    stream = lz4.frame.LZ4FrameDecompressor()
    plain = stream.decompress(data, max_length=limit)
    if not stream.eof:
        raise ValueError("an lz4 frame that is cut off or too large")
    return plain


def _lz4_blocks(view: memoryview) -> list[tuple[bool, memoryview]] | None:
    """Every block of a frame without checksums, and whether it is compressed; None: not one whole frame."""
    found: list[tuple[bool, memoryview]] = []
    at = _LZ4_HEADER
    while at + 4 <= len(view):
        (word,) = _WORD.unpack_from(view, at)
        at += 4
        if not word:
            return found if at == len(view) else None
        size = word & _LZ4_SIZE
        found.append((size == word, view[at : at + size]))
        at += size
    return None


def _lz4_from_blocks(blocks: list[tuple[bool, memoryview]], most: int, out: memoryview) -> memoryview:
    """A block holds at most `most` bytes."""
    at = 0
    for is_compressed, block in blocks:
        room = min(most, len(out) - at)
        if is_compressed:
            at += cramjam.lz4.decompress_block_into(block, out[at : at + room], output_len=room)
        elif len(block) <= room:
            out[at : at + len(block)] = block
            at += len(block)
        else:
            raise ValueError("an lz4 block that is too large")
    return out[:at]


def xxh32_of_few(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes, as lz4 frame headers are."""
    h = 374761393 + len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        h = _rotate(h + word * 3266489917, 17) * 668265263
    for byte in data[whole:]:
        h = _rotate(h + byte * 374761393, 11) * 2654435761
    h &= 0xFFFFFFFF
    h = (h ^ h >> 15) * 2246822519 & 0xFFFFFFFF
    h = (h ^ h >> 13) * 3266489917 & 0xFFFFFFFF
    return h ^ h >> 16


def _rotate(word: int, bits: int) -> int:
    word &= 0xFFFFFFFF
    return (word << bits | word >> 32 - bits) & 0xFFFFFFFF


# Headers of frames in independent blocks without checksums or sizes, and how much a block of them holds.
_LZ4_USUAL = {
    b"\x04\x22\x4d\x18" + sizes + bytes([xxh32_of_few(sizes) >> 8 & 0xFF]): (64 << 10) << 2 * step
    for step, sizes in enumerate((b"\x60\x40", b"\x60\x50", b"\x60\x60", b"\x60\x70"))
}


# --- zstd ------------------------------------------------------------------------------------


def _zstd_compress(data: Buffer) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def _zstd_decompress(data: Buffer, limit: int, room: Room | None) -> Buffer:
    return _into_room(cramjam.zstd.decompress_into, data, limit, room)


def _into_room(decompress_into: Callable[..., int], data: Buffer, limit: int, room: Room | None) -> memoryview:
    """All members or frames of a stream that does not say its size: give it room generously.

    Memory that is not written to is not used either: a guess far too high costs nothing, one too
    low costs a second try.
    """
    size = min(limit, len(data) * _USUAL_RATIO + (16 << 10))
    try:
        return _into(decompress_into, data, (room or Room()).of(size))
    except cramjam.DecompressionError:
        if size == limit:
            raise
    return _into(decompress_into, data, Room().of(limit))  # of its own: a kept one would keep all of that


def _into(decompress_into: Callable[..., int], data: Buffer, out: memoryview) -> memoryview:
    return out[: decompress_into(data, out)]


# --- by number -------------------------------------------------------------------------------

_FAILURES = (cramjam.DecompressionError, zlib.error, struct.error, RuntimeError, ValueError, MemoryError)

_COMPRESS: dict[int, Callable[[Buffer], bytes]] = {
    NONE: bytes,
    GZIP: _gzip_compress,
    SNAPPY: _snappy_compress,
    LZ4: _lz4_compress,
    ZSTD: _zstd_compress,
}

_DECOMPRESS: dict[int, Callable[[Buffer, int, Room | None], Buffer]] = {
    NONE: lambda data, _, __: data,
    GZIP: _gzip_decompress,
    SNAPPY: _snappy_decompress,
    LZ4: _lz4_decompress,
    ZSTD: _zstd_decompress,
}
