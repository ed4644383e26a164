"""Runs tasks that wait for several servers: one thread each, so that a server that does not answer delays no other.

There is no thread pool, because threads that wait for a hanging server would be missing for the other tasks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")

PATIENCE_SECONDS = 0.1  # after the first result, to return further results with it


def run_concurrently(
    tasks: Mapping[Key, Callable[[Callable[[Result], None]], None]],
) -> Iterator[list[tuple[Key, Future[Result]]]]:
    """Yields results as they arrive. A task passes its result to its argument, and may continue afterwards; the
    iterator waits for all tasks at the end."""
    futures: dict[Future[Result], Key] = {}
    threads: list[threading.Thread] = []
    for key, task in tasks.items():
        future: Future[Result] = Future()
        futures[future] = key
        threads.append(threading.Thread(target=_run, args=(task, future), name="task", daemon=True))
        threads[-1].start()
    waiting = set(futures)
    while waiting:
        wait(waiting, return_when=FIRST_COMPLETED)
        done, waiting = wait(waiting, PATIENCE_SECONDS)
        yield [(key, future) for future, key in futures.items() if future in done]
    for thread in threads:
        thread.join()


def _run(task: Callable[[Callable[[Result], None]], None], future: Future[Result]) -> None:
    try:
        task(future.set_result)
    except BaseException as error:
        if future.done():
            raise
        future.set_exception(error)
