"""Processes that are started again: when, and what happens when even that does not work."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.process import BaseProcess

import pytest

from pgtrickle.process import supervisor as module
from pgtrickle.process.supervisor import SupervisedProcess


def _end(status: int) -> None:
    os._exit(status)


def spawn() -> BaseProcess:
    return multiprocessing.get_context("spawn").Process(target=_end, args=(7,))


def keep_until(child: SupervisedProcess, seconds: float = 120) -> int:
    """The next exit status."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (status := child.keep()) is not None:
            return status
        time.sleep(0.01)
    raise AssertionError("it did not end")


def pid_of(child: SupervisedProcess) -> int | None:
    return child.pid


def test_it_is_started_again_later_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_SECONDS", (0.0, 0.5))
    child = SupervisedProcess("test", spawn)
    assert keep_until(child) == 7
    assert child.keep() is None
    assert pid_of(child) is not None  # at once
    assert keep_until(child) == 7
    assert child.keep() is None
    assert pid_of(child) is None  # not yet
    time.sleep(0.6)
    assert keep_until(child) == 7
    child.end(1.0)


def test_a_process_that_cannot_be_had_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_SECONDS", (0.0,))
    tries = []

    def fails_twice() -> BaseProcess:
        process = spawn()
        tries.append(process)
        if len(tries) < 3:

            def start() -> None:
                raise BlockingIOError(11, "Resource temporarily unavailable")

            monkeypatch.setattr(process, "start", start)
        return process

    child = SupervisedProcess("test", fails_twice)
    assert child.keep() == os.EX_OSERR
    assert child.keep() == os.EX_OSERR
    assert keep_until(child) == 7


def _sleep() -> None:
    time.sleep(600)


def test_one_that_was_stopped_is_shown_killed_and_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "BACKOFF_SECONDS", (0.0,))
    monkeypatch.setattr(module, "STALL_SECONDS", 2.0)
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.2)
    child = SupervisedProcess("test", lambda: multiprocessing.get_context("spawn").Process(target=_sleep))
    child.keep()
    pid = pid_of(child)
    assert pid is not None
    assert child.state == "ACTIVE"
    os.kill(pid, signal.SIGSTOP)
    states = set()
    deadline = time.monotonic() + 120
    while child.keep() is None and time.monotonic() < deadline:
        states.add(child.state)
        time.sleep(0.05)
    assert "HUNG" in states
    assert "does not respond" in caplog.text
    child.keep()
    assert pid_of(child) not in (None, pid)
    assert child.state == "ACTIVE"
    child.end(0.0)
