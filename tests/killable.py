"""A lane that is killed: each order in a process of its own, ended with kill -9 in the middle of writing."""

from __future__ import annotations

import asyncio
import pickle
import random
import subprocess
import sys
import time
import uuid

from confluent_kafka import Consumer, TopicPartition

from isthmus.engine.orders import Order, Receipt
from isthmus.errors import MachineError

WORKER = """
import pickle, sys
from isthmus.engine.lane import run_order
order = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(run_order(order, "only")))
"""


class Killable:
    """A LaneRunner that kills what it runs, as long as kills are left; `topic` is the target's."""

    def __init__(self, kills: int, bootstrap: str, topic: str) -> None:
        self.kills = kills
        self.orders: list[Order] = []
        self._dice = random.Random(7)
        self._watched = TopicPartition(topic, 0)
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex})

    async def run(self, order: Order) -> Receipt:
        return await asyncio.to_thread(self._run, order)

    def _run(self, order: Order) -> Receipt:
        self.orders.append(order)
        with subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin and process.stdout
            pickle.dump(order, process.stdin)
            process.stdin.close()
            if self.kills > 0:
                self.kills -= 1
                self._wait_for_writes()
                process.kill()
            result = process.stdout.read()
        if process.returncode != 0:
            raise MachineError("the worker was killed", code="LANE_LOST")
        receipt: Receipt = pickle.loads(result)
        return receipt

    def _wait_for_writes(self) -> None:
        before = self._end()
        while self._end() < before + 200:
            time.sleep(0.005)
        time.sleep(self._dice.uniform(0, 0.1))

    def _end(self) -> int:
        return int(self._consumer.get_watermark_offsets(self._watched, timeout=10)[1])
