"""A thread that polls one origin on request, so that an origin that hangs does not delay ticks."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgtrickle.broker.ledger import SourceScan
from pgtrickle.errors import OriginReplacedError, PgtrickleError
from pgtrickle.model.flow import Cut
from pgtrickle.origin.poll_session import BACKOFF_SECONDS, STATEMENT_SECONDS, OriginSession
from pgtrickle.telemetry import POLL_BROKEN, event

log = logging.getLogger(__name__)

IDLE_SECONDS = 30.0  # without a poll, then its connection is closed
HANG_SECONDS = 2.0 * STATEMENT_SECONDS  # the statement timeout of the server should have ended it


@dataclass(frozen=True, slots=True)
class PollResult:
    """The request and the result of a poll. `ended` by the monotonic clock."""

    wanted: Sequence[tuple[int, Cut | None]]
    ended: float
    found: SourceScan

    def changed_sources(self) -> set[int]:
        """Sources with changes, those that were polled for the first time, and those whose buffer was dropped since."""
        changed = set()
        for relid, since in self.wanted:
            counted = self.found.sources.get(relid)
            if counted is None:
                is_news = since is not None
            else:
                is_news = since is None or counted.changes > 0 or not since.precedes(self.found.cut)
            if is_news:
                changed.add(relid)
        return changed


class OriginPoller:
    """One poll at a time; `wake` is called from its thread when there is a result."""

    def __init__(self, name: str, session: OriginSession, wake: Callable[[], None]) -> None:
        self._session = session
        self._wake = wake
        self._requests: queue.SimpleQueue[Sequence[tuple[int, Cut | None]] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[PollResult] = queue.SimpleQueue()
        self._busy_since: float | None = None
        self._failures = 0
        self.next_at = 0.0  # not before, in seconds since the epoch
        self.problem: str | None = None
        self._is_replaced = False
        threading.Thread(target=self._run, name=f"poll {name}", daemon=True).start()

    def ask(self, sources: Sequence[tuple[int, Cut | None]], now: float) -> bool:
        """False: it is still busy, or backs off after a failure."""
        if self._busy_since is not None:
            if now - self._busy_since > HANG_SECONDS:
                self.problem = self.problem or f"no answer for {now - self._busy_since:.0f} s"
                self._session.cut_off()
            return False
        if now < self.next_at:
            return False
        self._busy_since = now
        self._requests.put(sources)
        return True

    def take_result(self) -> list[PollResult]:
        results = []
        while not self._results.empty():
            results.append(self._results.get())
        return results

    def take_replaced(self) -> bool:
        """Whether another database has answered since the last call: its mirrors are refreshed, and find out."""
        is_replaced, self._is_replaced = self._is_replaced, False
        return is_replaced

    def close(self) -> None:
        self._requests.put(None)
        self._session.cut_off()

    def _run(self) -> None:
        while True:
            try:
                sources = self._requests.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                self._session.close()
                continue
            if sources is None:
                self._session.close()
                return
            self._poll(sources)

    def _poll(self, sources: Sequence[tuple[int, Cut | None]]) -> None:
        try:
            result = self._session.scan(sources)
        except PgtrickleError as error:
            if isinstance(error, OriginReplacedError):
                self._is_replaced = True
                self._wake()
            self._failed(error.one_line())
            return
        except Exception as error:
            log.exception("A poll failed", extra=event(POLL_BROKEN))
            self._failed(f"{type(error).__name__}: {error}")
            return
        self._failures, self.problem = 0, None
        polled = PollResult(sources, time.monotonic(), result)
        self._results.put(polled)
        self._busy_since = None
        if polled.changed_sources():
            self._wake()

    def _failed(self, why: str) -> None:
        self.next_at = time.time() + BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        self.problem = why
        self._busy_since = None
