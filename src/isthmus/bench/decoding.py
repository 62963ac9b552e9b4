"""Records into Arrow's record batches: `frames.reading` against a loop in Python over librdkafka, in turn.

Both read the same topic from the same broker and make the same columns: key, value, headers, time, type of the time,
offset; ours adds topic and partition, as a DataFrame needs them. Ours takes one partition after the other, as a task
of Spark does, the loop all of them at once. Both have one process: ours a thread that decodes and one that asks brokers
(`HAS`); the loop a thread in Python, and those of librdkafka, which receives and decompresses beside it. What must stay
true: the loop does no more than it needs (a list and `pyarrow.array` per column; librdkafka checks no checksums, ours
does), and both must end with the same columns, by count, by bytes and by sums.

Rounds are taken in turn, every second one in the opposite order; the middle one of each counts.

The loop runs twice: as anybody would write it, which is what the bar is about, and with Python's garbage collector off,
because hundreds of thousands of messages and lists of headers make that run often. 1,000 messages at once were better
for it than 10,000.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, Message, TopicPartition
from rich.console import Console
from rich.table import Table

from isthmus import model
from isthmus.bench.cases import CASES, fill
from isthmus.errors import ProofError
from isthmus.frames.arrow import record_batch
from isthmus.frames.offsets import earliest, latest
from isthmus.frames.ranges import Range, between
from isthmus.frames.reading import read
from isthmus.wire.cluster import Client

BAR = 4.0
_ROUNDS = 5
_AT_ONCE = 1_000
OURS, LOOP, LOOP_WITHOUT_GC = "isthmus", "loop", "loop, gc off"
_OF_LOOP = "one process: a thread in Python, and those of librdkafka (one for each broker, one for itself)"
HAS = {
    OURS: "one process: a thread that decodes, one that asks brokers",
    LOOP: _OF_LOOP,
    LOOP_WITHOUT_GC: _OF_LOOP,
}

Say = Callable[[str], None]
Sums = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Seconds, and CPU-seconds of this process, of every round of every system."""

    records: int
    rounds: dict[str, tuple[tuple[float, float], ...]]

    def median(self, system: str) -> tuple[float, float]:
        """The middle of its rounds, by each."""
        seconds, cpu = zip(*self.rounds[system], strict=True)
        return statistics.median(seconds), statistics.median(cpu)

    def times(self, system: str) -> tuple[float, float]:
        """How many times as fast as this system we are, and how many times less CPU we need."""
        (seconds, cpu), (ours, our_cpu) = self.median(system), self.median(OURS)
        return seconds / ours, cpu / our_cpu

    @property
    def is_kept(self) -> bool:
        return self.times(LOOP)[0] >= BAR

    def as_json(self) -> dict[str, Any]:
        return {
            "bar": BAR,
            "within_bar": self.is_kept,
            "records": self.records,
            "has": HAS,
            "records_per_s": {system: round(self.records / self.median(system)[0]) for system in self.rounds},
            "times_as_fast": {system: round(self.times(system)[0], 2) for system in (LOOP, LOOP_WITHOUT_GC)},
            "times_less_cpu": {system: round(self.times(system)[1], 2) for system in (LOOP, LOOP_WITHOUT_GC)},
            "seconds_and_cpu_seconds": self.rounds,
        }


def measure_decoding(bootstrap: str, scale: float, say: Say) -> Decoded:
    """Fills a topic of JSON with keys and a header each, and reads it."""
    case = replace(CASES["json"], name="decode")
    say("decode: filling the topic")
    filled = fill(bootstrap, case, scale, _dressed)
    systems: dict[str, Callable[[], Sums]] = {
        OURS: lambda: _summed(_ours(bootstrap, case.topic)),
        LOOP: lambda: _summed(_by_loop(bootstrap, case.topic, case.partitions)),
        LOOP_WITHOUT_GC: lambda: _without_gc(lambda: _summed(_by_loop(bootstrap, case.topic, case.partitions))),
    }
    rounds: dict[str, list[tuple[float, float]]] = {system: [] for system in systems}
    for number in range(_ROUNDS):
        sums: list[Sums] = []
        for system in list(systems)[:: -1 if number % 2 else 1]:
            say(f"decode: round {number + 1} of {_ROUNDS}, {system}")
            rounds[system].append(_timed(systems[system], sums))
        if len(set(sums)) > 1 or sums[0][0] != filled.records:
            raise ProofError(f"the columns differ: {sums}")
    return Decoded(records=filled.records, rounds={system: tuple(found) for system, found in rounds.items()})


def _dressed(number: int) -> dict[str, Any]:
    return {"key": b"customer-%07d" % (number * 7919 % 1_000_003), "headers": [("trace", b"%016x" % number)]}


def _timed(work: Callable[[], Sums], sums: list[Sums]) -> tuple[float, float]:
    began, cpu = time.monotonic(), time.process_time()
    sums.append(work())
    return round(time.monotonic() - began, 3), round(time.process_time() - cpu, 3)


def _without_gc(work: Callable[[], Sums]) -> Sums:
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()


def _summed(parts: Iterator[pa.RecordBatch]) -> Sums:
    """Enough to know that both made the same, and cheap enough not to count."""
    total = np.zeros(9, np.int64)
    for part in parts:
        headers = part["headers"].flatten()
        blobs = part["key"], part["value"], headers.field("key"), headers.field("value")
        sizes = [pc.sum(pc.binary_length(each)).as_py() or 0 for each in blobs]
        numbers = part["offset"], part["timestamp"].cast(pa.int64()), part["timestampType"]
        total += [part.num_rows, *sizes, len(headers), *(pc.sum(each).as_py() for each in numbers)]
    return tuple(total.tolist())


# ---- ours ----------------------------------------------------------------------------------


def _ours(bootstrap: str, topic: str) -> Iterator[pa.RecordBatch]:
    cluster = model.Cluster(alias="east", bootstrap=tuple(bootstrap.split(",")))
    for wanted in asyncio.run(_ranges(cluster, topic)):
        for part in read(cluster, wanted):
            yield record_batch(part, wanted.tp)


async def _ranges(cluster: model.Cluster, topic: str) -> list[Range]:
    client = Client(cluster)
    try:
        await client.start()
        await client.refresh([topic])
        info = client.topics[topic]
        partitions = [model.TopicPartition(topic, number) for number in info.partitions]
        start, end = await earliest(client, partitions), await latest(client, partitions)
        return between(start, end, {topic: info.topic_id})[0]
    finally:
        client.close()


# ---- the loop ------------------------------------------------------------------------------


def _by_loop(bootstrap: str, topic: str, partitions: int) -> Iterator[pa.RecordBatch]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 2}
    # By default it rests for a second whenever its queue is full: that would not be the loop's fault.
    brisk = {"fetch.queue.backoff.ms": 5, "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer(settings | brisk)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    ended = 0
    while ended < partitions:
        messages = consumer.consume(_AT_ONCE, 1.0)
        records = [message for message in messages if message.error() is None]
        ended += len(messages) - len(records)
        if records:
            yield _batch(records)
    consumer.close()


def _batch(records: Sequence[Message]) -> pa.RecordBatch:
    stamps = [record.timestamp() for record in records]
    columns = {
        "offset": pa.array([record.offset() for record in records], pa.int64()),
        "timestamp": pa.array([ms * 1000 for _, ms in stamps], pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([kind - 1 for kind, _ in stamps], pa.int32()),
        "key": pa.array([record.key() for record in records], pa.binary()),
        "value": pa.array([record.value() for record in records], pa.binary()),
        "headers": _lists([record.headers() or () for record in records]),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _lists(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    """From one flat array of all pairs: cheaper than to give Arrow lists of dictionaries."""
    pairs = [pair for each in headers for pair in each]
    names = pa.array([name for name, _ in pairs], pa.string())
    contents = pa.array([content for _, content in pairs], pa.binary())
    offsets = np.zeros(len(headers) + 1, np.int32)
    np.cumsum([len(each) for each in headers], out=offsets[1:])
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([names, contents], names=["key", "value"]))


def show(found: Decoded, console: Console) -> None:
    table = Table(title=f"{found.records:,} records into columns: key, value, headers, time, offset")
    table.add_column("")
    for name in ("records/s, median", "seconds, by round", "CPU-seconds"):
        table.add_column(name, justify="right")
    for system, rounds in found.rounds.items():
        rate = f"{found.records / found.median(system)[0]:,.0f}"
        seconds, cpu = (", ".join(map(str, figures)) for figures in zip(*rounds, strict=True))
        table.add_row(system, rate, seconds, cpu)
    console.print(table)
    for system in (OURS, LOOP):
        console.print(f"{system} has {HAS[system]}")
    for system in (LOOP, LOOP_WITHOUT_GC):
        faster, less = found.times(system)
        console.print(f"{system}: {faster:.1f} times as fast, {less:.1f} times less CPU")
    console.print(
        f"bar: {BAR:.0f} times as fast as the loop over librdkafka: {'kept' if found.is_kept else 'NOT kept'}"
    )
