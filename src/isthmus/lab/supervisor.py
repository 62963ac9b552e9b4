"""A lab that lives until it is told to stop: in the foreground, or detached in the background.

At most one such lab runs per cache folder; the state file says which. It ends in good order on
Ctrl-C and SIGTERM, and `bring_down` is a SIGTERM. `python -m isthmus.lab.supervisor <json>` is the
background form; its output goes to a log in the cache folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from isthmus.errors import MachineError
from isthmus.lab import state
from isthmus.lab.brokers import ClusterSpec
from isthmus.lab.cluster import Lab
from isthmus.lab.jars import KAFKA, Say
from isthmus.lab.state import RunningLab
from isthmus.machine import cache_folder

_UP_SECONDS = 180.0
_DOWN_SECONDS = 30.0
_LOOK_SECONDS = 0.1


def specs(names: str, brokers: int = 1, version: str = KAFKA) -> tuple[ClusterSpec, ...]:
    """`east,west` as clusters of equal size."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    return tuple(ClusterSpec(name=name, brokers=brokers, version=version) for name in wanted)


def supervise(
    clusters: Sequence[ClusterSpec],
    *,
    folder: Path | None = None,
    say: Say = lambda _: None,
    announce: Callable[[RunningLab], None] = lambda _: None,
) -> None:
    """Run a lab until Ctrl-C or SIGTERM."""
    refuse_a_second()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with Lab(clusters, folder=folder, say=say) as lab:
            bootstraps = {name: cluster.bootstrap for name, cluster in lab.clusters.items()}
            mine = RunningLab.mine(str(lab.folder), bootstraps)
            state.remember(mine)
            announce(mine)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        say("Stopped; nothing is left behind")
    finally:
        if (known := state.recall()) and known.pid == os.getpid():
            state.forget()


def detach(names: str, *, brokers: int = 1, version: str = KAFKA, folder: Path | None = None) -> RunningLab:
    """Start a lab in the background; returns when it is ready."""
    refuse_a_second()
    log = cache_folder() / "lab.log"
    wanted = {"names": names, "brokers": brokers, "version": version}
    wanted["folder"] = str(folder) if folder else ""
    command = [sys.executable, "-m", "isthmus.lab.supervisor", json.dumps(wanted)]
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return _wait_until_up(child, log)


def bring_down() -> RunningLab | None:
    """Stop the lab that is running; returns which one it was, if any."""
    lab = state.recall()
    if lab is None:
        return None
    os.kill(lab.pid, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_SECONDS
    while lab.alive():
        if time.monotonic() > deadline:
            raise MachineError(f"the lab (process {lab.pid}) does not stop", code="LAB")
        time.sleep(_LOOK_SECONDS)
    return lab


def refuse_a_second() -> None:
    if lab := state.recall():
        raise MachineError(
            f"a lab is running already, process {lab.pid}",
            where=lab.folder,
            hint="isthmus lab status; isthmus lab down",
            code="LAB",
        )


def _wait_until_up(child: subprocess.Popen[bytes], log: Path) -> RunningLab:
    deadline = time.monotonic() + _UP_SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        lab = state.recall()
        if lab and lab.pid == child.pid:
            return lab
        time.sleep(_LOOK_SECONDS)
    child.terminate()
    said = log.read_text(errors="replace").strip().splitlines() or ["no word"]
    raise MachineError(f"the lab did not come up: {said[-1]}", where=str(log), code="LAB")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(argument: str) -> None:
    """The background process."""
    wanted = json.loads(argument)
    folder = Path(wanted["folder"]) if wanted["folder"] else None
    clusters = specs(wanted["names"], wanted["brokers"], wanted["version"])
    supervise(clusters, folder=folder)


if __name__ == "__main__":
    main(sys.argv[1])
