"""Python workers of Spark that die by kill -9 in the middle of a batch, as often as a test asks for it.

Named as `spark.python.daemon.module`. Each file in the folder DEADLY is one death: the writing task that takes it away
first kills itself when it has sent everything, before its slip is in. So nothing depends on time.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pyspark.daemon import manager

import isthmus.frames.daemon  # noqa: F401 - for its effect: everything is there in every fork
from isthmus.frames import writing
from isthmus.frames.tickets import Slip

DEADLY = "ISTHMUS_TEST_DEADLY"


def deaths(folder: Path, count: int) -> None:
    """So many tasks die from now on."""
    for number in range(count):
        (folder / str(number)).touch()


class DeadlyTask(writing._Task):
    def slip(self) -> Slip:
        found = super().slip()
        if found.counts and _is_my_turn():
            os.kill(os.getpid(), signal.SIGKILL)
        return found


def _is_my_turn() -> bool:
    for file in sorted(Path(os.environ[DEADLY]).iterdir()):
        try:
            file.unlink()
        except FileNotFoundError:
            continue
        return True
    return False


if __name__ == "__main__":
    writing._Task = DeadlyTask  # type: ignore[misc]
    manager()
