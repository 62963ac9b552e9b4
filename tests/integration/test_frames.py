"""Reading records as columns from a real broker, against what librdkafka reads there."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import TypeVar

import pytest
from tests.faulty import Fault, FaultProxy
from tests.integration.framed import Seen, by_librdkafka, cluster_at, in_columns, of_stream, planned, resolved
from tests.integration.sources import (
    CODECS,
    PATIENCE_S,
    START_MS,
    Pair,
    Row,
    add_partitions,
    delete_before,
    numbered,
    producer,
    send,
    wait_until,
    write,
)
from tests.integration.tunnelled import tunnel
from tests.property.test_columns import rows

from isthmus import model
from isthmus.errors import ConfigError, SourceError
from isthmus.frames.planning import Planner
from isthmus.frames.ranges import Range
from isthmus.frames.reading import read
from isthmus.wire.cluster import Client

pytestmark = pytest.mark.integration

_T = TypeVar("_T")


def asked(bootstrap: str, ask: Callable[[Client], Awaitable[_T]]) -> _T:
    async def work() -> _T:
        client = Client(cluster_at(bootstrap))
        try:
            await client.start()
            return await ask(client)
        finally:
            client.close()

    return asyncio.run(work())


# --- content -------------------------------------------------------------------------------------


def odd(first: int, partition: int) -> list[Row]:
    place: Row = {"partition": partition, "timestamp": START_MS + first}
    return [
        {"key": b"k%d" % first, "value": b"v" * 300, "headers": [("a", b"1"), ("a", None), ("\u00e4\u4e16", b"")]}
        | place,
        {**place, "key": None, "value": None},
        {**place, "key": b"", "value": b"", "headers": [("", b"\xff\x00")]},
        {**place, "key": b"big", "value": bytes(range(256)) * 200},
    ]


def test_every_record_is_read_as_librdkafka_reads_it_whatever_the_codec_and_the_split(pair: Pair) -> None:
    topic, bootstrap = pair.topic("odd", partitions=3), pair.source.bootstrap
    for n, codec in enumerate(CODECS):
        write(bootstrap, topic, [row for p in range(3) for row in odd(10 * n, p)], compression_type=codec)
    writer = producer(bootstrap, transactional_id=topic)
    for n, ends in enumerate(("abort", "commit", "abort", "commit")):
        writer.begin_transaction()
        send(writer, topic, numbered(20, first=100 * n, partitions=3))
        (writer.abort_transaction if ends == "abort" else writer.commit_transaction)(PATIENCE_S)
    expected = by_librdkafka(bootstrap, topic)

    found = planned(bootstrap, subscribe=topic, minPartitions="7")

    assert len(found) >= 7
    seen: dict[int, list[Seen]] = {n: [] for n in expected}
    for each in found:
        seen[each.tp.partition] += in_columns(bootstrap, each)
    assert seen == expected
    assert sum(map(len, seen.values())) == 4 * 5 * 3 + 40


def test_times_that_the_broker_set_are_told_as_such(pair: Pair) -> None:
    topic = pair.topic("stamped", settings={"message.timestamp.type": "LogAppendTime"})
    bootstrap = pair.source.bootstrap
    write(bootstrap, topic, numbered(5))
    (whole,) = planned(bootstrap, subscribe=topic)
    seen = in_columns(bootstrap, whole)
    assert seen == by_librdkafka(bootstrap, topic)[0]
    assert {row[1] for row in seen} == {1}


def test_an_answer_that_is_cut_is_read_on_and_headers_may_be_left_out(pair: Pair) -> None:
    topic, bootstrap = pair.topic("cut"), pair.source.bootstrap
    write(bootstrap, topic, numbered(300, headers=[("h", b"1")]), batch_num_messages=7)
    wanted = Range(tp=model.TopicPartition(topic, 0), low=11, end=290)
    parts = list(read(cluster_at(bootstrap), wanted, headers=False, answer_bytes=400))
    assert [offset for part in parts for offset in part.offset.tolist()] == list(range(11, 290))
    assert {part.headers for part in parts} == {None}
    assert len(parts) > 5


def test_reading_goes_on_at_the_exact_record_when_connections_are_reset(pair: Pair) -> None:
    topic, bootstrap = pair.topic("resets"), pair.source.bootstrap
    write(bootstrap, topic, numbered(300, headers=[("h", b"x" * 100)]), batch_num_messages=10)
    expected = by_librdkafka(bootstrap, topic)[0]
    # Brokers tell their own addresses; through a tunnel, every connection goes by way of the proxy.
    with tunnel("listens") as way, FaultProxy(way.tunnel.port) as proxy:
        cluster = dataclasses.replace(way, tunnel=dataclasses.replace(way.tunnel, port=proxy.port)).to(
            cluster_at(bootstrap)
        )
        proxy.fault = Fault(reset_after=20_000)
        wanted = Range(tp=model.TopicPartition(topic, 0), low=0, end=300)
        seen = [row for part in read(cluster, wanted, answer_bytes=3000) for row in rows(part)]
    assert [row[0] for row in seen] == [row[0] for row in expected]
    assert [row[2] for row in seen] == [row[3] for row in expected]
    assert len(proxy.sent) > 3, f"{len(proxy.sent)}: connections were reset, and made again"


READS_ALL = """
import json, pathlib, sys
import isthmus.frames.arrow, isthmus.frames.reading
from isthmus.frames.source import BatchReader

def kilobytes(what):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))

reader = BatchReader(json.loads(sys.argv[1]))
before, rows, size = kilobytes("VmRSS:"), 0, 0
for task in reader.partitions():
    for part in reader.read(task):
        rows, size = rows + part.num_rows, size + part.nbytes
print(json.dumps([rows, size, (kilobytes("VmHWM:") - before) * 1024]))
"""


def test_memory_is_bounded_by_options_and_not_by_the_size_of_the_topic(pair: Pair) -> None:
    """300 MB, of which the broker stores less than 10, by a task that may take 64 MB (`docs/dataframes.md`)."""
    topic, bootstrap = pair.topic("large"), pair.source.bootstrap
    dice = random.Random(3)
    for _ in range(12):  # a producer keeps everything until it is sent
        values = [{"value": dice.randbytes(1_500) + bytes(63_000)} for _ in range(400)]
        write(bootstrap, topic, values, compression_type="lz4")
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    options["kafka.max.partition.fetch.bytes"] = str(1 << 20)
    command = [sys.executable, "-c", READS_ALL, json.dumps(options)]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=4 * PATIENCE_S).stdout
    count, size, grown = json.loads(told)
    assert count == 4_800
    assert size > 300e6
    assert grown < 64 << 20


# --- where to begin ------------------------------------------------------------------------------


def test_offsets_and_times_are_found_as_they_are_spelled(pair: Pair) -> None:
    topic, bootstrap = pair.topic("spelled", partitions=2), pair.source.bootstrap
    write(bootstrap, topic, numbered(20, partitions=2))

    def starts(**given: str) -> dict[str, int]:
        return resolved(bootstrap, subscribe=topic, **given)[topic]

    assert starts() == {"0": 0, "1": 0}
    assert starts(startingOffsets=f'{{"{topic}": {{"0": 4, "1": -2}}}}') == {"0": 4, "1": 0}
    assert starts(startingTimestamp=str(START_MS + 5)) == {"0": 3, "1": 2}
    times = f'{{"{topic}": {{"0": {START_MS}, "1": {START_MS + 19}}}}}'
    assert starts(startingOffsetsByTimestamp=times) == {"0": 0, "1": 9}
    late = {"startingTimestamp": str(START_MS + 19)}
    assert starts(**late, startingOffsetsByTimestampStrategy="latest") == {"0": 10, "1": 9}
    with pytest.raises(ConfigError, match=f"{topic}-0 has no record as late as"):
        starts(**late)
    with pytest.raises(ConfigError, match=f"{topic}-1 is read and not named"):
        starts(startingOffsets=f'{{"{topic}": {{"0": 4}}}}')
    with pytest.raises(ConfigError, match=f"{topic}-2 is named and not read"):
        starts(startingOffsets=f'{{"{topic}": {{"0": 4, "1": 4, "2": 4}}}}')
    before = {
        "startingOffsets": f'{{"{topic}": {{"0": 4, "1": 0}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 3, "1": 1}}}}',
    }
    with pytest.raises(ConfigError, match=f"{topic}-0 would end at 3, before it begins at 4"):
        planned(bootstrap, subscribe=topic, **before)
    with pytest.raises(SourceError, match="offset 99 was asked for, and 0 to 10 are there") as lost:
        starts(startingOffsets=f'{{"{topic}": {{"0": 4, "1": 99}}}}')
    assert lost.value.code == "DATA_LOSS"


def test_topics_are_selected_by_name_by_pattern_and_by_partition(pair: Pair) -> None:
    topic, bootstrap = pair.topic("one", partitions=2), pair.source.bootstrap
    other = pair.topic("two")
    both = resolved(bootstrap, subscribePattern=f"{pair.prefix}-.*")
    assert both == {topic: {"0": 0, "1": 0}, other: {"0": 0}}
    assert resolved(bootstrap, subscribe=f"{other}, {topic}") == both
    assert resolved(bootstrap, assign=f'{{"{topic}": [1]}}') == {topic: {"1": 0}}
    with pytest.raises(SourceError, match=f"there is no topic '{topic}x'; did you mean '{topic}'"):
        resolved(bootstrap, subscribe=f"{topic}x")
    with pytest.raises(SourceError, match=f"topic {topic} has no partition 5"):
        resolved(bootstrap, assign=f'{{"{topic}": [1, 5]}}')
    add_partitions(bootstrap, other, 3)
    wait_until(lambda: len(resolved(bootstrap, subscribe=other)[other]) == 3, "new partitions")


# --- micro-batches -------------------------------------------------------------------------------


def test_micro_batches_of_a_limited_size_read_everything_once_also_in_partitions_that_come(pair: Pair) -> None:
    topic, bootstrap = pair.topic("stream", partitions=2), pair.source.bootstrap
    write(bootstrap, topic, numbered(40, partitions=2))
    wanted = of_stream(bootstrap, subscribe=topic, startingOffsets="earliest")
    seen: dict[int, list[Seen]] = {0: [], 1: [], 2: []}
    with closing(Planner(wanted)) as planner:
        at = planner.initial()
        for _ in range(3):
            past = planner.latest(at, 10)
            assert sum(past.values()) - sum(at.values()) == 10
            _take(bootstrap, planner.ranges(at, past), seen)
            at = past
        add_partitions(bootstrap, topic, 3)
        write(bootstrap, topic, numbered(9, first=100, partitions=3))
        wait_until(lambda: len(planner.latest()) == 3, "the new partition")
        planner.end_with_now()
        write(bootstrap, topic, numbered(3, first=200, partitions=3))
        while (past := planner.latest(at, 10)) != at:
            _take(bootstrap, planner.ranges(at, past), seen)
            at = past
    expected = by_librdkafka(bootstrap, topic)
    late = {n: records[-1:] for n, records in expected.items()}
    assert seen == {n: records[:-1] for n, records in expected.items()}, "all but what came after the end was fixed"
    assert [[row[4] for row in late[n]] for n in range(3)] == [[b"v201"], [b"v202"], [b"v200"]]


def _take(bootstrap: str, found: list[Range], seen: dict[int, list[Seen]]) -> None:
    for each in found:
        seen[each.tp.partition] += in_columns(bootstrap, each)


def test_a_checkpoint_that_the_log_does_not_reach_or_a_partition_that_is_gone_is_a_loss(pair: Pair) -> None:
    topic, bootstrap = pair.topic("back"), pair.source.bootstrap
    write(bootstrap, topic, numbered(5))
    here, gone = model.TopicPartition(topic, 0), model.TopicPartition(topic, 7)
    for start, told in (({here: 9}, "the log ends at offset 5, and 9"), ({here: 5, gone: 1}, "the partition is gone")):
        with closing(Planner(of_stream(bootstrap, subscribe=topic))) as planner, pytest.raises(SourceError, match=told):
            planner.ranges(start, planner.latest(start, 10))
        with closing(Planner(of_stream(bootstrap, subscribe=topic, failOnDataLoss="false"))) as planner:
            assert planner.ranges(start, planner.latest(start, 10)) == []


# --- loss ----------------------------------------------------------------------------------------


def test_what_retention_took_is_an_error_that_names_the_offsets_or_left_out_if_so_asked(pair: Pair) -> None:
    topic, bootstrap = pair.topic("aged"), pair.source.bootstrap
    write(bootstrap, topic, numbered(30))
    (whole,) = planned(bootstrap, subscribe=topic)
    delete_before(bootstrap, topic, {0: 12})

    with pytest.raises(SourceError, match="offsets 0 to 11 were to be read, and the log begins at 12") as lost:
        in_columns(bootstrap, whole)

    assert lost.value.code == "DATA_LOSS"
    seen = in_columns(bootstrap, whole, fail_on_loss=False)
    assert [row[0] for row in seen] == list(range(12, 30))
    beyond = Range(tp=whole.tp, low=40, end=50, topic_id=whole.topic_id)
    with pytest.raises(SourceError, match="offsets 40 to 49 were to be read, and the log ends before them"):
        in_columns(bootstrap, beyond)
    assert in_columns(bootstrap, beyond, fail_on_loss=False) == []


def test_a_topic_that_was_made_anew_is_not_read_by_its_name(pair: Pair) -> None:
    topic, bootstrap = pair.topic("anew"), pair.source.bootstrap
    write(bootstrap, topic, numbered(3))
    (whole,) = planned(bootstrap, subscribe=topic)
    pair.source.delete_topic(topic)
    pair.source.create_topic(topic)
    wait_until(lambda: _id_of(bootstrap, topic) not in (model.NO_ID, whole.topic_id), "the broker knows the new topic")
    with pytest.raises(SourceError, match="made anew since") as refused:
        in_columns(bootstrap, whole)
    assert refused.value.code == "RECREATED"


def _id_of(bootstrap: str, topic: str) -> uuid.UUID:
    async def ask(client: Client) -> uuid.UUID:
        await client.refresh([topic])
        return client.topic_id(topic)

    return asked(bootstrap, ask)
