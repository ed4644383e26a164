"""A small process that owns one server process and ends it when its owner has ended, for whatever reason.

Run by path (`python -I -S guard.py <json>`), so that it imports only the standard library. A pipe on stdin shows that
the owner is alive; its end, or a new parent, means that the owner has ended. If the guard itself is killed, the kernel
sends the first of the stop signals to the server (Linux, PR_SET_PDEATHSIG). That is bound to the *thread* that forks,
so the owner could not use it from a worker thread; the guard has only one thread.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

PR_SET_PDEATHSIG = 1


def die_with_parent(signum: int) -> Callable[[], None] | None:
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):  # not Linux: the pipe must be sufficient
        return None
    return lambda: prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0)


def end(process: subprocess.Popen[bytes], signals: Sequence[tuple[str, float]]) -> None:
    """Sends each signal in turn, with its patience in seconds, then SIGKILL to the whole group."""
    for name, patience in signals:
        if process.poll() is not None:
            return
        process.send_signal(signal.Signals[name])
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def main(arguments: str) -> int:
    task: dict[str, Any] = json.loads(arguments)
    owner = os.getppid()
    stopping = False

    def stop(_signum: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    identity: dict[str, Any] = {}
    if task.get("user") is not None:
        identity = {"user": task["user"], "group": task["group"], "extra_groups": []}
    with open(task["log"], "ab", buffering=0) as log:  # noqa: PTH123  -- pathlib costs 10 ms of start-up here
        process = subprocess.Popen(
            task["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.Signals[task["signals"][0][0]]),
            cwd=task.get("cwd", "/"),
            pass_fds=task.get("fds", ()),
            **identity,
        )
    for inherited in task.get("fds", ()):
        os.close(inherited)
    os.write(1, f"{process.pid}\n".encode())
    os.close(1)
    abandoned = False
    watched = [0]
    patience = 0.02  # short at first: a server that cannot bind its port ends at once
    while process.poll() is None and not stopping:
        readable, _, _ = select.select(watched, [], [], patience)
        patience = min(patience * 1.5, 0.5)
        if (readable and not os.read(0, 4096)) or os.getppid() != owner:
            abandoned = stopping = True
    end(process, task["signals"])
    if abandoned:
        for directory in task.get("remove", ()):
            for _ in range(20):
                shutil.rmtree(directory, ignore_errors=True)
                if not os.path.exists(directory):  # noqa: PTH110  -- see above
                    break
                time.sleep(0.1)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
