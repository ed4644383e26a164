"""Who is at work. A worker that waits for Spark lends its token, and takes one back before anybody new gets one.

So leases that wait for the same Spark job are more than there are workers, and the job is the larger for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Leases under way, those that wait for Spark included; as many as there are workers, if these are more. Each has its
# connections.
MOST_BEGUN = 16


class WorkerSlots:
    """`most` at a time. Who has waited for `patience_s` goes on without: those who hold them may hang."""

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
        """Workers that have begun and are not at work now."""
        return self._aside

    def take(self) -> None:
        """For somebody new. Whether there may be one more is for the caller to know."""
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
        if self._line:
            self._line.popleft().set()
        else:
            self._used -= 1
