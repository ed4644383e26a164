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

LOOK_SECONDS = 0.5
PLAIN_SECONDS = 5.0  # between two lines where there is no terminal


@contextmanager
def reporting(what: str) -> Iterator[Callable[[str], None]]:
    """Gives a function that takes what to show now: one line that changes on a terminal, and a line from time to time
    elsewhere. Both on standard error."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(Text(what)) as status:
            yield lambda text: status.update(Text(text))  # not markup: names and bars have brackets
        return
    said = time.monotonic()

    def say(text: str) -> None:
        nonlocal said
        if time.monotonic() - said >= PLAIN_SECONDS:
            said = time.monotonic()
            typer.echo(text, err=True)

    yield say


def loads_text(conn: Connection) -> str:
    """Of all loads that are running; empty when there is none."""
    from pgtrickle.observe.loads import read_loads

    return "; ".join(" ".join(f"{load.name}: {load.bar()} {load.text()}".split()) for load in read_loads(conn))


@contextmanager
def watching(server: str, what: str) -> Iterator[None]:
    """While a block of this thread works, another one shows the loads of the database; `what` while there is none."""
    done = threading.Event()
    with reporting(what) as say:
        thread = threading.Thread(target=_watch, args=(server, say, what, done), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _watch(server: str, say: Callable[[str], None], what: str, done: threading.Event) -> None:
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.errors import PgtrickleError

    try:
        with connect(server, role="command", autocommit=True, pooler=TRANSACTION) as conn:
            while not done.wait(LOOK_SECONDS):
                say(loads_text(conn) or what)
    except PgtrickleError:
        return  # the block meets the same error, and reports it


def wait_until_loaded(server: str, name: str, timeout: float | None) -> None:
    """`name` as pgt_status() shows it. Raises if it fails, if nobody will load it, or after the timeout in seconds."""
    from pgtrickle.db.connect import TRANSACTION, connect, translated
    from pgtrickle.db.statements import statement
    from pgtrickle.errors import ConfigError, DefinitionError, TransientError

    began = time.monotonic()
    with (
        reporting(f"{name}: waiting for the control plane") as say,
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
            say(loads_text(conn) or f"{name}: waiting for the control plane")
            time.sleep(LOOK_SECONDS)
