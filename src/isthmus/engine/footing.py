"""The control topic under a flow that runs: should it be deleted or made anew, the driver puts on record what it knows.

Lanes go on meanwhile: progress is in their transactions, and they hear their driver again when the topic is there. What
must stay true: what somebody else has written into the new topic is heard first, so that a rival's lease counts; only
then comes what we remember, and our lease last. An order that was claimed in the old log cannot be claimed in the new
one: it begins below the place where the order's claims are looked for (I3). A topic that is there and only shorter has
lost its end in an unclean election: it is followed from where it ends now.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from isthmus.engine import control
from isthmus.engine.internal import create_needed, internal_topics
from isthmus.engine.wishes import THROTTLE
from isthmus.errors import TargetError
from isthmus.model import NO_ID

if TYPE_CHECKING:
    from isthmus.engine.driver import Driver
    from isthmus.wire.cluster import Client

_LOOKS, _PAUSE_S = 6, 0.5  # a broker that has just started may not know every topic yet


class Footing:
    """Which control topic it is that a driver stands on."""

    def __init__(self, driver: Driver, target: Client) -> None:
        self._driver = driver
        self._target = target
        self._topic = driver.flow.control_topic
        self._id = NO_ID
        self._lock = asyncio.Lock()  # several tasks hear the topic

    def stand(self) -> None:
        """On the topic that is there now."""
        self._id = self._target.topic_id(self._topic)

    async def regain_if_lost(self) -> None:
        async with self._lock:
            if await self._is_lost():
                await self._regain()

    async def _is_lost(self) -> bool:
        """Whether it is another one, or none."""
        for look in range(_LOOKS):
            await asyncio.sleep(_PAUSE_S if look else 0)
            await self._target.refresh([self._topic])
            if self._topic in self._target.topics:
                return NO_ID not in (seen := self._target.topic_id(self._topic), self._id) and seen != self._id
        return True

    async def _regain(self) -> None:
        """Make it again, hear what is in it, and put what we know on record. May be repeated."""
        driver = self._driver
        wanted = [each.topic for each in internal_topics(driver.flow) if each.topic.name == self._topic]
        await create_needed(self._target, wanted, TargetError)
        await driver.hear_anew()
        await control.write(driver.journal, self._remembered())
        await driver.lease.renew()
        await driver.fleet.publish_wants()
        self.stand()
        driver.scene.note(
            f"the control topic {self._topic} was deleted while the flow ran: it is there again, with all that it said "
            "of topics, stops, gaps, decisions and pauses; find out who deleted it"
        )

    def _remembered(self) -> dict[str, dict[str, Any]]:
        driver = self._driver
        kept = (*control.LASTING, THROTTLE)
        lasting = {key: value for key, value in driver.view.values.items() if key.startswith(kept)}
        return lasting | {"snapshot": driver.dispatch.ledger.snapshot()}
