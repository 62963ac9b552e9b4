"""A flow with a transform between two clusters: what is written, what arrives, and what should have.

Judged by librdkafka; what is expected is computed in plain Python from what was written.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.crossing import QUICK, flow_between
from tests.integration.framed import by_librdkafka
from tests.integration.sources import START_MS, unique, write

from isthmus.engine.driver import Driver
from isthmus.engine.spark import Spark
from isthmus.frames.runner import Transforming
from isthmus.lab import Lab
from isthmus.model import Flow, Transform
from isthmus.observe.status import FlowStatus

REGIONS, KINDS, PARTITIONS = ("eu", "us", "as"), ("order", "refund"), 3
ORDER = "id BIGINT, region STRING, kind STRING, email STRING, qty STRING"
READ = f"SELECT *, from_json(CAST(value AS STRING), '{ORDER}') AS o FROM records"

Content = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]  # key, value, headers, time
Placed = tuple[str, int, Content]  # topic, partition


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Every kind of record: with and without key, headers, and a tombstone now and then."""
    found = []
    for number in range(first, first + count):
        body = {
            "id": number,
            "region": REGIONS[number % 3],
            "kind": KINDS[number % 2],
            "email": f"user{number}@grün.example",
            "qty": str(number % 7),
        }
        found.append(
            {
                "value": None if number % 50 == 49 else json.dumps(body, ensure_ascii=False).encode(),
                "key": None if number % 10 == 3 else str(number).encode(),
                "partition": number % PARTITIONS,
                "timestamp": START_MS + number,
                "headers": [("h", str(number).encode()), ("ü", None)] if number % 4 else [],
            }
        )
    return found


class Stage:
    """A topic with records, a flow with a transform, and what arrived."""

    def __init__(self, lab: Lab, spark: Spark, **transform: Any) -> None:
        self.lab, self.spark = lab, spark
        self.topic, self.alias = unique("shop.orders-"), unique("a")
        lab["east"].create_topic(self.topic, partitions=PARTITIONS)
        self.flow = self.with_transform(**transform)

    def with_transform(self, **transform: Any) -> Flow:
        return flow_between(
            self.lab, self.topic, alias=self.alias, tuning=QUICK, transform=Transform(**{"tasks": 2, **transform})
        )

    def fill(self, count: int, first: int = 0, **damage: bytes) -> list[dict[str, Any]]:
        written = rows(count, first)
        for at, value in damage.items():
            written[int(at.removeprefix("n"))]["value"] = value
        write(self.lab["east"].bootstrap, self.topic, written)
        return written

    def cross(self, flow: Flow | None = None, **options: Any) -> FlowStatus:
        flow = flow or self.flow
        return asyncio.run(_cross(flow, Transforming(self.spark, [flow], lambda _: None), options))

    @property
    def copy(self) -> str:
        return f"{self.alias}.{self.topic}"

    def arrived(self, topic: str | None = None) -> dict[int, list[Content]]:
        found = by_librdkafka(self.lab["west"].bootstrap, topic or self.copy)
        return {n: [(key, value, headers, ms) for _, _, ms, key, value, headers in each] for n, each in found.items()}


async def _cross(flow: Flow, runner: Transforming, options: dict[str, Any]) -> FlowStatus:
    return await Driver(flow, runner, until_caught_up=True, **options).run()


def expected(
    written: Sequence[dict[str, Any]], change: Callable[[dict[str, Any] | None, Content], bytes | bool | None]
) -> dict[int, list[Content]]:
    """Kept partitions; `change` gives the new value, or False for a record that is left out."""
    found: dict[int, list[Content]] = {n: [] for n in range(PARTITIONS)}
    for row in written:
        content: Content = (row["key"], row["value"], row["headers"], row["timestamp"])
        made = change(None if row["value"] is None else json.loads(row["value"]), content)
        if not isinstance(made, bool):
            found[row["partition"]].append((row["key"], made, row["headers"], row["timestamp"]))
    return found


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}


def in_avro(number: int, note: str) -> bytes:
    """As Confluent's serializers write it: a zero, four bytes for the schema, then Avro's own bytes."""
    text = note.encode()
    return b"\0\0\0\0\7" + varint(number) + varint(len(text)) + text


def varint(number: int) -> bytes:
    left, found = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
