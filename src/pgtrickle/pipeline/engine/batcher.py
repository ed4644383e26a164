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

MOST_PATIENCE_S = 0.2  # several times the duration of a Spark job

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


class _Way(threading.local):
    """The announcement of this thread: since when."""

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
        self._turns = threading.Semaphore(max_concurrent)
        self._door = threading.Lock()  # one batch is collected at a time
        self._lock = threading.Lock()
        self._nobody_comes = threading.Condition(self._lock)
        self._waiting: list[_Call[Item, Result]] = []
        self._coming = 0
        self._way = _Way()

    @contextmanager
    def announce(self) -> Iterator[None]:
        """Announces a call of this thread. Others wait for the call until this block ends or it withdraws."""
        with self._lock:
            self._coming += 1
        self._way.since = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._arrive()

    def withdraw(self) -> None:
        """Withdraws the announcement of this thread."""
        with self._lock:
            self._arrive()

    def _arrive(self) -> float:
        """Ends the announcement; returns how long it lasted. The caller holds the lock."""
        since, self._way.since = self._way.since, None
        if since is None:
            return 0.0
        self._coming -= 1
        if not self._coming:
            self._nobody_comes.notify_all()
        return time.monotonic() - since

    def __call__(self, items: Sequence[Item]) -> Sequence[Result]:
        call: _Call[Item, Result] = _Call(items)
        with self._lock:
            self._waiting.append(call)
            until = time.monotonic() + min(self._arrive(), MOST_PATIENCE_S)
        with self._turns:
            calls = self._gathered(call, until)
            if calls:
                self._together(calls)
        call.done.wait()  # another thread's batch may contain it
        if call.error is not None:
            raise call.error
        return call.results

    def _gathered(self, call: _Call[Item, Result], until: float) -> Sequence[_Call[Item, Result]]:
        """All waiting calls, unless a batch already contains this one."""
        with self._door, self._lock:
            if call.is_taken:
                return ()
            self._nobody_comes.wait_for(lambda: not self._coming, until - time.monotonic())
            calls, self._waiting = self._waiting, []
            for each in calls:
                each.is_taken = True
            return calls

    def _together(self, calls: Sequence[_Call[Item, Result]]) -> None:
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
                    self._together([call])
            return
        position = 0
        for call in calls:
            call.results = results[position : position + len(call.items)]
            position += len(call.items)
            call.done.set()
