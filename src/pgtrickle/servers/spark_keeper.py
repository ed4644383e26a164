"""Keeps a Spark Connect server available: one of our own that is restarted when it dies, or an external one."""

from __future__ import annotations

import logging
import threading

from pgtrickle.errors import EngineLostError, PgtrickleError
from pgtrickle.servers.spark_address import SparkAddress
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from pgtrickle.telemetry import SPARK_LOST, SPARK_STARTED, event

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
BACKOFF_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0)


class SparkSupervisor:
    """A thread of the launcher. Spark survives a restart of the pipeline, and vice versa."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.address = SparkAddress()
        self._stop = threading.Event()
        self._server: SparkServer | None = None
        self._thread = threading.Thread(target=self._keep, name="spark", daemon=True)

    @property
    def pid(self) -> int | None:
        server = self._server
        return server.pid if server is not None and server.alive() else None

    def start(self) -> None:
        if self._settings.spark_remote:
            self.address.set(self._settings.spark_remote)
        else:
            # Here and not in the thread: a missing Java is an error of the command.
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
                log.info("Spark is ready", extra=event(SPARK_STARTED, pid=self._server.pid))
                failures = 0
                while self._server.alive() and not self._stop.wait(LOOK_SECONDS):
                    pass
            except PgtrickleError as error:
                if not self._stop.is_set():
                    log.error("Spark did not start", extra=event(SPARK_LOST, detail=error.one_line()))
                    self._stop.wait(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
                    failures += 1
            if not self._stop.is_set():
                self.address.set(None)
                log.warning("Spark exited; restarting it", extra=event(SPARK_LOST))
                if self._server is not None:
                    self._server.stop()
                    self._server = None

    def _check(self, _waited: float) -> None:
        if self._stop.is_set():
            raise EngineLostError("Stopped waiting for Spark: the process is shutting down")


def _warn(line: str) -> None:
    log.warning("A Java installation was not used", extra=event("runtime.java_passed_over", detail=line))
