"""Progress as Kafka Connect keeps it: the bytes of source-offset records, and where Java would put them.

Owns encoding and decoding of records in `mm2-offsets.<source>.internal`. Must stay true: Connect looks
positions up by the exact bytes of the key, so a key must come out as Jackson writes it: fields in the order
cluster, partition, topic; no blanks; BMP characters as UTF-8. A position is the offset of the LAST record
replicated, not of the next. Reading and writing the topic is left to the engine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

CONNECTOR = "MirrorSourceConnector"

_MASK = 0xFFFFFFFF
_LONGS = range(1 << 63)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One decoded record. `offset` None means that the position was reset: start at the beginning.

    `mark` is our own addition, which MirrorMaker 2 reads over: see `progress_value`.
    """

    connector: str
    source: str
    topic: str
    partition: int
    offset: int | None
    mark: str = ""


def progress_key(connector: str, source_alias: str, topic: str, partition: int) -> bytes:
    where = f'{{"cluster":{_quote(source_alias)},"partition":{partition},"topic":{_quote(topic)}}}'
    return f"[{_quote(connector)},{where}]".encode()


def progress_value(last_offset: int, mark: str = "") -> bytes:
    """`last_offset` is the last record replicated; MirrorMaker 2 resumes one after it.

    `mark` tells by what to know the source's log again, where topics have no ids. Connect takes further fields in a
    value as long as they are plain text or numbers.
    """
    return b'{"offset":%d,"mark":%s}' % (last_offset, _quote(mark).encode()) if mark else b'{"offset":%d}' % last_offset


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
    mark = "" if known is None or value is None else _parse_mark(value)
    return Position(connector=connector, source=source, topic=topic, partition=partition, offset=known, mark=mark)


def _parse_key(key: bytes) -> tuple[str, str, str, int] | None:
    match _json(key):
        case [str(connector), {"cluster": str(source), "partition": int(partition), "topic": str(topic)}]:
            # MirrorMaker 2 would not find a key in any other spelling, so neither do we.
            canonical = partition >= 0 and progress_key(connector, source, topic, partition) == key
            return (connector, source, topic, partition) if canonical else None
    return None


def _parse_offset(value: bytes) -> int | None:
    match _json(value):
        case {"offset": bool()}:
            return None
        case {"offset": int(offset)} if offset < 0 or offset in _LONGS:
            return offset
    return None


def _parse_mark(value: bytes) -> str:
    match _json(value):
        case {"mark": str(mark)}:
            return mark
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
