"""One file, mapped by every process of a fleet: sections of fixed records, each with its own sequence lock.

A mapped file and not multiprocessing.shared_memory: before Python 3.13 a process that attaches to such a segment
removes it for all processes when it ends. The number is read and written through an aligned memoryview of 8-byte words;
accessed as bytes, reads were torn.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgtrickle.errors import ConfigError

MAGIC = 0x7067_7472_0001_0001
_HEADER = struct.Struct("=QQ")  # magic, hash of the layout
_ALIGN = 64  # a cache line, so that two sections' numbers never share one
READ_SECONDS = 0.1  # a writer needs microseconds; one that takes longer has died during a write, or was descheduled

Records = NDArray[np.void]
Layout = Mapping[str, tuple[np.dtype[np.void], int]]  # section: type and number of its records


class Section:
    """Records with one writer. Readers take a consistent copy and never wait for the writer."""

    def __init__(self, sequence: memoryview, records: Records) -> None:
        self._sequence = sequence
        self._records = records

    def write(self, change: Callable[[Records], None]) -> None:
        """Readers see all of the change or nothing."""
        number = self._sequence[0]
        self._sequence[0] = (
            number | 1
        )  # also if a writer died during a write: an odd number stays odd until a write completes
        try:
            change(self._records)
        finally:
            self._sequence[0] = (number | 1) + 1

    def read(self, most: int | None = None, seconds: float = READ_SECONDS) -> Records | None:
        """A consistent copy; None if there is none: the writer died during a write, or is stopped.

        `most`: of the first so many records.
        """
        deadline: float | None = None
        while True:
            before = self._sequence[0]
            if before % 2 == 0:
                copy = self._records[:most].copy()
                if self._sequence[0] == before:
                    return copy
            deadline = deadline or time.monotonic() + seconds
            if time.monotonic() > deadline:
                return None

    @property
    def unlocked(self) -> Records:
        """The records themselves: for callers that exclude writers, or accept a partial write."""
        return self._records

    @property
    def version(self) -> int:
        """Changes with every write."""
        return int(self._sequence[0])


class Segment:
    """All sections of a fleet."""

    def __init__(self, path: Path, layout: Layout, *, create: bool = False) -> None:
        size, places = _places(layout)
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        handle = os.open(path, flags, 0o600)
        try:
            if create:
                _reserve(handle, size)
            elif os.fstat(handle).st_size != size:
                raise ConfigError(
                    "the shared memory belongs to another version of pgtrickle", hint="restart pgtrickle run"
                )
            self._map = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        header = (MAGIC, _fingerprint(layout))
        if create:
            self._map[: _HEADER.size] = _HEADER.pack(*header)
        elif _HEADER.unpack_from(self._map) != header:
            raise ConfigError("the shared memory belongs to another version of pgtrickle", hint="restart pgtrickle run")
        whole = memoryview(self._map)
        self._sections = {
            name: Section(
                whole[start : start + 8].cast("Q"),
                np.frombuffer(whole[start + _ALIGN : stop], dtype=layout[name][0], count=layout[name][1]),
            )
            for name, (start, stop) in places.items()
        }

    def __getitem__(self, name: str) -> Section:
        return self._sections[name]


def _reserve(handle: int, size: int) -> None:
    """Zeros that are on the disk, not a hole: who writes to a hole is killed (SIGBUS) if the disk is full."""
    with os.fdopen(handle, "wb", closefd=False) as file:
        file.write(bytes(size))


def _places(layout: Layout) -> tuple[int, dict[str, tuple[int, int]]]:
    """Where each section begins (its number) and ends."""
    position, places = _ALIGN, {}
    for name, (kind, count) in layout.items():
        stop = position + _ALIGN + kind.itemsize * count
        places[name] = (position, stop)
        position = -(-stop // _ALIGN) * _ALIGN
    return position, places


def _fingerprint(layout: Layout) -> int:
    text = repr([(name, kind.descr, count) for name, (kind, count) in layout.items()])
    number = 14695981039346656037
    for byte in text.encode():
        number = ((number ^ byte) * 1099511628211) % 2**64
    return number


def text(value: Any) -> str:
    """A fixed-width field as it was put in."""
    return bytes(value).rstrip(b"\x00").decode(errors="replace")


def fixed(value: str, width: int) -> bytes:
    """Cut at a character's end, for a fixed-width field."""
    return value.encode()[:width].decode(errors="ignore").encode()
