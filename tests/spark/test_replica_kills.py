"""Kills under load: no wrong replica, no lost change (tests/spark/replica_killer.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.spark.replica_killer import PROCESS, SPARK, WORKER, Killer

REWRITES, LAYERS = 10**9, 0  # the least number of rows for a layer


@pytest.mark.parametrize("least_rows", [LAYERS, REWRITES])
def test_killed_under_load(installed: Database, tmp_path: Path, spark_server: SparkServer, least_rows: int) -> None:
    killer = Killer(installed, tmp_path / "replicas", spark_server, 1, least_rows=least_rows)
    try:
        for kind in (PROCESS, PROCESS, PROCESS, WORKER):
            killer.kill(kind, 2.0)
        assert killer.killed == {PROCESS: 3, WORKER: 1}
        killer.replicated.check(killer.replicated.advance())
    finally:
        killer.close()


@pytest.fixture
def own_spark() -> Iterator[SparkServer]:
    server = SparkServer.start(Settings(spark_driver_memory_mb=1024))
    server.wait_ready(300)
    yield server
    server.stop()


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("seed", range(8))
def test_killed_two_hundred_times(installed: Database, tmp_path: Path, own_spark: SparkServer, seed: int) -> None:
    """In eight parts of 25."""
    least_rows = (LAYERS, REWRITES)[seed % 2]
    killer = Killer(installed, tmp_path / "replicas", own_spark, seed, least_rows=least_rows)
    kinds = [*[PROCESS] * 20, *[WORKER] * 4, SPARK]
    killer.random.shuffle(kinds)
    try:
        for kind in kinds:
            killer.kill(kind, 3.0)
        assert killer.killed.total() == 25
        assert len(killer.versions) > 5  # it has advanced between the kills
        killer.replicated.check(killer.replicated.advance())
    finally:
        killer.close()
        killer.server.stop()
