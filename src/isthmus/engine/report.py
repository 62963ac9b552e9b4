"""What a driver says of itself in the control topic, for those who look from outside (`outlook`).

Lanes report positions and rates; the driver adds what only it knows: how its lanes fare, what happened lately, how the
last round over consumer groups went, and, when it ends by an error, which. What must stay true: written only when
something changed, and not more often than lanes report; said again if it could not be written; no secret (errors and
events hold none).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from isthmus.errors import IsthmusError

if TYPE_CHECKING:  # whoever reads these words needs nothing of what a driver is made of
    from isthmus.engine.offsets.keeper import Round
    from isthmus.engine.scene import Scene

DRIVER = "driver"  # key in the control topic
_EVERY_S = 1.0


class Report:
    """The driver's own words."""

    def __init__(self, scene: Scene, driver: str) -> None:
        self._scene = scene
        self._driver = driver
        self._said: dict[str, Any] = {}
        self._saying: dict[str, Any] = {}
        self._due_at = 0.0

    def news(self, groups: Round) -> dict[str, dict[str, Any] | None]:
        """The record, if there is something new and it is time to say it."""
        self._saying = self._said  # an offer that was not taken is no news any more
        if time.monotonic() < self._due_at:
            return {}
        value = self._value(groups)
        if value == self._said:
            return {}
        self._saying, self._due_at = value, time.monotonic() + _EVERY_S
        return {DRIVER: value}

    def written(self) -> None:
        """What `news` gave last is on record."""
        self._said = self._saying

    def last_words(self, error: IsthmusError, groups: Round) -> dict[str, dict[str, Any]]:
        told = {"code": error.code, "message": str(error), "hint": error.hint, "at": time.time()}
        return {DRIVER: {**self._value(groups), "error": told}}

    def _value(self, groups: Round) -> dict[str, Any]:
        return {"driver": self._driver, **self._scene.report(), "groups": groups.as_value()}
