"""Records of Kafka as rows of Spark's DataFrames, and back.

`register(spark)`, then `format("isthmus")`, reads; `KafkaSink` writes any DataFrame, exactly once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from isthmus.frames.sink import KafkaSink

__all__ = ["KafkaSink", "register"]


def register(spark: SparkSession) -> None:
    """Let this session read Kafka by `format("isthmus")`."""
    from isthmus.frames.source import IsthmusSource  # not above: the bench reads columns without Spark

    spark.dataSource.register(IsthmusSource)


def __getattr__(name: str) -> Any:
    if name == "KafkaSink":
        from isthmus.frames.sink import KafkaSink  # as above

        return KafkaSink
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
