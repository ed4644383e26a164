"""Batches calls of several threads: while one batch runs, calls are collected for the next.

A call starts immediately if no batch runs and no other call is announced. Otherwise it waits for announced calls, but
not longer than its own preparation took. So batches grow with the load.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

MAX_WAIT_S = 0.2  # several times the duration of a Spark job

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Call(Generic[Item, Result]):
    __slots__ = ("done", "error", "is_taken", "items", "results")

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.results: Sequence[Result] = ()
        self.error: BaseException | None = None
        self.is_taken = False  # a batch contains it
        self.done = threading.Event()


class _Announcement(threading.local):
    """When this thread announced a call; None: it has not."""

    since: float | None = None


class Batcher(Generic[Item, Result]):
    """`run` takes a list of items and returns a result for each. At most `max_concurrent` batches run at a time.

    `no_items`: errors that no item can cause; they are raised for every call of the batch.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Sequence[Result]],
        max_concurrent: int,
        no_items: type[BaseException] | tuple[type[BaseException], ...] = (),
    ) -> None:
        self._run = run
        self._no_items = no_items
        self._running = threading.Semaphore(max_concurrent)
        self._collecting = threading.Lock()  # one batch is collected at a time
        self._lock = threading.Lock()
        self._none_announced = threading.Condition(self._lock)
        self._waiting: list[_Call[Item, Result]] = []
        self._announced = 0
        self._announcement = _Announcement()

    @contextmanager
    def announce(self) -> Iterator[None]:
        """Announces a call of this thread. Others wait for the call until this block ends or it withdraws."""
        with self._lock:
            self._announced += 1
        self._announcement.since = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._end_announcement()

    def withdraw(self) -> None:
        """Withdraws the announcement of this thread."""
        with self._lock:
            self._end_announcement()

    def _end_announcement(self) -> float:
        """Ends the announcement; returns how long it lasted. The caller holds the lock."""
        since, self._announcement.since = self._announcement.since, None
        if since is None:
            return 0.0
        self._announced -= 1
        if not self._announced:
            self._none_announced.notify_all()
        return time.monotonic() - since

    def __call__(self, items: Sequence[Item]) -> Sequence[Result]:
        call: _Call[Item, Result] = _Call(items)
        with self._lock:
            self._waiting.append(call)
            until = time.monotonic() + min(self._end_announcement(), MAX_WAIT_S)
        with self._running:
            calls = self._collect(call, until)
            if calls:
                self._run_batch(calls)
        call.done.wait()  # another thread's batch may contain it
        if call.error is not None:
            raise call.error
        return call.results

    def _collect(self, call: _Call[Item, Result], until: float) -> Sequence[_Call[Item, Result]]:
        """All waiting calls, unless a batch already contains this one."""
        with self._collecting, self._lock:
            if call.is_taken:
                return ()
            self._none_announced.wait_for(lambda: not self._announced, until - time.monotonic())
            calls, self._waiting = self._waiting, []
            for each in calls:
                each.is_taken = True
            return calls

    def _run_batch(self, calls: Sequence[_Call[Item, Result]]) -> None:
        """Runs a batch; if it fails, each call by itself, so that an item fails only its own call."""
        try:
            results = self._run([item for call in calls for item in call.items])
        except BaseException as error:  # noqa: BLE001 - raised in the thread whose call it is
            if len(calls) == 1 or isinstance(error, self._no_items):
                for call in calls:
                    call.error = error
                    call.done.set()
            else:
                for call in calls:
                    self._run_batch([call])
            return
        position = 0
        for call in calls:
            call.results = results[position : position + len(call.items)]
            position += len(call.items)
            call.done.set()
