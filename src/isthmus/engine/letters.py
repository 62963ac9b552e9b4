"""Dead letters: where a record goes that is too large for its topic on the target, or that a transform fails on.

Owns the topic, and what a letter looks like: key, value, time and headers of the record, and four headers behind
them that say where it came from and why it is here. What must stay true: a letter is in the transaction whose
progress passes its record, so it is there exactly once; whoever may write letters is fenced from this topic as from
all others (I2), also after the policy was switched off. Which record is too large is for `refusals` to say.
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus.errors import WireError
from isthmus.model import Flow, TopicPartition
from isthmus.wire.admin import NewTopic, create_topics, wait_for_topics
from isthmus.wire.cluster import Client
from isthmus.wire.records import Record

DEAD_LETTER = "dead_letter"
# Nothing may be too large for the last resort; what a broker takes in one request is its own limit.
_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "2147483647",
}


def letter(source: TopicPartition, record: Record, reason: str) -> Record:
    """The record as a dead letter. Ours come last: a reader that looks up a header's last value finds them."""
    ours = {"topic": source.topic, "partition": source.partition, "offset": record.offset, "reason": reason}
    added = tuple((f"isthmus.{name}", str(value).encode()) for name, value in ours.items())
    return record._replace(headers=(*record.headers, *added))


def letter_topic(flow: Flow) -> NewTopic:
    return NewTopic(flow.dead_letter_topic, 1, flow.internal_replication_factor, _SETTINGS)


def letter_partition(flow: Flow) -> TopicPartition:
    return TopicPartition(flow.dead_letter_topic, 0)


def to_be_fenced(target: Client, flow: Flow) -> list[TopicPartition]:
    """Where lanes of this run or an earlier one may have written letters, by what is known of the target."""
    return [letter_partition(flow)] if flow.dead_letter_topic in target.topics else []


async def made_ready(target: Client, flow: Flow, note: Callable[[str], None]) -> bool:
    """Whether letters can be written. The policy may be new, or the topic gone, since the flow was started."""
    if DEAD_LETTER not in (flow.on_too_large, flow.transform.on_error if flow.transform else ""):
        return False
    if flow.dead_letter_topic not in target.topics:
        try:
            await create_topics(target, [letter_topic(flow)])
            await wait_for_topics(target, [flow.dead_letter_topic])
        except WireError as error:
            note(f"{error}; records that are too large stop their partition meanwhile")
            return False
    return True
