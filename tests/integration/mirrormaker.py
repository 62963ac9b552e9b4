"""The real MirrorMaker 2, from the lab's jars, as a process of its own beside the flows of a test.

`with MirrorMaker(flow, folder) as mirror:` runs what its file says, until the block ends or it is killed. It gets the
names of a flow, so that either can take over from the other.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from isthmus import machine
from isthmus.bench.crossing import Crossing
from isthmus.bench.mirrormaker import properties
from isthmus.lab import jars
from isthmus.model import Flow

_JVM = ("-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info")
_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"


class MirrorMaker:
    """One process. `settings` go over those of the bench."""

    def __init__(self, flow: Flow, folder: Path, *, exactly_once: bool, **settings: str) -> None:
        crossing = Crossing(
            source=",".join(flow.source.bootstrap),
            target=",".join(flow.target.bootstrap),
            source_alias=flow.source.alias,
            target_alias=flow.target.alias,
            topics=flow.topics.include,
            lanes=1,
        )
        dotted = {name.replace("__", "-").replace("_", "."): value for name, value in settings.items()}
        words = properties(crossing, exactly_once=exactly_once) | {"offset.storage.partitions": "3"} | dotted
        self.file, self._log = folder / "mm2.properties", folder / "mm2.log"
        self.file.write_text("".join(f"{key} = {value}\n" for key, value in words.items()))

    def __enter__(self) -> MirrorMaker:
        command = [str(machine.java()), *_JVM, "-cp", jars.classpath(jars.jars()), _MAIN, str(self.file)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As an operator stops it; it ends its transactions and leaves its group."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """As `kill -9`: nothing is put in order."""
        self._process.kill()
        self._process.wait(30)

    def until(self, happened: Callable[[], object], what: str, seconds: float = 120.0) -> None:
        """Wait for what it is to do; the end of its log helps where it does not."""
        deadline = time.monotonic() + seconds
        while not happened():
            gone = self._process.poll() is not None
            if gone or time.monotonic() > deadline:
                tale = "it has ended" if gone else f"not within {seconds:.0f} s"
                raise AssertionError(f"{what}: {tale}; its log ends so:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.5)  # it starts for many seconds: looking more often only slows it down
