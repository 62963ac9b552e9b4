"""The disk of the machine that Spark runs on is full: what is true is in the target cluster, so nothing is lost, and a
flow that runs goes on. Really full: a small file system, filled to its last byte.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from tests.faults.test_full_disk import SmallDisk, disk
from tests.integration.command import Running, Writing, fill, finished, grows, prove, unique, yaml_file

from isthmus.engine.spark import open_spark
from isthmus.errors import MachineError
from isthmus.lab import Lab

__all__ = ["disk"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def test_a_flow_goes_on_when_the_disk_of_spark_is_full_and_workers_die(
    lab: Lab, disk: SmallDisk, tmp_path: Path
) -> None:
    topic, alias = unique("t-"), unique("a")
    east, west = lab["east"], lab["west"]
    fill(east, topic, 1_000)
    file = yaml_file(tmp_path, east.bootstrap, west.bootstrap, alias=alias, topics=[topic], lanes=2)
    room = {"TMPDIR": str(disk.folder), "SPARK_LOCAL_DIRS": str(disk.folder)}
    with Running("run", file, env=room) as flow, Writing(east.bootstrap, topic, 2):
        grows(west.bootstrap, f"{alias}.{topic}")
        assert any(disk.folder.iterdir()), "Spark keeps its files there"
        disk.fill()
        flow.lanes()[0].kill()
        grows(west.bootstrap, f"{alias}.{topic}")
        flow.daemon().kill()
        grows(west.bootstrap, f"{alias}.{topic}")
        flow.terminate()
        ended = flow.ended()
    assert ended.code == 0, ended
    ended.quiet()
    finished(file)
    prove(east, west, alias, topic)


def test_spark_starts_with_its_own_disk_full_and_copies_all(lab: Lab, disk: SmallDisk, tmp_path: Path) -> None:
    topic, alias = unique("t-"), unique("a")
    fill(lab["east"], topic, 1_000)
    file = yaml_file(tmp_path, lab["east"].bootstrap, lab["west"].bootstrap, alias=alias, topics=[topic])
    disk.fill()
    with Running("run", file, "--until-caught-up", env={"SPARK_LOCAL_DIRS": str(disk.folder)}) as flow:
        ended = flow.ended()
    assert ended.code == 0, ended
    prove(lab["east"], lab["west"], alias, topic)


def test_a_start_without_any_place_for_files_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(MachineError, match="Spark has no place for its files: No such file or directory") as refused:
        open_spark("local[*]", 1, "test", {})
    assert "TMPDIR" in refused.value.hint
