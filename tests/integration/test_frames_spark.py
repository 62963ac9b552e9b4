"""`format("isthmus")` in a real Spark, for batches and for streams, against what librdkafka reads.

One session for all tests: most of their time is its start.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.integration.framed import Seen, by_librdkafka
from tests.integration.sources import PATIENCE_S, Pair, delete_before, numbered, wait_until, write
from tests.integration.test_frames import odd

import isthmus

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master("local[2]").appName("frames")
        quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
        for name, value in (quiet | {"spark.sql.session.timeZone": "UTC"}).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        isthmus.register(session)
        yield session
        session.stop()


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
    assert seen(frame) == by_librdkafka(bootstrap, topic)
    assert frame.rdd.getNumPartitions() >= 5
    assert {row["topic"] for row in frame.select("topic").collect()} == {topic}
    assert frame.where("key is null").count() == 3
    plain = batch(spark, pair, subscribe=topic, endingOffsets=json.dumps({topic: {"0": 1, "1": -1, "2": 0}}))
    assert plain.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert plain.count() == 5


def test_an_empty_topic_is_an_empty_frame(spark: SparkSession, pair: Pair) -> None:
    assert batch(spark, pair, subscribe=pair.topic("empty")).count() == 0


def test_mistakes_are_told_when_the_frame_is_made(spark: SparkSession, pair: Pair) -> None:
    with pytest.raises(Exception, match="did you mean `startingOffsets`"):
        batch(spark, pair, subscribe="a", startingOffset="earliest")
    with pytest.raises(Exception, match="exactly one of them is meant"):
        stream(spark, pair)
    with pytest.raises(Exception, match="there is no topic"):
        batch(spark, pair, subscribe=f"{pair.prefix}-none").count()


def test_a_stream_goes_on_where_its_checkpoint_says_in_batches_of_limited_size(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    topic, bootstrap = pair.topic("stream", partitions=2), pair.source.bootstrap
    write(bootstrap, topic, numbered(30, partitions=2))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
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
        assert query.awaitTermination(2 * PATIENCE_S)
        sizes.extend(progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"])

    run("first")
    assert sizes == [10, 10, 10]
    write(bootstrap, topic, numbered(4, first=30, partitions=2))
    run("second")
    assert sizes[3:] == [4]
    found = spark.read.parquet(str(tmp_path / "out"))
    assert seen(found) == by_librdkafka(bootstrap, topic)


def test_a_stream_that_lost_records_stops_and_says_so(spark: SparkSession, pair: Pair, tmp_path: Path) -> None:
    topic, bootstrap = pair.topic("lost"), pair.source.bootstrap
    write(bootstrap, topic, numbered(30))
    delete_before(bootstrap, topic, {0: 12})
    source = stream(spark, pair, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 3}}))
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    wait_until(lambda: not query.isActive, "the query stops", 2 * PATIENCE_S)
    assert "DATA_LOSS" in str(query.exception())
