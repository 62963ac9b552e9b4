"""Making orders: fence, read progress, plan (I2), with what earlier orders have taught.

Knows which partitions wait (paused, or refused a moment ago), how many records the target takes in one batch, where
"caught up" lies. What must stay true: no order is made from progress that was read before its lane was fenced, and a
lane's ids are fenced under the protocol that the target has finalized by then. Running orders is left to the driver.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping

from isthmus.engine import control
from isthmus.engine.control import ControlView
from isthmus.engine.fencing import Fence
from isthmus.engine.forgotten import still_there
from isthmus.engine.lease import Lease
from isthmus.engine.ledger import Ledger
from isthmus.engine.letters import made_ready, to_be_fenced
from isthmus.engine.orders import Assignment, Order, Receipt
from isthmus.engine.registrar import Registrar
from isthmus.engine.resolve.record import given_up
from isthmus.engine.roster import Roster
from isthmus.engine.writer import CONNECTOR
from isthmus.errors import BrokerRefused, BrokerUnreachable, IsthmusError, SourceError
from isthmus.mm2.progress import java_partition, progress_key
from isthmus.model import Flow, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import LATEST, READ_COMMITTED, settled_offsets
from isthmus.wire.journal import Journal
from isthmus.wire.transaction import speaks_second_protocol

_KEEP_UP_EVERY_S = 5.0


class Dispatch:
    """The orders of one flow."""

    def __init__(
        self,
        target: Client,
        journal: Journal,
        roster: Roster,
        registrar: Registrar,
        lease: Lease,
        note: Callable[[str], None],
    ) -> None:
        self.ledger = Ledger(target, roster.flow.progress_topic, roster.flow.source.alias, CONNECTOR)
        self.until: dict[TopicPartition, int] = {}  # where "caught up" lies, when the run ends there
        self.resting: set[TopicPartition] = set()  # refused under the first protocol: out of orders for a while
        self._strikes: dict[TopicPartition, int] = {}  # of partitions that made an order void
        self._refusals: dict[TopicPartition, int] = {}  # likewise, by a target that was moving
        self._most_records: dict[TopicPartition, int] = {}  # what the target takes in one batch, where that was found
        self._letters: dict[TopicPartition, tuple[tuple[int, str], ...]] = {}  # records on their way to dead letters
        self._ledger_lock = asyncio.Lock()
        self._target = target
        self._journal = journal
        self._roster = roster
        self._registrar = registrar
        self._lease = lease
        self._note = note

    @property
    def _flow(self) -> Flow:
        return self._roster.flow

    def fence(self) -> Fence:
        second = speaks_second_protocol(self._target)
        return Fence(self._target, self._flow, second_protocol=second, waiting=self._await_markers)

    def _await_markers(self, name: str) -> None:
        self._note(f"waiting for markers of {name}")

    async def fence_everyone(self, view: ControlView, lanes: int) -> None:
        """Also ids of lanes that an earlier run had and this one has not."""
        most = await self.enlist(view, lanes)
        await self.fence().everyone(most, self._roster.all_targets() + self._own_partitions())
        # Orders of earlier drivers are void now, so their claims have done their work.
        old_claims = dict.fromkeys(view.under("claim/"))
        if old_claims:
            await control.write(self._journal, old_claims)

    async def enlist(self, view: ControlView, lanes: int) -> int:
        """So many lanes are on record before the last of them has an order: a start must know whom to fence. Tells the
        most that there ever were."""
        most = max(lanes, int(view.values.get("fleet", {}).get("lanes", 0)))
        if view.values.get("fleet") != {"lanes": most}:
            await control.write(self._journal, {"fleet": {"lanes": most}})
            view.values["fleet"] = {"lanes": most}
        return most

    async def fence_lanes(self, lanes: Collection[int]) -> None:
        """No attempt at any order that these lanes ever had can commit from here on, wherever it writes (I2)."""
        everywhere = self._roster.ever_written_by(lanes) + self._own_partitions()
        fence = self.fence()
        names = [self._flow.transactional_id(lane, turn) for lane in sorted(lanes) for turn in (0, 1)]
        await asyncio.gather(*(fence.with_barrier(name, everywhere) for name in names))

    @contextlib.asynccontextmanager
    async def at_rest(self, topic: str, lanes: Collection[int]) -> AsyncIterator[None]:
        """Progress of this topic as its lanes, which are held, left it: fenced, then read (I2). Nobody else reads
        meanwhile."""
        fence, copies = self.fence(), self._roster.ever_written_by(lanes) + to_be_fenced(self._target, self._flow)
        known = self._progress_of(topic) if speaks_second_protocol(self._target) else []
        progress = known or self._progress()  # a barrier must stand somewhere
        fenced = await asyncio.gather(*(fence.lane(lane, copies, progress) for lane in sorted(lanes)))
        floors: dict[int, int] = {}
        for _, barriers in fenced:
            floors |= {number: max(offset, floors.get(number, 0)) for number, offset in barriers.items()}
        async with self._ledger_lock:
            await self.ledger.advance(floors)
            yield

    async def keep_up(self) -> None:
        """Read progress as it comes, for ever: what an order, or the next start, still has to read is of seconds, not
        of a whole epoch. Trouble is for those who need it to tell."""
        while True:
            await asyncio.sleep(_KEEP_UP_EVERY_S)
            with contextlib.suppress(IsthmusError):
                async with self._ledger_lock:
                    await self._target.refresh([self._flow.progress_topic])
                    await still_there(self._target, self.ledger, self._flow.progress_topic)
                    await self.ledger.advance()

    def _progress_of(self, topic: str) -> list[TopicPartition]:
        """Where the progress of a topic is; a barrier in all of them would hold lanes up."""
        everywhere = self._progress()
        known = {tp for tp in (*self._roster.ever, *self.ledger.positions) if tp.topic == topic}
        numbers = {self._progress_number(tp, len(everywhere)) for tp in known} if everywhere else set()
        return [tp for tp in everywhere if tp.partition in numbers]

    def _own_partitions(self) -> list[TopicPartition]:
        """Where every lane may write beside the copies."""
        return self._progress() + to_be_fenced(self._target, self._flow)

    def _progress(self) -> list[TopicPartition]:
        known = self._target.topics.get(self._flow.progress_topic)
        return [TopicPartition(self._flow.progress_topic, n) for n in (known.partitions if known else ())]

    async def see_ends(self, source: Client) -> dict[TopicPartition, int]:
        """Where "caught up" lies for each partition; every leader must answer, or nothing could be promised."""
        try:
            self.until = await settled_offsets(source, self._roster.lanes, LATEST, READ_COMMITTED)
        except (BrokerUnreachable, BrokerRefused) as error:
            raise SourceError(error.message, where=error.where, hint=error.hint) from error
        return self.until

    async def make_order(
        self, lane: int, sources: list[TopicPartition], view: ControlView, topic_rates: Mapping[str, int], since: int
    ) -> Order | None:
        """Fence, read, plan (I2). None when nothing of it is left to do.

        `since`: an offset of the control topic from before the partitions were chosen. Should they change while this
        works, the lane hears of it there, and of a revision above the one that they were chosen at.
        """
        revision = self._roster.revisions[lane]
        # Before anything is waited for: a topic may be let go meanwhile, and then nobody knows its copy any more.
        copies = [self._roster.target_of(tp) for tp in sources]
        # A new connection tells what the cluster has finalized by now: the protocol may have changed.
        await self._target.start()
        own = [self._flow.progress_topic, self._flow.dead_letter_topic]
        await self._target.refresh([*own, *{copy.topic for copy in copies}])
        lettering = await made_ready(self._target, self._flow, self._note)
        second = speaks_second_protocol(self._target)
        count = await still_there(self._target, self.ledger, self._flow.progress_topic)
        numbers = {self._progress_number(tp, count) for tp in sources}
        progress = [TopicPartition(self._flow.progress_topic, n) for n in sorted(numbers)]
        targets = copies + to_be_fenced(self._target, self._flow)
        identities, floors = await self.fence().lane(lane, targets, progress)
        await self._registrar.record(identities)
        async with self._ledger_lock:
            await self.ledger.advance(floors)
            self.ledger.refuse_strangers(set(sources), {who.producer_id for who in identities})
            assignments = tuple(self.assignment(tp, view) for tp in sources if self._roster.lanes.get(tp) == lane)
        if not assignments:
            return None
        return Order(
            order_id=f"{self._lease.driver[:8]}-{lane}-{uuid.uuid4().hex[:8]}",
            flow=self._flow,
            lane=lane,
            driver=self._lease.driver,
            revision=revision,
            assignments=assignments,
            identities=identities,
            second_protocol=second,
            progress_id=self._target.topic_id(self._flow.progress_topic),
            progress_partitions=count,
            dead_letters_id=self._target.topic_id(self._flow.dead_letter_topic) if lettering else None,
            topic_rates=self._shares(topic_rates, assignments),
            control_from=since,
            origin=self._registrar.origin,
            register_id=self._registrar.source_register,
        )

    def _shares(self, rates: Mapping[str, int], assignments: Iterable[Assignment]) -> dict[str, float]:
        """What this lane may read of throttled topics: as much of the rate as it has of the partitions."""
        mine = collections.Counter(a.source.topic for a in assignments)
        return {
            topic: rate * mine[topic] / self._roster.routes[topic].partitions
            for topic, rate in rates.items()
            if mine[topic]
        }

    def assignment(self, source: TopicPartition, view: ControlView) -> Assignment:
        route = self._roster.routes[source.topic]
        return Assignment(
            source=source,
            source_id=route.source_id,
            target=self._roster.target_of(source),
            target_id=route.target_id,
            offset=self.ledger.positions.get(source, self._roster.start_of(source, view)),
            until=self.until.get(source, -1),
            strikes=self._strikes.get(source, 0),
            refusals=self._refusals.get(source, 0),
            most_records=self._most_records.get(source, 0),
            mark=self.ledger.marks.get(source, ""),
            epoch=self.ledger.epochs.get(source, ""),
            letters=self._letters.get(source, ()),
            given_up=given_up(view, source, route.source_id),
        )

    def forget(self, topic: str) -> None:
        """What earlier orders have taught of a topic counts no more."""
        for known in (self._strikes, self._refusals, self._most_records, self._letters):
            for tp in [tp for tp in known if tp.topic == topic]:
                del known[tp]
        self.resting = {tp for tp in self.resting if tp.topic != topic}

    def learn(self, receipt: Receipt) -> None:
        """A refusal under the first protocol voids the order: the next one must not run into the same again (I7)."""
        self._most_records.update(receipt.most_records)
        self._letters.update(receipt.letters)
        for tp in receipt.positions:
            self._strikes.pop(tp, None)
            self._refusals.pop(tp, None)
        if receipt.reason == "fenced":
            self._strikes.update(receipt.strikes)
            self._refusals.update(receipt.refusals)
            self.resting |= {stop.source for stop in receipt.stops}

    def _progress_number(self, source: TopicPartition, count: int) -> int:
        key = progress_key(CONNECTOR, self._flow.source.alias, source.topic, source.partition)
        return java_partition(key, count)
