"""Isthmus: exactly-once replication of Kafka topics between clusters, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__version__ = "0.1.0"


def register(spark: SparkSession) -> None:
    """Let this session read Kafka by `format("isthmus")`."""
    from isthmus.frames.source import IsthmusSource  # not above: whoever copies topics needs no Arrow

    spark.dataSource.register(IsthmusSource)
