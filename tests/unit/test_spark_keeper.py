"""The supervisor of the Spark Connect server: what it logs. The server itself is replaced."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pgtrickle.errors import EngineLostError
from pgtrickle.servers import spark_keeper
from pgtrickle.servers.spark_keeper import SparkSupervisor
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from pgtrickle.telemetry import SPARK_LOST


class FakeServer:
    """Ends at once, or does not become ready; the third one stops the supervisor."""

    url, pid = "sc://nowhere", 1

    def __init__(self, keeper: SparkSupervisor, number: int, *, is_ready: bool) -> None:
        self.keeper, self.number, self.is_ready = keeper, number, is_ready

    def wait_ready(self, *_args: object) -> None:
        if self.number == 3:
            self.keeper._stop.set()
        if not self.is_ready:
            raise EngineLostError("it ended while it started")

    def alive(self) -> bool:
        return False

    def stop(self) -> None:
        pass


@pytest.mark.parametrize(
    ("is_ready", "message"), [(False, "Spark did not start"), (True, "Spark exited; restarting it")]
)
def test_each_loss_is_logged_once(
    is_ready: bool, message: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = SparkSupervisor(Settings())
    started: list[FakeServer] = []

    def start(*_args: Any, **_more: Any) -> FakeServer:
        started.append(FakeServer(keeper, len(started) + 1, is_ready=is_ready))
        return started[-1]

    monkeypatch.setattr(SparkServer, "start", start)
    monkeypatch.setattr(spark_keeper, "BACKOFF_SECONDS", (0.0,))
    with caplog.at_level(logging.INFO, logger=spark_keeper.__name__):
        keeper._keep()
    lost = [r.getMessage() for r in caplog.records if getattr(r, "pgt_event", None) == SPARK_LOST]
    assert lost == [message] * 2
