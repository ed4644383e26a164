"""The registry in shared memory: schedulers register sources in other databases, the broker writes their counts.

Interests have many writers, one at a time, under a lock that the kernel releases when its holder dies. Answers have
one, the broker. Readers never wait: a scheduler without a fresh answer polls for itself.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pgtrickle.ipc.fleet_memory import KEY
from pgtrickle.ipc.liveness import start_time
from pgtrickle.ipc.segment import Layout, Records, Segment, fixed, text

CAPACITY = 4_096
NAME, SERVER, BORN = 64, 264, 24
LOCK_SECONDS = 0.05  # a writer needs a millisecond; one that was stopped must not block the others
READ_SECONDS = 0.002

_INTEREST = np.dtype(
    [
        ("reader", f"S{KEY}"),
        ("origin", f"S{KEY}"),
        ("server", f"S{SERVER}"),
        ("database", f"S{NAME}"),
        ("relid", "u4"),
        ("interval_ms", "i4"),
        ("slot", "i4"),
        ("born", f"S{BORN}"),
        ("pid", "i4"),  # written last and cleared first: a record without it is unused
    ]
)
_ANSWER = np.dtype(
    [
        ("origin", f"S{KEY}"),
        ("relid", "u4"),
        ("generation", "i8"),
        ("count", "i8"),
        ("pending_rows", "i8"),
        ("max_lsn", "u8"),
        ("xmin", "u8"),
        ("tick", "i8"),
        ("looked_at", "f8"),
        ("done_at", "f8"),
        ("scans_done", "i8"),
        ("scans_saved", "i8"),
        ("consumers", "i4"),
    ]
)
_USED = np.dtype([("answers", "i4")])
LAYOUT: Layout = {"interests": (_INTEREST, CAPACITY), "used": (_USED, 1), "answers": (_ANSWER, CAPACITY)}


@dataclass(frozen=True, slots=True)
class Interest:
    """A reader (a database) registers a source of an origin (another database) with its interval."""

    reader: str
    origin: str
    server: str  # host:port, never empty
    database: str
    relid: int
    interval_ms: int
    slot: int  # of its scheduler


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The broker's count of a source. Times are seconds since the epoch: begin and end of the poll."""

    origin: str
    relid: int
    generation: int
    count: int
    pending_rows: int
    max_lsn: int
    xmin: int  # transactions before it were visible
    tick: int
    looked_at: float  # when the poll began, in seconds since the epoch
    done_at: float  # when it ended, by the monotonic clock, which all processes of a machine share
    scans_done: int
    scans_saved: int
    consumers: int


class Registry:
    """The segment of interests and answers."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._segment = Segment(path, LAYOUT, create=create)
        self._lock_path = path.with_name(path.name + ".interests.lock")

    @property
    def version(self) -> int:
        """Changes when interests are added or removed."""
        return self._segment["interests"].version

    def register(self, reader: str, wanted: Sequence[Interest]) -> int | None:
        """Replaces the interests of this reader. Returns the number that did not fit; None: not possible now.

        Also removes interests of readers that have ended.
        """
        pid = os.getpid()
        born = start_time(pid) or ""
        fitting = [i for i in wanted if _fits(i)]
        with self._locked() as is_ours:
            if not is_ours:
                return None
            section = self._segment["interests"]
            records = section.unlocked
            gone = (records["reader"] == reader.encode()) | _dead(records)
            free = np.flatnonzero((records["pid"] == 0) | gone)
            taken = fitting[: len(free)]

            def change(records: Records) -> None:
                records["pid"][gone] = 0
                for position, interest in zip(free.tolist(), taken, strict=False):
                    _fill(records, position, interest, {"born": born, "pid": pid})

            section.write(change)
        return len(wanted) - len(taken)

    def interests(self) -> list[Interest]:
        """Of readers that are alive."""
        records = self._segment["interests"].read()
        if records is None:
            return []
        records = records[records["pid"] != 0]
        records = records[~_dead(records)]
        return [Interest(text(r[0]), text(r[1]), text(r[2]), text(r[3]), r[4], r[5], r[6]) for r in records.tolist()]

    def has_interests(self) -> bool:
        return bool((self._segment["interests"].unlocked["pid"] != 0).any())

    def write_answers(self, answers: Mapping[int, SourceStatus | None], used: int) -> None:
        """Written by the broker: at these positions, of which `used` are or were in use."""

        def change(records: Records) -> None:
            for position, answer in answers.items():
                if answer is None:
                    records[position] = np.zeros((), records.dtype)
                else:
                    _fill(records, position, answer, {})

        self._segment["answers"].write(change)
        self._segment["used"].write(lambda records: records.fill((used,)))

    def answers(self, origins: Collection[str]) -> dict[tuple[str, int], SourceStatus]:
        """By origin and source."""
        used = self._segment["used"].read(seconds=READ_SECONDS)
        if used is None or not used[0]["answers"]:
            return {}
        records = self._segment["answers"].read(int(used[0]["answers"]), READ_SECONDS)
        if records is None:
            return {}
        records = records[np.isin(records["origin"], [key.encode() for key in origins])]
        found = (SourceStatus(text(r[0]), *r[1:]) for r in records.tolist())
        return {(answer.origin, answer.relid): answer for answer in found}

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """False when another process holds the lock for too long."""
        handle = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + LOCK_SECONDS
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        yield False
                        return
                    time.sleep(0.001)
            yield True
        finally:
            os.close(handle)


def _fits(interest: Interest) -> bool:
    """A truncated name would be another name."""
    return len(interest.server.encode()) <= SERVER and len(interest.database.encode()) <= NAME


def _dead(records: Records) -> Any:
    """The records of processes that have ended."""
    found = np.zeros(len(records), dtype=np.bool_)
    for pid in np.unique(records["pid"]).tolist():
        born = (start_time(pid) or "gone").encode() if pid else b""
        found |= (records["pid"] == pid) & (pid != 0) & (records["born"] != born)
    return found


_WIDTHS = {"reader": KEY, "origin": KEY, "server": SERVER, "database": NAME, "born": BORN}


def _fill(records: Records, position: int, value: object, more: Mapping[str, object]) -> None:
    for field in records.dtype.names or ():
        item = more[field] if field in more else getattr(value, field)
        records[position][field] = fixed(item, _WIDTHS[field]) if isinstance(item, str) else item
