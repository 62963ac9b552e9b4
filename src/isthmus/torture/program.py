"""The program under torture: `isthmus run` as a process of its own, and the parts of it that can be hit.

Knows its parts by the tree of processes: the command (driver), Spark's JVM, the daemon that forks workers, the workers
that are lanes. That it is started again when it is gone is left to `kept`.
"""

from __future__ import annotations

from pathlib import Path

import psutil

from isthmus.torture.kept import Kept


class Program(Kept):
    """One flow's file, run until it is stopped."""

    def __init__(self, file: Path, log: Path, lanes: int) -> None:
        super().__init__(["run", str(file), "--lanes", str(lanes), "--take-over"], log)

    def jvms(self) -> list[psutil.Process]:
        return [child for child in _children(self.process) if "java" in child.name()]

    def daemons(self) -> list[psutil.Process]:
        return [child for jvm in self.jvms() for child in _children(jvm) if "python" in child.name()]

    def workers(self) -> list[psutil.Process]:
        return [child for daemon in self.daemons() for child in _children(daemon)]


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []
