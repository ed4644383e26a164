"""Changes of sources that have no effect on their readers: nothing is loaded again, and nothing is missed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from pgtrickle.pipeline.engine.spark import SparkEngine
from tests.conftest import Database
from tests.line import Line
from tests.postgres.test_restore import no_spark

TABLES = """
    CREATE TABLE named (id int PRIMARY KEY, name varchar(5) NOT NULL, price numeric(6,2), at timestamp(0));
    INSERT INTO named SELECT i, 'n' || i, i, '2024-01-01' FROM generate_series(1, 50) AS i;
"""
QUERIES = {
    "rows": "SELECT id, name, price, at FROM named",
    "groups": "SELECT name, max(price) AS price, count(*) AS n FROM named GROUP BY name",
    "first": "SELECT id, name FROM named ORDER BY id DESC LIMIT 3",
    "whole": "SELECT id, name, now() IS NULL AS never FROM named",
    "above": "SELECT name, count(*) AS n FROM rows GROUP BY name",
}


@pytest.fixture
def line(installed: Database) -> Iterator[Line]:
    engine = SparkEngine(no_spark)
    line = Line(installed.dsn, engine)
    yield line
    line.close()
    engine.close()


HARMLESS = """
    ALTER TABLE named ALTER price SET NOT NULL;
    ALTER TABLE named ALTER price SET DEFAULT 7;
    ALTER TABLE named ALTER name SET STATISTICS 50;
    ALTER TABLE named ALTER name DROP NOT NULL;
    CREATE INDEX ON named (name);
    DROP STATISTICS IF EXISTS of_named; CREATE STATISTICS of_named ON name, price FROM named;
    GRANT SELECT (price) ON named TO PUBLIC;
    COMMENT ON COLUMN named.price IS 'a comment';
    ALTER TABLE named RENAME price TO z; ALTER TABLE named RENAME z TO price
"""


WIDER = (
    ("ALTER TABLE named ALTER name TYPE varchar(20)", "'longer than five', 1"),
    ("ALTER TABLE named ALTER price TYPE numeric(12,2)", "'n1', 1234567890.12"),
    ("ALTER TABLE named ALTER at TYPE timestamp(6)", "'n2', 3, '2024-01-01 00:00:00.123456'"),
    ("ALTER TABLE named ALTER name TYPE varchar", "repeat('x', 30), 4"),
)


def test_harmless_changes_load_nothing_again(line: Line) -> None:
    _create(line)
    number = 50
    # All at once after the load, and one by one, each after a refresh.
    for change in (HARMLESS, *HARMLESS.split(";\n")):
        number += 1
        line.sql(f"{change}; INSERT INTO named VALUES ({number}, 'n1', 5)")
        line.tick()
        for name in QUERIES:
            assert _status(line, name) == "ACTIVE"
            line.check(name, "FULL" if name == "whole" else "DIFFERENTIAL")
        line.tick()
        assert _loads(line) == 0, change


def test_wider_types_load_nothing_again(line: Line) -> None:
    _create(line)
    line.create("of_table", "SELECT n.name, r.price FROM named AS n JOIN rows AS r USING (id) WHERE n.name <> ''")
    line.create("counted", "SELECT count(*) AS n FROM named WHERE length(name) > 1")
    for number, (ddl, row) in enumerate(WIDER, 51):
        line.sql(f"{ddl}; INSERT INTO named VALUES ({number}, {row})")
        for _ in range(2):  # a stream table that reads another one follows when that has wider columns
            line.tick()
        for name in (*QUERIES, "of_table", "counted"):
            assert _status(line, name) == "ACTIVE"
            line.equal(name)
        # States of groups and first rows have the types that they had; FULL reads everything anyway.
        loaded = line.sql(
            "SELECT DISTINCT pgt_name FROM pgtrickle.pgt_refresh_history AS h "
            "JOIN pgtrickle.pgt_stream_tables USING (pgt_id) WHERE action = 'REINITIALIZE'"
        )
        assert {"rows", "of_table", "counted"}.isdisjoint(name for (name,) in loaded), ddl
    assert line.rows("first")[-1][1] == "x" * 30


def test_rewritten_values_are_loaded_again(line: Line) -> None:
    _create(line)
    line.sql("ALTER TABLE named ALTER price TYPE numeric(6,2) USING price + 1")
    line.tick()
    for name in QUERIES:
        line.equal(name)
    assert _loads(line) > 0


@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "FULL"])
def test_a_column_that_is_dropped_and_added_again_is_adopted_by_the_command(line: Line, mode: str) -> None:
    line.sql("CREATE TABLE t (id int, v int, n text); INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b')")
    line.create("st", "SELECT id, n FROM t", mode=mode)
    line.create("above", "SELECT n, count(*) AS c FROM st GROUP BY n", mode=mode)
    line.sql("ALTER TABLE t DROP COLUMN n")
    line.tick()
    ((status, message),) = line.sql(
        "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'st'"
    )
    assert status == "ERROR"
    assert "column n of public.t was dropped" in message
    command = re.search(r"SELECT pgtrickle\.repair_stream_table\('[^']+'\)", message)
    assert command is not None
    with pytest.raises(psycopg.errors.UndefinedColumn):
        line.sql(command.group())
    line.sql("ALTER TABLE t ADD COLUMN n text DEFAULT 'z'; INSERT INTO t VALUES (3, 30, 'c')")
    line.sql(command.group())
    for change in ("SELECT 1", "UPDATE t SET n = 'y' WHERE id = 1"):
        line.sql(change)
        line.tick()
        line.tick()
        for name in ("st", "above"):
            assert _status(line, name) == "ACTIVE"
            line.equal(name)
    assert line.rows("st") == [(1, "y"), (2, "z"), (3, "c")]


def _create(line: Line) -> None:
    line.sql(TABLES)
    for name, query in QUERIES.items():
        line.create(name, query, mode="FULL" if name == "whole" else "DIFFERENTIAL")


def test_null_after_a_constraint_that_was_dropped(line: Line) -> None:
    """What is computed from a constraint does not outlive it."""
    line.sql("CREATE TABLE a (k int, v int NOT NULL, w int); CREATE TABLE b (k int, v int NOT NULL)")
    line.sql("INSERT INTO a SELECT i, i % 5, i FROM generate_series(1, 20) AS i; INSERT INTO b VALUES (1, 2), (2, 3)")
    queries = {
        "absent": "SELECT k, v FROM a WHERE v NOT IN (SELECT v FROM b)",
        "lists": "SELECT v, string_agg(w::text, ',' ORDER BY k, w) AS list FROM a GROUP BY v",
        "ranks": "SELECT k, v, rank() OVER (PARTITION BY v ORDER BY k) AS r FROM a",
        "sides": "SELECT a.k AS ak, b.k AS bk FROM a FULL JOIN b ON b.k = a.k",
        "merged": "SELECT v, a.k AS ak, b.k AS bk FROM a FULL JOIN b USING (v)",
        "grouped": "SELECT g.v, g.n, b.k FROM (SELECT v, count(*) AS n FROM a GROUP BY v) AS g JOIN b ON b.v = g.v",
    }
    for name, query in queries.items():
        line.create(name, query, mode="DIFFERENTIAL")
    for change in (
        "ALTER TABLE b ALTER v DROP NOT NULL; INSERT INTO b VALUES (3, NULL)",
        "ALTER TABLE a ALTER v DROP NOT NULL; INSERT INTO a VALUES (99, NULL, 1)",
        "INSERT INTO a VALUES (98, NULL, 1); UPDATE b SET v = 4 WHERE v IS NULL",
        "DELETE FROM a WHERE v IS NULL; DELETE FROM b WHERE k = 3",
        "ALTER TABLE a ALTER v SET NOT NULL; ALTER TABLE b ALTER v SET NOT NULL; INSERT INTO b VALUES (5, 1)",
    ):
        line.sql(change)
        line.tick()
        line.tick()
        for name in queries:
            assert _status(line, name) == "ACTIVE"
            line.equal(name)


@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "FULL"])
def test_names_that_were_exchanged_and_exchanged_back(line: Line, mode: str) -> None:
    line.sql(
        "CREATE TABLE t (id int, a int, b int); INSERT INTO t SELECT i, i, 100 + i FROM generate_series(1, 20) AS i"
    )
    line.create("st", "SELECT id, a FROM t", mode=mode)
    exchange = "ALTER TABLE t RENAME a TO z; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME z TO b; "
    for between in ("INSERT INTO t (id, a, b) VALUES (50, 1, 2)", "UPDATE t SET a = 7 WHERE id = 3", "SELECT 1"):
        line.sql(f"{exchange}{between}; {exchange}INSERT INTO t VALUES (51, 3, 4)")
        line.tick()
        line.tick()
        assert _status(line, "st") == "ACTIVE"
        line.equal("st")


def _loads(line: Line) -> int:
    ((loads,),) = line.sql("SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action = 'REINITIALIZE'")
    return int(loads)


def _status(line: Line, name: str) -> str:
    ((status,),) = line.sql("SELECT status FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name)
    return str(status)
