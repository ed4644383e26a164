"""Which stream tables may read one another: what the database refuses in the call that would make a cycle."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgtrickle.model.reasons import NotDifferentiableError
from pgtrickle.refresh.plan_requests import plan_of_table
from tests.conftest import Database


@pytest.fixture
def db(installed: Database) -> Database:
    installed.sql("CREATE TABLE t (a int, b int); SELECT pgtrickle.set_option('allow_circular', 'on')")
    installed.sql("SELECT pgtrickle.create_stream_table('x', 'SELECT a FROM t')")
    installed.sql("SELECT pgtrickle.create_stream_table('y', 'SELECT a FROM x')")
    return installed


def alter(db: Database, name: str, query: str, **options: Any) -> None:
    given = "".join(f", {name} => %s" for name in options)
    db.sql(f"SELECT pgtrickle.alter_stream_table(%s, query => %s{given})", name, query, *options.values())


def cycles(db: Database) -> list[tuple[Any, ...]]:
    return db.sql("SELECT members FROM pgtrickle.pgt_scc_status()")


def test_cycle_is_refused_unless_it_is_allowed(db: Database) -> None:
    db.sql("SELECT pgtrickle.set_option('allow_circular', 'off')")
    with pytest.raises(psycopg.errors.InvalidTableDefinition) as refused:
        alter(db, "x", "SELECT a FROM t UNION SELECT a FROM y")
    assert refused.value.diag.message_primary == (
        "the query would make stream tables read one another in a cycle: public.x, public.y"
    )
    assert "allow_circular" in str(refused.value.diag.message_hint)
    assert cycles(db) == []
    db.sql("SELECT pgtrickle.set_option('allow_circular', 'on')")
    alter(db, "x", "SELECT a FROM t UNION SELECT a FROM y")
    assert cycles(db) == [(["public.x", "public.y"],)]


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT max(a) AS a FROM y", "an aggregate or GROUP BY"),
        ("SELECT a FROM y GROUP BY a", "an aggregate or GROUP BY"),
        ("SELECT a FROM t EXCEPT SELECT a FROM y", "EXCEPT"),
        ("SELECT a FROM t EXCEPT ALL SELECT a FROM y", "EXCEPT"),
        ("SELECT a FROM t WHERE NOT EXISTS (SELECT FROM y WHERE y.a = t.a)", "NOT EXISTS or NOT IN"),
        ("SELECT a FROM t WHERE a NOT IN (SELECT a FROM y)", "NOT EXISTS or NOT IN"),
        ("SELECT t.a FROM t LEFT JOIN y ON y.a = t.a", "an outer join"),
        ("SELECT t.a FROM y FULL JOIN t ON y.a = t.a", "an outer join"),
        ("SELECT a FROM y ORDER BY a LIMIT 3", "LIMIT or OFFSET"),
        ("SELECT DISTINCT ON (a) a FROM y ORDER BY a", "DISTINCT ON"),
        ("SELECT (row_number() OVER (ORDER BY a))::int AS a FROM y", "a window function"),
        ("SELECT (SELECT min(a) FROM y) AS a FROM t", "an aggregate or GROUP BY"),
        ("SELECT (SELECT y.a FROM y WHERE y.a = t.a) AS a FROM t", "a subquery that yields a value"),
        ("SELECT a FROM t WHERE a > ALL (SELECT a FROM y)", "a subquery that yields a value"),
        ("WITH RECURSIVE r AS (SELECT a FROM y UNION SELECT a + 1 FROM r WHERE a < 9) SELECT a FROM r", "RECURSIVE"),
        ("SELECT a FROM seen", "an aggregate or GROUP BY"),  # in a view
    ],
)
def test_what_is_not_monotone_is_refused_by_name(db: Database, query: str, what: str) -> None:
    db.sql("CREATE VIEW seen AS SELECT max(a) AS a FROM y")
    with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
        alter(db, "x", query)
    message = str(refused.value.diag.message_primary)
    assert message.startswith("public.x is part of a cycle of stream tables (public.x, public.y) and uses ")
    assert what in message
    assert "outside the cycle" in str(refused.value.diag.message_hint)
    assert cycles(db) == []


def test_other_definitions_of_the_cycle_are_looked_at_too(db: Database) -> None:
    alter(db, "y", "SELECT count(*)::int AS a FROM x")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"public.y is part of a cycle .* an aggregate"):
        alter(db, "x", "SELECT a FROM t UNION SELECT a FROM y")
    alter(db, "y", "SELECT a FROM x WHERE now() > 'epoch'")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"public.y .* the stable function pg_catalog.now"):
        alter(db, "x", "SELECT a FROM t UNION SELECT a FROM y")


@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "IMMEDIATE"])
def test_modes_that_promise_to_go_by_changes_are_refused_in_a_cycle(db: Database, mode: str) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=f"cannot be {mode}"):
        alter(db, "x", "SELECT a FROM t UNION SELECT a FROM y", refresh_mode=mode)
    alter(db, "x", "SELECT a FROM t UNION SELECT a FROM y", refresh_mode="FULL")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=f"public.y is part of .* cannot be {mode}"):
        db.sql("SELECT pgtrickle.alter_stream_table('y', refresh_mode => %s)", mode)
    db.sql("SELECT pgtrickle.alter_stream_table('y', schedule => '5s')")


def test_members_that_come_and_go_are_loaded_anew_and_announced(db: Database) -> None:
    db.sql("SELECT pgtrickle.create_stream_table('reader', 'SELECT a FROM y')")
    version = "SELECT pgt_name, definition_version FROM pgtrickle.pgt_stream_tables ORDER BY 1"
    assert db.sql(version) == [("reader", 1), ("x", 1), ("y", 1)]
    db.sql("DELETE FROM pgtrickle.pgt_events")
    alter(db, "x", "SELECT a FROM t UNION SELECT a FROM y")
    assert db.sql(version) == [("reader", 1), ("x", 2), ("y", 2)]
    told = "SELECT DISTINCT s.pgt_name FROM pgtrickle.pgt_events JOIN pgtrickle.pgt_stream_tables AS s USING (pgt_id)"
    assert sorted(db.sql(told)) == [("x",), ("y",)]
    alter(db, "x", "SELECT a FROM t UNION SELECT a + 0 FROM y")  # the same cycle
    assert db.sql(version) == [("reader", 1), ("x", 3), ("y", 2)]
    alter(db, "x", "SELECT a FROM t")
    assert db.sql(version) == [("reader", 1), ("x", 4), ("y", 3)]
    assert cycles(db) == []


def test_plan_says_that_it_is_a_cycle_and_why_not(db: Database) -> None:
    alter(db, "x", "SELECT a FROM t UNION SELECT a FROM y")
    assert plan_of_table(db.dsn, "x")["tree"][:2] == [
        "Cycle: the least fixpoint of all its definitions, step by step",
        "Distinct: rows equal to a changed one, before and after",
    ]
    alter(db, "y", "SELECT a FROM x WHERE a = 1 OR a IN (SELECT a FROM x)")
    with pytest.raises(NotDifferentiableError, match=r"public.y reads itself .* a subquery under NOT, OR"):
        plan_of_table(db.dsn, "y")


def test_cycle_is_dropped_as_a_whole(db: Database) -> None:
    alter(db, "x", "SELECT a FROM t UNION SELECT a FROM y")
    db.sql("SELECT pgtrickle.create_stream_table('reader', 'SELECT a FROM y')")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match=r"public.y reads public.x"):
        db.sql("SELECT pgtrickle.drop_stream_table('x')")
    db.sql("SELECT pgtrickle.drop_stream_table('x', cascade => true)")
    assert db.sql("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]
    assert db.sql("SELECT to_regclass('x'), to_regclass('y'), to_regclass('reader')") == [(None, None, None)]


def test_table_that_reads_itself_can_be_dropped_alone(db: Database) -> None:
    alter(db, "y", "SELECT a FROM x UNION SELECT a FROM y")
    assert cycles(db) == [(["public.y"],)]
    alter(db, "y", "SELECT a, a AS b FROM x")  # nobody else reads its columns
    alter(db, "y", "SELECT a FROM x")
    db.sql("SELECT pgtrickle.drop_stream_table('y')")
    assert db.sql("SELECT pgt_name FROM pgtrickle.pgt_stream_tables") == [("x",)]
