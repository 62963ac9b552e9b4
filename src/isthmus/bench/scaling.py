"""From one flow to 100 GB/s and a million partitions: what grows with what, and which bound is met first.

Sizes are those of the program's own words (a lane's report, a snapshot of progress, an order), made at several sizes
and weighed; times are those of the driver's own functions, called with made-up partitions. From these a driver, its
control topic and its lanes are computed for any load. What must stay true: nothing here is guessed about Isthmus
itself; bounds of brokers and machines are named as what they are, assumptions (`BOUNDS`). Not measured: clusters of
that size.
"""

from __future__ import annotations

import json
import pickle
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from isthmus.engine import control
from isthmus.engine.driver import SHOWING
from isthmus.engine.loads import Loads
from isthmus.engine.orders import Assignment, Order, for_travel
from isthmus.engine.scene import Scene
from isthmus.model import NO_ID, Cluster, Flow, Growth, TopicPartition
from isthmus.sizing.constants import Constants
from isthmus.sizing.needs import Load, size, touches_per_s
from isthmus.wire.journal import packed
from isthmus.wire.transaction import Identity

_SAMPLE = 6_000  # partitions: enough that a snapshot of them is compressed, as a large one is
_COMPARED_S_PER_MB = 0.001  # both clusters' metadata, compared byte by byte when nothing changed; not measured
_METADATA_BYTES = 50  # of a partition in an answer of a broker: three replicas, in sync
_REFRESH_S = 3.0
_LINKS = 4  # of a lane beside fetching: produce, control, coordinator, index
_SIDE_BROKERS_MB_PER_S = 100.0  # keys and values that one broker takes in; an assumption

# What is not ours. Beyond these, something else than Isthmus says no.
BOUNDS = {
    "record_mb": (1.0, "a record of the control topic is larger than 1 MB (`max.message.bytes`)"),
    "heard_mb_per_s": (500.0, "lanes of one flow hear more of each other than 500 MB/s from one broker"),
    "driver_cores": (1.0, "one driver has more to do than one core can"),
    "metadata_mb": (100.0, "metadata is larger than 100 MB (`socket.request.max.bytes` of its like)"),
    "connections_per_broker": (10_000.0, "more than 10,000 connections to a broker"),
    "lanes": (5_000.0, "more lanes than one Spark driver holds tasks for (5,000, an assumption)"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What one partition adds, by the program's own words and functions."""

    report_bytes: float  # in a lane's report, about once a second
    snapshot_bytes: float
    order_bytes: float
    heard_s: float  # CPU of the driver, for one row of a report
    shown_s: float  # and for one row of its picture of the flow, about three times a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """One load, on so many flows of equal size; figures are of one flow where its name says nothing else."""

    gb_per_s: float
    partitions: int
    flows: int
    lanes: int  # of all flows
    record_mb: float  # the largest record of the control topic: snapshot or report
    reported_mb_per_s: float
    heard_mb_per_s: float  # every lane follows the control topic, with all that the others report
    driver_cores: float
    metadata_mb: float
    order_mb: float
    transactions_per_s: float  # of all flows
    markers_per_s: float  # of all flows: one for each partition that a transaction touched
    connections: int  # of all flows, to the target
    connections_per_broker: float
    brokers: int  # of each cluster
    broken: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def cells(self) -> tuple[str, ...]:
        return (
            f"{self.gb_per_s:g}",
            f"{self.partitions:,}",
            f"{self.flows:,}",
            f"{self.lanes:,}",
            f"{self.record_mb:.2f}",
            f"{self.heard_mb_per_s:,.1f}",
            f"{self.driver_cores:.2f}",
            f"{self.metadata_mb:,.1f}",
            f"{self.transactions_per_s:,.0f}",
            f"{self.markers_per_s:,.0f}",
            f"{self.connections:,}",
        )


COLUMNS = (
    *("GB/s", "partitions", "flows", "lanes", "largest record MB", "heard MB/s", "driver cores", "metadata MB"),
    *("tx/s", "markers/s", "connections"),
)
LOADS = ((0.1, 500), (1.0, 5_000), (10.0, 50_000), (100.0, 1_000_000))


def simulate(constants: Constants) -> list[Scaled]:
    """Each load as one flow, and, where that breaks, as few flows as keep every bound."""
    weights = weigh()
    found = []
    for gb_per_s, partitions in LOADS:
        one = scaled(constants, weights, gb_per_s, partitions, 1)
        found.append(one)
        flows = 1
        while one.broken and flows < partitions:
            flows = max(flows + 1, round(flows * 1.25))
            one = scaled(constants, weights, gb_per_s, partitions, flows)
        if flows > 1:
            found.append(one)
    return found


def scaled(constants: Constants, weights: Weights, gb_per_s: float, partitions: int, flows: int) -> Scaled:
    brokers = max(3, round(gb_per_s * 1000 / _SIDE_BROKERS_MB_PER_S))
    share, rate = -(-partitions // flows), gb_per_s * 1e9 / flows
    load = Load(rate=rate, partitions=share, brokers=brokers)
    need = size(load, constants)
    reported = share * weights.report_bytes / 1e6
    # A cluster tells of all its partitions, whosever they are; a lane asks for those of its topics.
    metadata = partitions * _METADATA_BYTES / 1e6
    connections = need.lanes * (min(brokers, max(1, share // need.lanes)) + _LINKS)
    one = Scaled(
        gb_per_s=gb_per_s,
        partitions=partitions,
        flows=flows,
        lanes=need.lanes * flows,
        record_mb=max(share * weights.snapshot_bytes, share / need.lanes * weights.report_bytes) / 1e6,
        reported_mb_per_s=reported,
        heard_mb_per_s=reported * (need.lanes + 1),
        driver_cores=share * weights.heard_s
        + min(SHOWING, 3 * share * weights.shown_s)
        + 2 * metadata * _COMPARED_S_PER_MB / _REFRESH_S,
        metadata_mb=metadata,
        order_mb=share / need.lanes * weights.order_bytes / 1e6,
        transactions_per_s=need.transactions_per_s * flows,
        markers_per_s=touches_per_s(load, constants) * flows,
        connections=connections * flows,
        connections_per_broker=connections * flows / brokers,
        brokers=brokers,
        broken=(),
    )
    return replace(one, broken=tuple(_broken(one, need.lanes)))


def _broken(one: Scaled, lanes: int) -> list[str]:
    values = asdict(one) | {"lanes": lanes}
    return [text for name, (most, text) in BOUNDS.items() if values[name] > most]


# -- weighing ------------------------------------------------------------------------------------


def weigh() -> Weights:
    partitions = [TopicPartition(f"orders.{number % 50:04d}", number // 50) for number in range(_SAMPLE)]
    report, dice = _report(partitions), random.Random(3)
    offsets = [(tp, dice.randrange(10**9)) for tp in partitions]
    snapshot = {"positions": [[tp.topic, tp.partition, at] for tp, at in offsets]}
    snapshot |= {"epochs": [[tp.topic, tp.partition, f"5@{at * 9 // 10}"] for tp, at in offsets]}
    scene = Scene(_flow(), lambda _: None)
    scene.set_partitions(dict.fromkeys(partitions, 0))
    return Weights(
        report_bytes=len(control.encode("status/0", report)[1] or b"") / _SAMPLE,
        snapshot_bytes=len(packed([control.encode("snapshot", snapshot)], 0).payload) / _SAMPLE,
        order_bytes=len(pickle.dumps(for_travel(_order(partitions)))) / _SAMPLE,
        heard_s=_timed(lambda: _hear(report)) / _SAMPLE,
        shown_s=_timed(lambda: scene.show("running")) / _SAMPLE,
    )


def _flow() -> Flow:
    east, west = Cluster(alias="east", bootstrap=("e:1",)), Cluster(alias="west", bootstrap=("w:1",))
    return Flow(source=east, target=west, lanes=8, growth=Growth(least=1))


def _report(partitions: list[TopicPartition]) -> dict[str, Any]:
    told = dict.fromkeys(("records", "bytes", "transactions", "dead_letters", "aborts"), 1_000_000)
    rows = [[tp.topic, tp.partition, 123_456_789, 123_456_999] for tp in partitions]
    words = {"driver": "d" * 32, "order": "o", "state": "running", "host": "host", "pid": 1, "stops": [], "notes": []}
    return {**told, **words, "positions": rows, "carried": [123_456_789] * len(rows)}


def _hear(report: dict[str, Any]) -> None:
    """All that a driver does with a report: read it, note it, measure loads by it."""
    scene, loads = Scene(_flow(), lambda _: None), Loads()
    value = json.loads(json.dumps(report))
    scene._lanes[0].order = "o"
    scene.lane_reported(0, value)
    loads.heard("status/0", value, 1, 10.0)


def _order(partitions: list[TopicPartition]) -> Order:
    identity = Identity("isthmus.east.0.a", 1, 1)
    assignments = tuple(
        Assignment(
            source=tp,
            source_id=uuid.uuid4(),
            target=TopicPartition(f"east.{tp.topic}", tp.partition),
            target_id=uuid.uuid4(),
            offset=123_456_789,
            epoch="5@123400000",
        )
        for tp in partitions
    )
    return Order(
        order_id="o",
        flow=_flow(),
        lane=0,
        driver="d" * 32,
        revision=1,
        assignments=assignments,
        identities=(identity, identity),
        second_protocol=True,
        progress_id=NO_ID,
        progress_partitions=1,
        dead_letters_id=None,
        topic_rates={},
        control_from=0,
    )


def _timed(work: Callable[[], object]) -> float:
    """CPU-seconds of the better of three."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best
