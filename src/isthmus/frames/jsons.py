"""Partitions, offsets and times as Spark's Kafka source writes them in JSON.

    {"orders": [0, 1]}                 partitions
    {"orders": {"0": 23, "1": -2}}     offsets; -2 stands for the earliest, -1 for the latest
    {"orders": {"0": 1700000000000}}   times in milliseconds

Must stay true: a text that means anything else is a ConfigError that names the option; keys are sorted on the way out,
so equal offsets are equal texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from isthmus.errors import ConfigError
from isthmus.model import TopicPartition

EARLIEST, LATEST = -2, -1
Offsets = dict[TopicPartition, int]

_PARTITIONS = 'such as {"orders": [0, 1]}'
_PLACES = 'such as {"orders": {"0": 23, "1": -2}}'


def partitions(text: str, option: str) -> tuple[TopicPartition, ...]:
    """The partitions of `assign`."""
    found: dict[TopicPartition, None] = {}
    for topic, numbers in _topics(text, option, _PARTITIONS):
        if not isinstance(numbers, list) or not numbers:
            raise _wrong(option, f"`{topic}` has no list of partitions", _PARTITIONS)
        for number in numbers:
            if not _is_whole(number) or number < 0:
                raise _wrong(option, f"`{topic}` has a partition that is no number", _PARTITIONS)
            found[TopicPartition(topic, number)] = None
    return tuple(found)


def offsets(text: str, option: str) -> Offsets:
    """Offsets by partition; EARLIEST and LATEST stand for themselves."""
    found = dict(_places(text, option))
    for tp, offset in found.items():
        if offset < EARLIEST:
            raise _wrong(option, f"{tp}: {offset} is no offset", "-2 is the earliest, -1 the latest")
    return found


def times(text: str, option: str) -> Offsets:
    """Milliseconds by partition."""
    found = dict(_places(text, option))
    for tp, time in found.items():
        if time < 0:
            raise _wrong(option, f"{tp}: {time} is no time", "milliseconds since 1970 are meant")
    return found


def written(found: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The offsets as they go into a checkpoint."""
    out: dict[str, dict[str, int]] = {}
    for tp in sorted(found):
        out.setdefault(tp.topic, {})[str(tp.partition)] = found[tp]
    return out


def read(stored: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The offsets of a checkpoint, ours or that of Spark's own Kafka source."""
    return {TopicPartition(topic, int(n)): int(at) for topic, places in stored.items() for n, at in places.items()}


def _places(text: str, option: str) -> Iterator[tuple[TopicPartition, int]]:
    for topic, places in _topics(text, option, f"earliest, latest or JSON is meant, {_PLACES}"):
        if not isinstance(places, dict) or not places:
            raise _wrong(option, f"`{topic}` has no partitions", _PLACES)
        for number, place in places.items():
            if not number.isdecimal() or not _is_whole(place):
                raise _wrong(option, f"`{topic}` has a partition or a place that is no number", _PLACES)
            yield TopicPartition(topic, int(number)), place


def _topics(text: str, option: str, meant: str) -> Iterator[tuple[str, object]]:
    try:
        found = json.loads(text)
    except ValueError:
        raise _wrong(option, "it is no JSON", meant) from None
    if not isinstance(found, dict) or not found:
        raise _wrong(option, "it names no topic", meant)
    yield from found.items()


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(option: str, what: str, hint: str) -> ConfigError:
    return ConfigError(what, where=f"option `{option}`", hint=hint, code="OPTION")
