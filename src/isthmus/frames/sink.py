"""`KafkaSink`: any DataFrame into Kafka, stream or batch, exactly once.

    sink = KafkaSink(query="masked-orders", options={"kafka.bootstrap.servers": "west-1:9092", "topic": "orders"})
    frame.writeStream.foreachBatch(sink).option("checkpointLocation", "...").start()
    sink.write(frame)

Must stay true: one batch is one transaction, with its progress inside; what cannot be committed is aborted. A batch is
tried again only where a process or a broker was lost, and only after a fence; whether it was written after all is read
from the target then, never guessed. What may be written is decided by `standing`, by whom by `seat`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from pyspark.sql import DataFrame

from isthmus.errors import (
    BadRecord,
    BrokerUnreachable,
    ConfigError,
    IsthmusError,
    MachineError,
    OrderVoid,
    RivalError,
    TargetError,
)
from isthmus.frames.deeds import Overlap
from isthmus.frames.loop import Loop
from isthmus.frames.options import wrong
from isthmus.frames.outgoing import outgoing, write
from isthmus.frames.seat import Seat
from isthmus.frames.sink_options import read_sink_options
from isthmus.frames.standing import QUERY, Turn, is_written
from isthmus.frames.tickets import Slip
from isthmus.frames.writing import LARGE

_QUERY_ID = "sql.streaming.queryId"  # of the thread that Spark calls us in; it lives in the checkpoint
_TRIES, _PAUSE_S = 4, 0.5
_AGAIN = ("BATCH_LOST", "TARGET_REFUSED", "UNREACHABLE", "VOID", "CLAIMED", "SWALLOWED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of a batch. `skipped`: it was on record already."""

    records: int = 0
    bytes: int = 0
    skipped: bool = False


class KafkaSink:
    """Writes the batches of one query; `query` names it in the target, and one driver writes by a name at a time."""

    def __init__(self, query: str, options: Mapping[str, object], *, new_checkpoint: str = "refuse") -> None:
        if not QUERY.fullmatch(query):
            raise wrong("query", "it has 1 to 200 letters, digits, `.`, `_` or `-`")
        if new_checkpoint not in ("refuse", "accept"):
            raise wrong("new_checkpoint", f"`{new_checkpoint}` is neither refuse nor accept")
        self.last: Written | None = None
        self._query = query
        self._given = {name: str(value) for name, value in options.items()}
        self._options = read_sink_options(self._given)
        self._accept = new_checkpoint == "accept"
        self._lock = threading.Lock()
        self._loop: Loop | None = None
        self._seat = Seat(query, self._options)
        self._rival: RivalError | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """One micro-batch of a streaming query, as `foreachBatch` hands it over."""
        query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if not query_id:
            hint = "give the sink to writeStream.foreachBatch(...); a batch is written by sink.write(frame)"
            raise _told(ConfigError("this is no batch of a streaming query", where=self._where, hint=hint))
        self._deliver(frame, Turn(query_id, int(batch_id)))

    def write(self, frame: DataFrame, batch: str = "") -> Written:
        """A batch. One with a name that was written before is recognised and passed over."""
        if len(batch) > 200:
            raise wrong("batch", "a name has 200 characters at most")
        return self._deliver(frame, Turn(name=batch))

    def close(self) -> None:
        """Let connections go; the next batch would open them again."""
        with self._lock:
            if self._loop is not None:
                self._loop.run(self._closed())
                self._loop.close()
                self._loop, self._seat = None, Seat(self._query, self._options)

    def __enter__(self) -> KafkaSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    @property
    def _where(self) -> str:
        return f"query {self._query}"

    async def _closed(self) -> None:
        await self._seat.leave()
        self._seat.close()

    # -- one batch -------------------------------------------------------------------------------

    def _deliver(self, frame: DataFrame, turn: Turn) -> Written:
        with self._lock:
            try:
                rows = outgoing(frame, self._options.topic, self._query)
                self.last = self._insist(rows, turn)
            except IsthmusError as error:
                raise _told(self._named(error)) from error.__cause__
            return self.last

    def _insist(self, rows: DataFrame, turn: Turn) -> Written:
        """Until it is written; what heals by itself is tried some times."""
        if self._rival is not None:
            raise self._rival
        left = _TRIES
        while True:
            try:
                written = self._once(rows, turn)
            except (BrokerUnreachable, MachineError, OrderVoid, TargetError) as error:
                left -= 1
                if error.code not in _AGAIN or not left:
                    raise
                time.sleep(_PAUSE_S)
            except BadRecord as error:
                if error.code != LARGE or not self._seat.makes_smaller():
                    raise
            except RivalError as error:
                self._rival = error  # it stays so: two drivers that fence each other would never end
                raise
            else:
                if written is not None:
                    return written

    def _once(self, rows: DataFrame, turn: Turn) -> Written | None:
        """One transaction; None where rows named topics that had no place yet."""
        loop = self._loop = self._loop or Loop()
        if not self._seat.held:
            loop.run(self._seat.look())
            if self._is_written(turn):  # before the fence: a job that may not write shall not stop the one that may
                return Written(skipped=True)
            loop.run(self._seat.hold())
        if self._is_written(turn):
            return Written(skipped=True)
        try:
            ticket = loop.run(self._seat.begin())
            slips = write(rows, ticket, self._given)
            unknown = {name for slip in slips for name in slip.unknown}
            if not unknown:
                loop.run(self._seat.commit(slips, turn))
                return _sum(slips)
        except Overlap:
            self._leave()
            raise MachineError("two tasks wrote into one partition", code="BATCH_LOST") from None
        except BaseException:
            self._leave()
            raise
        self._leave()
        loop.run(self._seat.admit(unknown))
        return None

    def _is_written(self, turn: Turn) -> bool:
        return is_written(self._seat.log, turn, self._query, accept=self._accept)

    def _leave(self) -> None:
        if self._loop is not None:
            self._loop.run(self._seat.leave())

    def _named(self, error: IsthmusError) -> IsthmusError:
        """What to do about it, for a sink."""
        if isinstance(error, BadRecord):
            hint = "each row needs a topic, and a partition that is there, or NULL; the target's settings must allow it"
            return BadRecord(error.message, where=self._where, hint=hint, code=error.code)
        if isinstance(error, OrderVoid) and not error.hint:
            hint = "if its tasks write for longer than that, raise kafka.transaction.timeout.ms"
            return OrderVoid(error.message, where=error.where, hint=hint, code=error.code)
        return error


def _sum(slips: list[Slip]) -> Written:
    records = sum(sum(slip.counts.values()) for slip in slips)
    return Written(records=records, bytes=sum(slip.bytes for slip in slips))


def _told(error: IsthmusError) -> IsthmusError:
    """Spark shows an error's text and its notes: what to do is one."""
    note = f"[{error.code}] {error.hint}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
    return error
