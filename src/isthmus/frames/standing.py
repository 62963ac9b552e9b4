"""How far queries got that write by a sink: what is on record in the target, and what follows from it for a batch.

One compacted topic with one partition, shared by all sinks into a cluster. Keys, all JSON values:
    stream/<query>        Spark's id of the streaming query and its last batch; written in that batch's transaction
    job/<query>/<batch>   a batch that was written by name; in its transaction, too
    topics/<query>        topics that it may have written to, on record before the first row (a fence needs them all)
    owner/<query>         the driver that began to write last, on record before its fence
    claim/<query>/...     tasks that write a share of a batch (I3), taken away when nobody can write by it any more

What must stay true: a batch is written if it is the next one, passed over if it is the last one on record, and anything
else is refused: nothing is skipped or repeated in silence. Of two drivers the one that is `owner` goes on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.engine import control
from isthmus.engine.marked import MarkedLog, Scan
from isthmus.errors import TargetError
from isthmus.model import TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST
from isthmus.wire.records import Record

SINKS = "mm2-isthmus-sinks.internal"
QUERY = re.compile(r"[a-zA-Z0-9._-]{1,200}")

Pairs = list[tuple[bytes, bytes | None]]


@dataclass(frozen=True, slots=True)
class Turn:
    """A batch that is to be written: of a streaming query, by its id and number; or by name; or neither."""

    query_id: str = ""
    number: int = -1
    name: str = ""

    def value(self, query: str, more: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """What stands in its transaction."""
        if self.query_id:
            return f"stream/{query}", {"query_id": self.query_id, "batch": self.number, **more}
        return f"job/{query}/{self.name}", dict(more)


class SinkLog(MarkedLog):
    """What is on record of one query."""

    def __init__(self, client: Client, query: str) -> None:
        super().__init__(client, SINKS)
        self.stream: Turn | None = None
        self.jobs: set[str] = set()
        self.topics: set[str] = set()
        self.claims: set[str] = set()
        self.owner = ""
        self._query = query

    async def open(self) -> None:
        if not self._scans:
            await self._client.refresh([SINKS])
            edges = await self._edges([TopicPartition(SINKS, 0)], EARLIEST)
            self._scans = {tp.partition: Scan(at) for tp, at in edges.items()}
        await self.advance()

    def refuse_undecided(self) -> None:
        """After the fence nothing of ours may be open."""
        for scan in self._scans.values():
            for producer_id, (_, records) in scan.undecided.items():
                if any(control.decode(record)[0] == f"stream/{self._query}" for record in records):
                    what = f"the fence of producer id {producer_id} is not complete"
                    raise TargetError(what, where=SINKS, hint="start again", code="FENCE")

    def remember(self, turn: Turn) -> None:
        """What was committed just now."""
        if turn.query_id:
            self.stream = turn
        else:
            self.jobs.add(turn.name)

    def _apply(self, scan: Scan, records: list[Record]) -> None:
        for record in records:
            key, value = control.decode(record)
            kind, _, rest = key.partition("/")
            query, _, name = rest.partition("/")
            if query == self._query and scan.supersedes(key, record):
                self._take_in(kind, key, name, value)

    def _take_in(self, kind: str, key: str, name: str, value: dict[str, Any] | None) -> None:
        if kind == "claim":
            (self.claims.discard if value is None else self.claims.add)(key)
        elif kind == "stream":
            self.stream = None if value is None else Turn(str(value["query_id"]), int(value["batch"]))
        elif kind == "job":
            (self.jobs.discard if value is None else self.jobs.add)(name)
        elif kind == "topics" and value is not None:
            self.topics |= set(value["topics"])
        elif kind == "owner" and value is not None:
            self.owner = str(value["driver"])


def is_written(log: SinkLog, turn: Turn, query: str, *, accept: bool) -> bool:
    """Whether this batch is on record already. Raises where it is neither that nor the next one."""
    if not turn.query_id:
        return bool(turn.name) and turn.name in log.jobs
    last, where = log.stream, f"query {query}, {SINKS}"
    if last is None:
        if turn.number > 0 and not accept:
            raise _nothing_on_record(turn, where)
        return False
    if last.query_id != turn.query_id:
        if not accept:
            raise _other_checkpoint(last, turn, where)
        return False
    if turn.number not in (last.number, last.number + 1):
        raise _out_of_order(last, turn, where)
    return turn.number == last.number


_ACCEPT = (
    'if that is meant, `KafkaSink(..., new_checkpoint="accept")` goes on with the new one: what it reads again is '
    "written again"
)


def _nothing_on_record(turn: Turn, where: str) -> TargetError:
    return TargetError(
        f"the checkpoint is at batch {turn.number}, and nothing of this query is on record in the target",
        where=where,
        hint=f"was the query's name changed, or did it write elsewhere so far? {_ACCEPT}",
        code="CHECKPOINT_LOST",
    )


def _other_checkpoint(last: Turn, turn: Turn, where: str) -> TargetError:
    return TargetError(
        f"the checkpoint was lost or replaced: batch {last.number} of streaming query {last.query_id} was written "
        f"last, and this is {turn.query_id}",
        where=where,
        hint=f"start it with its own checkpointLocation; {_ACCEPT}; another job needs another query name",
        code="CHECKPOINT_LOST",
    )


def _out_of_order(last: Turn, turn: Turn, where: str) -> TargetError:
    return TargetError(
        f"batch {turn.number} is not the next one: batch {last.number} of this query was written last",
        where=where,
        hint="was the checkpoint restored from an older copy? Begin with a new checkpointLocation and "
        'new_checkpoint="accept"; what it reads again is written again',
        code="BATCH_ORDER",
    )


def pairs(values: Mapping[str, Mapping[str, Any] | None]) -> Pairs:
    return [control.encode(key, value) for key, value in values.items()]
