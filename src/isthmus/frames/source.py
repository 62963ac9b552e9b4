"""`spark.read.format("isthmus")` and `spark.readStream.format("isthmus")`: Spark's interfaces, and nothing else.

Must stay true: options are judged when a DataFrame is made, before anything is asked of a broker. They travel to
executors as they were given, and references in them (`${file:...}`) are resolved by each process for itself; no value
appears in an error. What is read is decided by `planning`, and read by `reading`; both are imported where they are
needed, because Spark starts a process for each question, and most of its time would be their imports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from isthmus.errors import ConfigError, IsthmusError
from isthmus.frames import jsons
from isthmus.frames.options import Options, read_options
from isthmus.frames.ranges import Range

if TYPE_CHECKING:
    import pyarrow as pa

    from isthmus.frames.planning import Planner

NAME = "isthmus"
_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
_HEADERS = "headers array<struct<key: string, value: binary>>"

Given = dict[str, str]
Stored = dict[str, dict[str, int]]  # offsets as they stand in a checkpoint


class IsthmusSource(DataSource):  # type: ignore[misc]  # pyspark is not typed
    """What Spark makes one of for each DataFrame."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        with _telling():
            return f"{_COLUMNS}, {_HEADERS}" if _judged(self.options).headers else _COLUMNS

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(dict(self.options))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(dict(self.options))


def _judged(options: Mapping[str, str]) -> Options:
    """Whether they are for a batch or for a stream is not said yet: wrong is what is wrong for both."""
    try:
        return read_options(options, streaming=False)
    except ConfigError as error:
        try:
            return read_options(options, streaming=True)
        except ConfigError:
            raise error from None


@contextmanager
def _telling() -> Iterator[None]:
    """Spark shows an error's text and its notes: what to do is one."""
    try:
        yield
    except IsthmusError as error:
        error.add_note(f"[{error.code}] {error.hint}")
        raise


class Task(InputPartition):  # type: ignore[misc]  # as above
    """A range, for one task of Spark."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)


def _rows(given: Given, streaming: bool, task: InputPartition) -> Iterator[pa.RecordBatch]:
    wanted: Range | None = task.value
    if wanted is None:
        return  # Spark's own, where there is nothing to read
    from isthmus.frames.arrow import record_batch
    from isthmus.frames.reading import read

    with _telling():
        options = read_options(given, streaming)
        parts = read(
            options.cluster,
            wanted,
            headers=options.headers,
            fail_on_loss=options.fail_on_loss,
            answer_bytes=options.answer_bytes,
        )
        for part in parts:
            yield record_batch(part, wanted.tp)


def _planner(options: Options) -> Planner:
    from isthmus.frames.planning import Planner

    return Planner(options)


class BatchReader(DataSourceReader):  # type: ignore[misc]  # as above
    def __init__(self, given: Given) -> None:
        self._given = given
        with _telling():
            read_options(given, streaming=False)

    def partitions(self) -> list[InputPartition]:
        with _telling(), closing(_planner(read_options(self._given, streaming=False))) as planner:
            return [Task(wanted) for wanted in planner.batch()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._given, False, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # as above
    """Offsets are those of Spark's own Kafka source: {"topic": {"0": 5}}."""

    def __init__(self, given: Given) -> None:
        self._given = given
        with _telling():
            self._options = read_options(given, streaming=True)
        self._planner: Planner | None = None

    def __getstate__(self) -> Given:
        return self._given  # it travels to executors without its connections and without resolved secrets

    def __setstate__(self, given: Given) -> None:
        self.__init__(given)  # type: ignore[misc]  # all there is to it

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = _planner(self._options)
        return self._planner

    def initialOffset(self) -> Stored:
        with _telling():
            return jsons.written(self.planner.initial())

    def latestOffset(self, start: Stored, limit: ReadLimit) -> Stored:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        with _telling():
            return jsons.written(self.planner.latest(jsons.read(start), most))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.most_per_batch
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def reportLatestOffset(self) -> Stored:
        with _telling():
            return jsons.written(self.planner.latest())

    def prepareForTriggerAvailableNow(self) -> None:
        with _telling():
            self.planner.end_with_now()

    def partitions(self, start: Stored, end: Stored) -> list[InputPartition]:
        with _telling():
            return [Task(wanted) for wanted in self.planner.ranges(jsons.read(start), jsons.read(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._given, True, partition)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None
