"""The lease of a driver that fails: released when no lane of it can be left, so that the next one starts at once; kept
when one may still run, or when the flow is another's by now. Read from the control topic by librdkafka.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.crossing import Crossing, cross
from tests.integration.sources import Pair, read, wait_until

from isthmus.engine import control, lease
from isthmus.engine.driver import Driver
from isthmus.engine.orders import Order, Receipt
from isthmus.errors import LoopError, RivalError
from isthmus.model import Flow

pytestmark = pytest.mark.integration


def leases(pair: Pair, flow: Flow) -> list[dict[str, Any]]:
    """All lease records so far, in order; compaction may have taken some of the older ones."""
    entries = read(pair.target.bootstrap, flow.control_topic)
    return [json.loads(value) for _, key, value in entries if key == b"lease" and value]


class Failing:
    """Its first lane ends the flow; the second is never heard of again, or ends when it is told to."""

    def __init__(self, *, hangs: bool) -> None:
        self.orders: list[Order] = []
        self._hangs = hangs
        self._both = asyncio.Event()

    async def run(self, order: Order) -> Receipt:
        self.orders.append(order)
        if len(self.orders) == 2:
            self._both.set()
        await self._both.wait()
        if self._hangs and order is self.orders[0]:
            await asyncio.sleep(3600)
        raise LoopError("it would go round")


async def failed(flow: Flow, *, hangs: bool) -> None:
    with pytest.raises(LoopError):
        await Driver(flow, Failing(hangs=hangs)).run()


@pytest.mark.parametrize("hangs", [False, True])
def test_a_driver_that_fails_releases_its_lease_if_its_lanes_have_ended(
    pair: Pair, hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = pair.topic("orders", partitions=2)
    pair.write(topic, 10)
    flow = pair.flow(lanes=2)
    with monkeypatch.context() as patch:
        patch.setattr(lease, "LET_GO_S", 60.0)  # a busy machine may need longer than anybody would wait
        if hangs:
            patch.setattr(control, "DRIVER_GONE_AFTER_S", 0.5)  # how long it waits for lanes that do not end
        asyncio.run(failed(flow, hangs=hangs))
    assert leases(pair, flow)[-1]["released"] is not hangs
    assert cross(flow, take_over=hangs).records == 10


def test_a_driver_that_was_taken_over_does_not_release_the_flow_of_the_other(pair: Pair) -> None:
    topic = pair.topic("orders")
    pair.write(topic, 10)
    flow = pair.flow()
    with Crossing(flow) as first:
        first.until_copied(10)
        with Crossing(flow, take_over=True) as second:
            wait_until(lambda: first.error is not None, "the first driver gives up", 120)
            first.stop()
            pair.write(topic, 5, first=10)
            second.until_copied(5, 120)
            seen = leases(pair, flow)
    assert isinstance(first.error, RivalError)
    assert not any(each["released"] for each in seen)
    assert len({each["driver"] for each in seen}) == 2
    assert leases(pair, flow)[-1]["released"]
    assert second.error is None
