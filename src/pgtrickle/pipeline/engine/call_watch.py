"""Calls to Spark that never return: a stopped server, a network that loses packets, a stuck call.

The client waits without limit. A small job takes milliseconds; one that takes minutes is not slow but lost, and all
refreshes wait behind it. Jobs over many rows have no limit here: how long they take depends on the rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pgtrickle.telemetry import SPARK_STUCK, event

log = logging.getLogger(__name__)

STUCK_SECONDS = 120.0
LOOK_SECONDS = 1.0


class CallWatch:
    """`cut_off` closes the connection to Spark: every call that uses it raises."""

    def __init__(self, cut_off: Callable[[], None], seconds: float = STUCK_SECONDS) -> None:
        self.seconds = seconds
        self._cut_off = cut_off
        self._lock = threading.Lock()
        self._begun: dict[int, float] = {}
        self._last = 0
        self._thread: threading.Thread | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        with self._lock:
            self._last += 1
            number = self._last
            self._begun[number] = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="spark-calls", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._begun.pop(number, None)

    def _watch(self) -> None:
        asleep = time.monotonic()
        while True:
            time.sleep(min(LOOK_SECONDS, self.seconds / 4))
            now = time.monotonic()
            with self._lock:
                if now - asleep > self.seconds / 2:  # this process itself was stopped
                    self._begun = dict.fromkeys(self._begun, now)
                asleep = now
                stuck = [number for number, begun in self._begun.items() if now - begun > self.seconds]
                for number in stuck:
                    self._begun.pop(number)
            if stuck:
                log.error(
                    "Calls to Spark do not return; the connection is closed and their work repeated",
                    extra=event(SPARK_STUCK, calls=len(stuck), seconds=self.seconds),
                )
                self._cut_off()
