"""A source that another database fills by logical replication: the workers of a subscription write to it, with
session_replication_role = replica."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgtrickle.db import install
from pgtrickle.db.connect import connect
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database
from tests.line import Line
from tests.postgres.test_publications import logical, until
from tests.postgres.test_restore import no_spark

__all__ = ["logical"]

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, k int, v int);
    CREATE TABLE parts (id int, k int, v int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
    CREATE TABLE parts_0 PARTITION OF parts FOR VALUES IN (0);
    CREATE TABLE parts_1 PARTITION OF parts DEFAULT
"""
QUERIES = {
    "rows": "SELECT id, k, v FROM t",
    "sums": "SELECT t.k, sum(p.v) AS total, count(*) AS n FROM t JOIN parts AS p USING (id) GROUP BY t.k",
}


@pytest.fixture
def line(logical: EmbeddedPostgres) -> Iterator[Line]:
    database = create_database(logical, "filled")
    with connect(database.dsn, role="test", autocommit=True) as conn:
        install(conn)
    database.sql(TABLES)
    engine = SparkEngine(no_spark)
    line = Line(database.dsn, engine)
    for name, query in QUERIES.items():
        line.create(name, query, mode="DIFFERENTIAL")
    yield line
    line.close()
    engine.close()
    database.close()


def test_changes_of_apply_workers_are_captured(logical: EmbeddedPostgres, line: Line) -> None:
    there = create_database(logical, "publisher")
    there.sql(TABLES)
    there.sql("INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 30) AS i; INSERT INTO parts SELECT * FROM t")
    there.superuser_sql("CREATE PUBLICATION everything FOR ALL TABLES WITH (publish_via_partition_root = true)")
    there.superuser_sql("SELECT pg_create_logical_replication_slot('filler', 'pgoutput')")
    here = Database(logical, "filled")
    here.superuser_sql(
        f"CREATE SUBSCRIPTION filler CONNECTION '{there.superuser_dsn}' PUBLICATION everything "
        "WITH (create_slot = false, slot_name = 'filler')"
    )
    try:
        changes = (
            "SELECT 1",  # the first copy, by the workers that synchronise tables
            "INSERT INTO t VALUES (100, 1, 5); INSERT INTO parts VALUES (100, 0, 5), (3, 2, 9)",
            "UPDATE t SET v = -v, k = k + 1 WHERE id % 4 = 0; UPDATE parts SET k = 1 - k WHERE id % 5 = 0 AND k < 2",
            "DELETE FROM t WHERE id < 5; DELETE FROM parts WHERE id > 25",
            "BEGIN; INSERT INTO t VALUES (200, 0, 0); SAVEPOINT a; DELETE FROM t; ROLLBACK TO a; COMMIT",
            "TRUNCATE parts; INSERT INTO parts VALUES (100, 0, 7), (10, 1, 8)",
        )
        for change in changes:
            there.sql(change)
            until(lambda: all(_content(here, name) == _content(there, name) for name in ("t", "parts")))
            line.tick()
            for name in QUERIES:
                line.equal(name)
        assert len(line.rows("sums")) > 0
        assert line.sql("SELECT DISTINCT status FROM pgtrickle.pgt_stream_tables") == [("ACTIVE",)]
        loads = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action = 'DIFFERENTIAL'"
        assert line.sql(loads)[0][0] >= len(changes), "all but TRUNCATE are captured as changes"
    finally:
        here.superuser_sql("ALTER SUBSCRIPTION filler DISABLE")
        here.superuser_sql("ALTER SUBSCRIPTION filler SET (slot_name = NONE)")
        here.superuser_sql("DROP SUBSCRIPTION filler")
        here.close()
        there.close()


def _content(database: Database, table: str) -> list[tuple[object, ...]]:
    return database.superuser_sql(f"SELECT id, k, v FROM {table} ORDER BY 1, 2, 3")
