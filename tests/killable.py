"""A LaneRunner that runs each order in a process of its own, and kills it with -9 in the middle.

Importing takes seconds: a process that has done so is forked for each order.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import time
import uuid
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from confluent_kafka import Consumer, TopicPartition

from isthmus.engine.lane import run_order
from isthmus.engine.orders import Order, Receipt
from isthmus.errors import MachineError

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["isthmus.engine.lane"])


class Killable:
    """Kills as long as kills are left, each after some records were written; remembers the orders."""

    def __init__(self, kills: int, bootstrap: str, topic: str, *, records: int = 200, seed: int = 7) -> None:
        self.kills = kills
        self.hits = 0  # kills that ended an order which was under way
        self._records = records  # written to partition 0 of the topic before it is killed, and a little later
        self.orders: list[Order] = []
        self._dice = random.Random(seed)
        self._watched = TopicPartition(topic, 0)
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "log_level": 2})

    async def run(self, order: Order) -> Receipt:
        return await asyncio.to_thread(self._run, order)

    def _run(self, order: Order) -> Receipt:
        self.orders.append(order)
        with ProcessPoolExecutor(1, mp_context=FORKS) as process:
            pid = process.submit(os.getpid).result()
            receipt = process.submit(run_order, order, "only")
            if self.kills > 0:
                self.kills -= 1
                self._wait_for_writes(receipt)
                os.kill(pid, signal.SIGKILL)
            try:
                return receipt.result()
            except BrokenProcessPool:
                self.hits += 1
                raise MachineError("the worker was killed", code="LANE_LOST") from None

    def _wait_for_writes(self, receipt: Future[Receipt]) -> None:
        before = self._end()
        while self._end() < before + self._records and not receipt.done():
            time.sleep(0.005)
        time.sleep(self._dice.uniform(0, 0.1))

    def _end(self) -> int:
        return int(self._consumer.get_watermark_offsets(self._watched, timeout=10)[1])
