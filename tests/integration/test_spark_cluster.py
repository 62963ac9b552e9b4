"""Isthmus on a real Spark cluster: a standalone master and two workers from the pip-installed PySpark.

One worker and its executor are killed with -9 in the middle; replication goes on, and the result is proven by
librdkafka. The cluster's processes are guarded as those of the lab are: none of them outlives the test.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest
from tests.integration.command import Running, Writing, crossed, grows, is_running, unique, wait_for, yaml_file

from isthmus.lab import Lab
from isthmus.lab.brokers import HOST, free_ports
from isthmus.lab.guard import Guard

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 4


class SparkCluster:
    """A master and workers of one core each."""

    def __init__(self, guard: Guard, workers: int) -> None:
        self._guard = guard
        self.folder = guard.folder
        self.url = f"spark://{HOST}:{next(free_ports())}"
        port = self.url.rpartition(":")[2]
        self._spawn("master", "master.Master", "--host", HOST, "--port", port, "--webui-port", "0")
        wait_for(lambda: "I have been elected leader" in self.log("master"), what="a Spark master")
        self.workers = [self._worker(f"worker-{number}") for number in range(workers)]
        wait_for(lambda: self.log("master").count("Registering worker") == workers, what="Spark workers")

    def _worker(self, name: str) -> psutil.Process:
        sizes = "--cores", "1", "--memory", "1g"
        where = "--host", HOST, "--webui-port", "0", "--work-dir", str(self.folder / f"{name}-work")
        return self._spawn(name, "worker.Worker", *sizes, *where, self.url)

    def _spawn(self, name: str, kind: str, *words: str) -> psutil.Process:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        small = ["env", "SPARK_DAEMON_MEMORY=256m", f"SPARK_LOCAL_IP={HOST}"]
        command = [*small, str(program), f"org.apache.spark.deploy.{kind}", *words]
        return psutil.Process(self._guard.spawn(command, log=self.folder / f"{name}.log").pid)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def shipped(self) -> list[Path]:
        """The package, wherever an executor got it."""
        return list(self.folder.glob("worker-*-work/app-*/*/isthmus.zip"))

    def executors(self, number: int) -> list[psutil.Process]:
        """The executor JVMs of one worker."""
        return [child for child in self.workers[number].children() if child.name() == "java"]

    def executor(self, number: int) -> psutil.Process:
        """The one that a worker has, or will have: one that was killed is started again."""
        wait_for(lambda: self.executors(number), 120, f"an executor of worker {number}")
        return self.executors(number)[0]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    guard = Guard(Path(tempfile.mkdtemp(prefix="spark-cluster-")))
    try:
        yield SparkCluster(guard, workers=2)
    finally:
        guard.close()


def test_a_flow_with_a_transform_on_a_spark_cluster_survives_the_loss_of_executors(
    lab: Lab, cluster: SparkCluster, tmp_path: Path
) -> None:
    alias, topic = unique("cluster"), unique("topic-")
    source, target = lab["east"], lab["west"]
    source.create_topic(topic, PARTITIONS)
    more = ["transform: SELECT * FROM records"]
    file = yaml_file(tmp_path, source.bootstrap, target.bootstrap, alias=alias, topics=[topic], more=more)
    environment = {"SPARK_LOCAL_IP": HOST, "TMPDIR": str(tmp_path)}
    with Running("run", file, "--master", cluster.url, "--lanes", "2", "-o", "json", env=environment) as running:
        with Writing(source.bootstrap, topic, PARTITIONS):
            for number in (0, 1):
                grows(target.bootstrap, f"{alias}.{topic}", seconds=180)
                cluster.executor(number).kill()
            grows(target.bootstrap, f"{alias}.{topic}", seconds=180)
        assert crossed(source, target, alias, topic, seconds=180).records > 0
        running.terminate()
        ended = running.ended(90)
        assert ended.code == 0, ended
    wait_for(lambda: not cluster.executors(0) and not cluster.executors(1), 60, "executors end with the application")


def test_a_flow_on_a_spark_cluster_survives_the_loss_of_a_worker(
    lab: Lab, cluster: SparkCluster, tmp_path: Path
) -> None:
    """The last test of this cluster: it leaves one worker."""
    alias, topic = unique("cluster"), unique("topic-")
    source, target = lab["east"], lab["west"]
    earlier = set(cluster.shipped())
    source.create_topic(topic, PARTITIONS)
    # One core is left for two lanes after the kill: they take turns, epoch by epoch.
    more = ["tuning: {epoch_seconds: 2.0}"]
    file = yaml_file(tmp_path, source.bootstrap, target.bootstrap, alias=alias, topics=[topic], more=more)
    environment = {"SPARK_LOCAL_IP": HOST, "TMPDIR": str(tmp_path)}
    with Running("run", file, "--master", cluster.url, "--lanes", "2", "-o", "json", env=environment) as running:
        with Writing(source.bootstrap, topic, PARTITIONS):
            grows(target.bootstrap, f"{alias}.{topic}", seconds=180)
            assert [len(cluster.executors(number)) for number in (0, 1)] == [1, 1]
            assert len(set(cluster.shipped()) - earlier) == 2, "the package is sent to each executor"
            lost = [*cluster.workers[0].children(recursive=True)]
            executor = cluster.executors(0)[0]

            cluster.workers[0].kill()
            executor.kill()

            wait_for(lambda: not any(map(is_running, lost)), 30, f"with its executor a lane ends: {lost}")
            grows(target.bootstrap, f"{alias}.{topic}", seconds=180)
        assert crossed(source, target, alias, topic, seconds=180).records > 0
        executors = cluster.executors(1)
        running.terminate()
        ended = running.ended(90)
        assert ended.code == 0, ended
        ended.quiet()
        assert running.family() == []
        wait_for(lambda: not any(map(is_running, executors)), 60, "executors end with the application")
    (flow,) = ended.json()
    assert sum(lane["failures"] for lane in flow["lanes"]) >= 1
    # Heartbeats are written to the source as long as the flow runs: one may come after the last look at it.
    assert {row["lag"] for row in flow["partitions"] if row["topic"] == topic} == {0}
    assert list(tmp_path.glob("isthmus-spark-*")) == []
