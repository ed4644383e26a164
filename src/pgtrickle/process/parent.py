"""Children of the launcher: they end with it, and stop on signals."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import wait


def end_with_parent() -> None:
    """Ends this process immediately with its parent: a successor must not wait for it, and there is no state to
    save."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os._exit(0)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def stop_on_signals(stop: threading.Event, then: Callable[[], None] | None = None) -> None:
    """SIGTERM requests a stop, a second one ends the process. Ctrl-C reaches the whole group; the launcher handles
    it."""

    def request_stop(*_: object) -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()
        if then is not None:
            then()

    signal.signal(signal.SIGTERM, request_stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
