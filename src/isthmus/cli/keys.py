"""Keys of a terminal, one at a time as they are pressed, for views that fill the screen.

What must stay true: whatever ends the block, the terminal is as it was before, also after Ctrl-C or an error; keys are
read without waiting, so nothing else stands still. What a key means is left to the view.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page up", "page down", "home", "end"
ENTER, ESCAPE, ERASE, ERASE_ALL = "enter", "escape", "erase", "erase all"
_SEQUENCES = {
    "\x1b[A": UP,
    "\x1bOA": UP,
    "\x1b[B": DOWN,
    "\x1bOB": DOWN,
    "\x1b[5~": PAGE_UP,
    "\x1b[6~": PAGE_DOWN,
    "\x1b[H": HOME,
    "\x1bOH": HOME,
    "\x1b[1~": HOME,
    "\x1b[F": END,
    "\x1bOF": END,
    "\x1b[4~": END,
}
_SINGLE = {"\r": ENTER, "\n": ENTER, "\x1b": ESCAPE, "\x7f": ERASE, "\b": ERASE, "\x15": ERASE_ALL}


def keys_in(text: str) -> Iterator[str]:
    """The keys of what a terminal sent: names of special ones, letters as they are. Unknown sequences say nothing."""
    while text:
        length = _sequence_length(text)
        piece, text = text[:length], text[length:]
        if piece in _SEQUENCES:
            yield _SEQUENCES[piece]
        elif piece in _SINGLE:
            yield _SINGLE[piece]
        elif len(piece) == 1 and piece.isprintable():
            yield piece


def _sequence_length(text: str) -> int:
    """Escape, `[` or `O`, parameters, and one final letter; all else is one character."""
    if not text.startswith(("\x1b[", "\x1bO")):
        return 1
    for place, letter in enumerate(text[2:], start=3):
        if "@" <= letter <= "~":
            return place
    return len(text)


class Keys:
    """`with` it inside of an event loop: `pressed` is called for each key."""

    def __init__(self, pressed: Callable[[str], None]) -> None:
        self._pressed = pressed
        self._number = sys.stdin.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._number)
        tty.setcbreak(self._number)  # Ctrl-C still interrupts
        asyncio.get_running_loop().add_reader(self._number, self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._number)
        termios.tcsetattr(self._number, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        try:
            got = os.read(self._number, 1024)
        except OSError:
            got = b""  # the terminal is gone
        if not got:
            asyncio.get_running_loop().remove_reader(self._number)
            self._pressed("q")
        for key in keys_in(self._decoder.decode(got)):
            self._pressed(key)
