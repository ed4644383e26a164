"""PostgreSQL crashes in each phase of a refresh, before and after it. The next refresh continues, without help."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from pgtrickle.capture import trim
from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.define import prepare
from pgtrickle.errors import PgtrickleError
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh import wave
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database, prepare_server
from tests.line import Line
from tests.postgres.test_restore import no_spark

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, k int, v int);
    INSERT INTO t SELECT i, i % 5, i FROM generate_series(1, 100) AS i
"""
QUERIES = {
    "rows": "SELECT id, v FROM t WHERE v > 3",
    "sums": "SELECT k, sum(v) AS total, max(v) AS most FROM t GROUP BY k",
    "above": "SELECT total, count(*) AS n FROM sums GROUP BY total",
}
CHANGE = (
    "UPDATE t SET v = v + 1 WHERE k = 2; DELETE FROM t WHERE id % 13 = 1; INSERT INTO t SELECT max(id) + 1, 7, 5 FROM t"
)
# The module that calls the step, its name, and what makes a refresh do it.
PHASES = (
    (wave, "fingerprints", CHANGE),
    (wave, "read_pending", CHANGE),
    (wave, "read_deltas", CHANGE),
    (wave, "net", CHANGE),
    (wave, "arrange", CHANGE),
    (wave, "fence", CHANGE),
    (wave, "apply_deltas", CHANGE),
    (wave, "write_history", CHANGE),
    (wave, "write_load", "TRUNCATE t; INSERT INTO t SELECT i, i % 5, i FROM generate_series(1, 50) AS i"),
    (prepare, "_compiled", "ALTER TABLE t ALTER v TYPE int USING v + 1"),
    (prepare, "ensure_capture", "ALTER TABLE t ALTER v TYPE int USING v + 1"),
)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres.create(settings={"fsync": "off"}) as server:  # commits count, the disk is not waited for
        prepare_server(server)
        yield server


@pytest.fixture
def database(server: EmbeddedPostgres) -> Iterator[Database]:
    database = create_database(server, f"crashing_{secrets.token_hex(4)}")
    with connect(database.dsn, role="test", autocommit=True) as conn:
        install(conn)
    yield database
    database.close()


class Crash:
    """Replaces a step by one during which the server crashes once."""

    def __init__(self, server: EmbeddedPostgres, step: Any, *, is_after: bool) -> None:
        self._server = server
        self._step = step
        self._is_after = is_after
        self.crashed = 0

    def __call__(self, *args: Any, **named: Any) -> Any:
        if not self.crashed and not self._is_after:
            self._crash()
        found = self._step(*args, **named)
        if not self.crashed:
            self._crash()
        return found

    def _crash(self) -> None:
        self.crashed += 1
        self._server.restart("immediate")


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_crash_in_each_phase(server: EmbeddedPostgres, database: Database, is_after: bool) -> None:
    engine = SparkEngine(no_spark)
    database.sql(TABLES)
    line = Line(database.dsn, engine)
    for name, query in QUERIES.items():
        line.create(name, query, mode="DIFFERENTIAL")
    for module, step, change in PHASES:
        database.sql(change)
        with pytest.MonkeyPatch.context() as patched:
            crash = Crash(server, getattr(module, step), is_after=is_after)
            patched.setattr(module, step, crash)
            with suppress(PgtrickleError, psycopg.Error):
                line.tick()
            assert crash.crashed == 1, step
        _leave(line)
        line = Line(database.dsn, engine)  # as a scheduler that the launcher starts again
        for _ in range(3):
            line.tick()
        for name in QUERIES:
            line.equal(name)
        stuck = "SELECT pgt_name, status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE status <> 'ACTIVE'"
        assert line.sql(stuck) == [], step
        line.plane.tidy()
    # Nothing is left behind by loads and transactions that were cut off.
    left = "SELECT relname FROM pg_class WHERE relnamespace = 'pgtrickle_changes'::regnamespace AND relname ~ 'stage'"
    assert line.sql(left) == []
    line.close()
    engine.close()


def _leave(line: Line) -> None:
    line.conn.close()
    with suppress(PgtrickleError, psycopg.Error):
        line.plane.close()


def test_crash_while_a_buffer_is_trimmed(server: EmbeddedPostgres, database: Database) -> None:
    engine = SparkEngine(no_spark)
    line = Line(database.dsn, engine)
    database.sql("CREATE TABLE u (id int, v int)")
    line.create("trimmed", "SELECT v, count(*) AS n FROM u GROUP BY v", mode="DIFFERENTIAL")
    database.sql("INSERT INTO u SELECT i, i % 7 FROM generate_series(1, 500) AS i")
    line.tick()
    with pytest.MonkeyPatch.context() as patched:
        crash = Crash(server, trim._batch, is_after=True)
        patched.setattr(trim, "_batch", crash)
        with suppress(PgtrickleError, psycopg.Error):
            line.plane.tidy()
        assert crash.crashed == 1
    _leave(line)
    line = Line(database.dsn, engine)
    database.sql("DELETE FROM u WHERE id % 3 = 0")
    line.tick()
    line.plane.tidy()
    line.tick()
    line.equal("trimmed")
    assert line.sql("SELECT status FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'trimmed'") == [("ACTIVE",)]
    line.close()
    engine.close()
