"""Keeps a Spark Connect server at hand.

An own one that is started again when it dies, or one that somebody else runs.
"""

from __future__ import annotations

import logging
import threading

from pgtrickle.errors import EngineLostError
from pgtrickle.runtime.sparkserver import SparkServer
from pgtrickle.settings import Settings
from pgtrickle.telemetry import SPARK_LOST, SPARK_STARTED, event

log = logging.getLogger(__name__)


class SparkHost:
    """`url()` answers with a server that was alive a moment ago; it blocks while one starts, unless `stop` is set."""

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._lock = threading.Lock()
        self._server: SparkServer | None = None if settings.spark_remote else SparkServer.start(settings, warn=_warn)

    def url(self) -> str:
        if self._settings.spark_remote:
            return self._settings.spark_remote
        with self._lock:
            self._check(0.0)
            if self._server is None or not self._server.alive():
                if self._server is not None:
                    log.warning("Spark ended; starting it again", extra=event(SPARK_LOST))
                    self._server.stop()
                self._server = SparkServer.start(self._settings, warn=_warn)
            self._server.wait_ready(self._settings.spark_start_timeout_s, self._check)
            log.info("Spark is ready", extra=event(SPARK_STARTED, pid=self._server.pid))
            return self._server.url

    def _check(self, _waited: float) -> None:
        if self._stop.is_set():
            raise EngineLostError("Spark is not waited for any more: the run ends")

    def stop(self) -> None:
        with self._lock:
            if self._server is not None:
                self._server.stop()
                self._server = None


def _warn(line: str) -> None:
    log.warning("Java was passed over", extra=event("runtime.java_passed_over", detail=line))
