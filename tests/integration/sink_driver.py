"""A driver of its own for the tests of the sink: a stream of files into a topic that dies by kill -9 at a given batch.

    python sink_driver.py WEST FOLDER TOPIC QUERY CHECKPOINT BATCH

It dies when all tasks of that batch have written, and nothing of it is committed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from isthmus.frames import KafkaSink
from isthmus.frames.seat import Seat
from isthmus.frames.standing import Turn
from isthmus.frames.tickets import Slip

PER_BATCH = 10
_DAY = 1_700_000_000


def fill(folder: Path, batches: int) -> Path:
    """Files of rows by number, each for one micro-batch; Spark takes them in the order of their times."""
    folder.mkdir()
    for batch in range(batches):
        rows = (f'{{"key": "k{n}", "value": "v{n}"}}' for n in range(PER_BATCH * batch, PER_BATCH * (batch + 1)))
        file = folder / f"{batch}.json"
        file.write_text("\n".join(rows))
        os.utime(file, (_DAY + batch, _DAY + batch))
    return folder


def masked(spark: SparkSession, folder: Path) -> DataFrame:
    """The stream that is written: every value in capitals."""
    source = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1).json(str(folder))
    return source.selectExpr("key", "upper(value) AS value")


def started(frame: DataFrame, sink: KafkaSink, checkpoint: str) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


class DeadlySeat(Seat):
    batch = -1

    async def commit(self, slips: Sequence[Slip], turn: Turn) -> None:
        if turn.number == self.batch:
            os.kill(os.getpid(), signal.SIGKILL)
        await super().commit(slips, turn)


def main() -> None:
    west, folder, topic, query, checkpoint, batch = sys.argv[1:]
    DeadlySeat.batch = int(batch)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.python.daemon.module", "isthmus.frames.daemon").getOrCreate()
    sink = KafkaSink(query, {"kafka.bootstrap.servers": west, "topic": topic})
    sink._seat = DeadlySeat(query, sink._options)
    started(masked(spark, Path(folder)), sink, checkpoint).awaitTermination()


if __name__ == "__main__":
    main()
