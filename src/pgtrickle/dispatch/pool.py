"""Executors of tasks: threads, persistent or started per task; or the calling thread."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

Task = Callable[[], None]


class Executor(Protocol):
    def submit(self, task: Task) -> None:
        """Starts a worker's task. The caller limits their number."""

    def start(self, task: Task, name: str, /) -> None:
        """Starts another task, which may wait for databases that do not answer."""

    def resize(self, persistent: int, /) -> None:
        """How many threads stay between tasks."""


class CallingThread:
    """For one database: a worker's task is executed before `submit` returns, other tasks when `run_started` is
    called."""

    def __init__(self) -> None:
        self._started: deque[Task] = deque()

    def submit(self, task: Task) -> None:
        task()

    def start(self, task: Task, _name: str, /) -> None:
        self._started.append(task)

    def resize(self, _persistent: int, /) -> None:
        pass  # there is one thread

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
        self._surplus = 0  # persistent threads that end after their task
        self._persistent = 0
        self.resize(persistent)

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

    @property
    def persistent(self) -> int:
        return self._persistent

    def resize(self, persistent: int, /) -> None:
        """Threads that are too many end when they are free; nobody is interrupted."""
        with self._lock:
            more, self._persistent = persistent - self._persistent, persistent
            ending = min(max(-more, 0), self._waiting)
            self._waiting -= ending
            kept = min(max(more, 0), self._surplus)
            self._surplus += max(-more, 0) - ending - kept
        for _ in range(ending):
            self._tasks.put(None)
        for _ in range(more - kept):
            self._start(self._stay, ())

    def close(self) -> None:
        """Persistent threads end when they are idle; no task is interrupted."""
        self.resize(0)

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
                    is_surplus = self._surplus > 0
                    self._surplus -= is_surplus
                    self._waiting += not is_surplus
            if is_surplus:
                return
