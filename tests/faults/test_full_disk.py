"""A target whose disk is full, really: a small file system that somebody else has filled. A failover onto it is refused
and changes nothing; a flow into it waits, and goes on with the very next record when there is room again.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.crossing import Crossing, cross
from tests.integration.command import called
from tests.integration.sources import Pair, forget_clients, wait_until
from tests.integration.test_failover import OPTIONS, refused
from tests.integration.test_resolve import file_of

from isthmus.dr.failover import fail_over, plan_failover
from isthmus.lab import ClusterSpec, Lab, LabCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PATIENCE_S = 120.0
SIZE, LARGER = "96m", "192m"
LITTLE = 4 << 20  # too little to begin with, and enough for a broker that has nothing to do
FRUGAL = {"log.index.size.max.bytes": "4096"}


class SmallDisk:
    """A file system of its own, which can be filled and enlarged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, leave: int = 0) -> None:
        """Until this much is left."""
        with self._ballast.open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
            while shutil.disk_usage(self.folder).free > leave:
                ballast.write(bytes(4096))

    def empty(self) -> None:
        self._ballast.unlink()

    def enlarge(self) -> None:
        mount("-o", f"remount,size={LARGER}", str(self.folder))


def mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder))
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=60)


@pytest.fixture
def tight(disk: SmallDisk) -> Iterator[LabCluster]:
    with Lab([ClusterSpec(name="tight", properties=FRUGAL)], folder=disk.folder) as clusters:
        yield clusters["tight"]
    forget_clients()


def test_a_target_whose_disk_is_full_is_not_failed_over_to_and_loses_nothing(
    lab: Lab, disk: SmallDisk, tight: LabCluster, tmp_path: Path
) -> None:
    pair = Pair({"east": lab["east"], "tight": tight}, "east", "tight")
    topic = pair.topic("filling")
    pair.write(topic, 100)
    flow = pair.flow()
    cross(flow)
    file = file_of(pair, tmp_path)

    disk.fill(leave=LITTLE)
    for call in (plan_failover, fail_over):
        error = refused(lambda: call(flow, OPTIONS))  # noqa: B023 - used within this turn only
        assert (error.code, str(disk.folder) in error.message) == ("TARGET_FULL", True), error
    assert alive(tight), "nothing was written to find out"
    doctor = called("doctor", file)
    assert (doctor.code, "disks" in doctor.out, str(disk.folder) in doctor.out) == (7, True, True), doctor
    disk.empty()
    assert plan_failover(flow, OPTIONS).phase == "", "nothing was changed"

    with Crossing(flow) as crossing:
        crossing.until(lambda status: status.state == "running", PATIENCE_S)
        disk.fill()
        pair.write(topic, 100, first=100)
        wait_until(lambda: not alive(tight), "the broker ends", PATIENCE_S)
        pair.write(topic, 100, first=200)
        disk.empty()
        disk.enlarge()
        tight.restart(1)
        crossing.until_copied(200, PATIENCE_S)
    pair.proven(topic, 300)
    assert fail_over(flow, OPTIONS).records_at_risk == 0


def alive(cluster: LabCluster) -> bool:
    pid = cluster.pid(1)
    with contextlib.suppress(psutil.NoSuchProcess):
        return pid is not None and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
