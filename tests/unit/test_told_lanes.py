"""What a lane is told while its order runs: topics to leave alone, and to go on with."""

from __future__ import annotations

import asyncio
import json
import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from isthmus.engine.fleet import Fleet
from isthmus.engine.orders import Assignment
from isthmus.engine.track import Track, Unit
from isthmus.engine.wishes import Paused
from isthmus.errors import BrokerUnreachable
from isthmus.model import TopicPartition
from isthmus.wire.records import encode_records

ONE, TWO = TopicPartition("one", 0), TopicPartition("two", 0)
ID = uuid.uuid4()


class _Journal:
    """Keeps what was written; is away at first."""

    def __init__(self, failures: int) -> None:
        self.written: list[dict[str, Any]] = []
        self._failures = failures

    async def append(self, pairs: list[tuple[bytes, bytes]]) -> None:
        if self._failures:
            self._failures -= 1
            raise BrokerUnreachable("away")
        self.written += [json.loads(value) for _, value in pairs]


class _Driver:
    """One lane, which has both topics."""

    def __init__(self, failures: int = 0) -> None:
        self.journal = _Journal(failures)
        self.flow = SimpleNamespace(lanes=1)
        self.lease = SimpleNamespace(driver="d")
        self.steering = SimpleNamespace(paused=Paused())
        self.scene = SimpleNamespace(all_stopped=set())
        route = SimpleNamespace(source_id=ID, target_id=ID)
        self.roster = SimpleNamespace(
            revisions=[1], routes={"one": route, "two": route}, lanes={ONE: 0, TWO: 0}, revise=self._revise
        )
        self.fleet = Fleet(cast(Any, self), cast(Any, None), until_caught_up=False)
        self.fleet._carried[0] = {ONE: (ID, ID), TWO: (ID, ID)}

    def _revise(self, lanes: set[int]) -> None:
        for lane in lanes:
            self.roster.revisions[lane] += 1

    @property
    def told(self) -> tuple[int, list[str]]:
        want = self.journal.written[-1]
        return want["revision"], want["aside"]


def test_a_lane_leaves_alone_what_is_paused_or_gone_under_the_same_revision() -> None:
    driver = _Driver()
    driver.steering.paused = Paused(topics=frozenset({"one"}))
    asyncio.run(driver.fleet.publish_wants())
    assert driver.told == (1, ["one"])
    driver.steering.paused = Paused()
    del driver.roster.routes["two"]
    asyncio.run(driver.fleet.publish_wants())
    assert driver.told == (1, ["two"])


@pytest.mark.parametrize("held", [Paused(everything=True), Paused(topics=frozenset({"one", "two"}))])
def test_a_lane_with_nothing_left_to_do_ends_its_order(held: Paused) -> None:
    driver = _Driver()
    driver.steering.paused = held
    asyncio.run(driver.fleet.publish_wants())
    assert driver.told[0] == 2


def test_what_could_not_be_said_is_said_again() -> None:
    driver = _Driver(failures=1)
    asyncio.run(driver.fleet.say_again())  # there is nothing yet
    with pytest.raises(BrokerUnreachable):
        asyncio.run(driver.fleet.publish_wants())
    assert not driver.journal.written
    asyncio.run(driver.fleet.say_again())
    asyncio.run(driver.fleet.say_again())
    assert len(driver.journal.written) == 1


def test_what_is_taken_back_needs_a_new_order() -> None:
    """A pause that failed half way: which lanes have heard of it is not known."""
    driver = _Driver()
    driver.fleet.take_back({0})
    asyncio.run(driver.fleet.say_again())
    assert driver.told == (2, [])


def test_a_word_is_enough_only_for_what_the_order_has_as_it_is_now() -> None:
    driver = _Driver()
    assert driver.fleet.carries(ONE)
    driver.scene.all_stopped.add(ONE)
    assert not driver.fleet.carries(ONE)
    driver.roster.routes["two"] = SimpleNamespace(source_id=ID, target_id=uuid.uuid4())
    assert not driver.fleet.carries(TWO)
    driver.scene.all_stopped.clear()
    driver.fleet._carried[0] = {ONE: None}  # it is being made
    assert not driver.fleet.carries(ONE)


def _unit(past: int) -> Unit:
    return Unit(past, 10, 1, memoryview(b""), encode_records([(b"k", b"v")], 0))


def test_what_is_in_a_transaction_stays_there_when_a_partition_is_laid_aside() -> None:
    """I1: its progress is in the same transaction; what only waits is fetched again."""
    track = Track(Assignment(source=ONE, source_id=ID, target=ONE, target_id=ID, offset=5))
    track.push(_unit(6))
    track.push(_unit(7))
    track.sent = track.pop().past
    track.lay_aside(True)
    assert (track.committed, track.sent, track.position, len(track.queue)) == (5, 6, 6, 0)
    assert (track.is_told, track.is_wanted) == (True, False)
    track.commit()
    assert (track.committed, track.is_told) == (6, False)
    track.lay_aside(False)
    assert (track.aside, track.is_told, track.position) == (False, True, 6)
