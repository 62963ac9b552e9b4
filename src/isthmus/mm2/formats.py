"""MirrorMaker 2's internal records and the topics that hold them: heartbeats, offset syncs, checkpoints.

Owns their bytes and names. Must stay true: bytes equal those of Heartbeat.java, OffsetSync.java and Checkpoint.java,
because MirrorMaker 2's own tools read what is written here. All are big-endian; a string is its length in 16 bits and
UTF-8. Never write a null value into offset syncs or checkpoints: Java's readers do not look for one. Source offsets
of Connect are in `progress`; when what is written is left to the engine.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from isthmus.mm2.policy import HEARTBEATS
from isthmus.model import Flow

__all__ = ["HEARTBEATS", "Checkpoint", "Heartbeat", "OffsetSync", "checkpoints_topic", "offset_syncs_topic"]

_VERSION = 0
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_OFFSETS = struct.Struct(">qq")
_BEAT = struct.Struct(">hq")
_CHECKPOINT = struct.Struct(">hqq")


class Heartbeat(NamedTuple):
    """A sign of life of the flow between two clusters, by alias."""

    source: str
    target: str
    timestamp_ms: int

    def encode(self) -> tuple[bytes, bytes]:
        return _string(self.source) + _string(self.target), _BEAT.pack(_VERSION, self.timestamp_ms)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Heartbeat | None:
        """None if the bytes are not a heartbeat."""
        try:
            source, at = _read_string(key, 0)
            target, at = _read_string(key, at)
            _, timestamp_ms = _BEAT.unpack(value)
        except (struct.error, ValueError):
            return None
        return cls(source, target, timestamp_ms) if at == len(key) else None


class OffsetSync(NamedTuple):
    """The source record at `upstream` is the target record at `downstream`. Topic by the source's name."""

    topic: str
    partition: int
    upstream: int
    downstream: int

    def encode(self) -> tuple[bytes, bytes]:
        return _string(self.topic) + _INT32.pack(self.partition), _OFFSETS.pack(self.upstream, self.downstream)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> OffsetSync | None:
        try:
            topic, at = _read_string(key, 0)
            (partition,) = _INT32.unpack(key[at:])
            return cls(topic, partition, *_OFFSETS.unpack(value))
        except (struct.error, ValueError):
            return None


class Checkpoint(NamedTuple):
    """Where a group stood on the source, and where that is on the target. Topic by the target's name."""

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""

    def encode(self) -> tuple[bytes, bytes]:
        key = _string(self.group) + _string(self.topic) + _INT32.pack(self.partition)
        return key, _CHECKPOINT.pack(_VERSION, self.upstream, self.downstream) + _string(self.metadata)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Checkpoint | None:
        try:
            group, at = _read_string(key, 0)
            topic, at = _read_string(key, at)
            (partition,) = _INT32.unpack(key[at:])
            _, upstream, downstream = _CHECKPOINT.unpack_from(value)
            metadata, end = _read_string(value, _CHECKPOINT.size)
        except (struct.error, ValueError):
            return None
        return cls(group, topic, partition, upstream, downstream, metadata) if end == len(value) else None


def offset_syncs_topic(flow: Flow) -> str:
    """Named after the other cluster: on the source after the target, on the target after the source."""
    other = flow.target if flow.mm2_topics.offset_syncs_on == "source" else flow.source
    separator = _separator(flow)
    return f"mm2-offset-syncs{separator}{other.alias}{separator}internal"


def checkpoints_topic(flow: Flow) -> str:
    separator = _separator(flow)
    return f"{flow.source.alias}{separator}checkpoints{separator}internal"


def _separator(flow: Flow) -> str:
    return flow.naming.internal_separator or flow.naming.separator


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    """ValueError (also UnicodeDecodeError is one) where there is none."""
    (length,) = _INT16.unpack_from(data, at)
    end = at + _INT16.size + length
    if length < 0 or end > len(data):
        raise ValueError("string beyond the end")
    return data[at + _INT16.size : end].decode(), end
