"""Keeps a Spark Connect server available: one of our own that is restarted when it dies, or an external one."""

from __future__ import annotations

import logging
import threading
import time

from pgtrickle.errors import EngineLostError, PgtrickleError
from pgtrickle.servers.spark_address import SparkAddress
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from pgtrickle.telemetry import JAVA_PASSED_OVER, SPARK_HUNG, SPARK_LOST, SPARK_STARTED, event

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.5
PING_SECONDS = 5.0
HUNG_SECONDS = 30.0  # without an answer
BACKOFF_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0)


class SparkSupervisor:
    """A thread of the launcher. Spark survives a restart of the pipeline, and vice versa."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.address = SparkAddress()
        self._stop = threading.Event()
        self._server: SparkServer | None = None
        self.state = "ACTIVE"  # or HUNG: Spark does not answer
        self._thread = threading.Thread(target=self._keep, name="spark", daemon=True)

    @property
    def pid(self) -> int | None:
        server = self._server
        return server.pid if server is not None and server.alive() else None

    def start(self) -> None:
        if self._settings.spark_remote:
            self.address.set(self._settings.spark_remote)
        else:
            # Not in the thread, so that a missing Java makes the command fail.
            self._server = SparkServer.start(self._settings, warn=_warn)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(15)
        if self._server is not None:
            self._server.stop()

    def _keep(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                if self._server is None:
                    self._server = SparkServer.start(self._settings, warn=_warn)
                self._server.wait_ready(self._settings.spark_start_timeout_s, self._check)
                self.address.set(self._server.url)
                self.state = "ACTIVE"
                log.info("Spark is ready", extra=event(SPARK_STARTED, pid=self._server.pid))
                failures = 0
                self._watch(self._server)
            except PgtrickleError as error:
                if not self._stop.is_set():
                    log.error("Spark did not start", extra=event(SPARK_LOST, detail=error.one_line()))
                    self._stop.wait(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
                    failures += 1
            else:
                if not self._stop.is_set():
                    log.warning("Spark exited; restarting it", extra=event(SPARK_LOST))
            if not self._stop.is_set():
                self.address.set(None)
                if self._server is not None:
                    self._server.stop()
                    self._server = None

    def _watch(self, server: SparkServer) -> None:
        """Returns when the server has ended. Kills one that no longer answers (stopped, out of memory, deadlocked)."""
        answered_at = pinged_at = time.monotonic()
        while server.alive() and not self._stop.wait(CHECK_SECONDS):
            now = time.monotonic()
            if now - pinged_at < PING_SECONDS:
                continue
            # Time in which this process itself did not run does not count.
            was_paused, pinged_at = now - pinged_at > 3 * PING_SECONDS, now
            if was_paused or server.answers(PING_SECONDS):
                answered_at, self.state = time.monotonic(), "ACTIVE"
            elif time.monotonic() - answered_at > HUNG_SECONDS:
                log.error("Spark does not answer; it is killed and restarted", extra=event(SPARK_HUNG, pid=server.pid))
                server.kill()
                return
            else:
                self.state = "HUNG"
                log.warning("Spark does not answer", extra=event(SPARK_HUNG, pid=server.pid))

    def _check(self, _waited: float) -> None:
        if self._stop.is_set():
            raise EngineLostError("Stopped waiting for Spark: the process is shutting down")


def _warn(line: str) -> None:
    log.warning("A Java installation was not used", extra=event(JAVA_PASSED_OVER, detail=line))
