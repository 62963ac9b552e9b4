"""How librdkafka is told to reach a cluster: bootstrap servers alone, or all the settings of a client.

What must stay true: settings may hold secrets, so only `address` is ever shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Reach = str | Mapping[str, Any]


def client_settings(reach: Reach) -> dict[str, Any]:
    return {"bootstrap.servers": reach} if isinstance(reach, str) else dict(reach)


def address(reach: Reach) -> str:
    """Its bootstrap servers."""
    return str(client_settings(reach)["bootstrap.servers"])
