"""Where rows of a flow may go: the copies of its topics, and other topics that a transform names.

Must stay true: a name that is a source topic of the order means its copy, under the flow's naming; any other means the
topic of that very name on the target, which is created if it is not there. Internal topics are never written to. Under
the first transaction protocol only copies are: a fence must know every partition that could be written (R4).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from isthmus.engine.orders import Order
from isthmus.errors import TargetError
from isthmus.frames.tickets import Place
from isthmus.wire.admin import NewTopic, create_topics, wait_for_topics
from isthmus.wire.cluster import Client

_NAME = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}")
INTERNAL = re.compile(r"__.*|.*[.-]internal|mm2-.*|isthmus\..*\.dead-letters")


class Routes:
    """The places of one order."""

    def __init__(self, target: Client, order: Order) -> None:
        self._target = target
        self._order = order
        self._found: dict[str, Place] = {}

    @property
    def places(self) -> Mapping[str, Place]:
        copies = {a.source.topic: self._place(a.target.topic) for a in self._order.assignments}
        return {**self._found, **copies}

    async def open(self, names: Sequence[str]) -> None:
        """Make places of topics that rows named; create what is missing."""
        for name in names:
            self._refuse_unfit(name)
        await self._target.refresh(names)
        missing = [name for name in names if name not in self._target.topics]
        widest = max(place.partitions for place in self.places.values())
        factor = self._order.flow.replication_factor
        await create_topics(self._target, [NewTopic(name, widest, factor, {}) for name in missing])
        await wait_for_topics(self._target, missing)
        self._found |= {name: self._place(name) for name in names}

    def _place(self, topic: str) -> Place:
        partitions = len(self._target.topics[topic].partitions)
        return Place(topic=topic, partitions=partitions, topic_id=self._target.topic_id(topic))

    def _refuse_unfit(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise self._wrong(name, "that is no name of a topic")
        if INTERNAL.fullmatch(name):
            raise self._wrong(name, "that is an internal topic")
        if not self._order.second_protocol:
            raise self._wrong(name, "the target is too old to write topics that are no copies (before Kafka 4.0)")

    def _wrong(self, name: str, why: str) -> TargetError:
        where = f"flow {self._order.flow.name}"
        hint = "the column `topic` of the transform must be a source topic, or a name to write to on the target"
        return TargetError(f"the transform sends rows to {name[:80]!r}: {why}", where=where, hint=hint, code="ROUTE")
