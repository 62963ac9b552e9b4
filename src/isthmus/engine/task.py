"""The body of a Spark task: one attempt at one order, in a Python worker on an executor.

What must stay true (I8): a worker whose daemon or JVM dies does not go on copying. Spark's daemon ends its
workers when the JVM goes; when the daemon itself is killed the kernel ends the worker (PR_SET_PDEATHSIG), and
where there is no such signal the driver's lease runs out.
Errors of ours come back as values, so that they keep their code and hint; anything else fails the task.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator

from pyspark import TaskContext

from isthmus.engine.lane import run_order
from isthmus.engine.orders import Order, Receipt
from isthmus.errors import IsthmusError, OrderVoid

_PR_SET_PDEATHSIG = 1


def perform(orders: Iterator[Order]) -> Iterator[Receipt | IsthmusError]:
    """Run the one order of this partition."""
    die_with_parent()
    for order in orders:
        yield _attempt(order)


def _attempt(order: Order) -> Receipt | IsthmusError:
    context = TaskContext.get()
    number = context.attemptNumber() if context else 0
    if number > 0:
        # Spark counts attempts within a stage; a second one means that the first may still be alive.
        return OrderVoid(f"attempt {number} of order {order.order_id} leaves: the driver plans anew")
    identity = context.taskAttemptId() if context else 0
    try:
        return run_order(order, f"{identity}-{os.getpid()}")
    except IsthmusError as error:
        return error


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent dies; checks that it has not died already."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)
