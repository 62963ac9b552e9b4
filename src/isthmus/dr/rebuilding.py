"""A source that was built anew: what was copied from it is on the target alone, and all of that goes back.

The failback becomes an ordinary one, of a freeze at the very beginning of the copies: topics that are missing are made,
and the flow forgets the logs that are gone (progress, index, gaps, ids). What must stay true: the state says so before
anything is forgotten, so whoever comes in between finds ids that do not fit and is refused. New topics that hold
records are refused; topics that are the same as ever keep the place of their freeze.
"""

from __future__ import annotations

from dataclasses import replace

from isthmus.dr.groups import index_of
from isthmus.dr.mirror import mirror_of
from isthmus.dr.refusals import is_another
from isthmus.dr.scene import Scene, now_ms
from isthmus.dr.waiting import log_starts
from isthmus.engine.control import write as write_control
from isthmus.engine.resolve.record import forgotten
from isthmus.engine.survey import new_topics
from isthmus.engine.switch import Place
from isthmus.errors import ConfigError, RivalError, SourceError
from isthmus.model import TopicPartition
from isthmus.wire.admin import create_topics
from isthmus.wire.fetch import EARLIEST, LATEST, settled_offsets

_OF_FAILBACK = frozenset({"rebuilt", "look", "aside begun", "aside", "prepare", "carry", "writers back", "return"})


async def rebased_places(scene: Scene) -> dict[TopicPartition, Place]:
    """Where the way back begins: for topics that were made anew, at the start of their copies."""
    names = _others(scene)
    copies = {tp: copy for tp, copy in scene.copies().items() if tp.topic in names}
    begins = await log_starts(scene.target, list(copies.values()))
    return {**scene.state.places, **{tp: Place(0, begins[copy]) for tp, copy in copies.items()}}


async def rebase(scene: Scene) -> None:
    """Nothing, if that was done before and the topics are the same since."""
    if not (names := _others(scene)):
        if not scene.state.done("rebuilt"):
            raise _not_rebuilt(scene)
        return
    _refuse_half(scene, names)
    scene.begin("rebuilt", f"{len(names)} topics are made anew on {scene.flow.source.alias}")
    await _make(scene, names)
    await _refuse_filled(scene, names)
    switch, places = scene.state, await rebased_places(scene)
    kept = tuple((step, at) for step, at in switch.steps if step not in _OF_FAILBACK)
    # Access rules went with the cluster that they were on; they stay on record where it is the same.
    fenced = switch.fenced and len(names) < len({tp.topic for tp in switch.places})
    await scene.record(replace(switch, places=places, steps=kept, fenced=fenced).with_step("rebuilt", now_ms()))
    await _forget(scene, names)
    scene.end("rebuilt", "everything that the target has goes back")


def _others(scene: Scene) -> list[str]:
    return sorted(name for name in {tp.topic for tp in scene.state.places} if is_another(scene, name))


async def _make(scene: Scene, names: list[str]) -> None:
    back = mirror_of(scene.flow, scene.remotes)
    await create_topics(scene.source, await new_topics(scene.target, scene.source, back, _copies_of(scene, names)))
    await scene.source.refresh(None)


def _copies_of(scene: Scene, names: list[str]) -> list[str]:
    return [remote for name in names if (remote := scene.remotes[name]) in scene.target.topics]


async def _refuse_filled(scene: Scene, names: list[str]) -> None:
    there = [tp for tp in scene.state.places if tp.topic in names]
    begins = await settled_offsets(scene.source, there, EARLIEST)
    ends = await settled_offsets(scene.source, there, LATEST)
    if filled := sorted(tp for tp in there if begins[tp] < ends[tp]):
        raise SourceError(
            f"{filled[0]} on {scene.flow.source.alias} holds records: it is new, and not empty",
            where=f"flow {scene.flow.name}",
            hint=f"what comes back would stand behind them: delete {filled[0].topic} there, then say the same again",
            code="SOURCE_NOT_EMPTY",
        )


def _refuse_half(scene: Scene, names: list[str]) -> None:
    """Where a failback has carried something already, topics that are the same would be carried twice."""
    same = sorted({tp.topic for tp in scene.state.places} - set(names))
    if same and scene.state.done("prepare"):
        raise RivalError(
            f"a failback of {scene.flow.name} is under way, and {same[0]} is the same topic as when it began",
            where=f"cluster {scene.flow.source.alias}",
            hint=f"only {names[0]} was made anew: see `isthmus resolve` of flow "
            f"{scene.flow.target.alias}->{scene.flow.source.alias}",
            code="FAILED_OVER",
        )


def _not_rebuilt(scene: Scene) -> ConfigError:
    return ConfigError(
        f"no topic on {scene.flow.source.alias} was made anew: it is the cluster that clients left",
        where=f"flow {scene.flow.name}",
        hint="leave --rebuilt out: only what is new goes back",
        code="NOT_REBUILT",
    )


async def _forget(scene: Scene, names: list[str]) -> None:
    """What the flow knows of logs that are gone; the ids of the new ones last."""
    view = scene.hold.view
    async with scene.hold.held("", take_over=False):
        await scene.hold.ledger.advance()
        await scene.hold.ledger.erase(names)
        if scene.flow.index_topic in scene.target.topics:
            await index_of(scene.flow, scene.target).erase(names)
        values: dict[str, dict[str, str] | None] = {}
        for name in names:
            known = {key: value for key, value in view.values[f"topic/{name}"].items() if key != "starts"}
            values |= forgotten(view, name, lost=True)
            values[f"topic/{name}"] = known | {"source_id": str(scene.source.topic_id(name))}
        await write_control(scene.hold.journal, values | {"snapshot": scene.hold.ledger.snapshot()})
        await scene.hold.hear()
