"""What cannot be meant: refused with the reason and the next command, before anything is changed."""

from __future__ import annotations

from isthmus.dr.scene import Scene
from isthmus.dr.values import FAILOVER, SWITCHOVER
from isthmus.dr.waiting import driver_of
from isthmus.engine.hold import Hold
from isthmus.engine.switch import RETURNING, SWITCHED
from isthmus.errors import RivalError, SourceError
from isthmus.model import NO_ID
from isthmus.wire.cluster import Client


def refuse_failover(scene: Scene) -> None:
    """A second one; one that needs a source that is gone, or leaves behind one that is not."""
    flow, options, switch = scene.flow, scene.options, scene.switch
    if switch is not None and switch.phase in (SWITCHED, RETURNING):
        back = switch.phase == RETURNING
        raise RivalError(
            f"flow {flow.name} " + ("is being failed back" if back else f"was failed over already by {switch.by}"),
            where=f"cluster {flow.target.alias}, topic {flow.control_topic}",
            hint="`isthmus failback` " + ("goes on with it" if back else "brings clients back"),
            code="FAILED_OVER",
        )
    if options.kind == SWITCHOVER and not scene.source_alive:
        raise SourceError(
            f"cluster {flow.source.alias} does not answer, and a switchover needs it",
            where=f"flow {flow.name}, {', '.join(flow.source.bootstrap)}",
            hint="if it is lost, `isthmus failover --kind failover` goes on without it",
            code="SOURCE_GONE",
        )
    if options.kind == FAILOVER and scene.source_alive and not options.source_is_lost:
        raise SourceError(
            f"cluster {flow.source.alias} answers: a failover would leave behind what has not crossed yet",
            where=f"flow {flow.name}",
            hint="a switchover loses nothing: --kind switchover; or say --source-is-lost",
            code="SOURCE_ALIVE",
        )


def refuse_failback(scene: Scene) -> None:
    """One without a failover before it, or to a cluster that is not there, or not the same any more."""
    flow, switch = scene.flow, scene.switch
    where = f"cluster {flow.target.alias}, topic {flow.control_topic}"
    if switch is None or switch.phase not in (SWITCHED, RETURNING):
        unfinished = switch is not None and switch.is_halted
        raise RivalError(
            f"flow {flow.name} was not failed over" + (" to its end" if unfinished else ": clients work on the source"),
            where=where,
            hint="`isthmus failover` " + ("goes on with it" if unfinished else "comes first"),
            code="NOT_FAILED_OVER",
        )
    if not scene.source_alive:
        raise SourceError(
            f"cluster {flow.source.alias} does not answer",
            where=f"flow {flow.name}, {', '.join(flow.source.bootstrap)}",
            hint="clients stay where they are; ask again when it is back",
            code="SOURCE_GONE",
        )
    for name in sorted({tp.topic for tp in switch.places}):
        _refuse_other(scene, name)


def _refuse_other(scene: Scene, name: str) -> None:
    record = scene.hold.view.values.get(f"topic/{name}", {})
    now = scene.source.topic_id(name)
    if name not in scene.source.topics or (now != NO_ID and str(now) != record.get("source_id", str(now))):
        gone = name not in scene.source.topics
        raise SourceError(
            f"topic {name} on {scene.flow.source.alias} is " + ("gone" if gone else "another one than before"),
            where=f"flow {scene.flow.name}",
            hint="what was copied from it is on the target alone: replicate the target to the rebuilt cluster with a "
            "flow of its own, then switch clients over by `isthmus failover` of that flow",
            code="SOURCE_RECREATED",
        )


async def refuse_driven(hold: Hold, target: Client) -> None:
    """Somebody else runs the flow back."""
    flow = hold.flow
    if flow.control_topic in target.topics and (who := await driver_of(hold)):
        raise RivalError(
            f"flow {flow.name} is run elsewhere: {who}",
            where=f"cluster {flow.target.alias}, topic {flow.control_topic}",
            hint="end it: the failback runs it itself; nothing was changed",
        )
