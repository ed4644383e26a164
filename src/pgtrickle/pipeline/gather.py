"""Work of several threads, done together: while one batch runs the next gathers, and goes as one.

Nobody waits for company: whoever comes when nothing runs goes at once. So the busier it is, the larger the batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Call(Generic[Item, Result]):
    __slots__ = ("done", "error", "items", "results")

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.results: Sequence[Result] = ()
        self.error: BaseException | None = None
        self.done = threading.Event()


class Gather(Generic[Item, Result]):
    """`run` takes a list of items and gives a result for each. At most `side_by_side` batches run at a time.

    `no_items`: errors that no item can be to blame for; they are those of every call of the batch.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Sequence[Result]],
        side_by_side: int,
        no_items: type[BaseException] | tuple[type[BaseException], ...] = (),
    ) -> None:
        self._run = run
        self._no_items = no_items
        self._turns = threading.Semaphore(side_by_side)
        self._lock = threading.Lock()
        self._waiting: list[_Call[Item, Result]] = []

    def __call__(self, items: Sequence[Item]) -> Sequence[Result]:
        call: _Call[Item, Result] = _Call(items)
        with self._lock:
            self._waiting.append(call)
        with self._turns:
            with self._lock:
                calls, self._waiting = self._waiting, []
            if calls:
                self._together(calls)
        call.done.wait()  # somebody else's batch may have taken it along
        if call.error is not None:
            raise call.error
        return call.results

    def _together(self, calls: Sequence[_Call[Item, Result]]) -> None:
        """An item that fails must fail its own call only: then each runs by itself."""
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
