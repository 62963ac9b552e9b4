"""Who drives a flow: a lease in the control topic, aged by the target's own clock.

A driver that finds a lease which is alive refuses to start (or takes over when told to); one that hears of
another driver's lease stops. The lease is a courtesy that gives clear messages: what makes two drivers safe
is the fence (I2), not the lease.

Leases are ordered by where in the control topic their driver acquired them (`since`): the later one counts. So a
driver that was halted, lost its flow meanwhile and renews its lease before it has heard of that is not taken for
a rival by the one that owns the flow now.

A driver that fails releases its lease when no lane of it can be left (the driver knows), and nobody else has one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from isthmus.engine import control
from isthmus.engine.control import ControlView
from isthmus.errors import RivalError, WireError
from isthmus.model import Flow
from isthmus.wire.journal import Appended, Journal

LET_GO_S = 3.0


class Lease:
    """This driver's hold on a flow."""

    def __init__(self, flow: Flow, journal: Journal) -> None:
        self.driver = uuid.uuid4().hex
        self._flow = flow
        self._journal = journal
        self._count = 0
        self._since = -1  # offset of the record by which we became the driver

    async def acquire(self, view: ControlView, *, take_over: bool) -> None:
        """Become the driver, or say who is. Waits at most until a silent lease counts as dead."""
        await self._refuse_living(view, take_over)
        await self.renew()

    async def renew(self) -> None:
        """From this record on the flow is ours."""
        self._since = -1
        self._since = (await self._write(released=False)).offset

    async def _refuse_living(self, view: ControlView, take_over: bool) -> None:
        held = view.values.get("lease")
        if held is None or held.get("released") or take_over:
            return
        seen = (held.get("driver"), held.get("count"))
        now = await control.write(self._journal, {"knock": {"driver": self.driver}})
        age_s = (now.time_ms - view.times_ms["lease"]) / 1000 if now.time_ms > 0 else 0.0
        cursor = now.offset
        while age_s < control.LEASE_DEAD_AFTER_S:
            await asyncio.sleep(0.5)
            age_s += 0.5
            end = await self._journal.end()
            for record in await self._journal.read(cursor, end):
                view.apply(record)
            cursor = end
            latest = view.values.get("lease", {})
            if latest.get("released"):
                return
            if (latest.get("driver"), latest.get("count")) != seen:
                raise rival(self._flow, latest)

    async def keep(self, note: Callable[[str], None]) -> None:
        """Renew until cancelled; apart from all else, as thousands of new topics take longer than a lease lives."""
        while True:
            try:
                await self._write(released=False)
            except WireError as error:
                note(f"the lease cannot be renewed: {error}")
            await asyncio.sleep(control.LEASE_EVERY_S)

    async def release(self) -> None:
        await self._write(released=True)

    async def let_go(
        self,
        hear: Callable[[], Awaitable[None]],
        is_ours: Callable[[], bool],
        note: Callable[[str], None],
        words: Mapping[str, dict[str, Any]],
    ) -> None:
        """Release, if the flow is still ours: a release after a rival's lease would tell a third that it is free.
        `words` are put on record with it.

        It hastens the next start, no more: whoever comes fences first. So it does not delay the news of a failure.
        """
        if self._since < 0:
            return
        try:
            async with asyncio.timeout(LET_GO_S):
                await hear()
                if is_ours():
                    await control.write(self._journal, words)
                    await self.release()
        except (TimeoutError, WireError) as error:
            note(f"the lease could not be released ({error}); it ends by itself")

    def is_mine(self, value: dict[str, Any]) -> bool:
        """Whether a lease record leaves the flow to us: it is ours, or of a driver that had it before us."""
        if value.get("driver") == self.driver:
            return True
        since: int = value.get("since", -1)  # -1: the very record by which another driver became it
        return 0 <= since < self._since

    async def _write(self, *, released: bool) -> Appended:
        self._count += 1
        return await control.write(self._journal, {"lease": self._value(released=released)})

    def _value(self, *, released: bool) -> dict[str, Any]:
        return {
            "driver": self.driver,
            "count": self._count,
            "since": self._since,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "released": released,
        }


def rival(flow: Flow, held: dict[str, Any]) -> RivalError:
    return RivalError(
        f"another replicator drives {flow.name}: process {held.get('pid')} on {held.get('host')}",
        where=f"cluster {flow.target.alias}, topic {flow.control_topic}",
        hint="stop it first, or start with --take-over to fence it",
    )
