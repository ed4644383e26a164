"""The role that the broker takes: it can count changes and read windows of them, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgtrickle.capture.install import ensure_capture
from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.origin.poll_session import OriginSession, may_become_broker
from pgtrickle.settings import Sources
from tests.conftest import Database

COUNT = (
    "SELECT sources::int8[], counts FROM pgtrickle_changes._broker_counts(ARRAY[%s]::oid[], ARRAY[NULL]::pg_snapshot[])"
)


def captured(database: Database) -> int:
    database.sql("CREATE TABLE t (id int, v text); CREATE TABLE u (id int)")
    relid = int(database.sql("SELECT 't'::regclass::oid::int8")[0][0])
    with connect(database.dsn, role="capture", autocommit=True) as conn:
        ensure_capture(conn, relid, [1, 2])
    database.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT id FROM t')")
    return relid


@pytest.fixture(autouse=True)
def no_broker_role(installed: Database) -> None:
    """Roles belong to the server: an earlier test may have installed as a role that creates this one, in a database
    that is still there (a template) and grants it privileges."""
    granting = installed.superuser_sql(
        "SELECT DISTINCT d.datname FROM pg_shdepend AS s JOIN pg_database AS d ON d.oid = s.dbid "
        "WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = to_regrole('pgtrickle_broker')"
    )
    for (name,) in granting:
        with psycopg.connect(make_conninfo(installed.superuser_dsn, dbname=name), autocommit=True) as conn:
            conn.execute("DROP OWNED BY pgtrickle_broker")
    installed.superuser_sql("DROP ROLE IF EXISTS pgtrickle_broker")


@pytest.fixture
def broker_role(installed: Database, no_broker_role: None) -> Iterator[Database]:
    """As a DBA prepares it where the installer may not create roles."""
    installed.superuser_sql("CREATE ROLE pgtrickle_broker NOLOGIN; GRANT pgtrickle_broker TO app")
    with connect(installed.dsn, role="test") as conn:
        install(conn)
    yield installed
    installed.superuser_sql("DROP OWNED BY pgtrickle_broker; DROP ROLE pgtrickle_broker")


def as_broker(database: Database) -> psycopg.Connection[Any]:
    connection = database.connect()
    connection.execute("SET ROLE pgtrickle_broker")
    return connection


def test_broker_role_can_count(broker_role: Database) -> None:
    relid = captured(broker_role)
    before = broker_role.sql("SELECT pg_current_snapshot()::text")[0][0]
    broker_role.sql("INSERT INTO t VALUES (1, 'it''s {\"odd\"}'), (2, NULL)")
    broker_role.sql("TRUNCATE t")
    broker = as_broker(broker_role)
    assert broker.execute(
        "SELECT sources::int8[], counts "
        "FROM pgtrickle_changes._broker_counts(%s::int8[]::oid[], %s::text[]::pg_snapshot[])",
        ([relid, 1], [before, None]),
    ).fetchall() == [([relid], [3])]


def test_broker_role_can_do_nothing_else(broker_role: Database) -> None:
    relid = captured(broker_role)
    broker = as_broker(broker_role)
    for text in (
        "SELECT FROM t",
        "SELECT FROM s",
        "SELECT FROM pgtrickle.pgt_stream_tables",
        "SELECT FROM pgtrickle.pgt_status()",
        f"SELECT FROM pgtrickle_changes.changes_{relid}",
        f"SELECT pgtrickle_changes.capture_{relid}()",
        "CREATE TABLE pgtrickle_changes.x (a int)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            broker.execute(text)
    # whatever is in our schemas, by the catalog
    assert (
        broker.execute(
            "SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'pgtrickle_changes' AND c.relkind IN ('r', 'v', 'S', 'm', 'f', 'p') AND "
            "(has_any_column_privilege(c.oid, 'SELECT, INSERT, UPDATE') "
            "OR has_table_privilege(c.oid, 'DELETE, TRUNCATE'))"
        ).fetchall()
        == []
    )
    assert broker.execute(
        "SELECT p.proname FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace "
        "WHERE n.nspname = 'pgtrickle_changes' AND has_function_privilege(p.oid, 'EXECUTE') ORDER BY 1"
    ).fetchall() == [("_broker_counts",), ("_note_move",)]  # the latter notes something for the session alone
    assert broker.execute("SELECT has_schema_privilege('pgtrickle', 'USAGE')").fetchone() == (False,)


def test_nobody_else_may_ask(broker_role: Database, make_role: Any) -> None:
    relid = captured(broker_role)
    other = make_role(broker_role)
    broker_role.superuser_sql(f"GRANT USAGE ON SCHEMA pgtrickle_changes TO {other.info.user}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        other.execute(COUNT, (relid,))


def test_sessions_take_the_role_where_they_can(broker_role: Database) -> None:
    relid = captured(broker_role)
    assert may_become_broker(broker_role.dsn)
    key = broker_role.sql("SELECT pgtrickle._origin()")[0][0]
    session = OriginSession(lambda: broker_role.dsn, key, Sources(), "broker")
    assert session.scan([(relid, None)]).sources.keys() == {relid}
    assert session.has_own_role
    assert session._conn is not None
    assert session._conn.execute("SELECT current_user, session_user").fetchone() == ("pgtrickle_broker", "app")
    session.close()


def test_without_the_role_sessions_are_who_they_are(installed: Database) -> None:
    relid = captured(installed)
    assert not may_become_broker(installed.dsn)
    key = installed.sql("SELECT pgtrickle._origin()")[0][0]
    session = OriginSession(lambda: installed.dsn, key, Sources(), "broker")
    assert session.scan([(relid, None)]).sources.keys() == {relid}
    assert not session.has_own_role
    session.close()


def test_an_installer_that_may_create_roles_makes_it(database: Database) -> None:
    database.superuser_sql("CREATE ROLE maker LOGIN PASSWORD 'x' CREATEROLE; GRANT CREATE ON DATABASE "
                           f"{database.name} TO maker")  # fmt: skip
    dsn = database.server.dsn(database.name, user="maker", password="x")
    try:
        for _ in range(2):
            with connect(dsn, role="test") as conn:
                install(conn)
        assert may_become_broker(dsn)
    finally:
        database.superuser_sql(
            "DROP SCHEMA IF EXISTS pgtrickle, pgtrickle_changes CASCADE; DROP OWNED BY maker; "
            "DROP ROLE IF EXISTS pgtrickle_broker; DROP ROLE maker"
        )
