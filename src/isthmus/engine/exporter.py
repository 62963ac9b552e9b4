"""Looks at flows whenever somebody asks for metrics, in a thread of its own: beside a run, or apart from any.

It reads what everybody can read (`outlook`), so a run is no different for it, and trouble here never touches records.
What must stay true: looks of one flow come one after another; a look that fails is a flow that is not up, never an
error of the page; everything is closed when the block ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Self

from isthmus.engine.outlook import Outlook
from isthmus.errors import IsthmusError, TargetError
from isthmus.model import Flow
from isthmus.observe.health import FlowHealth
from isthmus.observe.metrics import Looked

LOOKS_SHARE = 0.007  # of one core, for whoever looks again and again: less than a hundredth of what a busy flow takes
_WITHIN_S = 30.0


class Exporter:
    """`with` it; `look` may be called from any thread."""

    def __init__(self, flows: Sequence[Flow]) -> None:
        self._flows = flows
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="metrics", daemon=True)
        self._outlooks = [Outlook(flow, certificates=True) for flow in flows]
        self._turns = asyncio.Lock()
        self.failures: dict[str, IsthmusError] = {}  # why the last look at a flow found nothing, by its name
        self.spent_s = 0.0  # processor time of the last look

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_WITHIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def look(self) -> Looked:
        return asyncio.run_coroutine_threadsafe(self._look(), self._loop).result(_WITHIN_S)

    async def _look(self) -> Looked:
        async with self._turns:
            began = time.thread_time()  # nothing but looks is done in this thread
            found = await asyncio.gather(*(self._one(number) for number in range(len(self._flows))))
            self.spent_s = time.thread_time() - began
        told = zip(self._flows, found, strict=True)
        lost = [(flow.name, flow.target.alias) for flow, health in told if health is None]
        return Looked(flows=[health for health in found if health is not None], lost=lost)

    async def _one(self, number: int) -> FlowHealth | None:
        """A target that is away may come back as another one: then the look begins anew."""
        try:
            async with asyncio.timeout(_WITHIN_S / 2):
                found = await self._outlooks[number].look()
            self.failures.pop(self._flows[number].name, None)
            return found
        except (IsthmusError, TimeoutError) as error:
            late = TargetError(f"no answer within {_WITHIN_S / 2:.0f} s", code="UNREACHABLE")
            self.failures[self._flows[number].name] = error if isinstance(error, IsthmusError) else late
            self._outlooks[number].close()
            self._outlooks[number] = Outlook(self._flows[number], certificates=True)
            return None

    async def _close(self) -> None:
        for outlook in self._outlooks:
            outlook.close()
        await asyncio.sleep(0)  # links that were closed have a last word to the loop
