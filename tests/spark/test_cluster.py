"""Refreshes on a standalone cluster: executors that have this package only from us, and workers that go away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtrickle.errors import ConfigError
from pgtrickle.pipeline.engine.package import is_local, package_file
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.spark_server import SparkServer, is_loopback
from pgtrickle.settings import Settings
from tests.cluster import LIMIT, StandaloneCluster, bare_python, java_home
from tests.conftest import Database
from tests.line import Line

TABLES = """
CREATE TABLE customer (id int PRIMARY KEY, region text NOT NULL);
CREATE TABLE sale (id int PRIMARY KEY, customer_id int, amount numeric(10, 2));
INSERT INTO customer SELECT i, 'region ' || i % 5 FROM generate_series(1, 40) AS i;
INSERT INTO sale SELECT i, 1 + i % 50, i * 1.25 FROM generate_series(1, 5000) AS i;
"""
QUERIES = {
    "groups": "SELECT c.region, count(*) AS n, sum(s.amount) AS total "
    "FROM sale s JOIN customer c ON c.id = s.customer_id GROUP BY c.region",
    "unmatched": "SELECT id FROM customer c WHERE NOT EXISTS (SELECT FROM sale s WHERE s.customer_id = c.id)",
}
EXECUTORS = {"spark.executor.memory": "512m", "spark.network.timeout": "600s"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    cluster = StandaloneCluster(tmp_path)
    try:
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.stop()


def served(settings: Settings) -> Iterator[SparkEngine]:
    server = SparkServer.start(settings)
    try:
        server.wait_ready(LIMIT)
        engine = SparkEngine(lambda: server.url)
        yield engine
        engine.close()
    finally:
        server.stop()


@pytest.fixture
def cluster_engine(cluster: StandaloneCluster, tmp_path: Path) -> Iterator[SparkEngine]:
    """Python processes of this Spark do not find pgtrickle by themselves."""
    python = bare_python(tmp_path / "python")
    yield from served(
        Settings(spark_master=cluster.url, spark_python=str(python), spark_driver_memory_mb=1024, spark_conf=EXECUTORS)
    )


def loaded(installed: Database, engine: SparkEngine, root: Path) -> Line:
    """Stream tables that executors have loaded: read from PostgreSQL, written to replicas, computed, written back."""
    line = Line(installed.dsn, engine, Settings(replica_root=str(root)))
    line.sql(TABLES)
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', engine => 'spark')", name, query)
    line.tick()
    check(line)
    return line


def check(line: Line) -> None:
    for name in QUERIES:
        line.equal(name)
        history = line.sql("SELECT DISTINCT engine, status FROM pgtrickle.get_refresh_history(%s)", name)
        assert history == [("spark", "COMPLETED")]


def test_a_worker_that_is_lost_costs_a_retry_only(
    installed: Database, cluster: StandaloneCluster, cluster_engine: SparkEngine, tmp_path: Path
) -> None:
    line = loaded(installed, cluster_engine, tmp_path / "replicas")
    try:
        assert all(cluster.executors(worker) for worker in cluster.workers)
        line.sql("UPDATE sale SET amount = amount + 1 WHERE id % 3 = 0; DELETE FROM customer WHERE id = 7")
        killer = threading.Timer(0.3, cluster.kill_worker, [0])
        killer.start()
        line.tick()
        killer.join()
        check(line)
        line.sql("INSERT INTO customer VALUES (99, 'last'); DELETE FROM sale WHERE id % 2 = 0")
        line.tick()  # on the worker that is left
        check(line)
    finally:
        line.close()


@pytest.mark.cluster
def test_workers_are_lost_at_any_time(
    installed: Database, cluster: StandaloneCluster, cluster_engine: SparkEngine, tmp_path: Path
) -> None:
    line = loaded(installed, cluster_engine, tmp_path / "replicas")
    try:
        for number in range(8):
            line.sql("UPDATE sale SET amount = amount + 1 WHERE id % 3 = %s", number % 3)
            line.sql("INSERT INTO customer VALUES (%s, 'new')", 1000 + number)
            killer = threading.Timer(0.25 * number, cluster.replace_worker, [number % 2])
            killer.start()
            line.tick()
            killer.join()
            check(line)
    finally:
        line.close()


@pytest.mark.cluster
def test_a_local_cluster(installed: Database, tmp_path: Path) -> None:
    settings = Settings(
        spark_master="local-cluster[2,1,1024]",
        java_home=str(java_home(tmp_path / "java")),
        spark_python=str(bare_python(tmp_path / "python")),
        spark_driver_memory_mb=1024,
        spark_conf=EXECUTORS,
    )
    for engine in served(settings):
        line = loaded(installed, engine, tmp_path / "replicas")
        for number in range(3):
            line.sql("UPDATE sale SET amount = amount + 1 WHERE id % 3 = %s", number)
            line.tick()
            check(line)
        line.close()


def test_the_package_is_one_file_with_a_name_of_its_own() -> None:
    assert package_file() == package_file()
    assert package_file().name.startswith("pgtrickle-")
    assert package_file().stat().st_size < 4 << 20
    assert [is_local(m) for m in ("local", "local[*]", "local-cluster[2,1,1024]", "spark://h:1", "yarn", None)] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


def test_other_machines_reach_the_driver_only_with_a_secret_or_on_purpose() -> None:
    assert [is_loopback(h) for h in ("127.0.0.1", "::1", "localhost", "10.0.0.5", "spark.example.com")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=r"other machines could run code in Spark"):
        SparkServer.start(Settings(spark_driver_host="10.0.0.5", spark_master="spark://10.0.0.1:7077"))
