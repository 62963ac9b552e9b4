"""A Spark session of a test's own: most of its time is its start, so a file of tests shares one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from tests.integration.sources import PATIENCE_S

from isthmus.engine.spark import forget_jvm

_USUAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def session(settings: Mapping[str, str], environment: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """On two threads of this machine, with an environment for all of its processes."""
    usual = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**usual, **(environment or {})}.items():
            patch.setenv(name, value)
        builder = SparkSession.builder.master("local[2]").appName("tests")
        for name, value in {**_USUAL, **settings}.items():
            builder = builder.config(name, value)
        made = builder.getOrCreate()
        yield made
        made.stop()
        _end_jvm()


def _end_jvm() -> None:
    """PySpark would keep it for the next session of this process, and other tests start their own."""
    gateway = SparkContext._gateway
    forget_jvm()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(PATIENCE_S)
