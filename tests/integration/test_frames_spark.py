"""`format("isthmus")` in a real Spark, for batches and for streams, against what librdkafka reads.

One session for all tests: most of their time is its start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.integration.framed import Seen, by_librdkafka
from tests.integration.sessions import session
from tests.integration.sources import PATIENCE_S, START_MS, Pair, delete_before, numbered, wait_until, write
from tests.integration.test_frames import odd

from isthmus.frames import register

SECRET = "hunter2"
LOGIN = {  # which a cluster without logins does not ask for
    "kafka.security.protocol": "PLAINTEXT",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="u" password="{SECRET}";',
}

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def spark(events: Path) -> Iterator[SparkSession]:
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.python.daemon.module": "isthmus.frames.daemon",
        "spark.sql.shuffle.partitions": "1",
    }
    with session(settings) as made:
        register(made)
        yield made


def batch(spark: SparkSession, pair: Pair, **options: str) -> DataFrame:
    return spark.read.format("isthmus").options(**{"kafka.bootstrap.servers": pair.source.bootstrap, **options}).load()


def stream(spark: SparkSession, pair: Pair, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": pair.source.bootstrap, **options}
    return spark.readStream.format("isthmus").options(**given).load()


def seen(frame: DataFrame) -> dict[int, list[Seen]]:
    """Rows as `by_librdkafka` gives records."""
    found: dict[int, list[Seen]] = {}
    for row in frame.selectExpr("*", "unix_millis(timestamp) as ms").collect():
        found.setdefault(row["partition"], []).append(_record(row))
    return {number: sorted(records, key=lambda record: record[0]) for number, records in found.items()}


def _record(row: Any) -> Seen:
    key, value = (None if row[name] is None else bytes(row[name]) for name in ("key", "value"))
    headers = [(pair["key"], None if pair["value"] is None else bytes(pair["value"])) for pair in row["headers"] or []]
    return row["offset"], row["timestampType"], row["ms"], key, value, headers


def test_a_batch_is_what_librdkafka_reads_and_sql_works_on_it(spark: SparkSession, pair: Pair) -> None:
    topic, bootstrap = pair.topic("batch", partitions=3), pair.source.bootstrap
    write(bootstrap, topic, [row for p in range(3) for row in odd(10, p)], compression_type="lz4")
    frame = batch(spark, pair, subscribe=topic, includeHeaders="true", minPartitions="5")
    parts = frame.selectExpr("*", "spark_partition_id() as task").cache()
    assert seen(parts) == by_librdkafka(bootstrap, topic)
    assert parts.select("task").distinct().count() >= 5
    assert parts.where("key is null").count() == 3
    assert {row["topic"] for row in parts.select("topic").collect()} == {topic}
    parts.unpersist()


def test_a_batch_begins_and_ends_where_its_options_say(spark: SparkSession, pair: Pair) -> None:
    """By a pattern and times, by partitions and offsets, and in a topic that is empty; all in one job."""
    topic, bare, bootstrap = pair.topic("bounds", partitions=2), pair.topic("bare"), pair.source.bootstrap
    write(bootstrap, topic, numbered(20, partitions=2))
    frames = (
        batch(
            spark,
            pair,
            subscribePattern=f"{pair.prefix}-b[ou].*",
            startingTimestamp=str(START_MS + 5),
            endingOffsets=json.dumps({topic: {"0": 5, "1": -1}}),
        ),
        batch(
            spark,
            pair,
            assign=json.dumps({topic: [1]}),
            startingOffsets=json.dumps({topic: {"1": 4}}),
            endingOffsetsByTimestamp=json.dumps({topic: {"1": START_MS + 13}}),
        ),
        batch(spark, pair, subscribe=bare),
    )
    assert frames[0].columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    marked = [frame.selectExpr(f"{n} as frame", "partition", "offset", "value") for n, frame in enumerate(frames)]
    found = sorted((*row[:3], bytes(row[3])) for row in marked[0].union(marked[1]).union(marked[2]).collect())
    wanted = [(0, 0, range(3, 5)), (0, 1, range(2, 10)), (1, 1, range(4, 6))]
    assert found == [(n, p, at, b"v%d" % (2 * at + p)) for n, p, offsets in wanted for at in offsets]


def test_mistakes_are_told_when_the_frame_is_made(spark: SparkSession, pair: Pair) -> None:
    with pytest.raises(Exception, match="did you mean `startingOffsets`"):
        batch(spark, pair, subscribe="a", startingOffset="earliest")
    with pytest.raises(Exception, match="exactly one of them is meant"):
        stream(spark, pair)
    with pytest.raises(Exception, match="there is no topic"):
        batch(spark, pair, subscribe=f"{pair.prefix}-none").count()


def test_secrets_are_in_no_plan_and_on_no_page(spark: SparkSession, events: Path, pair: Pair) -> None:
    """Spark's pages show what the log of events holds."""
    frame = batch(spark, pair, subscribe=pair.topic("secret"), **LOGIN)
    assert frame.count() == 0
    plans = frame._jdf.queryExecution().toString() + frame._jdf.queryExecution().analyzed().toJSON()
    assert "isthmus" in plans
    assert SECRET not in plans
    spark.sparkContext.setJobDescription(pair.prefix)
    spark.range(1).count()
    wait_until(lambda: pair.prefix in texts(events), "the log of events holds what was done until now")
    assert SECRET not in texts(events)


def texts(folder: Path) -> str:
    return "".join(file.read_text(errors="replace") for file in folder.rglob("*") if file.is_file())


def test_a_stream_goes_on_where_its_checkpoint_says_in_batches_of_limited_size(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    topic, bootstrap = pair.topic("stream", partitions=2), pair.source.bootstrap
    write(bootstrap, topic, numbered(30, partitions=2))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10", **LOGIN}
    sizes: list[int] = []

    def run(name: str) -> None:
        source = stream(spark, pair, includeHeaders="true", **options)
        query = (
            source.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .queryName(name)
            .start()
        )
        assert query.awaitTermination(4 * PATIENCE_S)
        sizes.extend(progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"])

    run("first")
    assert sizes == [10, 10, 10]
    write(bootstrap, topic, numbered(4, first=30, partitions=2))
    run("second")
    assert sizes[3:] == [4]
    assert SECRET not in texts(tmp_path / "checkpoint")
    found = spark.read.parquet(str(tmp_path / "out"))
    assert seen(found) == by_librdkafka(bootstrap, topic)


def test_a_stream_that_lost_records_stops_and_says_so_or_goes_on_if_told(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    topic, bootstrap = pair.topic("lost"), pair.source.bootstrap
    write(bootstrap, topic, numbered(30))
    delete_before(bootstrap, topic, {0: 12})
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 3}})}

    def ended(place: str, **more: str) -> StreamingQuery:
        source = stream(spark, pair, **options, **more).writeStream.format("noop").trigger(availableNow=True)
        query = source.option("checkpointLocation", str(tmp_path / place)).start()
        wait_until(lambda: not query.isActive, "the query ends", 4 * PATIENCE_S)
        return query

    assert "DATA_LOSS" in str(ended("strict").exception())
    easy = ended("easy", failOnDataLoss="false")
    assert easy.exception() is None
    assert sum(progress["numInputRows"] for progress in easy.recentProgress) == 18
