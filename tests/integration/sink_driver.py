"""A driver of its own for the tests of the sink: a stream between two topics that dies by kill -9 at a given batch.

    python sink_driver.py EAST WEST SOURCE TARGET QUERY CHECKPOINT BATCH before|after

It dies when all tasks have written and nothing is committed, or when the transaction is committed and Spark does not
know it yet.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from isthmus.frames import KafkaSink, register
from isthmus.frames.seat import Seat
from isthmus.frames.standing import Turn
from isthmus.frames.tickets import Slip

PER_BATCH = 10


def masked(spark: SparkSession, east: str, topic: str) -> DataFrame:
    """The stream that is written: every value once more in capitals."""
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(PER_BATCH)}
    source = spark.readStream.format("isthmus").options(**{"kafka.bootstrap.servers": east, **options}).load()
    return source.selectExpr("key", "upper(CAST(value AS STRING)) AS value", "timestamp")


def started(frame: DataFrame, sink: KafkaSink, checkpoint: str) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


class DeadlySeat(Seat):
    batch, when = -1, ""

    async def commit(self, slips: Sequence[Slip], turn: Turn) -> None:
        mine = turn.number == self.batch
        if mine and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        await super().commit(slips, turn)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    east, west, source, target, query, checkpoint, batch, when = sys.argv[1:]
    DeadlySeat.batch, DeadlySeat.when = int(batch), when
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.python.daemon.module", "isthmus.frames.daemon").getOrCreate()
    register(spark)
    sink = KafkaSink(query, {"kafka.bootstrap.servers": west, "topic": target})
    sink._seat = DeadlySeat(query, sink._options)
    started(masked(spark, east, source), sink, checkpoint).awaitTermination()


if __name__ == "__main__":
    main()
