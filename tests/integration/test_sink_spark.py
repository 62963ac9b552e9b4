"""`KafkaSink` in a real Spark: any DataFrame into Kafka, exactly once, judged by librdkafka.

One session for all tests: most of their time is its start. Faults are caused: workers and drivers die by kill -9.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.integration import sink_driver
from tests.integration.deadly import DEADLY, deaths
from tests.integration.framed import Seen, by_librdkafka
from tests.integration.sessions import session
from tests.integration.sink_driver import fill, masked, started
from tests.integration.sources import (
    CODECS,
    KEPT,
    PATIENCE_S,
    START_MS,
    Pair,
    producer,
    read,
    send,
    stored,
)

from isthmus.errors import BadRecord, ConfigError, IsthmusError, RivalError, TargetError
from isthmus.frames import KafkaSink
from isthmus.frames.standing import Turn
from isthmus.frames.tickets import Slip

ROOT = Path(__file__).parents[2]
HEADERS = "headers array<struct<key: string, value: binary>>"
ROWS = f"key binary, value binary, {HEADERS}, ms bigint, topic string, partition int"
TIMED = ("key", "value", "headers", "timestamp_millis(ms) AS timestamp", "topic", "partition")

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def deadly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deaths")


@pytest.fixture(scope="module")
def spark(deadly: Path) -> Iterator[SparkSession]:
    found = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    daemon = {"spark.python.daemon.module": "tests.integration.deadly"}
    with session(daemon, {"PYTHONPATH": found, DEADLY: str(deadly)}) as made:
        yield made


@pytest.fixture
def sinks(pair: Pair) -> Iterator[Any]:
    """Makes sinks into the target, and closes them."""
    made: list[KafkaSink] = []

    def make(query: str = pair.prefix, new_checkpoint: str = "refuse", **options: str) -> KafkaSink:
        given = {"kafka.bootstrap.servers": pair.target.bootstrap, **options}
        made.append(KafkaSink(query, given, new_checkpoint=new_checkpoint))
        return made[-1]

    yield make
    for sink in made:
        sink.close()


def goal(pair: Pair, word: str, partitions: int = 1) -> str:
    """A topic of the target."""
    name = f"{pair.prefix}-{word}"
    pair.target.create_topic(name, partitions, configs=KEPT)
    return name


def counted(spark: SparkSession, count: int, first: int = 0) -> DataFrame:
    """Plain rows, in as many tasks as there are cores."""
    return spark.range(first, first + count).selectExpr("concat('k', id) AS key", "concat('v', id) AS value")


def values(bootstrap: str, topic: str) -> list[bytes]:
    return sorted(value or b"" for _, _, value in read(bootstrap, topic))


def expected(count: int, first: int = 0) -> list[bytes]:
    return sorted(b"v%d" % n for n in range(first, first + count))


def by_java(bootstrap: str, topic: str, keys: Sequence[bytes]) -> dict[bytes, int]:
    """The partition that Java's default partitioner picks for each key, told by librdkafka's own murmur2."""
    send(producer(bootstrap, partitioner="murmur2_random"), topic, [{"key": key, "partition": -1} for key in keys])
    return {
        key: number
        for number, records in by_librdkafka(bootstrap, topic).items()
        for _, _, _, key, *_ in records
        if key
    }


def contents(found: dict[int, list[Seen]]) -> list[tuple[Any, ...]]:
    return [
        (ms, key, value, headers) for _, records in sorted(found.items()) for _, _, ms, key, value, headers in records
    ]


def test_a_batch_is_what_was_put_in_and_keys_go_where_java_puts_them(
    spark: SparkSession, pair: Pair, sinks: Any
) -> None:
    bootstrap, names = pair.target.bootstrap, [goal(pair, "one", 3), goal(pair, "two", 5)]
    keys = [b"", "schlüssel-ключ-鍵".encode(), b"\xff\x00\xfe", *(b"k%d" % n for n in range(40))]
    odd: list[tuple[Any, ...]] = [
        (keys[1], b"", [], START_MS, names[0], 2),
        (None, None, None, START_MS + 1, names[0], 2),
        (b"tombstone", None, [("a", None), ("a", b""), ("größe", b"\x00\xff")], START_MS + 2, names[0], 2),
        (None, "ωß".encode() * 1000, [("b", b"2")], 1, names[0], 2),
    ]
    keyed = [(key, b"v", None, START_MS + n, name, None) for name in names for n, key in enumerate(keys)]
    keyless = [(None, b"%d" % n, None, START_MS, names[1], None) for n in range(50)]
    frame = spark.createDataFrame([*odd, *keyed, *keyless], ROWS).selectExpr(*TIMED)
    sink = sinks(compression="zstd", includeHeaders="true")
    assert sink.write(frame).records == len(odd) + len(keyed) + len(keyless)
    found = {name: by_librdkafka(bootstrap, name) for name in names}
    put = {(ms, key, value): headers or [] for key, value, headers, ms, _, number in odd if number == 2}
    in_two = [row for row in contents({2: found[names[0]][2]}) if row[:3] in put]
    assert in_two == [(*what, headers) for what, headers in put.items()]  # and in their order
    judge = goal(pair, "judge-3", 3), goal(pair, "judge-5", 5)
    for name, other in zip(names, judge, strict=True):
        wanted = by_java(bootstrap, other, [key for key in keys if key])
        got = {
            key: n for n, records in found[name].items() for _, _, _, key, value, _ in records if key and value == b"v"
        }
        assert got == wanted
    spread = [n for n, records in found[names[1]].items() for record in records if record[3] is None]
    assert len(spread) == 50
    assert set(spread) == set(range(5))
    everything = Counter((ms, key, value) for name in names for ms, key, value, _ in contents(found[name]))
    assert everything == Counter((ms, key, value) for key, value, _, ms, _, _ in [*odd, *keyed, *keyless])


def test_every_compression_is_written_and_a_named_batch_once(spark: SparkSession, pair: Pair, sinks: Any) -> None:
    bootstrap, frame = pair.target.bootstrap, counted(spark, 20).coalesce(1)
    names = {codec: goal(pair, codec) for codec in CODECS}
    for codec, name in names.items():
        sink = sinks(f"{pair.prefix}-{codec}", **{"topic": name, "kafka.compression.type": codec})
        assert not sink.write(frame, batch="2026-11-16").skipped
        assert [value for *_, value in read(bootstrap, name)] == [b"v%d" % n for n in range(20)]
    again = sinks(f"{pair.prefix}-none", topic=names["none"], compression="none")
    assert again.write(frame, batch="2026-11-16").skipped
    assert again.write(counted(spark, 20, 20), batch="2026-11-17").records == 20
    assert values(bootstrap, names["none"]) == expected(40)
    for codec, batches in stored(pair.target, *names.values()).items():
        kinds = {batch.codec.lower() for batch in batches if not batch.is_control}
        assert kinds == {next(each for each, name in names.items() if name == codec)}


def test_a_stream_is_written_once_and_a_batch_that_comes_again_is_passed_over(
    spark: SparkSession, pair: Pair, sinks: Any, tmp_path: Path
) -> None:
    target, checkpoint = goal(pair, "stream", 2), tmp_path / "checkpoint"
    frame = masked(spark, fill(tmp_path / "files", 3))
    first = sinks(topic=target)
    run(frame, first, checkpoint)
    assert first.last is not None
    assert first.last.records > 0
    last = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal())
    for file in (checkpoint / "commits").glob(f"*{last}*"):
        file.unlink()  # as if the driver had died when the transaction was committed
    again = sinks(topic=target)
    run(frame, again, checkpoint)
    assert again.last is not None
    assert again.last.skipped
    assert values(pair.target.bootstrap, target) == sorted(b"V%d" % n for n in range(30))

    lost = tmp_path / "another"
    told = ended(frame, sinks(topic=target), lost)
    assert "CHECKPOINT_LOST" in told
    assert 'new_checkpoint="accept"' in told
    assert len(values(pair.target.bootstrap, target)) == 30
    run(frame, sinks(topic=target, new_checkpoint="accept"), lost)
    assert values(pair.target.bootstrap, target) == sorted([b"V%d" % n for n in range(30)] * 2)
    assert "CHECKPOINT_LOST" in ended(frame, sinks(topic=target), checkpoint, force=str(last))


def run(frame: DataFrame, sink: KafkaSink, checkpoint: Path) -> None:
    assert started(frame, sink, str(checkpoint)).awaitTermination(int(4 * PATIENCE_S))


def ended(frame: DataFrame, sink: KafkaSink, checkpoint: Path, force: str = "") -> str:
    """How a query that fails tells it. `force`: a batch that is to come again."""
    for file in (checkpoint / "commits").glob(f"*{force}*") if force else ():
        file.unlink()
    with pytest.raises(StreamingQueryException) as error:
        run(frame, sink, checkpoint)
    return str(error.value)


@pytest.mark.parametrize("second", [True, False], ids=["TV2", "TV1"])
def test_workers_that_are_killed_in_the_middle_of_batches_leave_every_row_once(
    spark: SparkSession, pair: Pair, sinks: Any, deadly: Path, second: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not second:
        monkeypatch.setattr("isthmus.frames.seat.speaks_second_protocol", lambda _: False)
    target = goal(pair, f"killed-{second}", 4)
    sink = sinks(f"{pair.prefix}-{second}", topic=target)
    kills = (1, 2, 0) if second else (1, 0)
    for number, count in enumerate(kills):
        deaths(deadly, count)
        sink.write(counted(spark, 200, 200 * number), batch=str(number))
        assert not list(deadly.iterdir())
    assert values(pair.target.bootstrap, target) == expected(200 * len(kills))
    tried = read(pair.target.bootstrap, target, committed=False)
    assert len(tried) > 200 * len(kills)  # tasks had written when they died


def test_a_driver_that_is_killed_before_its_commit_goes_on_from_its_checkpoint(
    spark: SparkSession, pair: Pair, sinks: Any, tmp_path: Path
) -> None:
    """Killed after a commit it would find the batch on record, as above."""
    target, checkpoint, west = goal(pair, "driver", 2), tmp_path / "checkpoint", pair.target.bootstrap
    folder, said = fill(tmp_path / "files", 3), tmp_path / "said"
    words = (west, str(folder), target, pair.prefix, str(checkpoint), "1")
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    env = os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with said.open("wb") as log:  # no pipe: its JVM outlives it for a moment, and would be waited for
        command = [sys.executable, sink_driver.__file__, *words]
        done = subprocess.run(
            command, env=env, timeout=5 * PATIENCE_S, stdout=log, stderr=subprocess.STDOUT, check=False
        )
    assert done.returncode == -signal.SIGKILL, said.read_text(errors="replace")
    assert values(west, target) == sorted(b"V%d" % n for n in range(10))
    run(masked(spark, folder), sinks(topic=target), checkpoint)
    assert values(west, target) == sorted(b"V%d" % n for n in range(30))
    assert len(read(west, target, committed=False)) >= 40  # its tasks had written the batch that it did not commit


def test_of_two_drivers_the_later_one_writes_and_the_first_one_says_so(
    spark: SparkSession, pair: Pair, sinks: Any
) -> None:
    """The second comes when all tasks of the first have written, and before it commits."""
    target = goal(pair, "rivals", 2)
    one, other = sinks(topic=target), sinks(topic=target)
    one.write(counted(spark, 10))
    commit = one._seat.commit

    async def late(slips: Sequence[Slip], turn: Turn) -> None:
        await asyncio.to_thread(other.write, counted(spark, 10, 10))
        await commit(slips, turn)

    one._seat.commit = late
    for _ in range(2):
        with pytest.raises(RivalError, match="another driver writes query"):
            one.write(counted(spark, 10, 20))
    other.write(counted(spark, 10, 30))
    assert values(pair.target.bootstrap, target) == sorted([*expected(20), *expected(10, 30)])


def test_what_cannot_be_written_is_told_and_nothing_is(spark: SparkSession, pair: Pair, sinks: Any) -> None:
    target = goal(pair, "refused", 2)
    sink, free = sinks(topic=target), sinks(f"{pair.prefix}-free")
    wrong: list[tuple[KafkaSink, str, type[IsthmusError], str, str]] = [
        (sink, "'k' AS key", ConfigError, "COLUMNS", "no column `value`"),
        (sink, "id AS value", ConfigError, "COLUMNS", "column `value` is bigint"),
        (sink, "'v' AS value, 'x' AS headers", ConfigError, "COLUMNS", "column `headers` is string"),
        (sink, "'v' AS value, 'w' AS Value", ConfigError, "COLUMNS", "2 columns `value`"),
        (free, "'v' AS value", ConfigError, "COLUMNS", "to which topic"),
        (
            sinks(topic=f"{target}-none"),
            "'v' AS value",
            TargetError,
            "UNKNOWN_TOPIC",
            f"topic {target}-none is not there",
        ),
        (
            free,
            f"'v' AS value, if(id > 8, '{target}-none', '{target}') AS topic",
            TargetError,
            "UNKNOWN_TOPIC",
            "not there",
        ),
        (free, "'v' AS value, 'mm2-isthmus-sinks.internal' AS topic", TargetError, "UNKNOWN_TOPIC", "internal topic"),
        (free, "'v' AS value, CAST(NULL AS STRING) AS topic", BadRecord, "POISON", "it has no topic"),
        (sink, "'v' AS value, CAST(id AS INT) AS partition", BadRecord, "POISON", "none of topic"),
    ]
    for at, columns, kind, code, words in wrong:
        with pytest.raises(kind, match=words) as error:
            at.write(spark.range(10).selectExpr(*_split(columns)))
        assert error.value.code == code
        assert error.value.hint
    assert read(pair.target.bootstrap, target) == []
    with pytest.raises(ConfigError, match="no batch of a streaming query"):
        sink(spark.range(1).selectExpr("'v' AS value"), 0)


def _split(columns: str) -> list[str]:
    """At commas outside of brackets."""
    depth = list(itertools.accumulate((char == "(") - (char == ")") for char in columns))
    cuts = [-1, *(at for at, char in enumerate(columns) if char == "," and not depth[at]), len(columns)]
    return [columns[a + 1 : b] for a, b in itertools.pairwise(cuts)]
