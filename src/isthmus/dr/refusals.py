"""What cannot be meant: refused with the reason and the next command, before anything is changed."""

from __future__ import annotations

from isthmus.dr.scene import Scene
from isthmus.dr.values import FAILOVER, SWITCHOVER
from isthmus.dr.waiting import driver_of
from isthmus.engine.disks import full_disks
from isthmus.engine.hold import Hold
from isthmus.engine.switch import RETURNING, SWITCHED
from isthmus.errors import ConfigError, RivalError, SourceError, TargetError
from isthmus.model import NO_ID
from isthmus.wire.cluster import Client
from isthmus.wire.health import replicas


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


def refuse_abandon(scene: Scene) -> None:
    """Where there is nothing to give up, or it is too late, or its access rules cannot be taken away."""
    flow, switch = scene.flow, scene.switch
    where = f"cluster {flow.target.alias}, topic {flow.control_topic}"
    if switch is None or not switch.is_open:
        late = switch is not None and switch.is_halted
        what = "is frozen for clients on the target" if late else "has no switchover under way"
        hint = (
            "`isthmus failover` ends it, `isthmus failback` brings clients back" if late else "there is nothing to do"
        )
        raise RivalError(f"flow {flow.name} {what}", where=where, hint=hint, code="NOT_OPEN")
    if switch.shuts_out and not scene.source_alive:
        raise SourceError(
            f"cluster {flow.source.alias} does not answer: access rules that shut writers out cannot be taken away",
            where=f"flow {flow.name}, {', '.join(flow.source.bootstrap)}",
            hint="say the same again when it is back; nothing was changed",
            code="SOURCE_GONE",
        )


async def refuse_full(scene: Scene, client: Client) -> None:
    """A cluster that clients cannot move to, because disks of it are full or gone. Nothing is written to find out: a
    broker whose disk is full would end by that."""
    full = await full_disks(client)
    if full:
        raise TargetError(
            f"cluster {client.cluster.alias} has no room: {'; '.join(full)}",
            where=f"flow {scene.flow.name}",
            hint="make room (`isthmus doctor` shows the disks), then say the same again; nothing was changed",
            code="TARGET_FULL",
        )


async def refuse_leaderless(scene: Scene) -> None:
    """Where the ends of copies cannot be told, the flow would be frozen and groups could not be moved."""
    found = await replicas(scene.target, {copy.topic for copy in scene.copies().values()})
    if lost := sorted(tp for tp, now in found.items() if now.leader < 0):
        raise TargetError(
            f"{len(lost)} partitions of copies have no leader, {lost[0]} first",
            where=f"flow {scene.flow.name}, cluster {scene.flow.target.alias}",
            hint="bring its brokers back (`isthmus doctor` names them), then say the same again; nothing was changed",
            code="TARGET_LEADERLESS",
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
    if scene.options.rebuilt and scene.options.two_way:
        raise ConfigError(
            "--rebuilt is for a file without a flow back of its own",
            where=f"flow {flow.name}",
            hint=f"`isthmus resolve` of flow {flow.target.alias}->{flow.source.alias} with --restart brings all back",
            code="CHOICE",
        )
    for name in sorted({tp.topic for tp in switch.places}) if not scene.options.rebuilt else ():
        _refuse_other(scene, name)


def is_another(scene: Scene, name: str) -> bool:
    """Whether the source's topic is gone, or was made anew since it was copied."""
    record = scene.hold.view.values.get(f"topic/{name}", {})
    now = scene.source.topic_id(name)
    return name not in scene.source.topics or (now != NO_ID and str(now) != record.get("source_id", str(now)))


def _refuse_other(scene: Scene, name: str) -> None:
    if is_another(scene, name):
        gone = name not in scene.source.topics
        raise SourceError(
            f"topic {name} on {scene.flow.source.alias} is " + ("gone" if gone else "another one than before"),
            where=f"flow {scene.flow.name}",
            hint="what was copied from it is on the target alone: if the cluster was built anew and is empty, "
            "`isthmus failback --rebuilt` brings all of it back",
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
