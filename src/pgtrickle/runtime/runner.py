"""`pgtrickle run`: one process that keeps every database of a server current, with Spark beside it."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable

from pgtrickle.db.connect import connect, translated
from pgtrickle.db.discover import databases, in_database
from pgtrickle.errors import PgtrickleError, TransientError
from pgtrickle.pipeline.spark import SparkEngine
from pgtrickle.runtime.database import DatabaseLoop
from pgtrickle.runtime.sparkhost import SparkHost
from pgtrickle.settings import Settings
from pgtrickle.telemetry import RUN_STARTED, RUN_STOPPED, event, redact

log = logging.getLogger(__name__)

DISCOVER_SECONDS = 10.0
WARM_UP_JOBS = 20
STOP_SECONDS = 10.0  # for refreshes under way; what is not committed then is done again by the next run


def run_forever(settings: Settings, server: str) -> None:
    """Runs until SIGTERM or SIGINT.

    Any process of it may be killed at any moment: the databases hold all that matters.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    host = SparkHost(settings, stop)
    try:
        run(settings, server, host.url, stop)
    finally:
        host.stop()


def run(settings: Settings, server: str, spark_url: Callable[[], str], stop: threading.Event) -> None:
    """The loop without its surroundings, for callers that bring their own Spark and their own way to stop."""
    engine = SparkEngine(spark_url)
    threads: dict[str, threading.Thread] = {}
    is_told = False
    log.info("Started", extra=event(RUN_STARTED, server=redact(server)))
    # Beside the first refreshes, which need not wait for it.
    warming = threading.Thread(target=_warm_up, args=(engine, stop), name="warm-up", daemon=True)
    warming.start()
    try:
        while not stop.is_set():
            try:
                with connect(server, role="launcher", autocommit=True) as conn, translated():
                    names = databases(conn, server)
            except TransientError as error:
                log.warning("Server is not reachable", extra=event("runtime.server_lost", detail=error.message))
                stop.wait(1.0)
                continue
            for name in names:
                if name not in threads or not threads[name].is_alive():
                    loop = DatabaseLoop(name, in_database(server, name), engine, settings, stop)
                    threads[name] = threading.Thread(
                        target=_kept, args=(loop, stop), name=f"database {name}", daemon=True
                    )
                    threads[name].start()
            if not names and not is_told:
                log.warning(
                    "No database of this server has pgtrickle: run `pgtrickle install DSN`; it is noticed at once",
                    extra=event("runtime.nothing_installed", server=redact(server)),
                )
                is_told = True
            stop.wait(DISCOVER_SECONDS if names else 1.0)
    finally:
        stop.set()
        deadline = time.monotonic() + STOP_SECONDS
        for thread in (warming, *threads.values()):
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
        engine.close()
        log.info("Stopped", extra=event(RUN_STOPPED))


def _kept(loop: DatabaseLoop, stop: threading.Event) -> None:
    """A failure that is not transient ends the database's thread with a line; the next discovery starts it again."""
    try:
        loop.run()
    except PgtrickleError as error:
        log.error("Database loop ended", extra=event("runtime.loop_ended", database=loop.name, detail=error.one_line()))
        stop.wait(1.0)
    except Exception:
        # A fault of ours must be seen, and must not take the other databases down.
        log.exception("Database loop broke", extra=event("runtime.loop_broken", database=loop.name))
        stop.wait(1.0)


def _warm_up(engine: SparkEngine, stop: threading.Event) -> None:
    try:
        for _ in engine.warm_up(WARM_UP_JOBS):
            if stop.is_set():
                return
    except TransientError as error:
        log.warning("Spark could not be warmed up", extra=event("runtime.spark_cold", detail=error.message))
