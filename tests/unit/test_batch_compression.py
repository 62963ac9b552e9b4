"""Codecs: what we write is what brokers take, what we read is all that clients have written."""

from __future__ import annotations

import gzip
import os
import struct

import cramjam
import lz4.frame
import pytest

from isthmus.errors import WireError
from isthmus.wire.compression import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    Room,
    compress,
    decompress,
    decompress_old_lz4,
    xxh32_of_few,
)

TEXT = b"all work and no play makes " * 9000  # several blocks of any codec
NOISE = os.urandom(100_000)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["empty", "byte", "text", "noise"])
def test_what_was_compressed_comes_back(codec: int, data: bytes) -> None:
    for room in (None, Room()):
        assert bytes(decompress(codec, memoryview(compress(codec, data)), room=room)) == data


def test_snappy_is_written_in_the_java_librarys_frames() -> None:
    framed = compress(SNAPPY, TEXT)
    assert framed.startswith(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    (size,) = struct.unpack_from(">i", framed, 16)
    assert cramjam.snappy.decompress_raw_len(framed[20 : 20 + size]) == 32 << 10


def test_snappy_is_read_raw_too() -> None:
    assert bytes(decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))) == TEXT


def test_lz4_blocks_are_independent() -> None:
    info = lz4.frame.get_frame_info(compress(LZ4, TEXT))
    assert not info["block_linked"]
    assert info["block_size"] == 64 << 10


@pytest.mark.parametrize(
    "frame",
    [
        lz4.frame.compress(TEXT, block_linked=True, content_checksum=True),
        lz4.frame.compress(TEXT, block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=True),
        lz4.frame.compress(TEXT, block_checksum=True, store_size=False),
    ],
)
def test_lz4_is_read_in_every_dress(frame: bytes) -> None:
    assert bytes(decompress(LZ4, frame)) == TEXT


@pytest.mark.parametrize("store_size", [False, True])
def test_lz4_with_the_old_wrong_header_checksum(store_size: bool) -> None:
    frame = bytearray(lz4.frame.compress(TEXT, store_size=store_size))
    frame[14 if store_size else 6] ^= 0x55
    with pytest.raises(WireError):
        decompress(LZ4, frame)
    assert bytes(decompress_old_lz4(frame)) == TEXT


@pytest.mark.parametrize(("data", "known"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)])
def test_xxh32_has_its_published_values(data: bytes, known: int) -> None:
    assert xxh32_of_few(data) == known


def test_zstd_may_have_several_frames_and_gzip_several_members() -> None:
    assert bytes(decompress(ZSTD, compress(ZSTD, b"one") + compress(ZSTD, TEXT))) == b"one" + TEXT
    assert bytes(decompress(GZIP, gzip.compress(b"one") + gzip.compress(TEXT))) == b"one" + TEXT


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_goes_off_at_the_limit(codec: int) -> None:
    bomb = compress(codec, bytes(8 << 20))
    with pytest.raises(WireError) as caught:
        decompress(codec, bomb, 1 << 20)
    assert caught.value.code == "CORRUPT_BATCH"
    assert len(decompress(codec, bomb, 8 << 20)) == 8 << 20


def test_an_lz4_frame_that_claims_too_much_is_not_believed() -> None:
    frame = bytearray(lz4.frame.compress(TEXT, store_size=True))
    frame[6:14] = (1 << 62).to_bytes(8, "little")
    with pytest.raises(WireError):
        decompress_old_lz4(frame)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_cut_off_data_is_an_error(codec: int) -> None:
    whole = compress(codec, TEXT)
    for cut in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        with pytest.raises(WireError):
            decompress(codec, whole[:cut])


@pytest.mark.parametrize("codec", [5, 7, -1])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(WireError, match="codec"):
        decompress(codec, b"")
