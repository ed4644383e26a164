"""What `pgtrickle run` shows of passwords and tokens, and what is left of it when it is killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgtrickle.db.connect import TRANSACTION, connect
from pgtrickle.db.service import DEFAULT_SERVICE_ROLE, install_as_service
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.spark_server import TOKEN_VARIABLE
from tests.conftest import Database, create_database
from tests.fleet.conftest import Run, wait_for

KEY = "s3cr3t-of-somebody"


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files of the run go; short, because sockets are in it."""
    directory = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(directory))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def served(own_server: EmbeddedPostgres) -> Database:
    """Installed by a superuser, who also runs it: it works as the service role."""
    database = create_database(own_server, "served")
    with connect(database.superuser_dsn, role="install", pooler=TRANSACTION, as_service=False) as conn:
        install_as_service(conn)
    database.sql(
        "CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 99) AS i"
    )
    database.superuser_sql(
        f"GRANT app TO {DEFAULT_SERVICE_ROLE}; GRANT USAGE, CREATE ON SCHEMA public TO {DEFAULT_SERVICE_ROLE};"
        "GRANT USAGE ON SCHEMA pgtrickle TO app"
    )
    database.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT v, count(*) AS n FROM t GROUP BY v', '1s')")
    return database


def text_of(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        try:
            if path.is_file() and not path.is_symlink():
                yield path, path.read_bytes()
        except OSError:
            continue


def current(database: Database) -> bool:
    return database.sql("SELECT v, n FROM s ORDER BY v") == database.sql(
        "SELECT v, count(*) FROM t GROUP BY v ORDER BY v"
    )


@pytest.mark.slow
def test_secrets_stay_in_memory_and_killed_runs_leave_nothing(
    served: Database, scratch: Path, make_run: Callable[..., Run]
) -> None:
    run = make_run(served.superuser_dsn, None)
    launcher = run.start(**{"spark_conf.spark.hadoop.fs.s3a.secret.key": KEY, "spark_driver_memory_mb": 600})
    wait_for(lambda: current(served))
    served.sql("INSERT INTO t SELECT i, i % 5 FROM generate_series(200, 299) AS i")
    wait_for(lambda: current(served))

    # who works: never the superuser
    workers = served.superuser_sql(
        "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'pgtrickle_changes'::regnamespace"
    )
    assert workers == [(DEFAULT_SERVICE_ROLE,)]
    assert run.text().count("Connected as a superuser; connect as the service role") == 1
    assert f"ALTER ROLE {DEFAULT_SERVICE_ROLE} LOGIN" in run.text()

    # what others on the machine can see
    tokens = {
        found[1]
        for pid in run.processes()
        if (found := re.search(rf"{TOKEN_VARIABLE}=([^\0]+)", text_of(pid, "environ"))) is not None
    }
    assert len(tokens) == 1
    secrets = [*tokens, served.server.password, KEY]
    others = [pid for pid in run.processes() if pid != launcher.pid]
    assert len(others) >= 5
    for pid in others:
        assert not any(secret in text_of(pid, "cmdline") for secret in secrets), text_of(pid, "cmdline")
        if "java" not in text_of(pid, "cmdline"):  # the server and its guard have to know it
            assert not any(token in text_of(pid, "environ") for token in tokens)
    for path, data in contents(scratch):
        assert not any(secret.encode() in data for secret in secrets), path
    assert not any(secret in run.text() for secret in secrets)
    directories = list(scratch.iterdir())
    assert {path.name.rsplit("-", 1)[0] for path in directories} == {"pgtrickle-run", "pgtrickle-spark"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in directories} == {0o700}

    # killed: Spark and its files go at once, the rest when somebody starts again
    run.kill()
    wait_for(lambda: not run.processes())
    wait_for(lambda: not list(scratch.glob("pgtrickle-spark-*")))
    run.start(spark_driver_memory_mb=600)
    wait_for(lambda: list(scratch.glob("pgtrickle-spark-*")))
    assert not [path for path in directories if path.exists()]

    # all of them at once, so that nobody is left to tidy up
    served.sql("DELETE FROM t WHERE k < 20")
    wait_for(lambda: current(served))
    left = list(scratch.iterdir())
    for pid in run.processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait_for(lambda: not run.processes())
    assert [path for path in left if path.exists()]
    run.kill()
    run.start(spark_driver_memory_mb=600)
    wait_for(lambda: list(scratch.glob("pgtrickle-spark-*")))
    wait_for(lambda: not [path for path in left if path.exists()])
    assert run.end()[0] == 0
    assert run.traceback() == ""
    wait_for(lambda: not list(scratch.iterdir()))
