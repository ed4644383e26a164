"""Worker slots. A worker that waits for Spark releases its slot, and gets one again before any new lease.

So more leases than workers can wait for the same Spark job, which makes the job larger.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Leases in progress, including those that wait for Spark; the number of workers, if that is larger. Each has its own
# connections.
MOST_BEGUN = 16


class WorkerSlots:
    """At most `most` at a time. A worker that has waited for `patience_s` continues without a slot: others may hang."""

    def __init__(self, most: int, patience_s: float, on_lent: Callable[[], None]) -> None:
        self._most = most
        self._patience_s = patience_s
        self._on_lent = on_lent
        self._lock = threading.Lock()
        self._used = 0
        self._aside = 0
        self._line: deque[threading.Event] = deque()

    @property
    def used(self) -> int:
        return self._used

    @property
    def aside(self) -> int:
        """Workers in progress without a slot."""
        return self._aside

    def resize(self, most: int) -> None:
        """Who waits for a token gets one of the new ones; those that are too many are given back in time."""
        with self._lock:
            self._most = most
            while self._line and self._used < self._most:
                self._used += 1
                self._line.popleft().set()

    def take(self) -> None:
        """Takes a slot for a new lease. The caller checks the limit."""
        with self._lock:
            self._used += 1

    def give_back(self) -> None:
        with self._lock:
            self._hand_over()

    @contextmanager
    def lent(self) -> Iterator[None]:
        with self._lock:
            self._aside += 1
            self._hand_over()
        self._on_lent()
        try:
            yield
        finally:
            self._take_again()

    def _take_again(self) -> None:
        turn = threading.Event()
        with self._lock:
            if self._used < self._most:
                self._used += 1
                turn.set()
            else:
                self._line.append(turn)
        is_in_time = turn.wait(self._patience_s)
        with self._lock:
            self._aside -= 1
            if not is_in_time and not turn.is_set():
                self._line.remove(turn)
                self._used += 1

    def _hand_over(self) -> None:
        if self._line and self._used <= self._most:
            self._line.popleft().set()
        else:
            self._used -= 1
