"""A lane's ear and mouth, on a control topic that is away or made anew: what was not said is said again."""

from __future__ import annotations

import asyncio
import json
import uuid
from types import SimpleNamespace
from typing import Any, cast

from isthmus.engine.follower import Follower
from isthmus.errors import BrokerUnreachable
from isthmus.model import NO_ID
from isthmus.wire.records import Record


class _Lane:
    """Its own journal, too: a log of words that can be made anew, and is away for some appends."""

    def __init__(self, failures: int = 0) -> None:
        self.journal = self.target = self
        self.id = uuid.uuid4()
        self.log: list[Record] = []
        self.written: list[str] = []
        self.ends: list[str] = []
        self.failures = failures
        self.order = SimpleNamespace(
            control_from=2,
            lane=0,
            driver="d",
            order_id="o",
            revision=1,
            flow=SimpleNamespace(control_topic="c", growth=SimpleNamespace(least=0)),
        )
        ages = SimpleNamespace(as_value=list)
        self.writer = SimpleNamespace(
            tally=SimpleNamespace(
                records=0, dead_letters=0, bytes=0, transactions=0, aborts=0, read=ages, committed=ages
            )
        )
        self.tracks: dict[Any, Any] = {}
        self.stops: list[Any] = []
        self.follower = Follower(cast(Any, self))

    async def append(self, pairs: list[tuple[bytes, bytes]]) -> None:
        if self.failures:
            self.failures -= 1
            raise BrokerUnreachable("away")
        self.written += [key.decode() for key, _ in pairs]

    async def poll(self, start: int, _wait_ms: int, _purpose: str) -> tuple[list[Record], int]:
        return self.log[start:], min(max(start, len(self.log)), len(self.log))

    def topic_id(self, _topic: str) -> uuid.UUID:
        return self.id

    def wanted_end(self, reason: str) -> None:
        self.ends.append(reason)

    def say(self, key: str, **value: Any) -> None:
        self.log.append(Record(len(self.log), 0, key.encode(), json.dumps(value).encode(), ()))

    async def follow(self) -> None:
        for record in await self.follower._next_records():
            self.follower._hear(record)


def test_a_report_that_could_not_be_written_is_written_later_though_nothing_changed() -> None:
    lane = _Lane(failures=2)
    for _ in range(3):
        asyncio.run(lane.follower.report())
    assert lane.written == ["status/0"]
    asyncio.run(lane.follower.report())
    assert lane.written == ["status/0"]


def test_a_log_that_was_made_anew_is_heard_from_its_beginning_and_told_all_again() -> None:
    lane = _Lane()
    for count in range(3):
        lane.say("lease", driver="d", count=count)
    asyncio.run(lane.follow())
    asyncio.run(lane.follower.report())

    lane.id, lane.log = uuid.uuid4(), []
    lane.say("want/0", driver="d", revision=2, state="run")
    lane.say("lease", driver="d", count=3)
    asyncio.run(lane.follow())
    assert not lane.ends
    asyncio.run(lane.follow())
    assert lane.ends == ["revision"]
    asyncio.run(lane.follower.report())
    assert lane.written == ["status/0", "status/0"]


def test_a_log_that_only_cannot_be_seen_for_a_moment_is_the_same_one() -> None:
    lane = _Lane()
    for _ in range(3):
        lane.say("want/0", driver="d", revision=2, state="run")
    asyncio.run(lane.follow())
    known = lane.id
    for seen in (NO_ID, known):
        lane.id = seen
        asyncio.run(lane.follow())
    assert lane.ends == ["revision"]
