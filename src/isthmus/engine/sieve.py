"""Which batches of the source a lane leaves where they are: those that a flow brought there from the target, or from
a cluster that has a flow of its own to the target.

Costs a look into a set per batch. What must stay true: the register is read to its end after the batch was fetched,
before its producer id is taken for a stranger's (see `register`); who is cut is decided by cluster id where the
target itself is meant, because aliases are each file's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from isthmus.engine.register import Origin, Register
from isthmus.mm2.filters import TopicFilter
from isthmus.model import Cut, Flow
from isthmus.wire.batch import Batch
from isthmus.wire.cluster import Client


class Sieve:
    """One lane's view of the source's register."""

    def __init__(self, flow: Flow, register: Register, target: Client, topics: Iterable[str]) -> None:
        self.dropped: dict[str, set[int]] = {topic: set() for topic in topics}  # producer ids by source topic
        self._known = {-1}  # no producer id: never one of ours
        self._target = target
        self._alias = flow.target.alias
        self._register = register
        self._cuts = [(cut, TopicFilter(cut.topics.include, cut.topics.exclude)) for cut in flow.all_cuts]

    def unknown(self, batches: Iterable[Batch]) -> set[int]:
        return {batch.producer_id for batch in batches if batch.magic >= 2} - self._known

    async def learn(self, ids: set[int]) -> None:
        """Find out whose these are."""
        await self._register.catch_up()
        for number in ids:
            if (origin := self._register.origins.get(number)) is not None:
                for topic in (name for name in self.dropped if self._is_cut(origin, name)):
                    self.dropped[topic].add(number)
        self._known |= ids

    def _is_cut(self, origin: Origin, topic: str) -> bool:
        return any(self._comes_from(origin, cut) and filter_.matches(topic) for cut, filter_ in self._cuts)

    def _comes_from(self, origin: Origin, cut: Cut) -> bool:
        if cut.origin == self._alias and origin.source_id and self._target.cluster_id:
            return origin.source_id == self._target.cluster_id
        return origin.source == cut.origin
