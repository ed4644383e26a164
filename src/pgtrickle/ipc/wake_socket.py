"""Wakes a scheduler from another process or thread: a datagram to a socket in the fleet's directory."""

from __future__ import annotations

import socket
from pathlib import Path


class WakeSocket:
    """The scheduler's end. `fileno` is readable after a wake-up."""

    def __init__(self, directory: Path, slot: int) -> None:
        self._path = bell_path(directory, slot)
        self._path.unlink(missing_ok=True)  # of the process that had the slot before
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._path))
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def ring(self) -> None:
        ring(self._path)

    def drain(self) -> None:
        """Until the next time."""
        try:
            while self._socket.recv(16):
                pass
        except BlockingIOError:
            pass


def bell_path(directory: Path, slot: int) -> Path:
    return directory / f"wake{slot}"


def ring(path: Path) -> None:
    """Never waits. A scheduler that is not running, or has wake-ups pending, ticks soon by itself."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.setblocking(False)
        try:
            line.sendto(b"!", str(path))
        except OSError:
            pass
