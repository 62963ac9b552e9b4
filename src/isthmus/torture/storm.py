"""A storm: faults by a seeded schedule against a flow under load, and the proof afterwards.

What must stay true: the schedule is a function of the seed; each kind comes as often as any other, in an order that the
dice chose; one fault is over, and recovered from, before the next comes. A fault that is not recovered from in time
ends the storm, with what the program said last.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import KafkaException

from isthmus.errors import MachineError
from isthmus.lab.oracle import Verdict, compare
from isthmus.torture.ground import Ground
from isthmus.torture.load import Reader, TransactionalWriter, Watch, Writer, patiently
from isthmus.torture.outcome import Blow, Outcome, Use, wrongs
from isthmus.torture.program import Program
from isthmus.torture.scene import Kind, Scene
from isthmus.torture.stage import EAST, WEST

_BEGIN_S, _RECOVER_S, _DRAIN_S = 180.0, 180.0, 300.0
_CALM_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How long, how hard, by which dice. It ends after `faults`, or when `seconds` have passed."""

    seed: int
    faults: int
    seconds: float
    per_second: int
    lanes: int
    log: Path | None = None  # where to keep what the program says


def schedule(kinds: Sequence[Kind], seed: int) -> Iterator[Kind]:
    """Endless: all kinds in the order of the dice, then all again in another."""
    dice = random.Random(seed)  # noqa: S311 - it is to be repeatable
    for _ in itertools.count():
        yield from dice.sample(kinds, len(kinds))


class Storm:
    """One run of it on a stage that stands."""

    def __init__(self, script: Script, stage: Ground, kinds: Sequence[Kind], say: Callable[[str], None]) -> None:
        self._script, self._stage, self._say = script, stage, say
        self._schedule = schedule(kinds, script.seed)
        source, (plain, taken_back) = stage.reach(EAST), stage.topics.items()
        self._writers: list[Writer] = [
            Writer(source, *plain, script.per_second),
            TransactionalWriter(source, *taken_back, script.per_second // 2),
        ]
        copies = {stage.copy(writer.topic): writer for writer in self._writers}
        partitions = {stage.copy(topic): count for topic, count in stage.topics.items()}
        self._reader = Reader(stage.reach(WEST), copies, partitions)
        self._began = time.monotonic()
        self._blows: list[Blow] = []
        self._uses: list[Use] = []
        self._trouble: list[str] = []

    def rage(self) -> Outcome:
        log = self._script.log or self._stage.folder / "program.log"
        program = Program(self._stage.flow_file(), log, self._script.lanes)
        self._reader.start()
        for writer in self._writers:
            writer.start()
        try:
            self._blow(program)
            verdicts = self._calm_down(program)
        finally:
            code = program.stop()
            for writer in self._writers:
                writer.stop()  # one that goes on would bring a topic back that is removed
            self._reader.stop()
        if code:
            self._trouble.append(f"the program ended with status {code}:\n{program.tail()}")
        if left := self._stage.open_transactions():
            self._trouble.append(f"transactions were left open on the target: {', '.join(left)}")
        return self._outcome(verdicts, program.starts)

    def _blow(self, program: Program) -> None:
        begun = self._reader.watch()
        if not patiently(lambda: not begun.waiting(), _BEGIN_S):
            raise MachineError(f"nothing arrives:\n{program.tail()}", code="TORTURE")
        self._began = time.monotonic()
        scene = Scene(stage=self._stage, program=program, dice=random.Random(self._script.seed))  # noqa: S311
        for kind in itertools.islice(self._schedule, self._script.faults):
            if time.monotonic() - self._began > self._script.seconds or not self._strike(kind, scene):
                return
            time.sleep(_CALM_S)

    def _strike(self, kind: Kind, scene: Scene) -> bool:
        """One fault, healed and recovered from; False: the storm ends here."""
        at, before, silences = time.monotonic() - self._began, self._reader.counts(), self._reader.listen()
        try:
            watch = self._befall(kind, scene)
        except (MachineError, KafkaException, subprocess.TimeoutExpired) as error:
            self._trouble.append(f"{kind.name}: {error}")
            return False
        recovered = patiently(lambda: not watch.waiting(), _RECOVER_S)
        records, missing, again = (now - then for now, then in zip(self._reader.counts(), before, strict=True))
        blow = Blow(
            kind=kind.name,
            at=at,
            recovered_s=watch.seconds,
            silences=silences.longest(),
            others=kind.others,
            records=records,
            missing=missing,
            again=again,
        )
        self._note(blow, _use_of(scene.program, at))
        if not recovered:
            late = ", ".join(f"{topic}-{each}" for topic, each in watch.waiting())
            self._trouble.append(f"{kind.name}: not recovered in {_RECOVER_S:.0f} s: {late}\n{scene.program.tail()}")
        return recovered and not self._reader.slips.any and self._reader.error is None

    def _befall(self, kind: Kind, scene: Scene) -> Watch:
        """Done and undone; a watch from when everything could come again."""
        with contextlib.contextmanager(kind.deed)(scene) as struck_ns:
            watch = self._reader.watch(struck_ns)
            time.sleep(kind.hold_s)
        return self._reader.watch() if kind.outage else watch

    def _note(self, blow: Blow, use: Use) -> None:
        self._blows.append(blow)
        self._uses.append(use)
        told = f"{blow.recovered_s:.1f} s" if blow.recovered_s >= 0 else "NOT RECOVERED"
        others = "" if blow.others_silence is None else f", others silent for at most {blow.others_silence}"
        self._say(f"{len(self._blows):4d}  {blow.kind}: {told}{others}")

    def _calm_down(self, program: Program) -> list[Verdict]:
        """Writers end, everything arrives, and the oracle reads both sides."""
        for writer in self._writers:
            writer.stop()
            if writer.failed is not None:
                self._trouble.append(f"writer of {writer.topic}: {writer.failed}")
        marked = time.monotonic()
        self._say("the storm is over: everything has to arrive, then both sides are compared")
        verdicts = self._compared()
        while not all(each.equal for each in verdicts) and time.monotonic() - marked < _DRAIN_S:
            if any(each.duplicated or each.reordered or each.altered or each.foreign for each in verdicts):
                break
            time.sleep(_CALM_S)
            verdicts = self._compared()
        return verdicts

    def _compared(self) -> list[Verdict]:
        east, west = self._stage.reach(EAST), self._stage.reach(WEST)
        return [compare(east, topic, west, self._stage.copy(topic)) for topic in self._stage.topics]

    def _outcome(self, verdicts: Sequence[Verdict], starts: int) -> Outcome:
        slips = self._reader.slips
        wrong = [*self._trouble, *wrongs(verdicts, slips.missing, slips.again, slips.told)]
        if self._reader.error is not None:
            wrong.append(f"the reader ended: {self._reader.error}")
        return Outcome(
            seed=self._script.seed,
            seconds=time.monotonic() - self._began,
            blows=tuple(self._blows),
            verdicts=tuple(verdicts),
            missing=slips.missing,
            again=slips.again,
            starts=starts,
            uses=tuple(self._uses),
            faults=tuple(wrong),
        )


def _use_of(program: Program, at: float) -> Use:
    found = [0, 0, 0]
    for process in program.family():
        with contextlib.suppress(psutil.Error):
            found = [
                found[0] + process.memory_info().rss,
                found[1] + process.num_fds(),
                found[2] + process.num_threads(),
            ]
    return Use(at=at, bytes=found[0], files=found[1], threads=found[2])
