"""What the page asks for on demand, beside the pictures: plan, groups, gaps, explanations. Changes nothing.

Each answer is the documented JSON of the command of the same name. What must stay true: looks of one kind come one
after another, however many people ask, because each opens connections to clusters; each has an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from isthmus.errors import ConfigError, TargetError
from isthmus.model import Flow
from isthmus.observe.explained import explanations

_WITHIN_S = 120.0
T = TypeVar("T")


async def aside(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """In a thread with an event loop of its own: whoever watches must not wait for what somebody else asked."""

    async def bounded() -> T:
        async with asyncio.timeout(_WITHIN_S):
            return await work()

    try:
        return await asyncio.to_thread(lambda: asyncio.run(bounded()))
    except TimeoutError:
        raise TargetError(f"no answer within {_WITHIN_S:.0f} s", hint="is a cluster slow or away?") from None


class Looks:
    """Over the flows of the file."""

    def __init__(self, flows: Sequence[Flow]) -> None:
        self._flows = {flow.name: flow for flow in flows}
        self._turns: dict[str, asyncio.Lock] = {}

    def flow(self, name: object) -> Flow:
        found = self._flows.get(name) if isinstance(name, str) else None
        if found is None:
            raise ConfigError("there is no such flow here", where="flow", hint=f"one of {', '.join(self._flows)}")
        return found

    async def ask(self, kind: str, flow: Flow) -> Any:
        known: dict[str, Callable[[Flow], Awaitable[Any]]] = {"plan": _plan, "groups": _groups, "gaps": _gaps}
        async with self._turns.setdefault(kind, asyncio.Lock()):
            return await known[kind](flow)


async def _plan(flow: Flow) -> Any:
    from isthmus.engine.plan import make_plan
    from isthmus.engine.plan_form import plan_json

    return plan_json(await aside(lambda: make_plan(flow)))


async def _groups(flow: Flow) -> Any:
    from isthmus.engine.offsets.view import GroupsReader, GroupsView

    async def read() -> GroupsView:
        async with GroupsReader(flow) as reader:
            return await reader.read()

    return {"flow": flow.name, **asdict(await aside(read))}


async def _gaps(flow: Flow) -> Any:
    from isthmus.engine.resolve.form import record_json
    from isthmus.engine.resolve.outside import recorded

    return record_json(flow.name, await aside(lambda: recorded(flow)))


def explained() -> list[dict[str, Any]]:
    return [asdict(each) for each in explanations()]
