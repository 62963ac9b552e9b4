"""A transform: SQL over the view `records`, or a function of DataFrames, and what comes out of it.

Owns what a transform must give, and whether its rows are still where they were read. Must stay true: what is wrong is
told before anything is written, with the place in the text; columns are cast, never guessed; rows of one target
partition come out in one task, by the way they were read or by being brought together (`together`).
"""

from __future__ import annotations

import importlib
import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from isthmus.errors import ConfigError
from isthmus.frames.placing import COLUMNS
from isthmus.model import Transform

VIEW = "records"
_SEE = "see docs/transforms.md"
READ = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
_BYTES = ("binary", "string", "void")
_HEADERS = re.compile(r"array<struct<\w+:string,\w+:(binary|string|void)>>|void")
TYPES: dict[str, Callable[[str], bool]] = {
    "key": _BYTES.__contains__,
    "value": _BYTES.__contains__,
    "headers": lambda kind: bool(_HEADERS.fullmatch(kind)),
    "timestamp": ("timestamp", "timestamp_ntz").__contains__,
    "topic": ("string",).__contains__,
    "partition": ("int", "bigint", "smallint", "tinyint", "void").__contains__,
    "offset": ("bigint", "int", "void").__contains__,
}
_PACKAGE = re.compile(r"\[(AVRO|PROTOBUF)_NOT_LOADED")  # Spark has the functions, and their work in packages apart
_QUERY = re.compile(r"(\s|--[^\n]*\n|/\*.*?\*/)*(SELECT|WITH)\b", re.IGNORECASE | re.DOTALL)
# Of a plan: these leave every row in the task that read it, and in its order. All else may move rows, joins too: Spark
# may well send the records to the other side of one.
_STILL = re.compile(
    r"Project|Filter|Generate|WholeStageCodegen.*|InputAdapter|ColumnarToRow|Scan ExistingRDD|LocalTableScan|Range|"
    r"(Arrow|Batch)EvalPython|MapIn(Arrow|Pandas)|SerializeFromObject|DeserializeToObject|MapElements"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a transform before it runs. `together`: rows must be brought together by target partition."""

    together: bool
    warnings: tuple[str, ...] = ()


class Transformer:
    """One transform in a session of its own, so that views of flows do not meet."""

    def __init__(self, spark: SparkSession, transform: Transform, flow: str) -> None:
        # PySpark prints every mistake in a query with its whole Java stack; what matters of it is told by us.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
        self.session = spark.newSession()
        self._lock = threading.Lock()
        self._transform = transform
        self._where = f"transform of flow {flow}"
        self._function = None if transform.sql else self._load(transform.function)

    def apply(self, records: DataFrame) -> DataFrame:
        """The rows to be written, in the columns and types that a sink takes. One at a time: there is one view."""
        with self._lock:
            found = self._raw(records)
        self._refuse_unfit(found.schema)
        return found.selectExpr(*(f"CAST(`{name}` AS {kind}) AS `{name}`" for name, kind in COLUMNS.items()))

    def check(self) -> Shape:
        """Judge it on no records at all; raises ConfigError with the place in the text."""
        records = self.session.createDataFrame([], READ)
        if self._function is None:
            self._refuse_commands()
        found = self._raw(records)
        self._refuse_unfit(found.schema)
        plan = found._jdf.queryExecution()
        kept = _same(records, found, "topic") and _same(records, found, "partition")
        together = not kept or not _is_still(plan.executedPlan())
        warnings = () if plan.analyzed().deterministic() else (f"{self._where}: it does not always give the same",)
        return Shape(together, warnings)

    def _raw(self, records: DataFrame) -> DataFrame:
        try:
            if self._function is None:
                records.createOrReplaceTempView(VIEW)
                return self.session.sql(self._transform.sql)
            found = self._function(records)
        except (ParseException, AnalysisException) as error:
            raise self._wrong(_told(error), self._package(str(error)) or _SEE) from None
        if not isinstance(found, DataFrame):
            raise self._wrong(f"the function gave {type(found).__name__}, not a DataFrame")
        return found

    def _refuse_commands(self) -> None:
        """Spark would carry them out at once, and over again with every batch."""
        parser = self.session._jsparkSession.sessionState().sqlParser()
        try:
            plan = parser.parsePlan(self._transform.sql).toString()
        except ParseException as error:
            raise self._wrong(_told(error)) from None
        if not _QUERY.match(self._transform.sql) or "InsertIntoStatement" in plan:
            raise self._wrong("a transform is one query: SELECT ..., or WITH ... SELECT ...")

    def _refuse_unfit(self, schema: StructType) -> None:
        names = schema.names
        if missing := [name for name in COLUMNS if name not in names]:
            raise self._wrong(
                f"what comes out has no column {', '.join(missing)}",
                "keep them by `SELECT * EXCEPT (value), ... AS value FROM records`; to empty one: NULL AS name",
            )
        if doubled := [name for name in COLUMNS if names.count(name) > 1]:
            raise self._wrong(f"what comes out has {doubled[0]} twice", "take the old one away by * EXCEPT (...)")
        for name, fits in TYPES.items():
            kind = schema[name].dataType.simpleString()
            if not fits(kind):
                raise self._wrong(
                    f"column {name} is {kind}, and must be {COLUMNS[name]}",
                    f"cast it: CAST(... AS {COLUMNS[name]}), or to_json(...) for a struct",
                )

    def _load(self, name: str) -> Callable[[DataFrame], Any]:
        module, _, function = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            where = "it must be on PYTHONPATH, also of executors"
            raise self._wrong(f"{name} cannot be imported: {error}", where) from None
        if not callable(found):
            raise self._wrong(f"{name} is no function")
        loaded: Callable[[DataFrame], Any] = found
        return loaded

    def _package(self, text: str) -> str:
        """How to have the package that Spark misses."""
        missed = _PACKAGE.search(text)
        if missed is None:
            return ""
        name = f"spark-{missed[1].lower()}_2.13:{self.session.version}"
        return f"run with --conf spark.jars.packages=org.apache.spark:{name}, or with --conf spark.jars=FILE.jar"

    def _wrong(self, what: str, hint: str = _SEE) -> ConfigError:
        return ConfigError(what, where=self._where, hint=hint, code="TRANSFORM")


def _is_still(node: Any) -> bool:
    """Whether no step of a physical plan moves rows."""
    children = node.children()
    below = (_is_still(children.apply(at)) for at in range(children.size()))
    return bool(_STILL.fullmatch(node.nodeName())) and all(below)


def _same(before: DataFrame, after: DataFrame, column: str) -> bool:
    """Whether a column is the very one that was read, and not another of that name."""
    return _identity(before, column) == _identity(after, column)


def _identity(frame: DataFrame, column: str) -> int:
    output = frame._jdf.queryExecution().analyzed().output()
    found = [output.apply(at) for at in range(output.size())]
    return next(int(each.exprId().id()) for each in found if each.name() == column)


def _told(error: PySparkException) -> str:
    """Spark's first paragraph says what, its context where."""
    text = str(error).strip()
    what = text.split("\n")[0].split(" SQLSTATE")[0].strip()
    place = re.search(r"line (\d+),? pos(?:ition)?\s*(\d+)", text)
    return f"{what} (line {place[1]}, position {int(place[2]) + 1})" if place else what
