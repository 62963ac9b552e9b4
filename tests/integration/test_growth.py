"""Lanes come while a flow falls behind and go when it is idle, with nothing restarted and every record once.

While the load lasts, a lane here carries little at a time, as one does whose target is far away: each transaction takes
a moment for every partition, and holds a few records. So a small load is more than one lane can carry.
"""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Callable, Sequence

import pytest
from tests.crossing import QUICK, Crossing
from tests.integration.sources import Pair, Stream, read

from isthmus.engine import control
from isthmus.engine.track import Track
from isthmus.engine.writer import Writer
from isthmus.model import Cluster, Growth
from isthmus.observe.status import FlowStatus
from isthmus.wire.cluster import Client
from isthmus.wire.journal import Journal
from isthmus.wire.records import Record

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PARTITIONS = 4


class Distance:
    """What a transaction takes for every partition in it."""

    seconds = 0.3


@pytest.fixture
def distance(monkeypatch: pytest.MonkeyPatch) -> Distance:
    far, write_now = Distance(), Writer.write

    async def later(self: Writer, tracks: Sequence[Track], ending: Callable[[], bool]) -> None:
        await asyncio.sleep(far.seconds * sum(1 for track in tracks if track.queue))
        await write_now(self, tracks, ending)

    monkeypatch.setattr(Writer, "write", later)
    return far


def lanes_told(status: FlowStatus) -> list[str]:
    return [event.partition(" ")[2] for event in status.events if event.partition(" ")[2].startswith("lanes ")]


def test_lanes_come_with_a_load_step_and_go_when_it_is_over(pair: Pair, distance: Distance) -> None:
    topic, idle = pair.topic("busy", partitions=PARTITIONS), pair.topic("idle")
    small = dataclasses.replace(QUICK, commit_bytes=1, merge_below_bytes=0)
    growth = Growth(least=1, after_seconds=1.5, shrink_after_seconds=2.0)
    pair.write(idle, 1)
    with Crossing(pair.flow(lanes=3, growth=growth, tuning=small)) as crossing:
        crossing.until_copied(1)
        with Stream(pair.source.bootstrap, topic, PARTITIONS) as stream:
            grown = crossing.until(lambda status: bool(lanes_told(status)), 120)
            crossing.until(lambda status: any(lane.records for lane in status.lanes[1:]), 120)
        assert lanes_told(grown)[0].startswith("lanes 1 -> ")
        assert "lag of" in lanes_told(grown)[0]
        distance.seconds = 0.0
        crossing.until(lambda status: lanes_told(status)[-1].split(":")[0].endswith("-> 1"), 120)
        pair.write(idle, 1, first=1)
        last = crossing.until(lambda status: sum(p.position for p in status.partitions) == stream.written + 2, 120)
    pair.proven(topic, stream.written)
    pair.proven(idle, 2)
    assert last.stopped == ()


def test_positions_of_very_many_partitions_fit_into_a_record_of_the_control_topic(pair: Pair) -> None:
    """More than a topic takes uncompressed: 1 MB, by default."""
    topic = pair.topic("control")
    positions = [[f"orders.{number % 100:04d}", number // 100, number * 7_919 % 10**9] for number in range(60_000)]
    snapshot = {"topic_id": str(uuid.uuid4()), "cuts": {"0": 5}, "positions": positions}

    async def kept() -> Record:
        client = Client(Cluster(alias="east", bootstrap=tuple(pair.source.bootstrap.split(","))))
        try:
            await client.start()
            await client.refresh([topic])
            journal = Journal(client, topic)
            await control.write(journal, {"snapshot": snapshot})
            (record,) = await journal.read(0, await journal.end())
            return record
        finally:
            client.close()

    record = asyncio.run(kept())
    assert len(record.value or b"") > 1_500_000
    assert control.decode(record) == ("snapshot", snapshot)
    assert [value for _, _, value in read(pair.source.bootstrap, topic)] == [record.value], "by another reader, too"
