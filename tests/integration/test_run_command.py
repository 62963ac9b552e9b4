"""`isthmus run` from end to end, as a user runs it: a file, real brokers, real Spark, real signals.

Every result is proven by librdkafka. The command runs as a child process; what it leaves behind (processes,
folders, words on the console) is part of what is checked.
"""

from __future__ import annotations

import json
import socket
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.command import (
    Ended,
    Running,
    Writing,
    called,
    committed,
    fill,
    finished,
    grows,
    isthmus,
    prove,
    topics_of,
    unique,
    wait_for,
    yaml_file,
)

from isthmus.lab import Lab

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

ENDS_WITHIN_S = 15.0
RIVAL = 8


def test_a_yaml_file_is_replicated_until_caught_up_and_the_json_says_what_was_done(lab: Lab, tmp_path: Path) -> None:
    alias, orders, notes = unique("yaml"), unique("orders-"), unique("notes.eu-")
    fill(lab["east"], orders, 20_000, partitions=3)
    fill(lab["east"], notes, 500, partitions=1)
    file = yaml_file(
        tmp_path, lab["east"].bootstrap, lab["west"].bootstrap, alias=alias, topics=[orders, notes], lanes=2
    )

    ended = isthmus("run", file, "--until-caught-up", "-o", "json")

    assert ended.code == 0, ended
    ended.quiet()
    (flow,) = ended.json()
    assert flow["flow"] == f"{alias}->west"
    positions = {(p["topic"], p["partition"]): p["position"] for p in flow["partitions"]}
    heartbeats = positions.pop(("heartbeats", 0))  # MirrorMaker 2's, which go along
    assert flow["state"] == "ended"
    assert 20_500 <= flow["records"] <= 20_500 + heartbeats
    assert positions == {(orders, 0): 6_667, (orders, 1): 6_667, (orders, 2): 6_666, (notes, 0): 500}
    assert sum(lane["records"] for lane in flow["lanes"]) == flow["records"]
    assert flow["lag"] == 0, "not even of heartbeats, which were written meanwhile"
    for topic in (orders, notes):
        prove(lab["east"], lab["west"], alias, topic)


def test_an_mm2_file_is_replicated_as_it_is_with_warnings_for_what_is_not_used(lab: Lab, tmp_path: Path) -> None:
    alias, topic = unique("mm"), unique("orders-")
    fill(lab["east"], topic, 3_000)
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"""clusters = {alias}, west
{alias}.bootstrap.servers = {lab["east"].bootstrap}
west.bootstrap.servers = {lab["west"].bootstrap}
{alias}->west.enabled = true
{alias}->west.topics = {topic}
west->{alias}.enabled = false
replication.factor = 1
offset.storage.replication.factor = 1
tasks.max = 2
offset.flush.interval.ms = 10000
emit.heartbeats.interval.secnds = 5
sync.group.offsets.enabled = true
"""
    )

    ended = isthmus("run", file, "--until-caught-up")

    assert ended.code == 0, ended
    ended.quiet()
    for name in ("offset.flush.interval.ms", "did you mean `emit.heartbeats.interval.seconds`"):
        (line,) = [line for line in ended.err.splitlines() if name in line]
        assert line.startswith("warning line 1"), ended  # lines 10 and 11
    assert "error" not in ended.err
    assert topic in ended.out
    assert "positions reached" in ended.out
    assert f"{alias}.{topic}" in topics_of(lab["west"].bootstrap)
    prove(lab["east"], lab["west"], alias, topic)


def test_ctrl_c_ends_cleanly_and_a_later_run_continues_without_doubles(lab: Lab, tmp_path: Path) -> None:
    alias, topic = unique("signal"), unique("topic-")
    lab["east"].create_topic(topic, 4)
    file = yaml_file(tmp_path, lab["east"].bootstrap, lab["west"].bootstrap, alias=alias, topics=[topic], lanes=2)
    port = _free_port()
    page = ("--conf", "spark.ui.enabled=true", "--conf", f"spark.ui.port={port}")
    with Writing(lab["east"].bootstrap, topic, 4), _run(file, tmp_path, *page) as running:
        grows(lab["west"].bootstrap, f"{alias}.{topic}")
        assert _job_groups(port) == {f"{alias}->west lane 0", f"{alias}->west lane 1"}
        _ends_cleanly(running, running.interrupt, tmp_path)

    finished(file)

    assert prove(lab["east"], lab["west"], alias, topic).records > 0


def test_a_signal_that_comes_before_spark_is_up_ends_the_run_just_as_cleanly(lab: Lab, tmp_path: Path) -> None:
    alias, topic = unique("early"), unique("topic-")
    fill(lab["east"], topic, 1_000)
    file = yaml_file(tmp_path, lab["east"].bootstrap, lab["west"].bootstrap, alias=alias, topics=[topic])
    with _run(file, tmp_path) as running:
        wait_for(lambda: running.says("starting"), what="the first words")
        running.interrupt()

        ended = running.ended(60)

        assert ended.code == 0, ended
        ended.quiet()
        assert running.family() == []
    assert list(tmp_path.glob("isthmus-spark-*")) == []


def test_a_second_replicator_is_refused_and_one_that_takes_over_fences_the_first(lab: Lab, tmp_path: Path) -> None:
    alias, topic = unique("rival"), unique("topic-")
    lab["east"].create_topic(topic, 2)
    file = yaml_file(tmp_path, lab["east"].bootstrap, lab["west"].bootstrap, alias=alias, topics=[topic])
    with Writing(lab["east"].bootstrap, topic, 2), _run(file, tmp_path) as first:
        grows(lab["west"].bootstrap, f"{alias}.{topic}")

        refused = called("run", file)

        assert refused.code == RIVAL, refused
        refused.quiet()
        assert f"process {first.pid} on {socket.gethostname()}" in refused.err
        assert "--take-over" in refused.err
        grows(lab["west"].bootstrap, f"{alias}.{topic}")  # the first goes on
        assert first.alive()

        with _run(file, tmp_path, "--take-over") as second:
            loser = first.ended(180)
            assert loser.code == RIVAL, loser
            loser.quiet()
            assert f"process {second.pid} on" in loser.err
            assert first.family() == []
            grows(lab["west"].bootstrap, f"{alias}.{topic}")

            # Impatient: the second Ctrl-C does not wait for the lanes. What they had open is aborted, not lost.
            family = second.family()
            second.interrupt()
            second.interrupt()
            impatient = second.ended(60)
            assert impatient.code == 0, impatient
            impatient.quiet()
            assert _still_running(family) == []

    finished(file)

    assert prove(lab["east"], lab["west"], alias, topic).records > 0
    assert sum(committed(lab["west"].bootstrap, f"{alias}.{topic}")) > 0


# --- helpers ----------------------------------------------------------------------------------


def _run(file: Path, folder: Path, *words: str) -> Running:
    """`isthmus run` with its temporary files in the test's own folder, so that leftovers are its own."""
    return Running("run", file, *words, env={"TMPDIR": str(folder)})


def _ends_cleanly(running: Running, ask: Any, folder: Path) -> None:
    family = running.family()
    assert len(family) >= 3, family  # a JVM, Spark's daemon, a lane
    assert list(folder.glob("isthmus-spark-*")) != []
    ask()
    ended: Ended = running.ended(ENDS_WITHIN_S + 45)
    assert ended.code == 0, ended
    ended.quiet()
    assert "positions reached" in ended.out
    assert _still_running(family) == []
    assert list(folder.glob("isthmus-spark-*")) == []


def _still_running(family: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def _job_groups(port: int) -> set[str]:
    """Job groups of running jobs, as Spark's own page tells them."""
    root = f"http://127.0.0.1:{port}/api/v1/applications"
    (application,) = _page(root)
    return {job["jobGroup"] for job in _page(f"{root}/{application['id']}/jobs?status=running")}


def _page(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return json.load(answer)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
