"""An order is made from what was chosen for it, whatever changes while brokers are waited for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from isthmus.engine.dispatch import Dispatch
from isthmus.model import Cluster, Flow, TopicPartition

FLOW = Flow(
    source=Cluster(alias="east", bootstrap=("127.0.0.1:1",)), target=Cluster(alias="west", bootstrap=("127.0.0.1:2",))
)


class _Roster:
    """One topic, of which the copy is known as long as it is carried."""

    def __init__(self) -> None:
        self.flow, self.revisions, self.copies = FLOW, [0], {"orders": "east.orders"}

    def target_of(self, tp: TopicPartition) -> TopicPartition:
        return TopicPartition(self.copies[tp.topic], tp.partition)


class _Enough(Exception):
    pass


class _Target:
    """While it is connected to, the topic is let go."""

    def __init__(self, roster: _Roster) -> None:
        self._roster = roster
        self.asked: list[str] = []

    async def start(self) -> None:
        self._roster.copies.clear()

    async def refresh(self, topics: list[str]) -> None:
        self.asked = topics
        raise _Enough


def test_a_topic_that_is_let_go_while_an_order_is_made_does_not_end_the_flow() -> None:
    roster = _Roster()
    target = _Target(roster)
    parts: list[Any] = [target, None, roster, None, SimpleNamespace(driver="d"), lambda _: None]
    dispatch = Dispatch(*parts)
    order = dispatch.make_order(0, [TopicPartition("orders", 0)], cast(Any, None), {}, 0)
    with pytest.raises(_Enough):
        asyncio.run(order)
    assert "east.orders" in target.asked
