"""Nothing of a lab outlives it: a small process ends what the lab started when the lab is gone.

One guard per lab, in a session of its own. It holds the reading end of a pipe whose writing end is
the lab's; the kernel closes that end however the lab dies, kill -9 included. Then the guard kills
every process group that was named to it, stopped ones too, and removes the lab's folder. A lab that
ends in good order takes the same way out, so the way is walked every day.

This file is also the guard's program, run without site packages: standard library only. A child
waits for a word from us before it becomes the real program, so it cannot exist unnamed: we die
before naming it, its pipe ends and so does it. (Should a forked child of the lab keep the writing
end open, the guard still sees that it has got another parent.)
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

_WAIT_FOR_WORD = 'read -r word && exec "$@" </dev/null'
_LOOK_SECONDS = 0.5
_REMOVE_SECONDS = 10.0


class Guard:
    """The lab's side: starts guarded processes, and ends them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        command = [sys.executable, "-I", "-S", __file__, str(folder), str(os.getpid())]
        self._guard, self._pipe = _piped(command, output=None)

    @property
    def pid(self) -> int:
        return self._guard.pid

    def spawn(self, command: Sequence[str], *, log: Path) -> subprocess.Popen[bytes]:
        """Start `command` in a session of its own, guarded from its first instruction."""
        waiting = ["/bin/sh", "-c", _WAIT_FOR_WORD, "sh", *command]
        with log.open("ab") as output:
            child, pipe = _piped(waiting, output=output)
        try:
            self._children[child.pid] = child
            self._tell(f"+{child.pid}")
            os.write(pipe, b"go\n")
        finally:
            os.close(pipe)
        return child

    def reap(self, child: subprocess.Popen[bytes]) -> None:
        """Kill the child's whole group, once, and have the guard forget it."""
        if self._children.pop(child.pid, None) is None:
            return
        _kill_group(child.pid)
        # Not yet waited for, so the number cannot pass to a stranger before the guard forgets it.
        self._tell(f"-{child.pid}")
        child.wait()

    def close(self) -> None:
        """End everything and remove the folder; safe to call twice."""
        if self._guard.returncode is not None:
            return
        for child in list(self._children.values()):
            self.reap(child)
        os.close(self._pipe)
        self._guard.wait()

    def _tell(self, word: str) -> None:
        # One short write is atomic on a pipe, so threads need no lock.
        os.write(self._pipe, f"{word}\n".encode())


def _piped(command: Sequence[str], *, output: IO[bytes] | None) -> tuple[subprocess.Popen[bytes], int]:
    """A process in a session of its own, and the end of the pipe that it reads from."""
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(command, stdin=reading, stdout=output, stderr=output, start_new_session=True)
    finally:
        os.close(reading)
    return process, writing


def _watch(folder: Path, parent: int) -> None:
    groups: set[int] = set()
    pending = b""
    while os.getppid() == parent:
        if not select.select([0], [], [], _LOOK_SECONDS)[0]:
            continue
        heard = os.read(0, 4096)
        if not heard:
            break
        *words, pending = (pending + heard).split(b"\n")
        for word in words:
            _note(groups, word.decode())
    for group in groups:
        _kill_group(group)
    _remove(folder)


def _note(groups: set[int], word: str) -> None:
    change = groups.add if word[0] == "+" else groups.discard
    change(int(word[1:]))


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _remove(folder: Path) -> None:
    """A dying process may still add a file, hence more than one try."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.02)


if __name__ == "__main__":
    for unwanted in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(unwanted, signal.SIG_IGN)
    _watch(Path(sys.argv[1]), int(sys.argv[2]))
