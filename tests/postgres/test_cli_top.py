"""`pgtrickle top` in a pseudo-terminal, as a person at the end of an SSH connection uses it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import Database
from tests.postgres.test_cli_tables import pgtrickle

_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """A command on a terminal of 100 columns and 20 lines. Each frame of the screen begins at its upper left corner."""

    def __init__(self, dsn: str) -> None:
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            own = ("COLUMNS", "LINES")  # pytest-xdist sets them; they would hide the size of the terminal
            environ = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_") and k not in own}
            command = [sys.executable, "-m", "pgtrickle.cli", "top", "--interval", "0.2", "--server", dsn]
            os.execve(sys.executable, command, {**environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"})
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 100, 0, 0))
        self.before = termios.tcgetattr(self._file)
        self.said = b""

    def type(self, keys: str) -> None:
        os.write(self._file, keys.encode())

    def frame(self) -> list[str]:
        """The last one that is complete."""
        frames = self.said.decode(errors="replace").split("\x1b[H")
        return _STYLE.sub("", frames[-2] if len(frames) > 1 else "").splitlines()

    def until(self, condition: Callable[[list[str]], object]) -> list[str]:
        deadline = time.monotonic() + 180
        while not condition(self.frame()):
            assert time.monotonic() < deadline, "\n".join(self.frame())
            assert self._read(), "\n".join(self.frame())
        return self.frame()

    def end(self) -> tuple[int, list[object]]:
        """Exit status, and the attributes of the terminal afterwards."""
        while self._read():
            pass
        after = termios.tcgetattr(self._file)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), after

    def close(self) -> None:
        os.close(self._file)

    def _read(self) -> bool:
        if not select.select([self._file], [], [], 60)[0]:
            return False
        try:
            self.said += (read := os.read(self._file, 65536))
        except OSError:
            return False
        return bool(read)


@pytest.fixture
def terminal(installed: Database) -> Iterator[Terminal]:
    installed.sql("CREATE TABLE t (k int)")
    for name in ("orders", "customers", "returns"):
        installed.sql("SELECT pgtrickle.create_stream_table(%s, 'SELECT k FROM t')", name)
    installed.sql("SELECT pgtrickle.suspend_stream_table('customers')")
    found = Terminal(installed.dsn)
    yield found
    found.close()


def names(frame: list[str]) -> list[str]:
    return [line.split()[0].removeprefix("public.") for line in frame if line.startswith("public.")]


def shows(frame: list[str], text: str) -> bool:
    return any(text in line for line in frame)


def test_top_sorts_filters_drills_down_and_restores_the_terminal(installed: Database, terminal: Terminal) -> None:
    # The first frames may have the width that the terminal had before it was set.
    frame = terminal.until(lambda frame: len(names(frame)) == 3 and "3 of 3 stream tables" in frame[0])
    assert f"{installed.name}  " in frame[0]
    terminal.type("ssss")  # the next columns, and from the first again: by name
    terminal.until(lambda frame: names(frame) == ["customers", "orders", "returns"])
    terminal.type("r")
    terminal.until(lambda frame: names(frame) == ["returns", "orders", "customers"])
    terminal.type("s")  # by status
    terminal.until(lambda frame: shows(frame, "status▲") and names(frame)[-1] == "customers")
    # live: a new one appears
    installed.sql("SELECT pgtrickle.create_stream_table('orders_by_day', 'SELECT k FROM t')")
    terminal.until(lambda frame: len(names(frame)) == 4)
    terminal.type("/ORD")
    terminal.until(lambda frame: shows(frame, "/ORD_") and sorted(names(frame)) == ["orders", "orders_by_day"])
    terminal.type("\r\x1b[B\r")  # end of the filter, one line down, details
    frame = terminal.until(lambda frame: shows(frame, "Esc back  ↑↓ scroll"))
    assert frame[0].rstrip() == "public.orders_by_day"
    assert "    SELECT k FROM t" in (line.rstrip() for line in frame)
    terminal.type("\x1b")
    terminal.until(lambda frame: shows(frame, "filter: ORD"))
    terminal.type("\x1b")
    terminal.until(lambda frame: len(names(frame)) == 4)
    terminal.type("q")
    status, after = terminal.end()
    assert (status, after) == (0, terminal.before)
    assert terminal.said.count(b"\x1b[?1049h") == terminal.said.count(b"\x1b[?1049l") == 1  # the screen of before


def test_top_without_a_terminal_says_what_to_use_instead(installed: Database) -> None:
    done = pgtrickle(installed, "top")
    assert (done.returncode, done.stdout) == (1, "")
    assert "pgtrickle status --json" in done.stderr
