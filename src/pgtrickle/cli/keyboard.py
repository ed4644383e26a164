"""Reads single keys from a terminal, without echo and without waiting for Enter."""

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
# Escape sequences that terminals send for keys, without the leading ESC [ or ESC O.
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
_READ_BYTES = 4096  # at most, in one call of read()
_SEQUENCE_S = 0.05  # to wait for the rest of an escape sequence: over SSH it may arrive in a separate packet


class Keyboard:
    """Reads keys from a terminal in cbreak mode. Ctrl-C still interrupts."""

    def __init__(self, file: int) -> None:
        self._file = file

    def keys(self, seconds: float) -> list[str]:
        """Waits for this time until keys are typed, and returns them. Raises EOFError if the terminal is lost."""
        if not select.select([self._file], [], [], max(seconds, 0.0))[0]:
            return []
        text = self._read()
        while text.endswith(("\x1b", "\x1b[", "\x1bO")) and select.select([self._file], [], [], _SEQUENCE_S)[0]:
            text += self._read()
        return list(parse(text))

    def _read(self) -> str:
        data = os.read(self._file, _READ_BYTES)
        if not data:
            raise EOFError
        return data.decode(errors="replace")


def parse(text: str) -> Iterator[str]:
    """The keys of the typed text: names of special keys, and single characters."""
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
    """Switches the terminal to cbreak mode, and restores its mode at the end."""
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield Keyboard(file)
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
