"""A program on a terminal of its own, as a person has it: keys go in, what is on the screen comes out."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

PATIENCE_S = 120.0
# Then Ctrl-C is a signal. In the child itself, before it becomes the program: forks of ours may have threads.
_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """`with` it: started inside; ended, if it still runs, when the block is left."""

    def __init__(
        self, words: Sequence[str], env: Mapping[str, str] | None = None, columns: int = 80, lines: int = 24
    ) -> None:
        self._ours, self._theirs = pty.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(self._theirs)
        self.seen = ""
        self._words = words
        # Without these the size is the terminal's own, and it may show more than plain text.
        ours = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self._env = ours | {"TERM": "xterm", "LC_ALL": "C.UTF-8"} | dict(env or {})

    def __enter__(self) -> Terminal:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *self._words],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env=self._env,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def press(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, *texts: str) -> None:
        """Wait until all of these were shown since this was last asked."""
        began, deadline = len(self.seen), time.monotonic() + PATIENCE_S
        while not all(text in self.seen[began:] for text in texts):
            assert time.monotonic() < deadline, f"never showed {texts}:\n{self.seen[began:]}"
            self._read()

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 0.1)[0]:
            return False
        self.seen += os.read(self._ours, 65536).decode("utf-8", "replace")
        return True

    def ended(self) -> int:
        """The exit status; all that was shown is read."""
        deadline = time.monotonic() + PATIENCE_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"did not end:\n{self.seen}"
            self._read()
        while self._read():
            pass
        return self._process.returncode

    def settings(self) -> list[object]:
        """Of the terminal, as the program left them."""
        with contextlib.suppress(termios.error):
            return list(termios.tcgetattr(self._theirs))
        return []
