"""Connect's source-offset records, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.mm2.progress import (
    CONNECTOR,
    Position,
    java_partition,
    murmur2,
    parse_progress,
    progress_key,
    progress_value,
)

KEY = b'["MirrorSourceConnector",{"cluster":"east","partition":3,"topic":"orders"}]'
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def test_the_key_is_compact_and_in_connects_field_order() -> None:
    assert progress_key(CONNECTOR, "east", "orders", 3) == KEY


# Made with Jackson 2 (ObjectMapper.writeValueAsBytes), which Connect's JsonConverter uses.
@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("é", b"\xc3\xa9"),
        ("\N{CJK UNIFIED IDEOGRAPH-4E2D}", b"\xe4\xb8\xad"),
        ('"\\/', b'\\"\\\\/'),
        ("\b\t\n\f\r", rb"\b\t\n\f\r"),
        ("\x1f\x7f", b"\\u001F\x7f"),
        ("\N{GRINNING FACE}", rb"\uD83D\uDE00"),
    ],
)
def test_texts_are_written_as_jackson_does(text: str, written: bytes) -> None:
    assert (
        progress_key(CONNECTOR, text, "t", 0)
        == b'["MirrorSourceConnector",{"cluster":"' + written + b'","partition":0,"topic":"t"}]'
    )


def test_the_value_holds_the_last_offset() -> None:
    assert progress_value(0) == b'{"offset":0}'
    assert progress_value(2**63 - 1) == b'{"offset":9223372036854775807}'


@given(
    connector=TEXT,
    source=TEXT,
    topic=TEXT,
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
)
def test_what_was_written_is_read_again(connector: str, source: str, topic: str, partition: int, offset: int) -> None:
    expected = Position(connector=connector, source=source, topic=topic, partition=partition, offset=offset)
    assert parse_progress(progress_key(connector, source, topic, partition), progress_value(offset)) == expected


@pytest.mark.parametrize("value", [None, b'{"offset":-1}'])
def test_a_tombstone_or_a_negative_offset_resets(value: bytes | None) -> None:
    position = parse_progress(KEY, value)
    assert position is not None
    assert position.offset is None


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"{}",
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"a","targetClusterAlias":"b"}]',
        b'["MirrorCheckpointConnector",{"partition":0,"topic":"t","group":"g"}]',
        b'["MirrorSourceConnector",{"cluster":"east","partition":true,"topic":"orders"}]',
        b'["MirrorSourceConnector",{"cluster":"east","partition":-1,"topic":"orders"}]',
        b'["MirrorSourceConnector",{"cluster":"east","topic":"orders","partition":3}]',
        KEY.replace(b",", b", "),
        KEY[:-1],
        b"[" * 100_000,
    ],
)
def test_foreign_and_damaged_keys_are_not_positions(key: bytes) -> None:
    assert parse_progress(key, b'{"offset":1}') is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"7",
        b"null",
        b"{}",
        b'{"offset":"7"}',
        b'{"offset":true}',
        b'{"offset":1.5}',
        b'{"offset":9223372036854775808}',
    ],
)
def test_damaged_values_are_not_positions(value: bytes) -> None:
    assert parse_progress(KEY, value) is None


@given(key=st.binary(max_size=64), value=st.binary(max_size=32))
def test_no_bytes_make_reading_fail(key: bytes, value: bytes) -> None:
    parse_progress(key, value)
    parse_progress(KEY, value)


# From Kafka's own UtilsTest.
@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(text: str, hashed: int) -> None:
    assert murmur2(text.encode()) == hashed


def test_the_partition_is_the_positive_hash_modulo_the_count() -> None:
    assert java_partition(b"21", 25) == (-973932308 & 0x7FFFFFFF) % 25
    assert java_partition(b"abc", 25) == 479470107 % 25


@given(key=st.binary(max_size=40), partitions=st.integers(1, 1000))
def test_a_partition_is_always_one_of_those_there(key: bytes, partitions: int) -> None:
    assert 0 <= java_partition(key, partitions) < partitions
