"""Keys of a terminal, one by one: what is typed is neither shown nor collected into lines."""

from __future__ import annotations

import os
import select
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page up", "page down", "home", "end"
ENTER, ESCAPE, BACKSPACE = "enter", "escape", "backspace"

_NAMED: Final = {"\r": ENTER, "\n": ENTER, "\x1b": ESCAPE, "\x7f": BACKSPACE, "\b": BACKSPACE}
# What terminals send for a key: ESC, [ or O, and the rest.
_SEQUENCES: Final = {
    "A": UP,
    "B": DOWN,
    "5~": PAGE_UP,
    "6~": PAGE_DOWN,
    "H": HOME,
    "F": END,
    "1~": HOME,
    "4~": END,
}
_MOST = 4096  # bytes at a time
_REST_S = 0.05  # for the rest of a sequence: over SSH it may come in a packet of its own


class Keyboard:
    """Reads keys from a terminal in cbreak mode. Ctrl-C still interrupts."""

    def __init__(self, file: int) -> None:
        self._file = file

    def keys(self, seconds: float) -> list[str]:
        """Those that are typed within this time; returns at the first of them. A lost terminal raises EOFError."""
        if not select.select([self._file], [], [], max(seconds, 0.0))[0]:
            return []
        text = self._read()
        while text.endswith(("\x1b", "\x1b[", "\x1bO")) and select.select([self._file], [], [], _REST_S)[0]:
            text += self._read()
        return list(parse(text))

    def _read(self) -> str:
        found = os.read(self._file, _MOST)
        if not found:
            raise EOFError
        return found.decode(errors="replace")


def parse(text: str) -> Iterator[str]:
    """Names of special keys, and characters."""
    while text:
        if text[0] == "\x1b" and text[1:2] in ("[", "O"):
            end = next((i for i, c in enumerate(text[2:], 2) if "@" <= c <= "~"), len(text) - 1)
            if (key := _SEQUENCES.get(text[2 : end + 1])) is not None:
                yield key
            text = text[end + 1 :]
        else:
            yield _NAMED.get(text[0], text[0])
            text = text[1:]


@contextmanager
def keyboard(file: int) -> Iterator[Keyboard]:
    """The terminal is as before afterwards."""
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield Keyboard(file)
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
