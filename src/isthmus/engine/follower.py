"""A lane's ear and mouth: hears what the driver wants, reports what the lane did.

Both go through the control topic on links of their own, because a long poll would hold up produce requests.
What must stay true (I8): a lane that hears no lease of its driver for DRIVER_GONE_AFTER_S, or hears that
another driver owns the flow, ends. What could not be said is said again; a control topic that was made anew is heard
from its beginning.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from isthmus.engine import control
from isthmus.engine.resolve.record import stop_value
from isthmus.errors import BrokerUnreachable, WireError
from isthmus.model import NO_ID
from isthmus.wire.records import Record

if TYPE_CHECKING:
    from isthmus.engine.lane import Lane

REPORT_EVERY_S = 1.0
_SILENT_S = 10.0  # then we say that we live; not by a report, whose time tells when the source was last heard of
_NOTES = 5


class Follower:
    """Follows the control topic from the order's making on."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._cursor = lane.order.control_from
        self._log = NO_ID  # the topic that the cursor is of
        self._heard_at = time.monotonic()
        self._reported_at = self._written_at = 0.0
        self._last_report: dict[str, Any] = {}
        self._notes: list[str] = []
        self._noted = 0

    def note(self, text: str) -> None:
        """Something that an operator should see; the last few go with each report, which also counts them all."""
        self._notes = [*self._notes, text][-_NOTES:]
        self._noted += 1

    async def run(self) -> None:
        while True:
            try:
                for record in await self._next_records():
                    self._hear(record)
                await self._report_when_due()
            except BrokerUnreachable:
                await asyncio.sleep(0.2)
            if time.monotonic() - self._heard_at > control.DRIVER_GONE_AFTER_S:
                self._lane.wanted_end("driver gone")

    async def _next_records(self) -> list[Record]:
        records, self._cursor = await self._lane.journal.poll(self._cursor, 400, "control")
        if not self._is_another_log():
            return records
        self._cursor, self._last_report = 0, {}  # nothing that we said is in it
        return []

    def _is_another_log(self) -> bool:
        seen, known = self._lane.target.topic_id(self._lane.order.flow.control_topic), self._log
        self._log = known if seen == NO_ID else seen
        return NO_ID not in (seen, known) and seen != known

    def _hear(self, record: Record) -> None:
        order = self._lane.order
        key, value = control.decode(record)
        if value is None:
            return
        if key == "lease":
            if value.get("driver") != order.driver:
                self._lane.wanted_end("another driver")
            self._heard_at = time.monotonic()
        elif key == f"want/{order.lane}" and value.get("driver") == order.driver:
            if value.get("state") == "stop":
                self._lane.wanted_end("stop")
            elif int(value.get("revision", 0)) > order.revision:
                self._lane.wanted_end("revision")
            else:
                self._lay_aside(frozenset(value.get("aside", ())))

    def _lay_aside(self, topics: frozenset[str]) -> None:
        """Topics that the lane leaves alone, of those that it has; the others do not notice (I7)."""
        for tp, track in self._lane.tracks.items():
            track.lay_aside(tp.topic in topics)
        self._lane.ready.set()

    async def _report_when_due(self) -> None:
        if time.monotonic() - self._reported_at >= REPORT_EVERY_S:
            await self.report()

    async def report(self, *, final: bool = False) -> None:
        """Write this lane's status, when anything in it changed; else a sign of life, now and then."""
        self._reported_at = time.monotonic()
        order, value = self._lane.order, self._value(final)
        if value != self._last_report:
            words = {f"status/{order.lane}": value}
        elif self._reported_at - self._written_at >= _SILENT_S:
            words = {f"alive/{order.lane}": {"driver": order.driver, "order": order.order_id}}
        else:
            return
        try:
            async with asyncio.timeout(3.0):
                await control.write(self._lane.journal, words)
        except (WireError, OSError, TimeoutError):
            return  # a report is a courtesy: progress is in the transactions; it is due again
        self._last_report, self._written_at = value, self._reported_at

    def _value(self, final: bool) -> dict[str, Any]:
        lane = self._lane
        tally = lane.writer.tally
        return {
            "driver": lane.order.driver,
            "order": lane.order.order_id,
            "state": "ended" if final else "running",
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "records": tally.records,
            "dead_letters": tally.dead_letters,
            "bytes": tally.bytes,
            "transactions": tally.transactions,
            "aborts": tally.aborts,
            "age": tally.read.as_value(),
            "latency": tally.committed.as_value(),
            "positions": [[tp.topic, tp.partition, t.committed, t.end] for tp, t in lane.tracks.items() if t.is_told],
            **self._carried(),
            "stops": [[stop.source.topic, stop.source.partition, stop_value(stop, 0)] for stop in lane.stops],
            "notes": self._notes,
            "noted": self._noted,
        }

    def _carried(self) -> dict[str, list[int]]:
        """Bytes of each partition in this order, where lanes come and go by that."""
        if not self._lane.order.flow.growth.least:
            return {}
        return {"carried": [track.carried for track in self._lane.tracks.values() if track.is_told]}
