"""CPU-seconds and memory of a whole process tree, sampled from outside while it works.

CPU is the sum over every process ever seen in the tree, the dead ones with the last value seen, so
a child's last tenth of a second may be missing but nothing is counted twice. Memory is PSS where
the kernel tells it (pages shared by forked workers count once), else RSS. Both cover JVMs, Python
drivers and workers alike. Brokers are no part of any tree: their CPU is counted for nobody.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

import psutil

CPU_EVERY_S = 0.1
MEMORY_EVERY_S = 1.0  # summing a JVM's pages takes the kernel some milliseconds


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU-seconds that the tree has used up to `at` (monotonic clock)."""

    at: float
    cpu_s: float


class TreeMeter:
    """Watches the tree under one process, from construction until `close`."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu: dict[psutil.Process, float] = {}
        self._samples: list[Sample] = []
        self._peak_bytes = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tree-meter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    @property
    def peak_bytes(self) -> int:
        return self._peak_bytes

    def cpu_s(self, at: float) -> float:
        """CPU-seconds used up to a moment, interpolated between samples."""
        samples = self._samples
        after = bisect_left(samples, at, key=lambda sample: sample.at)
        if after == 0 or after == len(samples):
            return samples[min(after, len(samples) - 1)].cpu_s if samples else 0.0
        left, right = samples[after - 1], samples[after]
        share = (at - left.at) / (right.at - left.at)
        return left.cpu_s + share * (right.cpu_s - left.cpu_s)

    def _run(self) -> None:
        memory_due = 0.0
        while not self._closing.wait(CPU_EVERY_S):
            processes = self._tree()
            for process in processes:
                self._note_cpu(process)
            self._samples.append(Sample(time.monotonic(), sum(self._cpu.values())))
            if time.monotonic() >= memory_due:
                self._peak_bytes = max(self._peak_bytes, sum(_memory(each.pid) for each in processes))
                memory_due = time.monotonic() + MEMORY_EVERY_S

    def _tree(self) -> list[psutil.Process]:
        try:
            found = {self._root, *self._root.children(recursive=True)}
        except psutil.NoSuchProcess:
            found = set()
        # What was in the tree once stays in it, also when its parent died and init adopted it.
        return [*found, *(each for each in self._cpu if each not in found and each.is_running())]

    def _note_cpu(self, process: psutil.Process) -> None:
        try:
            times = process.cpu_times()
        except psutil.Error:
            return  # gone: its last value stays
        self._cpu[process] = times.user + times.system


def _memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return _resident(pid)


def _resident(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0
