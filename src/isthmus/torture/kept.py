"""A process that is started again at once when it is gone, as any supervisor would.

What must stay true: only what was started here is signalled; nothing of it outlives `stop`; what it said is in its log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil

_LOOK_S = 0.1
_END_S = 60.0


class Kept:
    """A command of Isthmus, run until it is stopped."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self._command = [sys.executable, "-m", "isthmus", *words]
        self._log = log
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.starts = 0
        self._process = self._begin()
        self._thread = threading.Thread(target=self._supervise, name="supervises", daemon=True)
        self._thread.start()

    def _begin(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
        self.starts += 1
        with self._log.open("ab") as log:
            # A session of its own: a Ctrl-C at the terminal is for the storm to answer.
            return subprocess.Popen(  # noqa: S603 - the program that is under torture
                self._command, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def _supervise(self) -> None:
        while not self._over.wait(_LOOK_S):
            with self._lock:
                if self._process.poll() is not None and not self._over.is_set():
                    self._process = self._begin()

    def replace(self) -> subprocess.Popen[bytes]:
        """A second one takes over while the first still runs; the first, which must end by itself."""
        with self._lock:
            first, self._process = self._process, self._begin()
        return first

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self._process.pid)

    def family(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return [self.process, *self.process.children(recursive=True)]
        return []

    def tail(self, lines: int = 15) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> int:
        """As an operator would; -9 for what is left after a minute."""
        self._over.set()
        self._thread.join()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            for each in self.family():
                with contextlib.suppress(psutil.Error):
                    each.kill()
            return self._process.wait()
