"""Two flows in opposite directions under the same topic names, those who write on both sides meanwhile, and whether
every record is on each side once.

What must stay true: what was written and what arrived is told by librdkafka alone, read_committed.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import Counter
from typing import Any

from tests.crossing import QUICK, flow_between
from tests.integration.sources import Row, producer, read, send, unique, values, wait_until, write

from isthmus.lab import Lab, LabCluster
from isthmus.model import Flow, Naming

KEEP = Naming(policy="identity")
# Many transactions, and batches of all sizes: some are merged, some pass.
BUSY = dataclasses.replace(QUICK, commit_interval_ms=50, merge_below_bytes=2_000)


def twins(lab: Lab, topic: str, here: str = "east", there: str = "west", **changes: Any) -> tuple[Flow, Flow]:
    """There and back, under aliases of their own: that they are twins is known by cluster ids."""
    settings = {"naming": KEEP, "tuning": BUSY, **changes}
    forth = flow_between(lab, topic, source=here, target=there, alias=unique("e"), cut_from=(there,), **settings)
    back = flow_between(lab, topic, source=there, target=here, alias=unique("w"), cut_from=(here,), **settings)
    return forth, back


class Author(threading.Thread):
    """Writes to both partitions until told to end, plain or in transactions of which every third is aborted."""

    def __init__(self, cluster: LabCluster, topic: str, name: str, *, transactional: bool, pause_s: float) -> None:
        super().__init__(daemon=True)
        self.name = name
        self._pause_s = pause_s
        self.written: dict[int, list[bytes]] = {0: [], 1: []}
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self._topic = topic
        more = {"transactional_id": unique(name)} if transactional else {"compression_type": "lz4"}
        self._producer = producer(cluster.bootstrap, linger_ms=1, batch_num_messages=7, **more)
        self._transactional = transactional

    def run(self) -> None:
        try:
            for turn in itertools.count():
                if self.ended.wait(self._pause_s):
                    return
                self._write(turn)
        except BaseException as error:  # noqa: BLE001 - handed to the test that waits
            self.error = error

    def _write(self, turn: int) -> None:
        rows: list[Row] = [
            {"value": f"{self.name}-{turn}-{n}".encode(), "key": b"%d" % n, "partition": n % 2} for n in range(20)
        ]
        aborted = self._transactional and turn % 3 == 2
        if self._transactional:
            self._producer.begin_transaction()
        send(self._producer, self._topic, rows)
        if aborted:
            self._producer.abort_transaction(60)
            return
        if self._transactional:
            self._producer.commit_transaction(60)
        for row in rows:
            self.written[int(row["partition"])].append(row["value"])

    def stop(self) -> None:
        self.ended.set()
        self.join(120)
        assert not self.is_alive(), f"{self.name} does not end"
        if self.error is not None:
            raise self.error


def assert_once(cluster: LabCluster, topic: str, authors: list[Author]) -> None:
    """Everything that was written on either side, once, in the order of each author."""
    for partition in (0, 1):
        found = values(cluster.bootstrap, topic, partition)
        doubled = [value for value, count in Counter(found).items() if count > 1]
        assert not doubled, f"{len(doubled)} records twice, such as {doubled[0]!r}"
        expected = [value for author in authors for value in author.written[partition]]
        assert sorted(v for v in found if v) == sorted(expected)
        for author in authors:
            own = [value for value in found if value and value.startswith(author.name.encode() + b"-")]
            assert own == author.written[partition]


def authors_on(lab: Lab, topic: str, *sides: str, pause_s: float) -> list[Author]:
    """Two on each side, one of whom writes in transactions."""
    return [
        Author(lab[side], topic, f"{side}-{kind}", transactional=kind == "transactions", pause_s=pause_s)
        for side in sides
        for kind in ("plain", "transactions")
    ]


def send_round(lab: Lab, topic: str, authors: list[Author], one: str, other: str) -> None:
    """A last record there, one back when it has arrived, and one there again, in each partition."""
    for turn, (here, there) in enumerate(((one, other), (other, one), (one, other))):
        author = next(a for a in authors if a.name == f"{here}-plain")
        value = f"{author.name}-last-{turn}".encode()
        for partition in (0, 1):
            write(lab[here].bootstrap, topic, [{"value": value, "partition": partition}])
            author.written[partition].append(value)
        arrived = [(partition, None, value) for partition in (0, 1)]
        wait_until(lambda: set(arrived) <= set(read(lab[there].bootstrap, topic)), f"{value!r} on {there}")  # noqa: B023
