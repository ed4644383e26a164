"""Where the pipeline finds Spark: a file in the fleet's private directory, there while Spark answers."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from pgtrickle.errors import EngineLostError

_NAME = "spark.url"


def read_url(directory: Path) -> str | None:
    try:
        return (directory / _NAME).read_text(encoding="utf-8") or None
    except FileNotFoundError:
        return None


class SparkUrl:
    """Waits for Spark while it starts, and less long when it starts again.

    The waiting counts from when it was first found missing, whoever asks: else those who come one after the other would
    hold their snapshots for the waits of all before them.
    """

    def __init__(self, directory: Path, first: float, again: float, stop: threading.Event) -> None:
        self._directory = directory
        self._seconds = first
        self._again = again
        self._stop = stop
        self._lock = threading.Lock()
        self._missing_since: float | None = None

    def __call__(self) -> str:
        while (url := read_url(self._directory)) is None:
            with self._lock:
                since = self._missing_since = self._missing_since or time.monotonic()
            if self._stop.is_set() or time.monotonic() > since + self._seconds:
                raise EngineLostError("Spark is not there")
            self._stop.wait(0.05)
        with self._lock:
            self._missing_since = None
            self._seconds = self._again
        return url


def write_url(directory: Path, url: str | None) -> None:
    """In one step, so that nobody reads half of it. It holds the token."""
    path = directory / _NAME
    if url is None:
        path.unlink(missing_ok=True)
        return
    new = directory / f"{_NAME}.new"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(url)
    new.replace(path)
