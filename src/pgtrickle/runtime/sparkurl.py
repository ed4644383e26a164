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


def wait_for_url(directory: Path, seconds: float, stop: threading.Event) -> str:
    """While Spark starts, or starts again."""
    deadline = time.monotonic() + seconds
    while (url := read_url(directory)) is None:
        if stop.wait(0.05) or time.monotonic() > deadline:
            raise EngineLostError("Spark is not there")
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
