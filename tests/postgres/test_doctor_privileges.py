"""`pgtrickle doctor`: privileges that the service role does not need, and doors to what only it should read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from pgtrickle.capture.install import ensure_capture
from pgtrickle.cli.app import app
from pgtrickle.db.connect import TRANSACTION, connect
from pgtrickle.db.service import DEFAULT_SERVICE_ROLE, install_as_service
from pgtrickle.maintain.privileges import Privilege, closed_functions, excess, rights_in
from tests.conftest import Database

SERVICE = DEFAULT_SERVICE_ROLE
MADE = (SERVICE, "pgtrickle_broker", "team", "idle", "reader", "boss")


@pytest.fixture
def service(database: Database) -> Iterator[Database]:
    """Installed by a superuser as a service role, with a stream table of role `team`."""
    with connect(database.superuser_dsn, role="install", pooler=TRANSACTION, as_service=False) as conn:
        install_as_service(conn)
    database.superuser_sql(
        f"CREATE ROLE team; CREATE ROLE idle; CREATE ROLE reader; CREATE ROLE boss SUPERUSER; GRANT team TO {SERVICE};"
        "CREATE SCHEMA shop AUTHORIZATION team; GRANT USAGE ON SCHEMA pgtrickle TO team;"
        f"GRANT USAGE, CREATE ON SCHEMA shop TO {SERVICE};"
        "SET ROLE team; CREATE TABLE shop.t (a int);"
        "SELECT pgtrickle.create_stream_table('shop.s', 'SELECT a FROM shop.t');"
        "SELECT pgtrickle.create_stream_table('shop.p', 'SELECT a FROM shop.t', partition_by => 'HASH(a)'); RESET ROLE"
    )
    with connect(database.superuser_dsn, role="capture", autocommit=True) as conn:
        ((relid,),) = conn.execute("SELECT 'shop.t'::regclass::oid::int8").fetchall()
        ensure_capture(conn, relid, [1])
    yield database
    for role in reversed(MADE):
        database.superuser_sql(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def found(database: Database, **options: Any) -> list[Privilege]:
    with connect(database.superuser_dsn, role="test", **options) as conn:
        rights = rights_in(conn)
    assert rights is not None
    return excess([rights])


def bad(database: Database) -> list[str]:
    return [one.what for one in found(database) if one.is_bad]


def test_nothing_to_say_after_install(service: Database) -> None:
    assert found(service) == []
    done = CliRunner().invoke(app, ["doctor", "--server", service.superuser_dsn, "--json"])
    lines = [f for f in json.loads(done.stdout)["findings"] if f["what"] == "privileges" and SERVICE in f["detail"]]
    assert lines == [
        {"what": "privileges", "ok": True, "detail": f"{SERVICE} has exactly the privileges that it needs"}
    ]


@pytest.mark.parametrize(
    ("grant", "says"),
    [
        (f"ALTER ROLE {SERVICE} SUPERUSER", "it is a superuser"),
        (f"ALTER ROLE {SERVICE} CREATEROLE", "it has CREATEROLE"),
        (f"ALTER ROLE {SERVICE} CREATEDB", "it has CREATEDB"),
        (f"ALTER ROLE {SERVICE} REPLICATION", "it has REPLICATION"),
        (f"ALTER ROLE {SERVICE} BYPASSRLS", "it has BYPASSRLS"),
        (f"GRANT boss TO {SERVICE}", "it is a member of superuser boss (boss)"),
        ("GRANT boss TO team", "it is a member of superuser boss (team -> boss)"),
        ("ALTER ROLE team BYPASSRLS", "as a member of team (team) it can have BYPASSRLS"),
        (f"GRANT pg_read_server_files TO {SERVICE}", "it is a member of pg_read_server_files (pg_read_server_files)"),
        (f"GRANT pg_execute_server_program TO {SERVICE}", "it is a member of pg_execute_server_program"),
        (f"GRANT pg_write_all_data TO {SERVICE}", "it is a member of pg_write_all_data"),
        ("GRANT pg_read_all_data TO team", "it is a member of pg_read_all_data (team -> pg_read_all_data)"),
        (f"GRANT team TO {SERVICE} WITH ADMIN OPTION", "it may grant role team to others"),
        ("GRANT CREATE ON SCHEMA pgtrickle TO reader", "reader has CREATE on schema pgtrickle"),
        ("GRANT CREATE ON SCHEMA pgtrickle TO PUBLIC", "PUBLIC has CREATE on schema pgtrickle"),
        ("GRANT USAGE ON SCHEMA pgtrickle_changes TO reader", "reader has USAGE on schema pgtrickle_changes"),
        (
            "GRANT SELECT ON pgtrickle_changes.caller_key TO reader",
            "reader has SELECT on pgtrickle_changes.caller_key, which is private",
        ),
        ("GRANT SELECT ON pgtrickle.pgt_plans TO PUBLIC", "PUBLIC has SELECT on pgtrickle.pgt_plans, which is private"),
        ("GRANT SELECT (snapshot) ON pgtrickle.pgt_readers TO reader", "reader has SELECT on pgtrickle.pgt_readers"),
        (
            "GRANT SELECT ON pgtrickle.pgt_stream_tables TO reader",
            "reader has SELECT on column last_error_message of pgtrickle.pgt_stream_tables",
        ),
        (
            "GRANT SELECT (error_message) ON pgtrickle.pgt_refresh_history TO PUBLIC",
            "PUBLIC has SELECT on column error_message of pgtrickle.pgt_refresh_history",
        ),
        ("GRANT UPDATE ON pgtrickle.pgt_sources TO reader", "reader may write to pgtrickle.pgt_sources"),
        (
            "GRANT EXECUTE ON FUNCTION pgtrickle._authorize(bigint, text) TO PUBLIC",
            "PUBLIC may call pgtrickle._authorize(bigint,text), which is internal",
        ),
        (
            "GRANT TRIGGER ON shop.s TO reader",
            "reader may create triggers on stream table shop.s, which would run as it",
        ),
        ("ALTER TABLE shop.s OWNER TO team", "stream table shop.s belongs to team, not to it"),
    ],
)
def test_each_of_them_shows(service: Database, grant: str, says: str) -> None:
    service.superuser_sql(grant)
    try:
        assert [line for line in bad(service) if line.startswith(says)], bad(service)
        done = CliRunner().invoke(app, ["doctor", "--server", service.superuser_dsn])
        assert done.exit_code == 1
        assert f"BAD  privileges: {SERVICE}: {says}" in done.stdout
    finally:
        service.superuser_sql(f"ALTER ROLE {SERVICE} NOSUPERUSER")


def test_buffers_are_looked_at(service: Database) -> None:
    """Also where the wrong grant came by default privileges."""
    service.superuser_sql(f"ALTER DEFAULT PRIVILEGES FOR ROLE {SERVICE} GRANT SELECT ON TABLES TO reader")
    ((relid,),) = service.superuser_sql("SELECT 'shop.t'::regclass::oid::int8")
    service.superuser_sql(f"GRANT SELECT ON pgtrickle_changes.changes_{relid} TO reader")
    assert bad(service) == [f"reader has SELECT on pgtrickle_changes.changes_{relid}, which is private"]
    service.superuser_sql(f"REVOKE ALL ON pgtrickle_changes.changes_{relid} FROM reader")
    with connect(service.superuser_dsn, role="test", autocommit=True) as conn:
        conn.execute("CREATE TABLE pgtrickle_changes.stage_1 (a int)")
    assert bad(service) == ["reader has SELECT on pgtrickle_changes.stage_1, which is private"]


def test_install_closes_schemas_that_were_opened(service: Database) -> None:
    service.superuser_sql("GRANT USAGE, CREATE ON SCHEMA pgtrickle_changes TO reader, PUBLIC")
    service.superuser_sql("GRANT CREATE ON SCHEMA pgtrickle TO reader")
    assert len(bad(service)) == 5
    with connect(service.superuser_dsn, role="install", pooler=TRANSACTION, as_service=False) as conn:
        install_as_service(conn)
    assert bad(service) == []


def test_what_is_worth_knowing_is_no_failure(service: Database) -> None:
    service.superuser_sql(
        f"GRANT idle, pg_monitor TO {SERVICE}; CREATE TABLE shop.other (a int);"
        f"ALTER TABLE shop.other OWNER TO {SERVICE};"
        "GRANT CREATE ON SCHEMA public TO PUBLIC;"
        "CREATE FUNCTION shop.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER told AFTER INSERT ON shop.s EXECUTE FUNCTION shop.f()"
    )
    listed = found(service)
    assert not any(one.is_bad for one in listed)
    text = "\n".join(one.what for one in listed)
    assert "it is a member of idle, which owns no source and is not an author" in text
    assert "it is a member of pg_monitor" in text
    assert "it owns 1 table that pgtrickle does not use (shop.other)" in text
    assert "PUBLIC has CREATE on schema public" in text
    assert "trigger told of stream table shop.s runs code of postgres as it" in text
    assert "member of team" not in text
    done = CliRunner().invoke(app, ["doctor", "--server", service.superuser_dsn])
    assert f"ok   privileges: {SERVICE}: it is a member of idle" in done.stdout
    assert "BAD  privileges" not in done.stdout


def test_role_that_another_database_needs_is_needed(service: Database) -> None:
    with connect(service.superuser_dsn, role="test") as conn:
        one = rights_in(conn)
    assert one is not None
    here = {"team": True, "idle": False}
    elsewhere = {"team": False, "idle": True}
    rights = [type(one)("a", SERVICE, (), here), type(one)("b", SERVICE, (), elsewhere)]
    assert excess(rights) == []


def test_installation_of_an_ordinary_role_is_fine(installed: Database) -> None:
    assert not any(one.is_bad for one in found(installed))


def test_scripts_say_which_functions_are_closed(installed: Database) -> None:
    closed = closed_functions()
    assert len(closed) > 10
    for name in closed:
        assert installed.sql("SELECT has_function_privilege('public', %s, 'EXECUTE')", name) == [(False,)], name
