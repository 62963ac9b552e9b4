"""Progress as Kafka Connect keeps it: the bytes of source-offset records, and where Java would put them.

Owns encoding and decoding of records in `mm2-offsets.<source>.internal`. Must stay true: Connect looks
positions up by the exact bytes of the key, so a key must come out as Jackson writes it: fields in the order
cluster, partition, topic; no blanks; BMP characters as UTF-8. A position is the offset of the LAST record
replicated, not of the next. Reading and writing the topic is left to the engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from isthmus.model import TopicPartition

CONNECTOR = "MirrorSourceConnector"

_MASK = 0xFFFFFFFF
_LONGS = range(1 << 63)
_INTS = range(1 << 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One decoded record. `offset` None means that the position was reset: start at the beginning.

    `mark` and `epoch` are our own additions, which MirrorMaker 2 reads over: see `progress_value`.
    """

    connector: str
    source: str
    topic: str
    partition: int
    offset: int | None
    mark: str = ""
    epoch: str = ""


def progress_key(connector: str, source_alias: str, topic: str, partition: int) -> bytes:
    where = f'{{"cluster":{_quote(source_alias)},"partition":{partition},"topic":{_quote(topic)}}}'
    return f"[{_quote(connector)},{where}]".encode()


def progress_value(last_offset: int, mark: str = "", epoch: str = "") -> bytes:
    """`last_offset` is the last record replicated; MirrorMaker 2 resumes one after it.

    `mark` tells by what to know the source's log again, where topics have no ids; `epoch` under which leader the last
    record was written. Connect takes further fields in a value as long as they are plain text or numbers.
    """
    further = (f',"{name}":{_quote(text)}' for name, text in (("mark", mark), ("epoch", epoch)) if text)
    return f'{{"offset":{last_offset}{"".join(further)}}}'.encode()


def progress_pairs(
    connector: str, source_alias: str, positions: Mapping[TopicPartition, int | None], partitions: int
) -> dict[int, list[tuple[bytes, bytes | None]]]:
    """Records that store these next offsets, by the partition of the topic that they belong into; None forgets one."""
    grouped: dict[int, list[tuple[bytes, bytes | None]]] = {}
    for tp, offset in positions.items():
        key = progress_key(connector, source_alias, tp.topic, tp.partition)
        # Progress names the last record that was copied; before offset 0 there is none.
        value = progress_value(offset - 1) if offset else None
        grouped.setdefault(java_partition(key, partitions), []).append((key, value))
    return grouped


def parse_progress(key: bytes, value: bytes | None) -> Position | None:
    """The position in a record; None if it is not MirrorMaker 2's or is damaged."""
    named = _parse_key(key)
    if named is None:
        return None
    connector, source, topic, partition = named
    offset = None
    if value is not None:
        offset = _parse_offset(value)
        if offset is None:
            return None
    # A negative offset is Connect's "uncommitted": as good as a tombstone.
    known = offset if offset is not None and offset >= 0 else None
    mark, epoch = ("", "") if known is None or value is None else (_text(value, "mark"), _text(value, "epoch"))
    return Position(
        connector=connector, source=source, topic=topic, partition=partition, offset=known, mark=mark, epoch=epoch
    )


def _parse_key(key: bytes) -> tuple[str, str, str, int] | None:
    match _json(key):
        case [str(connector), {"cluster": str(source), "partition": int(partition), "topic": str(topic)}]:
            # MirrorMaker 2 would not find a key in any other spelling, so neither do we.
            canonical = partition in _INTS and _is_key_of(key, connector, source, topic, partition)
            return (connector, source, topic, partition) if canonical else None
    return None


def _is_key_of(key: bytes, connector: str, source: str, topic: str, partition: int) -> bool:
    try:
        return progress_key(connector, source, topic, partition) == key
    except UnicodeEncodeError:  # half of a pair of surrogates, which JSON can spell and UTF-8 cannot
        return False


def _parse_offset(value: bytes) -> int | None:
    match _json(value):
        case {"offset": bool()}:
            return None
        case {"offset": int(offset)} if offset < 0 or offset in _LONGS:
            return offset
    return None


def _text(value: bytes, name: str) -> str:
    match _json(value):
        case dict(fields):
            found = fields.get(name)
            return found if isinstance(found, str) else ""
    return ""


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):  # undecodable, not JSON, or nested to make us fall over
        return None


_NAMED_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def _quote(text: str) -> str:
    return f'"{"".join(map(_character, text))}"'


def _character(char: str) -> str:
    if char in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[char]
    if ord(char) < 0x20:
        return f"\\u{ord(char):04X}"
    if ord(char) > 0xFFFF:  # Jackson writes what takes two Java chars as two escapes
        high, low = divmod(ord(char) - 0x10000, 0x400)
        return f"\\u{0xD800 + high:04X}\\u{0xDC00 + low:04X}"
    return char


def java_partition(key: bytes, partitions: int) -> int:
    """The partition that Kafka's Java producer picks for a key, which is where Connect will write it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Kafka's variant of 32-bit MurmurHash2, as the signed number that Java sees."""
    m = 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & _MASK
        k = (k ^ k >> 24) * m & _MASK
        h = (h * m & _MASK) ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & _MASK
    h = (h ^ h >> 13) * m & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h
