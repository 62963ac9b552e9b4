"""Both clusters of a flow, opened by somebody who looks at it, and closed when that is over.

`Sides` is what a look from outside is made of: positions, groups, changing hands. What must stay true: clients are
closed whatever happens, also when only one of the clusters can be reached; a cluster that cannot be reached is told as
the source's or the target's trouble. What is asked of the clusters is left to others.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Self

from isthmus.errors import ConfigError, SourceError, TargetError, WireError
from isthmus.model import Flow
from isthmus.wire.cluster import Client


class Sides:
    """`async with` it: source and target are connected, and all their topics are known."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._source, self._target = unconnected(flow)

    async def __aenter__(self) -> Self:
        try:
            await reach(self._source, SourceError)
            await reach(self._target, TargetError)
            await self._source.refresh(None)
            await self._target.refresh(None)
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        self._source.close()
        self._target.close()


@contextlib.asynccontextmanager
async def clients(flow: Flow) -> AsyncIterator[tuple[Client, Client]]:
    """Of source and target; not connected yet."""
    source, target = unconnected(flow)
    try:
        yield source, target
    finally:
        source.close()
        target.close()


def unconnected(flow: Flow) -> tuple[Client, Client]:
    """Clients of source and target; whoever asks for them closes them."""
    timeout_s = flow.tuning.request_timeout_ms / 1000
    return Client(flow.source, timeout_s=timeout_s), Client(flow.target, timeout_s=timeout_s)


async def reach(client: Client, kind: type[SourceError | TargetError]) -> None:
    """Connect; what is wrong is told as trouble of this kind."""
    try:
        await client.start()
    except WireError as error:
        raise kind(error.message, where=error.where, hint=error.hint, code=error.code) from error


def refuse_transformed(flow: Flow, what: str) -> None:
    """What belongs to copies: a transform makes something else of records, and in another way."""
    if flow.transform is not None:
        raise ConfigError(
            f"a flow with a transform cannot be {what}",
            where=f"flow {flow.name}",
            hint="carry the same topics by a flow without a transform for that",
            code="TRANSFORM",
        )
