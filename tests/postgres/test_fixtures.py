"""The fixtures themselves: what other tests rely on."""

from __future__ import annotations

from tests.conftest import Database


def test_database_belongs_to_an_ordinary_role(database: Database) -> None:
    rows = database.sql("SELECT current_user, rolsuper, rolcreaterole FROM pg_roles WHERE rolname = current_user")
    assert rows == [("app", False, False)]
    database.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2)")
    assert database.sql("SELECT a FROM t WHERE a > %s", 1) == [(2,)]


def test_database_is_fresh(database: Database) -> None:
    assert database.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
    assert database.superuser_sql("SELECT current_user") == [("postgres",)]
