"""Topics of torture on somebody's cluster: created, and all of them removed again, by librdkafka.

What must stay true: nothing is removed but what the caller knows as torture's; what could not be removed is told, with
its reason, and never raised: it is the end of something that may have failed already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from isthmus.errors import MachineError, SourceError
from isthmus.lab import admin
from isthmus.lab.reach import Reach

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_ANSWER_S, _GONE_S, _LOOK_S = 15.0, 60.0, 0.5
_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def create(reach: Reach, topics: Mapping[str, int], factor: int, alias: str) -> None:
    for name, partitions in topics.items():
        try:
            admin.create(reach, name, partitions, factor, _KEPT)
        except MachineError as error:
            hint = "the login of the file has to be allowed to create and delete topics there"
            raise SourceError(error.message, where=f"cluster {alias}", hint=hint) from None


def sweep(reach: Reach, is_ours: Callable[[str], bool], expected: Sequence[str]) -> dict[str, str]:
    """What is left, with the reason; empty: nothing. `expected` may be left where a cluster does not answer."""
    client, deadline, gone = admin.client(reach), time.monotonic() + _GONE_S, 0
    refused: dict[str, KafkaError] = {}
    while True:
        try:
            found = [name for name in client.list_topics(timeout=_ANSWER_S).topics if is_ours(name)]
            refused = _delete(client, found) if found else {}
        except KafkaException as error:
            if time.monotonic() > deadline:
                return dict.fromkeys(expected, error.args[0].str())
        else:
            gone = 0 if found else gone + 1
            if gone > 1:  # twice: brokers learn of it one after another
                return {}
            in_vain = found and all(name in refused and not refused[name].retriable() for name in found)
            if in_vain or (found and time.monotonic() > deadline):
                return {name: refused[name].str() if name in refused else "it is still there" for name in found}
        time.sleep(_LOOK_S)


def _delete(client: AdminClient, names: Sequence[str]) -> dict[str, KafkaError]:
    """Why not, of those that were refused; one that is gone already is not."""
    refused = {}
    for name, asked in client.delete_topics(list(names), request_timeout=_ANSWER_S).items():
        try:
            asked.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                refused[name] = error.args[0]
    return refused
