"""What the lab keeps on disk between runs, beside the cache: who runs a detached lab.

The state file names at most one detached lab; a file whose process is gone means that none
runs, because a process id may be used again and the start time is compared as well. Starting and
stopping labs is left to `cluster` and the command line.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from isthmus.machine import cache_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLab:
    """A detached lab: its supervisor, and how to reach its clusters."""

    pid: int
    started: float  # when the supervisor began, as the kernel tells it
    folder: str
    clusters: Mapping[str, str]  # name -> bootstrap servers

    @classmethod
    def mine(cls, folder: str, clusters: Mapping[str, str]) -> RunningLab:
        me = psutil.Process()
        return cls(pid=me.pid, started=me.create_time(), folder=folder, clusters=dict(clusters))

    def alive(self) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 1
            return same and process.status() != psutil.STATUS_ZOMBIE
        return False


def remember(lab: RunningLab) -> None:
    """Write the state file in one step, so that a reader never sees half of it."""
    draft = _file().with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(asdict(lab), indent=2) + "\n")
    draft.replace(_file())


def recall() -> RunningLab | None:
    """The detached lab that is running now, if any."""
    try:
        lab = RunningLab(**json.loads(_file().read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return lab if lab.alive() else None


def forget() -> None:
    _file().unlink(missing_ok=True)


def _file() -> Path:
    return cache_folder() / "lab.json"
