"""Records of Kafka as rows of Spark's DataFrames: `register(spark)`, then `format("isthmus")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Let this session read Kafka by `format("isthmus")`."""
    from isthmus.frames.source import IsthmusSource  # not above: the bench reads columns without Spark

    spark.dataSource.register(IsthmusSource)
