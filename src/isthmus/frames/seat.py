"""A driver's hold on one query of a sink: who may write, where to, and the transactions of its batches.

    look (what is on record) -> hold (owner, fence, read, claims away) -> begin -> commit, or leave

What must stay true: I2, the transactional id is fenced before progress is read for good; under TV1 by a barrier over
every partition that an earlier holder could write to, which is why topics are on record before they are written to.
Progress is in the transaction (I1). A driver that finds a later owner on record never fences that one in return.
"""

from __future__ import annotations

import contextlib
import socket
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence

from isthmus.engine import control
from isthmus.engine.fencing import IdFence
from isthmus.engine.internal import PROGRESS_SETTINGS, create_needed
from isthmus.errors import IsthmusError, RivalError, TargetError
from isthmus.frames.deeds import Deeds, Entry, Terms
from isthmus.frames.routes import INTERNAL
from isthmus.frames.sink_options import SinkOptions
from isthmus.frames.standing import SINKS, SinkLog, Turn, pairs
from isthmus.frames.tickets import Place, Slip, Ticket
from isthmus.model import Cluster, TopicPartition
from isthmus.wire.admin import NewTopic
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal
from isthmus.wire.records import encode_records
from isthmus.wire.rows import BATCH_BYTES
from isthmus.wire.transaction import Identity, end, speaks_second_protocol

_REQUEST_TIMEOUT_MS = 30_000
_REPLICAS = 3
_PROGRESS = TopicPartition(SINKS, 0)
_SMALLER = 16
_IDLE_S = 3600.0  # brokers forget an id that was not used for days
_WORN = 500  # transactions under TV1, where claims can be taken away after a fence only


class Seat:
    """One driver and one query; everything here belongs to one event loop."""

    def __init__(self, query: str, options: SinkOptions) -> None:
        self._query = query
        self._options = options
        self._driver = uuid.uuid4().hex[:12]
        self._client = Client(options.cluster)
        self._journal = Journal(self._client, SINKS)
        self._sat = False  # whether we were the owner before
        self._deeds: Deeds | None = None
        self._second = False
        self._used = 0
        self._touched = 0.0
        self._batch_bytes = BATCH_BYTES
        self.log = SinkLog(self._client, query)

    @property
    def held(self) -> bool:
        """Whether the next batch may begin without another fence."""
        idle = time.monotonic() - self._touched > _IDLE_S
        return self._deeds is not None and not idle and (self._second or self._used < _WORN)

    def close(self) -> None:
        self._client.close()

    # -- taking the seat -------------------------------------------------------------------------

    async def look(self) -> None:
        """What is on record. Raises where somebody else has taken the query over from us."""
        await self._client.start()
        factor = min(_REPLICAS, len(self._client.nodes))
        await create_needed(self._client, [NewTopic(SINKS, 1, factor, PROGRESS_SETTINGS)], TargetError)
        await self.log.open()
        if self._sat and self.log.owner != self._driver:
            raise RivalError(
                f"another driver writes query {self._query} now; nothing more is written by this one",
                where=f"cluster {self._client.cluster.alias}, {SINKS}",
                hint="let one of them run; two jobs need two query names",
            )

    async def hold(self) -> None:
        """Nobody else can write by this query from now on, and what they have committed is known."""
        await control.write(self._journal, {self._key("owner"): {"driver": self._driver, "host": socket.gethostname()}})
        self._sat = True
        self._second = speaks_second_protocol(self._client)
        fence = IdFence(self._client, self._options.timeout_ms, second_protocol=self._second, waiting=lambda _: None)
        who = await fence.with_barrier(f"isthmus.sink.{self._query}", await self._reachable())
        floors: dict[int, int] = {}
        if self._second:
            floors, who = await fence.progress_barrier(who, [_PROGRESS])
        await self.log.advance(floors)
        self.log.refuse_undecided()
        if self.log.claims:
            await control.write(self._journal, dict.fromkeys(sorted(self.log.claims)))
        self._deeds = self._new_deeds(who)
        self._used, self._touched = 0, time.monotonic()

    async def _reachable(self) -> list[TopicPartition]:
        """Every partition that an earlier holder could write to."""
        known = sorted(self.log.topics)
        await self._client.refresh([SINKS, *known])
        found = [name for name in known if name in self._client.topics]
        data = [TopicPartition(name, number) for name in found for number in self._client.topics[name].partitions]
        return [*data, _PROGRESS]

    def _new_deeds(self, who: Identity) -> Deeds:
        cluster = self._options.cluster
        terms = Terms(
            name=f"{self._query}/{self._driver}.{uuid.uuid4().hex[:8]}",
            cluster=Cluster(alias=cluster.alias, bootstrap=cluster.bootstrap),  # tasks read the options for themselves
            claims_topic=SINKS,
            second_protocol=self._second,
            codec=self._options.codec,
            timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        return Deeds(self._client, terms, [who])

    def _key(self, kind: str) -> str:
        return f"{kind}/{self._query}"

    # -- where rows may go -----------------------------------------------------------------------

    async def admit(self, names: Iterable[str]) -> None:
        """Topics that rows are to go to; on record before the first row."""
        wanted = sorted(set(names))
        await self._client.refresh(wanted)
        for name in wanted:
            if INTERNAL.fullmatch(name):
                raise self._no_place(name, "is an internal topic, and nothing for rows")
            if name not in self._client.topics:
                raise self._no_place(name, "is not there")
        if not self.log.topics >= set(wanted):
            topics = sorted(self.log.topics | set(wanted))
            await control.write(self._journal, {self._key("topics"): {"topics": topics}})
            self.log.topics |= set(wanted)

    def _no_place(self, name: str, why: str) -> TargetError:
        return TargetError(
            f"topic {name} {why}; nothing was written",
            where=f"query {self._query}, cluster {self._client.cluster.alias}",
            hint="create it, or correct the name",
            code="UNKNOWN_TOPIC",
        )

    async def places(self) -> Mapping[str, Place]:
        names = [self._options.topic] if self._options.topic else sorted(self.log.topics)
        if self._options.topic:
            await self.admit(names)
        else:
            await self._client.refresh(names)
        return {name: self._place(name) for name in names if name in self._client.topics}

    def _place(self, name: str) -> Place:
        info = self._client.topics[name]
        return Place(topic=name, partitions=len(info.partitions), topic_id=info.topic_id)

    # -- one batch -------------------------------------------------------------------------------

    async def begin(self) -> Ticket:
        places = await self.places()
        since = await self._journal.end()
        return await self._writing.begin(places, since, self._batch_bytes)

    async def commit(self, slips: Sequence[Slip], turn: Turn) -> None:
        """Rows and progress as one; under TV2 the claims go with them, because the epoch does."""
        records = sum(sum(slip.counts.values()) for slip in slips)
        key, value = turn.value(self._query, {"records": records, "at": int(time.time() * 1000)})
        spent = sorted(slip.claim for slip in slips if slip.claim) if self._second else []
        body = encode_records(pairs({key: value, **dict.fromkeys(spent)}), int(time.time() * 1000))
        await self._writing.close(slips, [Entry(_PROGRESS, self._client.topic_id(SINKS), body)])
        self.log.remember(turn)
        self._used += 1
        self._touched = time.monotonic()

    def makes_smaller(self) -> bool:
        """The target's limit is on batches as it stores them: they are made smaller until each has one record."""
        before, self._batch_bytes = self._batch_bytes, max(1, self._batch_bytes // _SMALLER)
        return self._batch_bytes < before

    async def leave(self) -> None:
        """Give up what is open, as far as that can be done; the next batch begins with a fence."""
        deeds, self._deeds = self._deeds, None
        if deeds is not None:
            with contextlib.suppress(IsthmusError):  # whoever comes next fences, and that ends it as well
                await end(self._client, deeds.who, commit=False, second_protocol=self._second, deadline_s=5)

    @property
    def _writing(self) -> Deeds:
        assert self._deeds is not None  # noqa: S101 - callers hold the seat
        return self._deeds
