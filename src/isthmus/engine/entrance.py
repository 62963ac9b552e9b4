"""Before a flow starts: may it, and can it? Everything that would end it is found before anything is created.

What must stay true: nothing is changed on either cluster, and nobody is fenced. What concerns single topics is told,
and keeps back only them. Both clients are connected; who drives the flow is not asked here.
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus.engine.abilities import Severity, lacking, refuse_blocked
from isthmus.engine.fencing import Fence
from isthmus.engine.plan import plan_flow
from isthmus.engine.rights import hidden_topics, missing_rights, probe_id, refuse_unallowed, told
from isthmus.engine.survey import beside, chosen_topics, refuse_nothing, refuse_own_copies, refuse_uncreatable
from isthmus.model import Flow
from isthmus.wire.cluster import Client


async def admit(source: Client, target: Client, flow: Flow, fence: Fence, note: Callable[[str], None]) -> None:
    """Raises the first reason not to start."""
    _look_at_abilities(source, target, flow, note)
    names = await chosen_topics(source, flow)
    hidden = await hidden_topics(source, flow)
    refuse_nothing(flow, names, sorted(source.topics), hidden)
    refuse_own_copies(source, target, flow, names)
    await _look_at_rights(source, target, flow, [*names, *hidden], note)
    # A probe shows that the target can do transactions, before anything is created or anybody is fenced.
    await fence.one(probe_id(flow))
    await refuse_uncreatable(source, target, flow, names)
    note((await plan_flow(source, target, flow)).summary())
    if word := await beside(target, flow):
        note(word)


async def _look_at_rights(
    source: Client, target: Client, flow: Flow, names: list[str], note: Callable[[str], None]
) -> None:
    """All that is missing is told at once; only what the whole flow needs ends it."""
    await target.refresh(None)
    rights = await missing_rights(source, target, flow, names)
    refuse_unallowed(flow, rights)
    for line in told(rights):
        note(line)


def _look_at_abilities(source: Client, target: Client, flow: Flow, note: Callable[[str], None]) -> None:
    lacks = lacking(source.offer, target.offer, flow)
    refuse_blocked(lacks)
    for each in lacks:
        if each.severity is Severity.limits:
            note(str(each))
