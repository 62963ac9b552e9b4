"""The number of lanes changes again and again under a running producer, while lanes are lost that are not dead.

What is tested: the fence in `Shifting.to` (and the one before every order, I2). A lost attempt here is the worst
kind: it has read its records, falls asleep before it writes its progress, is given up by the driver, and wakes up when
its partitions are long with other lanes, deaf to all that was said meanwhile. Without the fence before lanes are dealt
anew, nobody has fenced the ids of a lane that is no more, and such an attempt commits its records a second time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import threading
from collections.abc import Iterable

import pytest
from tests.crossing import Crossing, InThread
from tests.integration.sources import Pair, Stream, wait_until

from isthmus.engine import dispatch, writer
from isthmus.engine.lane import run_order
from isthmus.engine.orders import Order, Receipt
from isthmus.engine.track import Track
from isthmus.errors import MachineError
from isthmus.lab import Lab
from isthmus.model import Flow
from isthmus.wire.produce import Parcel

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

PARTITIONS = 8


class Losing(InThread):
    """Runs orders in threads; those that are put to sleep can be reported lost, and woken up afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self._pool = concurrent.futures.ThreadPoolExecutor(32)
        self._running: dict[int, Order] = {}
        self._victims: set[str] = set()
        self._asleep: set[str] = set()
        self._lost: set[str] = set()
        self._morning = threading.Event()
        self._zombies: list[concurrent.futures.Future[Receipt]] = []

    def __enter__(self) -> Losing:
        return self

    def __exit__(self, *_: object) -> None:
        self._morning.set()

    async def run(self, order: Order) -> Receipt:
        self.orders.append(order)
        self._running[order.lane] = order
        attempt = self._pool.submit(run_order, order, "only")
        while not attempt.done():
            if order.order_id in self._lost:
                self._zombies.append(attempt)
                raise MachineError("the executor is gone", code="LANE_LOST")
            await asyncio.sleep(0.02)
        return attempt.result()

    def doze(self, order: Order) -> None:
        """Called in a lane's thread: its event loop stands still with it, as in a process that was stopped."""
        if order.order_id in self._victims:
            self._victims.discard(order.order_id)
            self._asleep.add(order.order_id)
            self._morning.wait(120)

    def put_to_sleep(self, lanes: Iterable[int]) -> None:
        self._morning = threading.Event()
        for lane in lanes:
            self._sleeps_in(lane)

    def _sleeps_in(self, lane: int) -> None:
        """An order may end while it is being chosen: then it is the next one of its lane."""

        def sleeps() -> bool:
            order = self._running[lane].order_id
            if order not in self._asleep:
                self._victims.add(order)
            return order in self._asleep

        wait_until(sleeps, f"lane {lane} falls asleep")

    def lose_all_asleep(self) -> None:
        self._lost |= self._asleep

    def wake_up(self) -> list[Receipt]:
        """What became of the attempts that were lost."""
        self._morning.set()
        receipts = [zombie.result(60) for zombie in self._zombies]
        self._zombies.clear()
        self._victims.clear()
        return receipts


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Losing:
    """Lanes may fall asleep before the request that carries their progress."""
    runner = Losing()
    progress = writer.Writer._progress

    def sleepy(self: writer.Writer, tracks: Iterable[Track]) -> list[Parcel]:
        parcels = progress(self, tracks)
        runner.doze(self._order)
        return parcels

    monkeypatch.setattr(writer.Writer, "_progress", sleepy)
    return runner


@pytest.mark.parametrize("protocol", ["TV2", "TV1"])
def test_lanes_change_while_lanes_are_lost_and_wake_up_again(
    lab: Lab, losing: Losing, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if protocol == "TV1":
        monkeypatch.setattr(dispatch, "speaks_second_protocol", lambda _: False)
    pair = Pair(lab)
    topic = pair.topic("live", partitions=PARTITIONS)
    flow = pair.flow(lanes=2)
    with Crossing(flow, losing) as crossing, losing:
        with Stream(pair.source.bootstrap, topic, PARTITIONS) as stream:
            _until_passed(crossing, 100)
            for count, lost_between, lost_within in ((4, 0, [1]), (1, 2, [1, 3]), (3, 0, [0])):
                losing.put_to_sleep([lost_between])
                losing.lose_all_asleep()
                _until_passed(crossing, stream.written + 30)
                _assert_fenced(losing.wake_up(), 1)
                _change(crossing, losing, dataclasses.replace(flow, lanes=count), lost_within)
                _until_passed(crossing, stream.written + 30)
                _assert_fenced(losing.wake_up(), len(lost_within))
        crossing.until(lambda status: sum(p.position for p in status.partitions) == stream.written)
    pair.proven(topic, stream.written)
    assert {order.lane for order in losing.orders} == {0, 1, 2, 3}


def _change(crossing: Crossing, losing: Losing, flow: Flow, lost: list[int]) -> None:
    """Lanes are lost in the middle of the change: the driver has shut the gate and waits for them."""
    assert crossing.driver is not None
    fleet = crossing.driver.fleet
    losing.put_to_sleep(lost)
    changing = crossing.adopt(flow)
    wait_until(lambda: fleet.is_held, "lanes are held")
    losing.lose_all_asleep()
    changing.result(60)


def _until_passed(crossing: Crossing, written: int) -> None:
    """Until all that lost attempts had in their hands was copied by others."""
    crossing.until(
        lambda status: (
            len(status.partitions) == PARTITIONS
            and all(partition.position > written // PARTITIONS for partition in status.partitions)
        )
    )


def _assert_fenced(receipts: list[Receipt], count: int) -> None:
    assert [receipt.reason for receipt in receipts] == ["fenced"] * count, receipts
