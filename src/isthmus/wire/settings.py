"""Settings of topics: what each is, whose value that is, and changing single ones. Returns plain values.

Topics are asked and altered in batches, so that thousands cost few requests and no answer holds the event loop
for long. What must stay true: a refusal concerns its topic only, and is handed back beside what succeeded; a
secret's value is never kept. What ought to be changed is decided by the engine.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest

from isthmus.errors import BrokerRefused, WireError
from isthmus.wire.admin import ask_controller, refusal
from isthmus.wire.cluster import Client
from isthmus.wire.link import Answer
from isthmus.wire.unread import Unread

# Whose value it is, as DescribeConfigs tells.
SET_ON_TOPIC = 1
STATIC_BROKER = 4
DEFAULT = 5

_TOPIC_RESOURCE = 2
_BATCH = 200  # topics per request: about 30 ms to read an answer
_SET, _DELETE = 0, 1


class Setting(NamedTuple):
    value: str | None
    origin: int  # SET_ON_TOPIC, STATIC_BROKER, DEFAULT, or another of Kafka's numbers
    read_only: bool = False
    sensitive: bool = False


class Alteration(NamedTuple):
    """One setting to change; `value` None removes what was set on the topic."""

    name: str
    value: str | None


Settings = Mapping[str, Setting]


class Described(NamedTuple):
    topics: dict[str, Settings]
    refused: dict[str, BrokerRefused]


class Memory:
    """Answers of the last round: those that come again, byte by byte, need not be read again."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, ...], tuple[bytes, Described]] = {}
        self._next: dict[tuple[str, ...], tuple[bytes, Described]] = {}

    def begin(self) -> None:
        """Of topics that are not asked for any more, nothing is kept."""
        self._answers, self._next = self._next, {}

    def of(self, names: Sequence[str], body: bytes) -> Described | None:
        known = self._answers.get(tuple(names))
        return known[1] if known is not None and known[0] == body else None

    def keep(self, names: Sequence[str], body: bytes, described: Described) -> None:
        self._next[tuple(names)] = body, described


async def describe_settings(client: Client, topics: Iterable[str], memory: Memory | None = None) -> Described:
    """All settings of each topic, inherited ones too. With a memory, what did not change is the same object again."""
    found, memory = Described({}, {}), memory or Memory()
    memory.begin()
    kind = DescribeConfigsRequest.DescribeConfigsResource
    for names in _batches(topics):
        resources = [kind(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None) for name in names]
        message = Unread(DescribeConfigsRequest(resources=resources, include_synonyms=False))
        try:
            body: bytes = await client.call_any(message, 4)
        except WireError as error:
            if error.code != "VERSION":
                raise
            found.refused.update({name: _too_old(name, error, "read") for name in names})
            continue
        described = memory.of(names, body) or _described(client, message.read(body))
        memory.keep(names, body, described)
        found.topics.update(described.topics)
        found.refused.update(described.refused)
        await asyncio.sleep(0)  # lanes' reports and the lease must not wait for thousands of topics
    return found


def _described(client: Client, answer: Answer) -> Described:
    found = Described({}, {})
    for result in answer.results:
        if result.error_code:
            what = f"settings of topic {result.resource_name} cannot be read"
            found.refused[result.resource_name] = refusal(client, what, result)
        else:
            found.topics[result.resource_name] = _settings(result)
    return found


def _too_old(topic: str, error: WireError, verb: str) -> BrokerRefused:
    return BrokerRefused(f"settings of topic {topic} cannot be {verb}: {error.message}", where=error.where)


def _settings(result: Answer) -> Settings:
    return {
        entry.name: Setting(
            None if entry.is_sensitive else entry.value, _origin(entry), entry.read_only, entry.is_sensitive
        )
        for entry in result.configs
    }


def _origin(entry: Answer) -> int:
    """Before 1.1 a broker tells only whether the topic itself sets it: what its own file sets counts as default."""
    if entry.config_source >= 0:
        return int(entry.config_source)
    return DEFAULT if entry.is_default else SET_ON_TOPIC


async def alter_settings(
    client: Client, changes: Mapping[str, Sequence[Alteration]], *, validate_only: bool = False
) -> dict[str, BrokerRefused]:
    """Change settings by topic; returns refusals by topic. The changes of one topic are made together or not at all."""
    refused: dict[str, BrokerRefused] = {}
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    for names in _batches(changes):
        resources = [
            kind(resource_type=_TOPIC_RESOURCE, resource_name=name, configs=[_alteration(a) for a in changes[name]])
            for name in names
        ]
        message = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
        try:
            answer = await ask_controller(client, message, 1)
        except WireError as error:
            if error.code != "VERSION":
                raise
            refused.update({name: _too_old(name, error, "changed") for name in names})
            continue
        for result in answer.responses:
            if result.error_code:
                what = f"settings of topic {result.resource_name} cannot be changed"
                refused[result.resource_name] = refusal(client, what, result)
    return refused


def _alteration(change: Alteration) -> object:
    return IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig(
        name=change.name, config_operation=_DELETE if change.value is None else _SET, value=change.value
    )


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while batch := list(itertools.islice(rest, _BATCH)):
        yield batch
