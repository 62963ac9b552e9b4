"""Shutting writers out of the source by access rules, for those who cannot be stopped one by one; and letting them in.

What must stay true: the state says that rules were added before they are, so they are found and taken away whatever
happens; only the very rules that we add are ever taken away. Super users of a cluster are not held by any rule: that
writers have stopped is still told by the logs (`waiting`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from isthmus.dr.scene import Scene
from isthmus.errors import BrokerRefused, SourceError, WireError
from isthmus.wire.access import DENY, WRITE, TopicAcl, create_acls, delete_acls
from isthmus.wire.cluster import Client

_Change = Callable[[Client, Sequence[TopicAcl]], Awaitable[dict[TopicAcl, BrokerRefused]]]


async def shut_out(scene: Scene) -> None:
    """After this nobody but super users writes to the source's topics."""
    await _change(scene, create_acls)


async def let_in(scene: Scene) -> None:
    """Take our rules away again."""
    await _change(scene, delete_acls)


async def _change(scene: Scene, change: _Change) -> None:
    try:
        refused = await change(scene.source, _rules(scene))
    except WireError as error:
        raise _not_possible(scene, error) from error
    for each in refused.values():
        raise _not_possible(scene, each)


def _rules(scene: Scene) -> list[TopicAcl]:
    names = sorted(set(scene.remotes) & set(scene.source.topics))
    return [TopicAcl(name, "User:*", "*", WRITE, DENY) for name in names]


def _not_possible(scene: Scene, error: WireError) -> SourceError:
    return SourceError(
        f"access rules of {scene.flow.source.alias} cannot be changed: {error.message}",
        where=error.where or f"flow {scene.flow.name}",
        hint="the cluster needs an authorizer, and we the right ALTER on it; or stop writers by hand, without "
        "--fence-writers",
        code="FENCE_WRITERS",
    )
