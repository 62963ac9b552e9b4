"""Measuring what a lane's work costs: the constants of `isthmus size`.

Figures are differences between copies of made-up topics that differ in one thing, the codec or the size of batches; a
trickle of records tells what a transaction costs, and how many there are. Counted are CPU-seconds of this process, in
which driver and lanes run as threads; brokers and writers are other processes. So a busy machine makes it slower, and
changes the figures less. Every topic is copied several times, in turn with all others, every second time in the
opposite order, so that what the machine does meanwhile meets all of them alike; the copy that cost least counts.

What must stay true: every copy is from the start of a topic to its end, after one that warmed everything up; what is
not measured here, but taken from another bench or from a setting, is named so in `origins`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import psutil

from isthmus.bench.cases import CASES, Case, Filled, create_topic, fill, write_slowly
from isthmus.bench.crossing import InThread
from isthmus.bench.run import machine
from isthmus.bench.watch import stored_bytes
from isthmus.engine.driver import Driver
from isthmus.engine.writer import CONNECTOR
from isthmus.mm2.progress import progress_key, progress_value
from isthmus.model import Cluster, Flow, Mm2Topics, Sync, Topics, Tuning
from isthmus.observe.status import FlowStatus
from isthmus.sizing.constants import CODECS, Constants
from isthmus.wire.batch import Stamp, seal
from isthmus.wire.records import encode_records

Say = Callable[[str], None]
_PARTITIONS = 4
_ROUNDS = 4
_BATCH_RECORDS = 60
_TRICKLE_S = 16.0  # half of it is measured
_PROGRESS = 5_000  # records, to time one
IDLE = "idle"  # hardly anything to copy
_SCALE = 0.5  # of a case, at scale 1
_RECORDS_ONLY = Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=False, checkpoints=False)
# Taken from bench/results/tunnel.json and bench.json, which their own benches wrote.
TLS_S_PER_GB, EXIT_S_PER_GB = 1.07, 1.42
LATENCY_MS = (7.0, 20.0)
JVM_MB = 512 + 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """One topic, copied once."""

    cpu_s: float
    wall_s: float
    transactions: int
    records: int
    raw_gb: float  # keys and values
    stored_gb: float
    batches: int
    brokers_s: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """A topic to copy, by so many lanes."""

    case: Case
    lanes: int = 1


class Bench:
    """Two clusters; every copy under an alias of its own."""

    def __init__(self, source: str, target: str, scale: float, say: Say) -> None:
        self._source = source
        self._target = target
        self._scale = scale * _SCALE
        self._say = say
        self._filled: dict[str, Filled] = {}

    def copies(self, wanted: Mapping[str, Wanted]) -> dict[str, Copied]:
        """Of each the cheapest copy: what else the machine does can only make one dearer."""
        for one in wanted.values():
            self._fill(one.case)
        self._copy(next(iter(wanted.values())))  # warms everything up
        made: dict[str, list[Copied]] = {name: [] for name in wanted}
        for number in range(_ROUNDS):
            for name in sorted(wanted, reverse=bool(number % 2)):
                self._say(f"round {number + 1} of {_ROUNDS}: {name}")
                made[name].append(self._copy(wanted[name]))
        return {name: min(each, key=lambda one: one.cpu_s) for name, each in made.items()}

    def _fill(self, case: Case) -> None:
        if case.name not in self._filled:
            self._say(f"{case.name}: filling the topic")
            self._filled[case.name] = fill(self._source, case, self._scale)

    def _flow(self, topic: str, lanes: int) -> Flow:
        return Flow(
            source=Cluster(alias=f"size{uuid.uuid4().hex[:8]}", bootstrap=tuple(self._source.split(","))),
            target=Cluster(alias="west", bootstrap=tuple(self._target.split(","))),
            topics=Topics(include=(topic,)),
            lanes=lanes,
            replication_factor=1,
            internal_replication_factor=1,
            sync=Sync(configs=False),
            mm2_topics=_RECORDS_ONLY,
        )

    def trickle(self, topic: str) -> Copied:
        """A few records at a time, written by another process: as many transactions as a lane makes of them."""
        self._say("a trickle of records")
        create_topic(self._source, topic, _PARTITIONS)
        return asyncio.run(self._trickle(topic))

    async def _trickle(self, topic: str) -> Copied:
        driver = Driver(self._flow(topic, 1), InThread(), watch=(seen := list[FlowStatus]()).append)
        running = asyncio.ensure_future(driver.run())
        writer = multiprocessing.get_context("spawn").Process(
            target=write_slowly, args=(self._source, topic, _PARTITIONS, _TRICKLE_S)
        )
        writer.start()
        while writer.is_alive() and not (seen and seen[-1].records):
            await asyncio.sleep(0.1)  # until it flows
        (records, transactions), began, cpu = _done(seen), time.monotonic(), time.process_time()
        await asyncio.sleep(_TRICKLE_S / 2)
        after = _done(seen)
        spent = time.process_time() - cpu
        wall = time.monotonic() - began
        await driver.stop()
        await running
        await asyncio.to_thread(writer.join)
        return Copied(
            cpu_s=spent,
            wall_s=wall,
            transactions=after[1] - transactions,
            records=after[0] - records,
            raw_gb=0.0,
            stored_gb=0.0,
            batches=0,
            brokers_s=0.0,
        )

    def _copy(self, wanted: Wanted) -> Copied:
        case = wanted.case
        filled, flow = self._filled[case.name], self._flow(case.topic, wanted.lanes)
        began, cpu, brokers = time.monotonic(), time.process_time(), _brokers_s()
        ended = asyncio.run(Driver(flow, InThread(), until_caught_up=True).run())
        return Copied(
            cpu_s=time.process_time() - cpu,
            wall_s=time.monotonic() - began,
            transactions=sum(lane.transactions for lane in ended.lanes),
            records=ended.records,
            raw_gb=filled.bytes / 1e9,
            stored_gb=stored_bytes(self._source, case.topic) / 1e9,
            batches=-(-filled.records // case.batch_records),
            brokers_s=_brokers_s() - brokers,
        )


def measure_constants(source: str, target: str, scale: float, say: Say) -> Constants:
    return measure_with(source, target, scale, {}, say)[0]


def measure_with(
    source: str, target: str, scale: float, others: Mapping[str, Wanted], say: Say
) -> tuple[Constants, dict[str, Copied]]:
    """The constants, and other copies that were made in turn with those that constants are made of."""
    bench = Bench(source, target, scale, say)
    rested = psutil.Process().memory_info().rss / 1e6
    trickle = bench.trickle("bench-size-trickle")
    copied = bench.copies({**_topics(), **others})
    by_codec = {codec: copied[codec] for codec in CODECS}
    more = {"small": copied["small"], "passed": copied["random"], "idle": copied[IDLE], "trickle": trickle}
    return _solved(by_codec, more, rested), copied


def _topics() -> dict[str, Wanted]:
    """Those that constants are made of."""
    cases = {codec: _json(codec) for codec in CODECS}
    cases |= {name: replace(CASES[name], name=f"size-{name}") for name in ("small", "random")}
    return {name: Wanted(case) for name, case in {**cases, IDLE: _one_batch("size-idle")}.items()}


def _json(codec: str) -> Case:
    """Of a size that is merged, whatever the codec."""
    return replace(
        CASES["json"], name=f"size-{codec}", codec=codec, partitions=_PARTITIONS, batch_records=_BATCH_RECORDS
    )


def _one_batch(name: str) -> Case:
    """Hardly anything: what a copy costs apart from what it copies."""
    return replace(CASES["json"], name=name, records=1, batch_records=1, partitions=1)


def _solved(copied: Mapping[str, Copied], more: Mapping[str, Copied], rested_mb: float) -> Constants:
    """Every figure from a difference; what would come out below nothing, by noise, is nothing."""
    fixed, lz4, small, trickle = more["idle"].cpu_s, copied["lz4"], more["small"], more["trickle"]
    transaction = max(0.0, trickle.cpu_s / max(1, trickle.transactions))
    passed = _net(more["passed"], fixed, transaction) / more["passed"].stored_gb

    def beside(one: Copied) -> float:
        """What a GB costs beside being passed on."""
        return (_net(one, fixed, transaction) - one.stored_gb * passed) / one.raw_gb

    # Two batch sizes of one codec tell what a batch costs, and what a byte does.
    scarce, dense = (one.batches / one.raw_gb for one in (lz4, small))
    batch = max(0.0, (beside(small) - beside(lz4)) / (dense - scarce))
    merged = {
        codec: round(max(0.0, beside(one) - one.batches / one.raw_gb * batch), 3) for codec, one in copied.items()
    }
    return Constants(
        merged_s_per_gb=merged,
        passed_s_per_gb=round(passed, 3),
        batch_s=round(batch, 8),
        transaction_s=round(transaction, 6),
        touch_s=round(_progress_s(), 8),
        tls_s_per_gb=TLS_S_PER_GB,
        tunnel_exit_s_per_gb=EXIT_S_PER_GB,
        broker_s_per_gb=round(lz4.brokers_s / lz4.raw_gb, 2),
        ratio={codec: round(one.stored_gb / one.raw_gb, 3) for codec, one in copied.items()},
        lane_mb=round(rested_mb + (Tuning().queue_bytes + Tuning().commit_bytes) / 1e6),
        driver_mb=round(rested_mb),
        jvm_mb=JVM_MB,
        latency_p50_ms=LATENCY_MS[0],
        latency_p99_ms=LATENCY_MS[1],
        transactions_per_s=round(trickle.transactions / trickle.wall_s, 1),
        machine=machine(),
        origins=_ORIGINS,
    )


def _done(seen: list[FlowStatus]) -> tuple[int, int]:
    lanes = seen[-1].lanes
    return sum(lane.records for lane in lanes), sum(lane.transactions for lane in lanes)


def _net(one: Copied, fixed: float, transaction: float) -> float:
    return max(0.0, one.cpu_s - fixed - one.transactions * transaction)


def _progress_s() -> float:
    """What a partition adds to a transaction beside its batch: a progress record."""
    began = time.process_time()
    pairs = [
        (progress_key(CONNECTOR, "east", "orders", number), progress_value(123_456_789, "", "5@30"))
        for number in range(_PROGRESS)
    ]
    seal(encode_records(pairs, 0), Stamp(1, 1, 0))
    return (time.process_time() - began) / _PROGRESS


def _brokers_s() -> float:
    """CPU-seconds of the Java processes that this one, or its guard, has started."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
            total += times.user + times.system if child.name() == "java" else 0.0
        except psutil.NoSuchProcess:
            continue
    return total


_HERE = "isthmus bench --calibrate"
_ORIGINS: dict[str, Any] = {
    "merged_s_per_gb": f"{_HERE}: JSON of ~460 B, batches of 60 records, one lane, by codec",
    "passed_s_per_gb": f"{_HERE}: batches of 64 KB, not compressed",
    "batch_s": f"{_HERE}: lz4 batches of 12 records against batches of 60",
    "transaction_s": f"{_HERE}: all that driver and lane did for 500 records/s, by transactions",
    "touch_s": f"{_HERE}: a progress record",
    "tls_s_per_gb": "isthmus bench --cases tunnel (tunnel.json): the client's end",
    "tunnel_exit_s_per_gb": "isthmus bench --cases tunnel (tunnel.json)",
    "broker_s_per_gb": f"{_HERE}: CPU of both brokers while lz4 was copied; replication factor 1",
    "ratio": f"{_HERE}: what the source stores of JSON",
    "lane_mb": f"{_HERE}: a process with everything imported; and, not measured, tuning.queue_bytes and commit_bytes",
    "driver_mb": f"{_HERE}: a process with everything imported",
    "jvm_mb": "not measured: the heap that Isthmus asks for, and half of it beside",
    "latency_p50_ms": "isthmus bench (bench.json): 500 records/s on warm brokers of one machine",
    "latency_p99_ms": "isthmus bench (bench.json): likewise",
    "transactions_per_s": f"{_HERE}: of one lane, for 500 records/s",
}
