"""Any DataFrame as rows that a sink writes, and the job that writes them; blocking, for the caller's own thread.

    columns -> [place -> bring together by topic and partition -> sort] -> write

Must stay true: what is wrong with the columns is told before anything is written. The rows of one target partition are
written by one task, and in the order that they have in the DataFrame: of its tasks, and within each of them. References
in options are resolved by each process for itself, so no secret travels that was not written into them.
"""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from isthmus.errors import ConfigError, IsthmusError, MachineError
from isthmus.frames import writing
from isthmus.frames.options import read_cluster
from isthmus.frames.placing import COLUMNS, PLACED
from isthmus.frames.tickets import Slip, Ticket
from isthmus.frames.transform import TYPES

if TYPE_CHECKING:
    import pyarrow as pa

_GIVEN = ("key", "value", "headers", "timestamp", "topic", "partition")
_LOST = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure|FetchFailed|Python worker .*crashed")


def outgoing(frame: DataFrame, topic: str, query: str) -> DataFrame:
    """The columns that are written, in their types. `topic`: where all rows go, or empty."""
    found = {name: _column(frame, name, query) for name in _GIVEN}
    if not found["value"]:
        raise _unfit(query, "there is no column `value`", "a DataFrame needs at least that: SELECT ... AS value")
    if not topic and not found["topic"]:
        hint = "set the option `topic`, or give each row its own in a column `topic`"
        raise _unfit(query, "nothing says to which topic rows go", hint)
    given = {name: _cast(column, COLUMNS[name]) for name, column in found.items()}
    now = f"timestamp_millis({int(time.time() * 1000)})"
    given["timestamp"] = f"coalesce({given['timestamp']}, {now})"
    if topic:
        given["topic"] = _text(topic)
    given["offset"] = "monotonically_increasing_id()"
    return frame.selectExpr(*(f"{given[name]} AS `{name}`" for name in COLUMNS))


def write(frame: DataFrame, ticket: Ticket, given: Mapping[str, str]) -> list[Slip]:
    """All rows into the open transaction. MachineError where a process was lost on the way: that may be tried again;
    an error of what the DataFrame itself does comes as Spark tells it."""
    parts = sum(place.partitions for place in ticket.places.values())
    width = max(1, min(parts, frame.sparkSession.sparkContext.defaultParallelism))
    rows = frame.mapInArrow(partial(writing.place, ticket), PLACED)
    rows = rows.repartition(width, "topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    try:
        found = rows.mapInArrow(partial(_write, dict(given), ticket), writing.SLIPS).collect()
    except Exception as error:
        if _LOST.search(str(error)):
            raise MachineError("a process that wrote rows was lost", code="BATCH_LOST") from error
        raise
    return [pickle.loads(row["slip"]) for row in found]  # noqa: S301 - from our own tasks


def _write(given: Mapping[str, str], ticket: Ticket, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        here = replace(ticket, cluster=read_cluster(given))
    except IsthmusError as error:
        yield writing.row(Slip(error=error))
        return
    yield from writing.write(here, batches)


def _column(frame: DataFrame, name: str, query: str) -> str:
    """The DataFrame's own spelling of a column, or nothing; names differ by more than case."""
    spelled: list[str] = [each for each in frame.columns if each.lower() == name]
    if len(spelled) > 1:
        raise _unfit(query, f"there are {len(spelled)} columns `{name}`", "leave one of them")
    if not spelled:
        return ""
    kind = frame.schema[spelled[0]].dataType.simpleString()
    if not TYPES[name](kind):
        hint = f"cast it: CAST(... AS {COLUMNS[name]}), or to_json(...) for a struct"
        raise _unfit(query, f"column `{name}` is {kind}, and must be {COLUMNS[name]}", hint)
    return spelled[0]


def _cast(column: str, kind: str) -> str:
    return f"CAST({f'`{column}`' if column else 'NULL'} AS {kind})"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _unfit(query: str, what: str, hint: str) -> ConfigError:
    return ConfigError(f"{what}; nothing was written", where=f"query {query}", hint=hint, code="COLUMNS")
