"""Bad input: one clear line, a hint, and nothing left behind."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.conftest import Database

SETUP = """
    CREATE TABLE t (id int PRIMARY KEY, a text, b int, ts timestamptz);
    CREATE TABLE existing (x int);
    CREATE VIEW v AS SELECT a, random() AS r FROM t;
    CREATE VIEW locking AS SELECT id FROM t FOR UPDATE;
    CREATE FUNCTION noisy() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
    CREATE TABLE done (x int);
    SELECT pgtrickle.create_stream_table('taken', 'SELECT id FROM t');
    SELECT pgtrickle.create_stream_table('reader', 'SELECT id FROM taken');
"""

EVERYTHING = """
    SELECT 'relation', c.relname::text FROM pg_class AS c WHERE c.oid >= 16384 AND c.relpersistence <> 't'
    UNION ALL SELECT 'temporary', c.relname::text FROM pg_class AS c WHERE c.relname ~ '^__pgt'
    UNION ALL SELECT 'trigger', tgname::text FROM pg_trigger
    UNION ALL SELECT 'stream table', st::text FROM pgtrickle.pgt_stream_tables AS st
    UNION ALL SELECT 'dependency', d::text FROM pgtrickle.pgt_dependencies AS d
    ORDER BY 1, 2
"""

GOOD = "SELECT id FROM t"

# query, further arguments, SQLSTATE, part of the message, part of the hint
QUERIES: list[tuple[str, str, str, str]] = [
    ("", "42601", "the query is empty", "Write a SELECT"),
    ("   \n ", "42601", "the query is empty", "Write a SELECT"),
    ("-- only a comment", "42P11", "more than one statement, or none", "single SELECT"),
    ("SELEC id FROM t", "42601", 'syntax error at or near "SELEC"', "Run the query by itself"),
    ("SELECT id FROM t WHERE", "42601", "syntax error", "Run the query by itself"),
    ("SELECT id FROM missing", "42P01", 'relation "missing" does not exist', "search_path"),
    ("SELECT nope FROM t", "42703", 'column "nope" does not exist', "search_path"),
    ("SELECT nope(id) AS n FROM t", "42883", "function nope(integer) does not exist", ""),
    ("SELECT 1 AS a; DROP TABLE t", "42P11", "more than one statement", "single SELECT"),
    ("SELECT 1 AS a) ; DROP TABLE t; (SELECT 2", "42601", "syntax error", ""),
    ("INSERT INTO t VALUES (1)", "42601", "not a SELECT", "only reads"),
    ("INSERT INTO t VALUES (1) RETURNING id", "42601", "not a SELECT", "only reads"),
    ("DROP TABLE t", "42601", "not a SELECT", "only reads"),
    ("EXPLAIN SELECT 1", "42601", "not a SELECT", "only reads"),
    ("SELECT id INTO other FROM t", "42601", "not a SELECT", "only reads"),
    ("WITH w AS (DELETE FROM t RETURNING id) SELECT id FROM w", "0A000", "WITH", ""),
    ("SELECT id FROM t FOR UPDATE", "0A000", "locks rows", "Remove the locking clause"),
    ("SELECT id FROM locking", "0A000", "locks rows", "Remove the locking clause"),
    ("SELECT id FROM t WHERE b = $1", "42P02", "the query has a parameter", "write the value itself"),
    ("SELECT x.id, y.id FROM t x, t y", "42701", 'column "id" specified more than once', "AS"),
    ("SELECT id + 1, id + 2 FROM t", "42701", '"?column?" specified more than once', "AS"),
    ("SELECT FROM t", "42P16", "at least one column", ""),
    ("SELECT id AS __pgt_row_id FROM t", "42939", "__pgt_row_id", "reserved"),
    ("SELECT DISTINCT * FROM taken", "42939", "__pgt_row_id", "list its columns"),
    ("SELECT ROW(id, b) AS r FROM t", "42P16", "pseudo-type record", ""),
    ("SELECT random() AS r FROM t", "0A000", "volatile function pg_catalog.random()", "Remove it"),
    ("SELECT id FROM t WHERE clock_timestamp() > ts", "0A000", "volatile function pg_catalog.clock_timestamp()", ""),
    ("SELECT noisy() AS n FROM t", "0A000", "volatile function public.noisy()", "STABLE or IMMUTABLE"),
    ("SELECT a FROM v", "0A000", "volatile function pg_catalog.random()", ""),
    ("SELECT x FROM scratch", "42P16", "temporary relation", "permanent table"),
    ("SELECT id FROM t TABLESAMPLE system (10)", "0A000", "TABLESAMPLE without REPEATABLE", "REPEATABLE"),
    ("SELECT 1/0 AS x FROM t", "22012", "division by zero", ""),
]


def _fails(conn: psycopg.Connection[Any], call: str, params: list[Any], state: str, message: str, hint: str) -> None:
    conn.execute("CREATE TEMPORARY TABLE IF NOT EXISTS scratch (x int)")
    before = conn.execute(EVERYTHING).fetchall()
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(call, params)
    diag = caught.value.diag
    assert diag.sqlstate == state, diag.message_primary
    assert message in (diag.message_primary or "")
    assert "\n" not in (diag.message_primary or "")
    assert diag.message_hint
    assert hint in diag.message_hint
    assert conn.execute(EVERYTHING).fetchall() == before


@pytest.fixture
def conn(installed: Database) -> psycopg.Connection[Any]:
    installed.sql(SETUP)
    return installed.connect()


@pytest.mark.parametrize(("query", "state", "message", "hint"), QUERIES, ids=[q[0][:40] or "empty" for q in QUERIES])
def test_create_refuses_query(conn: psycopg.Connection[Any], query: str, state: str, message: str, hint: str) -> None:
    _fails(conn, "SELECT pgtrickle.create_stream_table('fresh', %s)", [query], state, message, hint)


@pytest.mark.parametrize(
    ("arguments", "state", "message", "hint"),
    [
        ({"name": "taken"}, "42P07", "stream table public.taken already exists", "alter_stream_table"),
        ({"name": "existing"}, "42P07", "public.existing already exists", "another name"),
        ({"name": "a.b.c"}, "42602", "is not a table name", "schema.name"),
        ({"name": 'bad"name'}, "42602", "is not a table name", "schema.name"),
        ({"name": ""}, "42602", "is not a table name", "schema.name"),
        ({"name": "x" * 64}, "42622", "longer than 63 bytes", "identifiers"),
        ({"name": "nowhere.fresh"}, "3F000", "schema nowhere does not exist", "CREATE SCHEMA"),
        ({"name": "pgtrickle.fresh"}, "3F000", "cannot be created in schema pgtrickle", "of your own"),
        ({"name": "pg_catalog.fresh"}, "3F000", "cannot be created in schema pg_catalog", "of your own"),
        ({"schedule": "soon"}, "22023", "'soon' is not a schedule", "30s"),
        ({"schedule": "0s"}, "22023", "is not a schedule", "30s"),
        ({"schedule": "-5"}, "22023", "is not a schedule", "30s"),
        ({"schedule": "60 * * * *"}, "22023", "is not a schedule", "cron"),
        ({"schedule": "* * * 13 *"}, "22023", "is not a schedule", "cron"),
        ({"schedule": "* * *"}, "22023", "is not a schedule", "cron"),
        ({"schedule": "@fortnightly"}, "22023", "is not a schedule", "@hourly"),
        ({"refresh_mode": "SOMETIMES"}, "22023", "'SOMETIMES' is not a refresh_mode", "DIFFERENTIAL"),
        ({"cdc_mode": "wal"}, "22023", "'wal' is not a cdc_mode", "trigger"),
        ({"diamond_consistency": "perhaps"}, "22023", "is not a diamond_consistency", "atomic"),
        ({"max_delta_fraction": 2.0}, "22023", "out of range", "between 0 and 1"),
        ({"max_differential_joins": 0}, "22023", "out of range", "1 or more"),
        ({"append_only": True}, "0A000", "append_only is not supported", "Leave it out"),
        ({"partition_by": "id("}, "22023", "'id(' is not a partition_by", "RANGE(day, 1 month)"),
        ({"partition_by": "LIST(nothing)"}, "22023", "the query returns no column nothing", "Its columns are"),
        (
            {"refresh_mode": "DIFFERENTIAL", "query": "SELECT a, current_date AS d FROM t"},
            "0A000",
            "DIFFERENTIAL is not possible: the query uses CURRENT_DATE",
            "AUTO or FULL",
        ),
        (
            {"refresh_mode": "differential", "query": "SELECT id, now() AS n FROM t"},
            "0A000",
            "stable function pg_catalog.now()",
            "AUTO or FULL",
        ),
    ],
    ids=str,
)
def test_create_refuses_arguments(
    conn: psycopg.Connection[Any], arguments: dict[str, Any], state: str, message: str, hint: str
) -> None:
    given = {"name": "fresh", "query": GOOD, **arguments}
    call = ", ".join(f"{key} => %s" for key in given)
    _fails(conn, f"SELECT pgtrickle.create_stream_table({call})", list(given.values()), state, message, hint)


@pytest.mark.parametrize(
    ("call", "state", "message", "hint"),
    [
        ("drop_stream_table('missing')", "42P01", "stream table 'missing' does not exist", "pgt_status"),
        ("drop_stream_table('existing')", "42P01", "stream table 'existing' does not exist", "pgt_status"),
        ("drop_stream_table('taken')", "2BP01", "public.reader reads public.taken", "cascade"),
        ("refresh_stream_table('missing')", "42P01", "does not exist", "pgt_status"),
        ("explain_st('missing')", "42P01", "does not exist", "pgt_status"),
        ("alter_stream_table('taken', query => 'SELECT a FROM nope')", "42P01", '"nope" does not exist', "search_path"),
        (
            "alter_stream_table('taken', query => 'SELECT id FROM reader')",
            "42P16",
            "read one another in a cycle",
            "allow_circular",
        ),
        (
            "alter_stream_table('taken', query => 'SELECT id FROM taken')",
            "42P16",
            "read one another in a cycle",
            "allow_circular",
        ),
        ("alter_stream_table('taken', query => 'SELECT a FROM t')", "2BP01", "public.reader reads", "keep the columns"),
        ("alter_stream_table('taken', status => 'BROKEN')", "22023", "'BROKEN' is not a status", "SUSPENDED"),
        ("validate_query('SELECT id FROM nope')", "42P01", '"nope" does not exist', "search_path"),
    ],
)
def test_other_calls_refuse(conn: psycopg.Connection[Any], call: str, state: str, message: str, hint: str) -> None:
    _fails(conn, f"SELECT pgtrickle.{call}", [], state, message, hint)


def test_temporary_view_over_permanent_table_is_refused(conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE TEMPORARY VIEW tv AS SELECT id FROM t")
    _fails(
        conn,
        "SELECT pgtrickle.create_stream_table('fresh', 'SELECT id FROM tv')",
        [],
        "42P16",
        "temporary",
        "permanent",
    )


def test_constant_now_is_taken_once_with_a_warning(conn: psycopg.Connection[Any]) -> None:
    notices: list[str] = []
    conn.add_notice_handler(lambda d: notices.append(d.message_primary or ""))
    conn.execute("SELECT pgtrickle.create_stream_table('fresh', $$SELECT id FROM t WHERE ts < 'now'::timestamptz$$)")
    assert any("at this moment" in n for n in notices)
