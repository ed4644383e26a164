"""Who executes tasks: threads, some that stay and others that are started per task; or the calling thread."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

Task = Callable[[], None]


class Executor(Protocol):
    def submit(self, task: Task) -> None:
        """A worker's task. How many there may be at once is for the caller to know."""

    def start(self, task: Task, name: str, /) -> None:
        """A task that is not a worker's: it may wait for other databases, which nobody else should wait for."""


class CallingThread:
    """For one database, where nobody else has to wait: a worker's task is executed before `submit` returns, other tasks
    when `run_started` is called."""

    def __init__(self) -> None:
        self._started: deque[Task] = deque()

    def submit(self, task: Task) -> None:
        task()

    def start(self, task: Task, _name: str, /) -> None:
        self._started.append(task)

    def run_started(self) -> None:
        while self._started:
            self._started.popleft()()


class ThreadPool:
    """`persistent` threads wait for tasks, others are started when those are busy. How many tasks there may be at once
    is for the caller to know: a thread that has just done its task counts here for a moment longer than there."""

    def __init__(self, persistent: int, name: str = "worker") -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running = 0
        self._waiting = 0  # persistent threads without a task
        self._started = 0
        self._persistent = persistent
        for _ in range(self._persistent):
            self._start(self._stay, ())

    @property
    def running(self) -> int:
        return self._running

    @property
    def started(self) -> int:
        """Threads that were started since the beginning."""
        return self._started

    def submit(self, task: Task) -> None:
        with self._lock:
            self._running += 1
            takes_persistent = self._waiting > 0
            if takes_persistent:
                self._waiting -= 1
        if takes_persistent:
            self._tasks.put(task)
        else:
            self._start(self._once, (task,))

    def start(self, task: Task, name: str, /) -> None:
        threading.Thread(target=task, name=name, daemon=True).start()

    def close(self) -> None:
        """Persistent threads end when they are free; nobody is interrupted."""
        for _ in range(self._persistent):
            self._tasks.put(None)

    def _start(self, target: Callable[..., None], args: tuple[object, ...]) -> None:
        with self._lock:
            self._started += 1
            if target == self._stay:
                self._waiting += 1
            thread = threading.Thread(target=target, args=args, name=f"{self._name} {self._started}", daemon=True)
        thread.start()

    def _once(self, task: Task) -> None:
        try:
            task()
        finally:
            with self._lock:
                self._running -= 1

    def _stay(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            finally:
                with self._lock:
                    self._running -= 1
                    self._waiting += 1
