"""Single values as people write them: broker addresses, amounts of bytes, instants, where to start.

Owns their spelling, for every format. Must stay true: what is not understood is a ValueError that says what is
meant; nothing is guessed, above all not a time zone.
"""

from __future__ import annotations

import datetime
import re

from isthmus.model import Start

_BROKER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(\d{1,5})")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMG]i?)?B?(?:/s)?")
_UNITS = {"": 1, "k": 1000, "K": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1 << 10, "ki": 1 << 10, "Mi": 1 << 20}
_UNITS["Gi"] = 1 << 30
_MOST = 1 << 62
START_MEANT = "earliest, latest or a time such as 2026-01-31T12:00:00Z is meant"


def broker(address: str) -> str:
    """`host:port`, checked; ValueError otherwise. `PLAINTEXT://host:port` is taken, too, as by Kafka's clients."""
    bare = address.rpartition("://")[2]
    found = _BROKER.fullmatch(bare)
    if not found or not 0 < int(found[2]) < 65536:
        raise ValueError(f"`{address}` is not a broker address: host:port is meant")
    return bare


def amount(value: object) -> int:
    """Bytes, as a number or a text such as `10MB` (a million each) or `10MiB` (2**20 each)."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("bytes per second are meant: a number, or a text such as 10MB")  # noqa: TRY004 for pydantic
    found = _AMOUNT.fullmatch(str(value).strip())
    if not found:
        raise ValueError("bytes per second are meant: a number, or a text such as 10MB")
    bytes_per_s = float(found[1]) * _UNITS[found[2] or ""]
    if bytes_per_s >= _MOST:  # also infinity, which hundreds of digits are
        raise ValueError("so many bytes per second cannot be meant")
    return int(bytes_per_s)


def milliseconds(value: object) -> int:
    """An instant, as milliseconds since 1970. A time without zone is refused: nobody knows when it is."""
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError(START_MEANT) from None
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        raise ValueError("a time needs a zone: for UTC write 2026-01-31T12:00:00Z")
    try:
        return round(value.timestamp() * 1000)
    except OverflowError:  # the first or the last day of the calendar, which is none in another zone
        raise ValueError(START_MEANT) from None


def start(value: object, topics: str = ".*") -> Start:
    """`earliest`, `latest` or an instant."""
    if isinstance(value, str) and value.strip() in ("earliest", "latest"):
        return Start(topics=topics, at=value.strip())
    if isinstance(value, str | datetime.date):
        instant = milliseconds(value)
        if instant < 0:
            raise ValueError("a time before 1970 cannot be one of Kafka's")
        return Start(topics=topics, at="timestamp", timestamp_ms=instant)
    raise ValueError(START_MEANT)


def spelled_instant(timestamp_ms: int) -> str:
    """The way back, for files that we write."""
    instant = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
