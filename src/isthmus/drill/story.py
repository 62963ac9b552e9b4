"""The drill's story, act by act: clients move to the other cluster and back, once as planned and once of need.

    work                     writers and readers on east; the flow east->west runs
    switchover               as planned, under load: they go on in west
    failback                 as planned: they go on in east, and the flow runs again
    failover                 kill -9 of every broker of east, with records that had not crossed: they go on in west
    failback after failover  east returns with its data; what never crossed is kept aside; they go on in east

Nothing is staged: real brokers, real kills, the code of `isthmus failover` and `failback`. What must stay true: clients
know nothing of the replication. They stop, and begin again at the other bootstrap address, each group at the offsets
that it finds there. What came of it is left to `outcome`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from isthmus.dr.failback import fail_back
from isthmus.dr.failover import fail_over
from isthmus.dr.values import BEGUN, FAILOVER, KEEP, SWITCHOVER, Options, Report, Step
from isthmus.drill.carrying import Carrier, Ferry
from isthmus.drill.clients import Clients
from isthmus.drill.ledger import Marks, joined, minus, never_crossed
from isthmus.drill.logs import Log, oldest_ms, read_log, stable_ends
from isthmus.drill.stage import EAST, TOPICS, WEST, Stage, patiently
from isthmus.drill.timeline import Event, Timeline
from isthmus.engine.wishes import Answer, Wishing
from isthmus.errors import MachineError

SWITCH, BACK, DISASTER, RETURN = "switchover", "failback", "failover", "failback after failover"
_PATIENCE_S = 240.0
_QUIET_S = 1.0
_STALLED_S = 2.0
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How much is played."""

    per_second: int  # records, over all writers
    work_s: float  # between two moves
    planned: bool = True  # switchover and failback
    unplanned: bool = True  # failover and failback


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One change of sides, as clients saw it and as the command told it."""

    act: str
    to: str
    stopped: float  # clients stopped working, or were stopped by the death of their cluster
    resumed: float  # every writer and every group is at work again
    report: Report

    @property
    def rto_s(self) -> float:
        return self.resumed - self.stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What never crossed in the disaster, by the drill's own reading of both logs."""

    marks: Marks
    seconds: float  # from the oldest of it to the death of the cluster
    kept: Marks  # found in the side topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Everything that is to be judged."""

    moves: tuple[Move, ...]
    clients: Clients
    loss: Loss | None
    logs: tuple[tuple[str, Log], ...]  # of both clusters, at the end
    timeline: Timeline


class Story:
    """One drill on a stage that is set."""

    def __init__(self, script: Script, stage: Stage, ferry: Ferry, timeline: Timeline) -> None:
        self._script, self._stage, self._ferry, self._timeline = script, stage, ferry, timeline
        self._clients = Clients(script.per_second, timeline)
        self._flow = stage.flow()
        self._carrier = Carrier(self._flow, ferry)
        self._moves: list[Move] = []
        self._loss: Loss | None = None
        self._died_ms = 0

    def play(self) -> Played:
        self._open()
        if self._script.planned:
            self._work("work on east")
            self._switch_over()
            self._work("work on west")
            self._fail_back(BACK, self._options())
            self._run_again()
        if self._script.unplanned:
            self._work("work on east")
            self._fail_over()
            self._work("work on west")
            self._return()
            self._run_again()
        self._work("work on east")
        return self._close()

    # -- acts ----------------------------------------------------------------------------------

    def _open(self) -> None:
        self._say("clients begin on east; the flow east->west starts")
        east = self._stage.at(EAST)
        self._clients.seat(east)
        with self._timeline.phase("begin", "work"):
            self._carrier.start()
            self._clients.begin(east)
            self._clients.until_at_work()
            self._until_carried()

    def _work(self, name: str) -> None:
        with self._timeline.phase(name, "work"):
            self._clients.work(self._script.work_s)

    def _switch_over(self) -> None:
        self._say("switchover: east is to be taken out of service")
        with self._timeline.phase(SWITCH, "move"):
            halt = _Halt(self._clients, self._timeline)
            report = fail_over(self._flow, self._options(), self._told(halt))
            self._carrier.until_frozen()
            self._arrive(SWITCH, WEST, halt.stopped_at(), report)

    def _fail_back(self, act: str, options: Options) -> Report:
        self._say(f"{act}: clients are to come back to east")
        with self._timeline.phase(act, "move"):
            halt = _Halt(self._clients, self._timeline)
            report = fail_back(self._flow, options, self._told(halt))
            self._arrive(act, EAST, halt.stopped_at(), report)
        return report

    def _fail_over(self) -> None:
        self._say("the replication stalls (paused), clients work on")
        self._wish(lambda wishing: wishing.pause(frozenset()))
        self._wait(self._stalls, "the replication stalls")
        with self._timeline.phase(DISASTER, "move"):
            self._stage.kill(EAST)
            died = self._say("kill -9: every broker of east is dead").at
            self._died_ms = self._timeline.wall_ms(died)
            self._clients.stop(gone=True)
            report = fail_over(self._flow, replace(self._options(), kind=FAILOVER), self._told())
            self._carrier.until_frozen()
            self._arrive(DISASTER, WEST, died, report)

    def _return(self) -> None:
        self._stage.restart(EAST)
        self._say("east is back, with its data")
        self._wish(lambda wishing: wishing.resume(frozenset()))
        self._loss = self._look_for_loss()
        report = self._fail_back(RETURN, replace(self._options(), never_crossed=KEEP))
        kept = read_log(self._stage.at(WEST).bootstrap, report.side_topics).marks if report.side_topics else {}
        self._loss = replace(self._loss, kept=kept)

    def _run_again(self) -> None:
        self._say("the flow east->west starts again")
        self._carrier = Carrier(self._flow, self._ferry)
        self._carrier.start()
        self._until_carried()

    def _close(self) -> Played:
        """Nobody writes any more; groups read the rest, and the flow carries it."""
        with self._timeline.phase("end", "work"):
            self._clients.halt_writers()
            lost = self._loss.marks if self._loss else {}
            self._clients.until_all_is_read(lost)
            self._say("all is read; waiting until all is on west, too")
            wanted = minus(self._clients.acknowledged(), lost)
            self._wait(lambda: not minus(wanted, self._log(WEST).marks), "all is on west")
            self._clients.stop()
            self._carrier.stop()
            logs = tuple((cluster, self._log(cluster)) for cluster in (EAST, WEST))
        return Played(
            moves=tuple(self._moves), clients=self._clients, loss=self._loss, logs=logs, timeline=self._timeline
        )

    # -- parts of acts -------------------------------------------------------------------------

    def _arrive(self, act: str, cluster: str, stopped: float, report: Report) -> None:
        self._clients.begin(self._stage.at(cluster))
        resumed = self._clients.until_at_work()
        self._say(f"clients are at work on {cluster}, {resumed - stopped:.1f} s after they stopped")
        self._moves.append(Move(act=act, to=cluster, stopped=stopped, resumed=resumed, report=report))

    def _until_carried(self) -> None:
        """Wait until records of every topic cross, and groups have a place on the other side."""
        before = stable_ends(self._stage.at(WEST).bootstrap, list(TOPICS))

        def crossed() -> bool:
            self._ferry.refuse_lost()
            self._carrier.refuse_ended()
            now = stable_ends(self._stage.at(WEST).bootstrap, list(TOPICS))
            grown = {topic for (topic, number), end in now.items() if end > before.get((topic, number), 0)}
            return grown == set(TOPICS)

        self._wait(crossed, "records cross")
        self._wait(lambda: self._clients.are_known(self._stage.at(WEST)), "groups are known on west")
        self._say("records and groups cross")

    def _wait(self, happened: Callable[[], bool], what: str) -> None:
        """For what takes clients of its own to look at."""
        patiently(happened, what, every_s=_LOOK_S)

    def _stalls(self) -> bool:
        """Clients work, and nothing of it crosses."""
        before = stable_ends(self._stage.at(WEST).bootstrap, list(TOPICS))
        self._clients.work(_STALLED_S)
        return stable_ends(self._stage.at(WEST).bootstrap, list(TOPICS)) == before

    def _look_for_loss(self) -> Loss:
        """By the logs of both clusters, before anything comes back."""
        acknowledged = joined(written.acknowledged[-2] for written in self._clients.written)
        marks = never_crossed([acknowledged], self._log(WEST).marks)
        oldest = oldest_ms(self._stage.at(EAST).bootstrap, list(TOPICS), marks)
        return Loss(marks=marks, seconds=(self._died_ms - oldest) / 1000 if oldest else 0.0, kept={})

    def _log(self, cluster: str) -> Log:
        return read_log(self._stage.at(cluster).bootstrap, list(TOPICS))

    def _options(self) -> Options:
        return Options(carry=self._ferry.carry, kind=SWITCHOVER, quiet_s=_QUIET_S, patience_s=_PATIENCE_S)

    def _told(self, halt: _Halt | None = None) -> Callable[[Step], None]:
        def told(step: Step) -> None:
            self._say(f"  {step.name} {step.state}" + (f": {step.text}" if step.text else ""))
            if halt is not None and (step.name, step.state) == ("writers", BEGUN):
                halt.begin()

        return told

    def _wish(self, ask: Callable[[Wishing], Awaitable[Answer]]) -> None:
        async def wish() -> None:
            async with Wishing(self._flow) as wishing:
                await ask(wishing)

        asyncio.run(wish())

    def _say(self, text: str) -> Event:
        return self._timeline.say(text)


class _Halt:
    """Clients stop when the command asks for it: in a thread of its own, because the command must not wait for them."""

    def __init__(self, clients: Clients, timeline: Timeline) -> None:
        self._clients, self._timeline = clients, timeline
        self._at: float | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._stop, name="halt", daemon=True)

    def begin(self) -> None:
        if self._at is None:
            self._at = self._timeline.say("clients stop").at
            self._thread.start()

    def stopped_at(self) -> float:
        """When they were asked to; they have all stopped by now."""
        if self._at is None:
            raise MachineError("clients changed sides without having stopped", code="DRILL")
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._at

    def _stop(self) -> None:
        try:
            self._clients.stop()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self._error = error
