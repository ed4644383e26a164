"""Disks without space, under load: that of pgtrickle, and that of PostgreSQL. Nothing has to be repaired afterwards."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import prepare_server
from tests.disk import SmallDisk, small_disk
from tests.fleet.conftest import Run, Shop, wait_for
from tests.fleet.test_kill import pid_of


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    with small_disk(64) as disk:
        yield disk


@pytest.mark.slow
def test_disk_of_pgtrickle_is_full(shop: Shop, disk: SmallDisk, make_run: Callable[..., Run], spark_url: str) -> None:
    """Its directory of temporary files, the store of templates, replicas and its log."""
    run = make_run(shop.dsn, spark_url)
    run.log = disk.path / "run.log"
    run.environ["TMPDIR"] = str(disk.path)
    run.start(template_cache_dir=disk.path / "templates", replica_root=disk.path / "replicas")
    shop.wait_loaded()
    workload = shop.workload()
    workload.start()
    try:
        shop.wait_progress(6)
        disk.fill()
        shop.wait_progress(12)
        # New processes start, and new definitions are compiled.
        for kind in ("scheduler", "pipeline"):
            pid = pid_of(shop, kind)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda kind=kind, pid=pid: pid_of(shop, kind) not in (None, pid))  # type: ignore[misc]
        shop.sql("SELECT pgtrickle.create_stream_table('channels', 'SELECT channel, count(*) FROM orders GROUP BY 1')")
        shop.wait_loaded()
        shop.wait_progress(12)
        assert disk.is_full()
        disk.free()
        shop.sql("SELECT pgtrickle.drop_stream_table('channels')")
        shop.wait_progress(6)
    finally:
        workload.stop()
    assert workload.tally.error is None
    shop.verify()
    shop.check_history()
    assert run.traceback() == ""
    assert run.end()[0] == 0


@pytest.fixture
def server_disk() -> Iterator[SmallDisk]:
    with small_disk(700) as disk:
        yield disk


@pytest.fixture
def small_server(server_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedPostgres]:
    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(server_disk.path))
        server = EmbeddedPostgres.create(
            settings={"fsync": "off", "max_connections": "60", "max_wal_size": "64MB", "min_wal_size": "32MB"}
        )
    assert server.data.is_relative_to(server_disk.path)
    with server:
        prepare_server(server)
        yield server


@pytest.mark.slow
def test_disk_of_postgresql_is_full(
    small_server: EmbeddedPostgres, server_disk: SmallDisk, make_run: Callable[..., Run], spark_url: str
) -> None:
    """Writers fail; when no WAL can be written the server goes down, and comes back when there is space."""
    shop = Shop(small_server)
    shop.sql("CREATE TABLE note (text text)")
    run = make_run(shop.dsn, spark_url)
    process = run.start()
    shop.wait_loaded()
    workload = shop.workload()
    workload.start()
    try:
        for _ in range(3):
            shop.wait_progress(6)
            server_disk.fill()
            wait_for(lambda: not _can_write(shop))
            time.sleep(3)  # refreshes fail, too
            server_disk.free()
            if not small_server.alive():
                small_server.start()
            wait_for(lambda: _can_write(shop))
        shop.wait_progress(6)
    finally:
        workload.stop()
    assert workload.tally.error is None
    assert process.poll() is None, run.text()[-2000:]
    shop.verify()
    shop.check_history()
    assert run.traceback() == ""
    assert run.end()[0] == 0


def _can_write(shop: Shop) -> bool:
    """More than fits into the pages and the WAL segment that exist."""
    try:
        shop.sql("INSERT INTO note SELECT repeat(md5(i::text), 30) FROM generate_series(1, 20000) AS i; TRUNCATE note")
    except psycopg.Error:
        return False
    return True
