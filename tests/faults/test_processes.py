"""Processes that die, or stop, in the middle of the work (invariant I8): no lane outlives its driver, nothing is
lost or doubled, and what can go on goes on.

Each test runs the real command on real Spark while a producer writes, and ends one process of it with kill -9 (or
halts it with SIGSTOP). The proof is librdkafka's. Only processes of the command that the test started are touched.
"""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
from tests.integration.command import (
    Running,
    Writing,
    crossed,
    finished,
    grows,
    is_running,
    prove,
    statuses,
    unique,
    wait_for,
    yaml_file,
)

from isthmus.errors import MachineError, RivalError
from isthmus.lab import Lab

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

GONE_WITHIN_S = 15.0  # measured below one second; the machine may be busy
PARTITIONS = 6


class Stage:
    """A topic that is written to, and a flow of three lanes that carries it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.alias, self.topic = unique("fault"), unique("topic-")
        self.source, self.target = lab["east"], lab["west"]
        self.folder = folder
        self.source.create_topic(self.topic, PARTITIONS)
        self.file = yaml_file(
            folder, self.source.bootstrap, self.target.bootstrap, alias=self.alias, topics=[self.topic], lanes=3
        )

    def run(self, *words: str) -> Running:
        return Running("run", self.file, *words, env={"TMPDIR": str(self.folder)})

    def writing(self) -> Writing:
        return Writing(self.source.bootstrap, self.topic, PARTITIONS, per_second=1_500)

    def grows(self) -> None:
        grows(self.target.bootstrap, f"{self.alias}.{self.topic}", seconds=120)

    def pids(self) -> dict[int, int]:
        """The process of each lane, as the lanes report it."""
        return {lane: value["pid"] for lane, value in statuses(self.target.bootstrap, self.alias).items()}

    def orders(self) -> dict[int, str]:
        return {lane: value["order"] for lane, value in statuses(self.target.bootstrap, self.alias).items()}

    def crossed(self) -> None:
        assert crossed(self.source, self.target, self.alias, self.topic).records > 0


@pytest.fixture
def stage(lab: Lab, tmp_path: Path) -> Stage:
    return Stage(lab, tmp_path)


def _gone(processes: list[psutil.Process], seconds: float = GONE_WITHIN_S) -> None:
    wait_for(lambda: not any(map(is_running, processes)), seconds, f"these are gone: {processes}")


def test_i8_a_killed_worker_is_planned_again_and_a_killed_daemon_takes_its_lanes_along(stage: Stage) -> None:
    with stage.run("-o", "json") as running:
        with stage.writing():
            stage.grows()
            wait_for(lambda: len(stage.pids()) == 3, what="all lanes report")
            orders, pids = stage.orders(), stage.pids()
            workers = {worker.pid: worker for worker in running.lanes()}
            assert set(pids.values()) == set(workers)

            workers[pids[0]].kill()

            wait_for(lambda: stage.orders()[0] != orders[0], what="lane 0 is planned again")
            stage.grows()
            assert {lane: order for lane, order in stage.orders().items() if lane > 0} == {1: orders[1], 2: orders[2]}
            assert stage.pids()[0] != pids[0]

            orders, workers = stage.orders(), {worker.pid: worker for worker in running.lanes()}
            daemon = running.daemon()
            daemon.kill()

            _gone([daemon, *workers.values()])
            wait_for(lambda: all(stage.orders()[lane] != orders[lane] for lane in orders), what="all are planned again")
            stage.grows()
        stage.crossed()
        running.terminate()
        ended = running.ended()

    assert ended.code == 0, ended
    ended.quiet()
    failures = [lane["failures"] for lane in ended.json()[0]["lanes"]]
    assert failures[0] >= 2, failures
    assert min(failures) >= 1, failures


def test_i8_no_process_outlives_a_killed_driver_or_a_killed_jvm_and_the_next_run_resumes(stage: Stage) -> None:
    with stage.writing():
        with stage.run() as first:
            stage.grows()
            family, lanes = first.family(), first.lanes()
            assert lanes

            first.kill()

            _gone(lanes)
            _gone(family, 30)

        with stage.run() as second:  # without --take-over: a silent lease counts as dead after seconds
            # Markers of the killed run's last transaction let the target grow too: wait for lanes of this one.
            wait_for(second.lanes, 120, "the second run has lanes")
            stage.grows()
            jvm, lanes = second.jvm(), second.lanes()
            assert lanes

            jvm.kill()

            _gone(lanes)
            ended = second.ended()
            assert ended.code == MachineError.exit_code, ended
            assert "error [SPARK_LOST]" in ended.err
            ended.quiet()
            assert second.family() == []
            assert list(stage.folder.glob("isthmus-spark-*/jvm.out")) == [_left_by_the_killed(stage)]

    finished(stage.file)

    assert prove(stage.source, stage.target, stage.alias, stage.topic).records > 0


def _left_by_the_killed(stage: Stage) -> Path:
    """Nobody cleans up after kill -9: one folder, of the first run, and no other."""
    (folder,) = stage.folder.glob("isthmus-spark-*")
    return folder / "jvm.out"


def test_i8_a_lane_that_was_halted_and_wakes_after_another_took_over_does_no_harm(stage: Stage) -> None:
    with stage.writing(), stage.run() as first:
        stage.grows()
        zombies, driver = first.lanes(), psutil.Process(first.pid)
        # The driver halts too, as on a machine that is paused: nobody is there to end the lanes.
        for process in (driver, *zombies):
            process.send_signal(signal.SIGSTOP)

        with stage.run("--take-over") as second:
            wait_for(second.lanes, 120, "the second run has lanes")
            stage.grows()

            for zombie in zombies:
                zombie.send_signal(signal.SIGCONT)
            stage.grows()
            stage.grows()
            assert second.alive()

            driver.send_signal(signal.SIGCONT)
            beaten = first.ended(120)
            assert beaten.code == RivalError.exit_code, beaten
            assert f"process {second.pid}" in beaten.err
            beaten.quiet()
            _gone(zombies)
            stage.grows()
            second.terminate()
            ended = second.ended()
            assert ended.code == 0, ended
            ended.quiet()

    finished(stage.file)

    assert prove(stage.source, stage.target, stage.alias, stage.topic).records > 0
