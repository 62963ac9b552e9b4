"""One batch on Spark: read ranges, transform, write; blocking, for a thread of the driver.

    read (a task has whole partitions) -> transform -> [place -> bring together -> sort] -> write

Must stay true: the rows of one target partition are written by one task and in the order of their offsets. Where the
transform leaves topic, partition and tasks as they are, that holds by the way rows were read; else they are brought
together. Whether it did hold is checked by whoever counts the slips.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from isthmus.engine.spark import Spark
from isthmus.errors import BadRecord, IsthmusError, MachineError
from isthmus.frames import writing
from isthmus.frames.placing import PLACED
from isthmus.frames.ranges import Range
from isthmus.frames.tickets import Slip, Ticket
from isthmus.frames.transform import READ, Shape, Transformer
from isthmus.model import Cluster, Flow, Transform

if TYPE_CHECKING:
    import pyarrow as pa

Tasks = tuple[tuple[Range, ...], ...]
_OURS = re.compile(r"isthmus\.errors\.(\w+): (.*)")
_LOST = re.compile(
    r"Python worker exited unexpectedly|ExecutorLostFailure|SparkContext was shut down|[Jj]ob \S+ (was )?cancelled|"
    r"EOFException|SocketException"
)

# Rows that go from the JVM to Python at once.
_LEAST_ROWS, _FIRST_ROWS, _MOST_ROWS = 8, 200, 8_000
_ROWS_BYTES = 8 << 20
_GROWTH = 4


class Carriage:
    """The DataFrames of one flow."""

    def __init__(self, spark: Spark, session: SparkSession, flow: Flow, width: int) -> None:
        self.transform = flow.transform or Transform()
        self._spark, self._flow = spark, flow.name
        self._transformer = Transformer(session, self.transform, flow.name)
        self._session = self._transformer.session
        self._session.conf.set("spark.sql.session.timeZone", "UTC")
        self._session.conf.set("spark.sql.shuffle.partitions", str(width))
        # Spark would add up the size of a batch of rows anew with every row: two thirds of all its work, measured. How
        # many rows go to Python at once is found here instead.
        self._session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", "2147483647b")
        self._rows = _FIRST_ROWS
        self._source = flow.source.for_travel()
        self._width = width
        self.shape: Shape = self._transformer.check()

    def write(self, ticket: Ticket, ranges: Sequence[Range]) -> list[Slip]:
        """All rows that the ranges make, into the open transaction."""
        rows = self._transformer.apply(self._records(ranges))
        if self.shape.together:
            rows = rows.mapInArrow(partial(writing.place, ticket), PLACED)
            rows = rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
        self._session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(self._rows))
        try:
            slips = self._slips(rows.mapInArrow(partial(writing.write, ticket), writing.SLIPS), "batch")
        except MachineError:
            self._rows = max(_LEAST_ROWS, self._rows // _GROWTH)  # it may have been for want of memory
            raise
        self._adapt(max((slip.row_bytes for slip in slips), default=0))
        return slips

    def _adapt(self, row_bytes: int) -> None:
        """As many rows as make some megabytes; no sudden growth, because the next ones may be larger."""
        if row_bytes:
            self._rows = max(_LEAST_ROWS, min(_MOST_ROWS, self._rows * _GROWTH, _ROWS_BYTES // row_bytes))

    def bring_together(self) -> None:
        """Two tasks wrote one partition: Spark moved rows in a way that was not foreseen."""
        self.shape = replace(self.shape, together=True)

    def judge(self, ticket: Ticket, ranges: Sequence[Range]) -> str:
        """Why these ranges cannot be written, or nothing; nothing is sent."""
        try:
            rows = self._transformer.apply(self._records(ranges))
            slips = self._slips(rows.mapInArrow(partial(writing.judge, ticket), writing.SLIPS), "halves")
        except BadRecord as bad:
            return bad.message
        return next((slip.error.message for slip in slips if slip.error is not None), "")

    def _slips(self, frame: DataFrame, what: str) -> list[Slip]:
        try:
            rows = self._spark.grouped(f"{self._flow} {what}", f"{self._flow}: {what}", frame.collect)
        except Exception as error:  # noqa: BLE001 - Py4J raises what it likes
            raise _judged(error) from None
        return [pickle.loads(row["slip"]) for row in rows]  # noqa: S301 - from our own tasks

    def _records(self, ranges: Sequence[Range]) -> DataFrame:
        tasks = shared(ranges, self._width)
        ids = self._session.range(0, len(tasks), 1, len(tasks))
        return ids.mapInArrow(partial(_read, self._source, tasks), READ)


def shared(ranges: Sequence[Range], width: int) -> Tasks:
    """Ranges as tasks, every partition whole in one; the largest first, each to whoever has the least."""
    by_partition: dict[object, list[Range]] = {}
    for each in ranges:
        by_partition.setdefault(each.tp, []).append(each)
    parts = sorted(by_partition.values(), key=lambda part: -sum(each.size for each in part))
    tasks: list[list[Range]] = [[] for _ in range(min(width, len(parts)))]
    for part in parts:
        min(tasks, key=lambda task: sum(each.size for each in task)).extend(part)
    return tuple(tuple(task) for task in tasks)


def _read(source: Cluster, tasks: Tasks, ids: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from isthmus.frames.arrow import record_batch
    from isthmus.frames.reading import read

    for batch in ids:
        for number in batch.column(0).to_pylist():
            for wanted in tasks[number]:
                for part in read(source, wanted):
                    yield record_batch(part, wanted.tp)


def _judged(error: Exception) -> IsthmusError:
    """Whose fault it was: ours and the machine's heal, the transform's own comes again with the same records."""
    text = str(error)
    ours = _OURS.search(text)
    if ours and ours[1] == BadRecord.__name__:
        return BadRecord(ours[2])
    if ours or _LOST.search(text) or not isinstance(error, PySparkException):
        told = ours[2] if ours else _first(text)
        return MachineError(f"a batch was lost: {told}", code="BATCH_LOST")
    return BadRecord(_first(text))


def _first(text: str) -> str:
    """The line that tells: of a Python error the last one, of Spark's own the one with its class in brackets."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = re.findall(r"^(?:[\w.]*(?:Error|Exception)): .*$", text, re.MULTILINE)
    named = [line for line in lines if re.search(r"\[[A-Z_.]{4,}\]", line)]
    chosen = (python[-1:] or named or lines or ["no words"])[0]
    return re.sub(r"^.*?(?=\[[A-Z_.]{4,}\])", "", chosen)[:300]
