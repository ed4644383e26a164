"""Progress of loads in the terminal: rows, rate and remaining time, while a command waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

POLL_SECONDS = 0.5
PLAIN_SECONDS = 5.0  # between two lines where there is no terminal


@contextmanager
def reporting(title: str) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows a text on standard error: on a terminal it replaces the previous text, elsewhere it
    prints a line every few seconds."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(Text(title)) as status:
            yield lambda text: status.update(Text(text))  # not markup: names and bars have brackets
        return
    printed_at = time.monotonic()

    def show(text: str) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= PLAIN_SECONDS:
            printed_at = time.monotonic()
            typer.echo(text, err=True)

    yield show


def loads_text(conn: Connection) -> str:
    """The progress of all running loads in one line; empty if there are none."""
    from pgtrickle.observe.loads import read_loads

    return "; ".join(" ".join(f"{load.name}: {load.bar()} {load.text()}".split()) for load in read_loads(conn))


@contextmanager
def watching(server: str, title: str) -> Iterator[None]:
    """While the block runs, another thread shows the progress of loads, or `title` if none is running."""
    done = threading.Event()
    with reporting(title) as show:
        thread = threading.Thread(target=_show_loads, args=(server, show, title, done), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _show_loads(server: str, show: Callable[[str], None], title: str, done: threading.Event) -> None:
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.errors import PgtrickleError

    try:
        with connect(server, role="command", autocommit=True, pooler=TRANSACTION) as conn:
            while not done.wait(POLL_SECONDS):
                show(loads_text(conn) or title)
    except PgtrickleError:
        return  # the block gets the same error and reports it


def wait_until_loaded(server: str, name: str, timeout: float | None) -> None:
    """Waits until a stream table is loaded. `name`: as pgt_status() shows it. Raises an error if the load fails, if no
    `pgtrickle run` serves the database, or after the timeout in seconds."""
    from pgtrickle.db.connect import TRANSACTION, connect, translated
    from pgtrickle.db.statements import statement
    from pgtrickle.errors import ConfigError, DefinitionError, TransientError

    began = time.monotonic()
    with (
        reporting(f"{name}: waiting for the control plane") as show,
        connect(server, role="command", autocommit=True, pooler=TRANSACTION) as conn,
        translated(),
    ):
        while True:
            row = conn.execute(statement("load_state"), {"name": name}).fetchone()
            if row is None:
                raise DefinitionError(f"{name} was dropped")
            status, is_loaded, error, no_service = row
            if is_loaded:
                return
            if no_service is not None:
                raise ConfigError(f"{name} is not loaded: {no_service}")
            if status in ("ERROR", "SUSPENDED", "REFUSED"):
                raise DefinitionError(f"{name}: {error or status}")
            if timeout is not None and time.monotonic() - began >= timeout:
                raise TransientError(f"{name} is not loaded after {timeout:g} s", hint="pgtrickle show NAME")
            show(loads_text(conn) or f"{name}: waiting for the control plane")
            time.sleep(POLL_SECONDS)
