"""Tasks that wait for several servers at a time: a thread each, so that one that does not answer holds up no other.

No pool of threads: those that wait for a server that is stuck would be missed by all others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")

PATIENCE_SECONDS = 0.1  # for the others, when one has come: what is ready together is taken together


def run_concurrently(
    tasks: Mapping[Key, Callable[[Callable[[Result], None]], None]],
) -> Iterator[list[tuple[Key, Future[Result]]]]:
    """What they bring, as it comes. An task hands its result to the function that it gets, and may have something
    left to do then, which is waited for at the end."""
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
