"""The real `isthmus` command with threads in Spark's place: lanes and comparisons run in the command's own process.

For tests of what commands do, where a start of Spark (seconds, each time) would prove nothing more: `python -m
tests.threaded WORDS`, or `in_threads()` around a call. What Spark itself adds has tests of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from isthmus.cli.app import main
from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.engine.orders import Order, Receipt

ON_SPARK = {"run", "verify", "failover", "failback"}  # other commands start without what it imports


class Threads:
    """What a run and a proof want of Spark. It has every public name of `isthmus.engine.spark.Spark` (a unit test)."""

    page = ""
    jvm_pid = None

    def __init__(self, *_: object, **__: object) -> None:
        pass

    async def run(self, order: Order) -> Receipt:
        from isthmus.engine.lane import run_order

        return await asyncio.to_thread(run_order, order, uuid.uuid4().hex)

    async def submit(self, group: str, text: str, item: Any, body: object) -> Any:
        """Of a proof: `body` would have the process die with Spark's daemon, which is not there."""
        from isthmus.engine.verify.task import compared

        found = await asyncio.to_thread(compared, item)
        if isinstance(found, IsthmusError):
            raise found
        return found

    def grouped(self, group: str, text: str, work: Callable[[], Any]) -> Any:
        return work()

    def alive(self) -> bool:
        return True

    def slots(self, wanted: int) -> int:
        return wanted

    def last_words(self) -> str:
        return ""

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        pass


@contextlib.contextmanager
def in_threads() -> Iterator[None]:
    with (
        mock.patch("isthmus.engine.run.open_spark", Threads),
        mock.patch("isthmus.engine.verify.run.open_spark", Threads),
    ):
        yield


if __name__ == "__main__":
    with in_threads() if ON_SPARK & set(sys.argv[1:2]) else contextlib.nullcontext():
        main()
