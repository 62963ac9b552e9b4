"""Reading a topic as columns and by librdkafka, for tests that compare the two."""

from __future__ import annotations

import time
from contextlib import closing

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from tests.integration.sources import PATIENCE_S, partition_count
from tests.property.test_columns import rows

from isthmus.frames.jsons import written
from isthmus.frames.options import Options, read_options
from isthmus.frames.planning import Planner
from isthmus.frames.ranges import Range
from isthmus.frames.reading import read
from isthmus.model import Cluster

Seen = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def by_librdkafka(bootstrap: str, topic: str) -> dict[int, list[Seen]]:
    """Offset, type of the time, time, key, value and headers of every committed record, by partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "frames", "enable.auto.commit": False, "log_level": 2}
    more = {"enable.partition.eof": True, "isolation.level": "read_committed", "fetch.wait.max.ms": 20}
    consumer = Consumer(settings | more)
    found: dict[int, list[Seen]] = {n: [] for n in range(partition_count(bootstrap, topic))}
    waiting = set(found)
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in found])
    deadline = time.monotonic() + 2 * PATIENCE_S
    while waiting:
        assert time.monotonic() < deadline, f"{topic} cannot be read to its end"
        for message in consumer.consume(1000, 0.2):
            error, number = message.error(), message.partition() or 0
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                waiting.discard(number)
                continue
            kind, ms = message.timestamp()
            place = message.offset() or 0
            found[number].append((place, kind - 1, ms, message.key(), message.value(), list(message.headers() or [])))
    consumer.close()
    return found


def in_columns(bootstrap: str, wanted: Range, **how: bool) -> list[Seen]:
    return _seen(cluster_at(bootstrap), wanted, **how)


def _seen(cluster: Cluster, wanted: Range, **how: bool) -> list[Seen]:
    found: list[Seen] = []
    for part in read(cluster, wanted, **how):
        kinds = part.time_type.tolist()
        found += [(row[0], kind, *row[1:]) for row, kind in zip(rows(part), kinds, strict=True)]
    return found


def cluster_at(bootstrap: str) -> Cluster:
    return Cluster(alias="east", bootstrap=(bootstrap,))


def in_columns_by(**options: str) -> dict[int, list[Seen]]:
    """Everything that a batch with these options reads; names have `_` for `.`."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    wanted = read_options({"includeHeaders": "true", **given}, streaming=False)
    with closing(Planner(wanted)) as planner:
        found: dict[int, list[Seen]] = {}
        for each in planner.batch():
            found.setdefault(each.tp.partition, []).extend(_seen(wanted.cluster, each))
    return found


def options(bootstrap: str, **given: str) -> Options:
    return read_options({"kafka.bootstrap.servers": bootstrap, **given}, streaming=False)


def of_stream(bootstrap: str, **given: str) -> Options:
    return read_options({"kafka.bootstrap.servers": bootstrap, **given}, streaming=True)


def planned(bootstrap: str, **given: str) -> list[Range]:
    """The ranges of a batch with these options."""
    with closing(Planner(options(bootstrap, **given))) as planner:
        return planner.batch()


def resolved(bootstrap: str, **given: str) -> dict[str, dict[str, int]]:
    """Where a batch with these options begins."""
    with closing(Planner(options(bootstrap, **given))) as planner:
        return written(planner.initial())
