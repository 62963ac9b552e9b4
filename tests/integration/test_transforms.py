"""Flows with a transform on real Spark and real brokers: what arrives is the transform applied once to each record.

One Spark context for all tests: most of their time is its start. Judged by librdkafka; what is expected is computed in
plain Python from what was written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame
from tests.crossing import flow_between
from tests.integration.command import yaml_file
from tests.integration.sources import START_MS, admin, unique, wait_until, write
from tests.integration.transforming import (
    AVRO,
    PARTITIONS,
    READ,
    REGIONS,
    Content,
    Stage,
    expected,
    in_avro,
    rows,
)

from isthmus.engine.spark import Spark, open_spark
from isthmus.errors import ConfigError, RivalError
from isthmus.frames.runner import Transforming
from isthmus.lab import Lab, jars
from isthmus.machine import cache_folder
from isthmus.model import Transform
from isthmus.observe.status import FlowStatus

MANY = int(os.environ.get("ISTHMUS_KILLS", "1"))  # times as many kills as the usual run has time for
pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600 * MANY)]


def avro_jars() -> str:
    """Spark's package for Avro, of the newest version that Maven Central has; it works with later ones of Spark."""
    package = ("org.apache.spark", "spark-avro_2.13", "4.1.1")
    folder = jars.fetched("Spark's Avro", cache_folder() / "-".join(package[1:]), [package])
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))


@pytest.fixture(scope="module")
def spark() -> Iterator[Spark]:
    running = open_spark("local[*]", 2, "transforms", {"spark.jars": avro_jars()}, queries=True)
    yield running
    running.close()


# --- what a transform can do ------------------------------------------------------------------


def test_personal_data_is_hashed_and_other_regions_are_left_out(lab: Lab, spark: Spark) -> None:
    sql = f"""SELECT * EXCEPT (value, o),
        to_json(named_struct('id', o.id, 'email', sha2(o.email, 256))) AS value FROM ({READ}) WHERE o.region = 'eu'"""
    stage = Stage(lab, spark, sql=sql)
    written = stage.fill(600)

    status = stage.cross()

    def masked(order: dict[str, Any] | None, _: Content) -> bytes | bool:
        if order is None or order["region"] != "eu":
            return False
        email = hashlib.sha256(order["email"].encode()).hexdigest()
        return json.dumps({"id": order["id"], "email": email}, separators=(",", ":")).encode()

    wanted = expected(written, masked)
    assert stage.arrived() == wanted
    assert status.lag == 0
    assert status.records == sum(map(len, wanted.values()))

    more = stage.fill(300, first=600)  # a second run goes on where the first one ended
    stage.cross()
    assert stage.arrived() == expected([*written, *more], masked)


def test_everything_that_a_record_has_passes_unchanged(lab: Lab, spark: Spark) -> None:
    stage = Stage(lab, spark, sql="SELECT * FROM records")
    written = stage.fill(400)
    stage.cross()
    assert stage.arrived() == expected(written, lambda _, content: content[1])


def test_rows_are_routed_by_type_and_to_partitions_by_their_key(lab: Lab, spark: Spark) -> None:
    refunds = unique("refunds")
    sql = f"""SELECT * EXCEPT (topic, partition, o), CAST(NULL AS INT) AS partition,
        CASE o.kind WHEN 'refund' THEN '{refunds}' ELSE topic END AS topic FROM ({READ}) WHERE o IS NOT NULL"""
    stage = Stage(lab, spark, sql=sql)
    written = [row for row in stage.fill(600) if row["value"] is not None]
    stage.cross()

    for topic, kind in ((stage.copy, "order"), (refunds, "refund")):
        found = stage.arrived(topic)
        wanted = [row for row in written if json.loads(row["value"])["kind"] == kind]
        assert sorted(c[3] for each in found.values() for c in each) == sorted(row["timestamp"] for row in wanted)
        for number, contents in found.items():
            assert all(key is None or java_partition(key, PARTITIONS) == number for key, *_ in contents)
            for source in range(PARTITIONS):  # what came of one partition is still in order
                times = [ms for _, _, _, ms in contents if (ms - START_MS) % PARTITIONS == source]
                assert times == sorted(times)


def java_partition(key: bytes, partitions: int) -> int:
    """Kafka's murmur2, written down once more, in plain Python."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(key)) & mask
    for at in range(0, len(key) & ~3, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = h * m & mask ^ k
    if tail := key[len(key) & ~3 :]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return ((h ^ (h >> 15)) & 0x7FFFFFFF) % partitions


def test_json_is_flattened_and_joined_with_a_static_table(lab: Lab, spark: Spark, tmp_path: Path) -> None:
    (tmp_path / "regions.csv").write_text("".join(f"{code},{code.upper()}-land\n" for code in REGIONS))
    sql = f"""SELECT r.* EXCEPT (value, o), concat_ws('|', o.id, o.kind, t._c1) AS value
        FROM ({READ}) r JOIN csv.`{tmp_path / "regions.csv"}` t ON t._c0 = o.region"""
    stage = Stage(lab, spark, sql=sql)
    written = stage.fill(300)
    stage.cross()

    def flat(order: dict[str, Any] | None, _: Content) -> bytes | bool:
        return order is not None and f"{order['id']}|{order['kind']}|{order['region'].upper()}-land".encode()

    assert stage.arrived() == expected(written, flat)


def test_avro_is_read_and_written_by_sparks_own_package(lab: Lab, spark: Spark) -> None:
    schema = json.dumps(AVRO)
    read = f"SELECT *, from_avro(substr(value, 6), '{schema}', map()) AS o FROM records"
    changed = f"to_avro(named_struct('id', o.id + 1, 'note', upper(o.note)), '{schema}')"
    stage = Stage(
        lab, spark, sql=f"SELECT * EXCEPT (value, o), substr(value, 1, 5) || {changed} AS value FROM ({read})"
    )
    written = rows(200)
    for number, row in enumerate(written):
        row["value"] = in_avro(number * 1_000_003, f"größe {number}" * (number % 40))
    write(lab["east"].bootstrap, stage.topic, written)
    assert stage.cross().lag == 0
    goal: dict[int, list[Content]] = {n: [] for n in range(PARTITIONS)}
    for number, row in enumerate(written):
        value = in_avro(number * 1_000_003 + 1, (f"größe {number}" * (number % 40)).upper())
        goal[row["partition"]].append((row["key"], value, row["headers"], row["timestamp"]))
    assert stage.arrived() == goal


def test_a_package_that_spark_misses_is_named(lab: Lab, spark: Spark, tmp_path: Path) -> None:
    (described := tmp_path / "order.desc").touch()
    decoded = f"from_protobuf(value, 'Order', '{described}', map())"
    sql = f"SELECT * EXCEPT (value), {decoded}.note AS value FROM records"
    with pytest.raises(ConfigError) as error:
        Transforming(spark, [flow_between(lab, "t", transform=Transform(sql=sql))], lambda _: None)
    assert "spark.jars.packages=org.apache.spark:spark-protobuf_2.13:" in str(error.value.hint)


def shortened(records: DataFrame) -> DataFrame:
    """A transform in Python, by its name `tests.integration.test_transforms:shortened`."""
    return records.selectExpr("* except (value)", "substring(value, 1, 5) as value")


def test_a_function_of_dataframes_is_a_transform_too(lab: Lab, spark: Spark) -> None:
    stage = Stage(lab, spark, function=f"{__name__}:shortened")
    written = stage.fill(200)
    stage.cross()
    assert stage.arrived() == expected(written, lambda _, content: content[1] and content[1][:5])


# --- records that it fails on -----------------------------------------------------------------

STRICT = (
    f"""SELECT * EXCEPT (value, o), CAST(CAST(o.qty AS INT) AS STRING) AS value FROM ({READ}) WHERE o IS NOT NULL"""
)
POISON = b'{"id": 1, "qty": "seven"}'


def quantity(order: dict[str, Any] | None, _: Content) -> bytes | bool:
    return order is not None and order["qty"].isdigit() and order["qty"].encode()


def test_a_record_that_it_fails_on_stops_its_partition_at_that_offset(lab: Lab, spark: Spark) -> None:
    stage = Stage(lab, spark, sql=STRICT)
    written = stage.fill(90, n40=POISON)
    status = stage.cross()

    (stopped,) = status.stopped
    assert (stopped.code, stopped.partition, stopped.position) == ("POISON", 40 % PARTITIONS, 40 // PARTITIONS)
    assert "CAST_INVALID_INPUT" in stopped.error
    before = [row for at, row in enumerate(written) if at % PARTITIONS != 40 % PARTITIONS or at < 40]
    assert stage.arrived() == expected(before, quantity)

    mended = stage.with_transform(sql=STRICT.replace("CAST(o.qty", "try_cast(o.qty"))
    assert not stage.cross(mended).stopped
    assert {n: len(each) for n, each in stage.arrived().items()} == {
        n: len(each) for n, each in expected(written, lambda order, _: order is not None and b"").items()
    }


def test_records_that_it_fails_on_go_to_the_dead_letters_with_the_reason(lab: Lab, spark: Spark) -> None:
    stage = Stage(lab, spark, sql=STRICT, on_error="dead_letter")
    written = stage.fill(60, n7=POISON, n40=POISON, n43=POISON)
    status = stage.cross()

    assert (status.lag, status.dead_letters, status.stopped) == (0, 3, ())
    assert stage.arrived() == expected(written, quantity)
    letters = stage.arrived(stage.flow.dead_letter_topic)[0]
    told = {int(dict(headers)["isthmus.offset"] or b""): dict(headers) for _, _, headers, _ in letters}
    assert sorted(told) == sorted([7 // 3, 40 // 3, 43 // 3])
    assert all(b"CAST_INVALID_INPUT" in (headers["isthmus.reason"] or b"") for headers in told.values())
    assert {(key, value) for key, value, _, _ in letters} == {(written[n]["key"], POISON) for n in (7, 40, 43)}


def test_a_partition_that_is_not_there_is_told_with_the_record(lab: Lab, spark: Spark) -> None:
    placed = "IF(offset = 5 AND partition = 0, 77, partition) AS partition"
    stage = Stage(lab, spark, sql=f"SELECT * EXCEPT (partition), {placed} FROM records")
    stage.fill(24)
    status = stage.cross()
    (stopped,) = status.stopped
    assert (stopped.code, stopped.partition, stopped.position) == ("POISON", 0, 5)
    assert "partition 77 is none of topic" in stopped.error


# --- what is wrong is told before anything is written -----------------------------------------


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELEC * FROM records", "line 1, position 1"),
        ("SELECT * EXCEPT (value),\n  valeu AS value FROM records", "line 2, position 3"),
        ("SELECT key, value FROM records", "no column headers, timestamp, topic, partition, offset"),
        ("SELECT * EXCEPT (value), 5 AS value FROM records", "column value is int"),
        ("DROP VIEW records", "a transform is one query"),
        ("INSERT INTO x SELECT * FROM records", "a transform is one query"),
    ],
)
def test_wrong_sql_is_told_with_its_place(lab: Lab, spark: Spark, sql: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        Transforming(spark, [flow_between(lab, "t", transform=Transform(sql=sql))], lambda _: None)
    assert error.value.code == "TRANSFORM"
    assert told in str(error.value)


def test_sql_that_does_not_always_give_the_same_is_warned_about(lab: Lab, spark: Spark) -> None:
    told: list[str] = []
    sql = "SELECT * EXCEPT (value), CAST(rand() AS STRING) AS value FROM records"
    Transforming(spark, [flow_between(lab, "t", transform=Transform(sql=sql))], told.append)
    assert len(told) == 1


def test_the_command_refuses_a_wrong_transform_and_touches_nothing(lab: Lab, tmp_path: Path) -> None:
    alias = unique("a")
    east, west = lab["east"].bootstrap, lab["west"].bootstrap
    more = ["transform: SELECT nix FROM records"]
    file = yaml_file(tmp_path, east, west, alias=alias, topics=["nothing.*"], more=more)
    command = [sys.executable, "-m", "isthmus", "run", str(file), "--until-caught-up"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 2
    assert "error [TRANSFORM]" in ended.stderr
    assert "`nix`" in ended.stderr
    assert "line 1, position 8" in ended.stderr
    assert not [name for name in topics(lab) if alias in name]


def topics(lab: Lab) -> list[str]:
    return list(admin(lab["west"].bootstrap).list_topics(timeout=60).topics)


# --- exactly once ------------------------------------------------------------------------------

FLAGGED = f"SELECT * EXCEPT (value, o), md5(value) AS value FROM ({READ}) WHERE o.region <> 'us'"


def flagged(order: dict[str, Any] | None, content: Content) -> bytes | bool:
    if order is None or order["region"] == "us":
        return False
    return hashlib.md5(content[1] or b"", usedforsecurity=False).hexdigest().encode()


def workers(spark: Spark) -> list[psutil.Process]:
    """Python processes that do the work of tasks: children of the daemon of this Spark's JVM."""
    jvm = psutil.Process(spark.jvm_pid or -1)
    return [worker for daemon in jvm.children() if "python" in daemon.name() for worker in daemon.children()]


def test_workers_that_are_killed_in_the_middle_lose_and_double_nothing(lab: Lab, spark: Spark) -> None:
    stage = Stage(lab, spark, sql=FLAGGED, most_records=150)
    written = stage.fill(3_000 * MANY)
    kills, over, dice = [0], threading.Event(), random.Random(zlib.crc32(b"workers"))

    def killing() -> None:
        while not over.wait(0.1 + 0.5 * dice.random()) and kills[0] < 12 * MANY:
            with contextlib.suppress(psutil.Error):
                for each in dice.sample(found := workers(spark), min(1, len(found))):
                    each.send_signal(signal.SIGKILL)
                    kills[0] += 1

    thread = threading.Thread(target=killing)
    thread.start()
    try:
        status = stage.cross()
    finally:
        over.set()
        thread.join()
    assert kills[0] > 0
    assert status.lag == 0
    assert stage.arrived() == expected(written, flagged)


def test_a_second_driver_takes_over_and_nothing_comes_twice(lab: Lab, spark: Spark) -> None:
    stage = Stage(lab, spark, sql=FLAGGED, most_records=150)
    written = stage.fill(2_000)
    first: list[BaseException | FlowStatus] = []

    def running() -> None:
        try:
            first.append(stage.cross())
        except RivalError as error:
            first.append(error)

    thread = threading.Thread(target=running)
    thread.start()
    while thread.is_alive() and not _count(stage):
        time.sleep(0.05)
    stage.cross(take_over=True)
    thread.join(120)
    assert first
    assert stage.arrived() == expected(written, flagged)


def _count(stage: Stage) -> int:
    return sum(map(len, stage.arrived().values())) if stage.copy in topics(stage.lab) else 0


def test_the_program_is_killed_and_goes_on_at_the_exact_record(lab: Lab, spark: Spark, tmp_path: Path) -> None:
    """The whole command with kill -9, which takes Spark and all its workers along; there is no checkpoint to lose."""
    stage = Stage(lab, spark, sql=FLAGGED, most_records=150)
    written: list[dict[str, Any]] = []
    east, west = lab["east"].bootstrap, lab["west"].bootstrap
    more = [f"transform: {json.dumps({'sql': FLAGGED, 'most_records': 150})}"]
    file = yaml_file(tmp_path, east, west, alias=stage.alias, topics=[stage.topic], more=more)
    for _ in range(MANY):
        written += stage.fill(3_000, len(written))
        _run_and_kill(stage, file)
    stage.cross(take_over=True)
    assert stage.arrived() == expected(written, flagged)


def _run_and_kill(stage: Stage, file: Path) -> None:
    before = _count(stage)
    running = psutil.Popen([sys.executable, "-m", "isthmus", "run", str(file), "--take-over"])
    wait_until(lambda: _count(stage) > before or running.poll() is not None, "records arrive", 240)
    assert running.poll() is None
    running.kill()
    running.wait()
