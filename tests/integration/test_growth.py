"""Lanes come while a flow falls behind and go when it is idle, with nothing restarted and every record once.

A lane here carries little at a time, as one does whose target is far away: each of its transactions takes a moment, and
holds a few records. So a small load is more than one lane can carry, and less than what four can.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence

import pytest
from tests.crossing import QUICK, Crossing
from tests.integration.sources import Pair, Stream, write

from isthmus.engine.track import Track
from isthmus.engine.writer import Writer
from isthmus.model import Growth
from isthmus.observe.status import FlowStatus

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PARTITIONS = 4
_WAVE_S = 0.25


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction takes at least so long, and holds one batch of each partition."""
    write_now = Writer.write

    async def later(self: Writer, tracks: Sequence[Track], ending: Callable[[], bool]) -> None:
        await asyncio.sleep(_WAVE_S * max(1, sum(1 for track in tracks if track.queue)))
        await write_now(self, tracks, ending)

    monkeypatch.setattr(Writer, "write", later)


def lanes_told(status: FlowStatus) -> list[str]:
    return [event.partition(" ")[2] for event in status.events if event.partition(" ")[2].startswith("lanes ")]


@pytest.mark.usefixtures("slow")
def test_lanes_come_with_a_load_step_and_go_when_it_is_over(pair: Pair) -> None:
    topic, idle = pair.topic("busy", partitions=PARTITIONS), pair.topic("idle")
    small = dataclasses.replace(QUICK, commit_bytes=1, merge_below_bytes=0, fetch_partition_bytes=2_000)
    growth = Growth(least=1, after_seconds=2.0, shrink_after_seconds=4.0)
    with Crossing(pair.flow(lanes=3, growth=growth, tuning=small)) as crossing:
        write(pair.source.bootstrap, idle, [{"value": b"one"}])
        crossing.until_copied(1)
        with Stream(pair.source.bootstrap, topic, PARTITIONS) as stream:
            grown = crossing.until(lambda status: any("lanes 1 ->" in told for told in lanes_told(status)), 120)
            crossing.until(lambda status: len([lane for lane in status.lanes if lane.records]) > 1, 120)
        assert "lag of" in lanes_told(grown)[0]
        crossing.until(lambda status: sum(p.position for p in status.partitions) == stream.written + 1, 120)
        crossing.until(lambda status: lanes_told(status)[-1].split(":")[0].endswith("-> 1"), 120)
        write(pair.source.bootstrap, idle, [{"value": b"two"}])
        last = crossing.until(lambda status: sum(p.position for p in status.partitions) == stream.written + 2, 120)
    pair.proven(topic, stream.written)
    pair.proven(idle, 2)
    assert not last.stopped
    assert all(lane.failures == 0 for lane in last.lanes), "nothing was lost on the way"
    assert {order.lane for order in crossing.runner.orders} > {0}
