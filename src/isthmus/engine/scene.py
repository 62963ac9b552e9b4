"""The driver's picture of its flow: what lanes reported, what stopped, what happened lately.

Turns reports into `FlowStatus` for whoever watches. Holds no truth: positions here are what lanes said last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from isthmus.engine.control import ControlView
from isthmus.engine.orders import Order, Receipt, Stop
from isthmus.engine.resolve.record import gaps, stop_key, stop_of, stop_value, stops
from isthmus.engine.strangers import FOREIGN_WRITE
from isthmus.model import Flow, TopicPartition
from isthmus.observe.status import FlowStatus, LaneStatus, PartitionStatus

# A partition that stopped for one of these stays stopped until an operator acts.
FINAL = frozenset(
    {
        "GAP",
        "TRUNCATED",
        "SOURCE_GONE",
        "SOURCE_RECREATED",
        "TARGET_RECREATED",
        "TARGET_RENAMED",
        "CORRUPT_BATCH",
        "HISTORY",
        "FOREIGN_WRITE",
    }
)
# Of these a new start finds no trace in the clusters: they hold until somebody decides.
_STANDING = frozenset({"TRUNCATED", "FOREIGN_WRITE"})
_EVENTS = 50
_TOLD_OUTSIDE = 10


class Done(NamedTuple):
    """What a lane has committed."""

    records: int = 0
    bytes: int = 0
    transactions: int = 0
    dead_letters: int = 0


_NOTHING = Done()


class _LaneScene:
    def __init__(self) -> None:
        self.state = "starting"
        self.epochs = self.failures = 0
        self.before = _NOTHING  # what earlier epochs did
        self.now = _NOTHING
        self.host, self.pid, self.error = "", 0, ""
        self.order = ""  # the one that runs; reports of others came late and are counted already
        self.noted = 0  # of this order's notes, how many were told

    def close(self) -> None:
        """An epoch is over: what it did is history."""
        self.before = Done(*(before + now for before, now in zip(self.before, self.now, strict=True)))
        self.now = _NOTHING


class Scene:
    """Everything that can be shown of one running flow."""

    def __init__(self, flow: Flow, watch: Callable[[FlowStatus], None]) -> None:
        self.seen: set[TopicPartition] = set()  # partitions that an order of this run has had
        self._flow = flow
        self._watch = watch
        self._lanes = [_LaneScene() for _ in range(flow.lanes)]
        self._count = flow.lanes  # of those that are there now
        self._positions: dict[TopicPartition, tuple[int, int]] = {}
        self._goals: dict[TopicPartition, int] = {}  # of a run that ends when they are reached
        self._stops: dict[TopicPartition, Stop] = {}
        self._partitions: set[TopicPartition] = set()
        self.spark_page = ""  # the address of Spark's own page
        self._events: list[str] = []
        self._dropped = 0
        self._gaps = self._lost = 0
        self._known: dict[TopicPartition, Stop] = {}  # on record
        self._read_at = -1

    # -- what happened -------------------------------------------------------------------------

    def note(self, text: str, *, once: bool = False) -> None:
        if once and any(event.endswith(text) for event in self._events[-3:]):
            return
        self._events.append(f"{time.strftime('%H:%M:%S')} {text}")
        if len(self._events) > _EVENTS:
            self._dropped += 1
            del self._events[0]

    def stop(self, stop: Stop) -> None:
        known = self._stops.get(stop.source)
        if known is None or (known.code, known.message) != (stop.code, stop.message):
            self.note(f"STOPPED {stop.source}: {stop.code}: {stop.message}. {stop.hint}".strip())
        self._stops[stop.source] = stop

    def stand_by(self, view: ControlView) -> None:
        """At a start, when partitions are known: stops of earlier days that only a decision ends."""
        for tp, stop in stops(view).items():
            holds = stop.code in _STANDING and (stop.code != FOREIGN_WRITE or self._flow.guards_copies)
            if holds and tp in self._partitions and tp not in self._stops:
                self.stop(stop)

    def lift(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops that were decided upon, or are so no more."""
        for tp in partitions:
            self._stops.pop(tp, None)

    def news(self, view: ControlView) -> dict[str, dict[str, Any] | None]:
        """What the record of stops lacks; what stood there and was tried again is taken off it."""
        known = self._on_record(view)
        found: dict[str, dict[str, Any] | None] = {
            stop_key(tp): stop_value(stop, time.time()) for tp, stop in self._stops.items() if known.get(tp) != stop
        }
        return found | {stop_key(tp): None for tp in known if tp in self.seen and tp not in self._stops}

    def _on_record(self, view: ControlView) -> dict[TopicPartition, Stop]:
        """Stops as the record has them; counts what was lost on the way. The record is long, and seldom changes."""
        if view.troubles != self._read_at:
            losses = [gap for gap in gaps(view) if gap.first >= 0]
            self._gaps, self._lost = len(losses), sum(gap.lost for gap in losses)
            self._known, self._read_at = stops(view), view.troubles
        return self._known

    def set_partitions(self, lanes: Mapping[TopicPartition, int]) -> None:
        self._partitions = set(lanes)

    def set_lanes(self, count: int) -> None:
        """Lanes may be added; those that end keep what they did."""
        self._lanes += [_LaneScene() for _ in range(count - len(self._lanes))]
        self._count = count

    def set_goals(self, ends: Mapping[TopicPartition, int]) -> None:
        """What comes after these ends is for another run: it is no lag of this one."""
        self._goals = dict(ends)

    def lane_started(self, order: Order) -> None:
        lane = self._lanes[order.lane]
        lane.state, lane.order, lane.noted = "running", order.order_id, 0
        lane.epochs += 1
        for assignment in order.assignments:
            self.seen.add(assignment.source)
            self._stops.pop(assignment.source, None)
            _, end = self._positions.get(assignment.source, (0, -1))
            self._positions[assignment.source] = (max(0, assignment.offset), end)

    def lane_reported(self, number: int, value: dict[str, Any]) -> bool:
        """False: it cannot be read."""
        lane = self._lanes[number] if number < len(self._lanes) else None
        if lane is None or value.get("order") != lane.order:
            return True  # of an order that is over
        try:
            self._take(number, lane, value)
            return True
        except (KeyError, TypeError, ValueError, IndexError):
            self.note(f"lane {number}: a report in the control topic cannot be read; somebody else wrote it", once=True)
            return False

    def _take(self, number: int, lane: _LaneScene, value: dict[str, Any]) -> None:
        lane.host, lane.pid = value["host"], value["pid"]
        lane.now = Done(value["records"], value["bytes"], value["transactions"], value["dead_letters"])
        for topic, partition, position, end in value["positions"]:
            self._positions[TopicPartition(topic, partition)] = (max(0, position), end)
        for topic, partition, stop in value["stops"]:
            self.stop(stop_of(TopicPartition(topic, partition), stop))
        new = max(0, value["noted"] - lane.noted)
        for text in value["notes"][-new:] if new else ():
            self.note(f"lane {number}: {text}", once=True)
        lane.noted += new

    def lane_ended(self, receipt: Receipt) -> None:
        lane = self._lanes[receipt.lane]
        lane.now = Done(receipt.records, receipt.bytes, receipt.transactions, receipt.dead_letters)
        lane.close()
        lane.state, lane.order = "ended", ""
        for tp, position in receipt.positions.items():
            _, end = self._positions.get(tp, (0, -1))
            self._positions[tp] = (max(0, position), end)
        for stop in receipt.stops:
            self.stop(stop)
        if receipt.detail:
            self.note(f"lane {receipt.lane}: order void: {receipt.detail}; planning it again")

    def lane_failed(self, number: int, why: str) -> None:
        lane = self._lanes[number]
        lane.state, lane.error, lane.order = "recovering", why, ""
        lane.failures += 1
        lane.close()
        self.note(f"lane {number}: {why}")

    # -- what is -------------------------------------------------------------------------------

    def is_final(self, tp: TopicPartition) -> bool:
        stop = self._stops.get(tp)
        return stop is not None and stop.code in FINAL

    def position(self, tp: TopicPartition) -> int:
        """The next source offset, as a lane said last; -1: none did."""
        return self._positions[tp][0] if tp in self._positions else -1

    @property
    def all_stopped(self) -> set[TopicPartition]:
        return set(self._stops)

    def stopped(self, kinds: Iterable[str]) -> list[TopicPartition]:
        wanted = set(kinds)
        return [tp for tp, stop in self._stops.items() if stop.code in wanted]

    def report(self) -> dict[str, Any]:
        """For those who look from outside: what only the driver knows."""
        lanes = [
            {"state": lane.state, "epochs": lane.epochs, "failures": lane.failures, "error": lane.error}
            for lane in self._lanes[: self._count]
        ]
        page = {"spark_page": self.spark_page} if self.spark_page else {}
        return {"lanes": lanes, "events": self._events[-_TOLD_OUTSIDE:], **page}

    def show(self, state: str) -> FlowStatus:
        status = FlowStatus(
            flow=self._flow.name,
            time=time.time(),
            state=state,
            partitions=tuple(self._partition(tp) for tp in sorted(self._partitions | set(self._stops))),
            lanes=tuple(self._lane(number, lane) for number, lane in enumerate(self._lanes)),
            events=tuple(self._events),
            earlier_events=self._dropped,
            gaps=self._gaps,
            lost=self._lost,
        )
        self._watch(status)
        return status

    def _partition(self, tp: TopicPartition) -> PartitionStatus:
        position, end = self._positions.get(tp, (0, -1))
        end = self._goals.get(tp, end)
        stop = self._stops.get(tp)
        return PartitionStatus(
            topic=tp.topic,
            partition=tp.partition,
            position=position,
            end=end,
            state="ok" if stop is None else "stopped",
            code="" if stop is None else stop.code,
            error="" if stop is None else f"{stop.message}. {stop.hint}".strip(),
        )

    @staticmethod
    def _lane(number: int, lane: _LaneScene) -> LaneStatus:
        return LaneStatus(
            lane=number,
            state=lane.state,
            records=lane.before.records + lane.now.records,
            bytes=lane.before.bytes + lane.now.bytes,
            transactions=lane.before.transactions + lane.now.transactions,
            dead_letters=lane.before.dead_letters + lane.now.dead_letters,
            epochs=lane.epochs,
            failures=lane.failures,
            host=lane.host,
            pid=lane.pid,
            error=lane.error,
        )
