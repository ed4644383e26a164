"""A superuser installs as a service role, and works as it; what it installed before is handed over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from pgtrickle.capture.install import ensure_capture
from pgtrickle.cli.app import app
from pgtrickle.db.connect import OFF, SESSION, TRANSACTION, connect
from pgtrickle.db.handover import hand_over, take_over
from pgtrickle.db.install import install, uninstall
from pgtrickle.db.service import DEFAULT_SERVICE_ROLE, install_as_service
from pgtrickle.errors import ConfigError
from tests.conftest import Database

STRANGERS = """
    SELECT c.oid::regclass::text FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE (n.nspname ~ '^pgtrickle' OR c.oid IN (SELECT pgt_relid FROM pgtrickle.pgt_stream_tables))
      AND pg_get_userbyid(c.relowner) <> %(role)s
    UNION ALL
    SELECT c.oid::regclass::text
    FROM pg_partition_tree(to_regclass('public.r')) AS t
    JOIN pg_class AS c ON c.oid = t.relid
    WHERE pg_get_userbyid(c.relowner) <> %(role)s AND t.level > 0
    UNION ALL
    SELECT p.oid::regprocedure::text FROM pg_proc AS p
    JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE n.nspname ~ '^pgtrickle' AND pg_get_userbyid(p.proowner) <> %(role)s
    UNION ALL
    SELECT n.nspname FROM pg_namespace AS n WHERE n.nspname ~ '^pgtrickle' AND pg_get_userbyid(n.nspowner) <> %(role)s
    UNION ALL
    SELECT t.typname FROM pg_type AS t
    JOIN pg_namespace AS n ON n.oid = t.typnamespace
    WHERE n.nspname ~ '^pgtrickle' AND pg_get_userbyid(t.typowner) <> %(role)s
    UNION ALL
    SELECT p.pubname FROM pg_publication AS p WHERE p.pubname ~ '^pgt_pub' AND pg_get_userbyid(p.pubowner) <> %(role)s
"""


def strangers(database: Database, role: str) -> list[str]:
    with psycopg.connect(database.superuser_dsn) as conn:
        return [name for (name,) in conn.execute(STRANGERS, {"role": role}).fetchall()]


@pytest.fixture
def roles(database: Database) -> Iterator[Callable[..., str]]:
    """Makes roles, and drops those and what installing has made."""
    made = [DEFAULT_SERVICE_ROLE, "pgtrickle_broker"]

    def make(name: str, options: str = "LOGIN PASSWORD 'x'") -> str:
        database.superuser_sql(f"CREATE ROLE {name} {options}")
        made.append(name)
        return name

    yield make
    for role in reversed(made):
        if database.superuser_sql("SELECT 1 FROM pg_roles WHERE rolname = %s", role):
            database.superuser_sql(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def as_role(database: Database, role: str) -> str:
    return database.server.dsn(database.name, user=role, password="x")


def set_up(database: Database, role: str | None = None) -> Any:
    with connect(database.superuser_dsn, role="install", pooler=TRANSACTION, as_service=False) as conn:
        return install_as_service(conn, role)


@pytest.mark.usefixtures("roles")
def test_superuser_installs_as_a_role_of_its_own(database: Database) -> None:
    database.sql("CREATE TABLE t (a int)")
    found = set_up(database)
    assert found.role == DEFAULT_SERVICE_ROLE
    assert strangers(database, DEFAULT_SERVICE_ROLE) == []
    ((*attributes,),) = database.superuser_sql(
        "SELECT rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls, rolcanlogin FROM pg_roles "
        "WHERE rolname = %s",
        DEFAULT_SERVICE_ROLE,
    )
    assert attributes == [False] * 6
    assert found.needed == ()
    assert set(found.suggested) >= {
        f"GRANT app TO {DEFAULT_SERVICE_ROLE};",
        f"GRANT USAGE, CREATE ON SCHEMA public TO {DEFAULT_SERVICE_ROLE};",
    }
    # what it prints is enough
    database.superuser_sql(" ".join(found.suggested))
    database.superuser_sql("GRANT USAGE ON SCHEMA pgtrickle TO app")
    database.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM t')")
    assert set_up(database).suggested == ()
    assert strangers(database, DEFAULT_SERVICE_ROLE) == []


@pytest.mark.usefixtures("roles")
def test_command_prints_what_is_left(database: Database) -> None:
    database.sql("CREATE SCHEMA app; CREATE TABLE app.t (a int)")
    database.superuser_sql("CREATE TABLE public.theirs (a int)")
    done = CliRunner().invoke(app, ["install", database.superuser_dsn])
    assert done.exit_code == 0, done.output
    assert "GRANT app TO pgtrickle_service;" in done.output
    assert "GRANT USAGE, CREATE ON SCHEMA app TO pgtrickle_service;" in done.output
    assert "ALTER ROLE pgtrickle_service LOGIN PASSWORD '...';" in done.output
    assert "GRANT postgres" not in done.output
    assert "ALTER TABLE public.theirs OWNER TO <team>" in done.output
    assert database.server.password not in done.output


def test_ordinary_role_installs_as_itself(database: Database) -> None:
    with connect(database.dsn, role="install", pooler=TRANSACTION, as_service=False) as conn:
        found = install_as_service(conn)
    assert (found.role, found.is_service, found.suggested) == ("app", False, ())
    assert strangers(database, "app") == []


def test_ordinary_role_that_may_create_roles_can_ask(database: Database, roles: Callable[..., str]) -> None:
    maker = roles("maker", "LOGIN PASSWORD 'x' CREATEROLE")
    database.superuser_sql(f"ALTER DATABASE {database.name} OWNER TO maker")
    try:
        with connect(as_role(database, maker), role="install", pooler=TRANSACTION, as_service=False) as conn:
            found = install_as_service(conn, "helper")
            assert conn.execute("SELECT current_user").fetchone() == ("maker",)
        assert (found.role, found.is_service) == ("helper", True)
        assert strangers(database, "helper") == []
    finally:
        database.superuser_sql(f"ALTER DATABASE {database.name} OWNER TO app")
        database.superuser_sql("DROP OWNED BY helper CASCADE; DROP ROLE helper")


def test_ordinary_role_without_that_is_told(database: Database) -> None:
    with (
        connect(database.dsn, role="install", pooler=TRANSACTION, as_service=False) as conn,
        pytest.raises(ConfigError, match="may not create roles"),
    ):
        install_as_service(conn, "helper")


@pytest.mark.usefixtures("roles")
def test_superuser_is_no_service_role(database: Database) -> None:
    with pytest.raises(ConfigError, match="must not be"):
        set_up(database, "postgres")


def test_what_an_ordinary_role_installed_stays_its_own(installed: Database) -> None:
    assert set_up(installed).role == "app"
    assert strangers(installed, "app") == []


@pytest.mark.usefixtures("roles")
@pytest.mark.parametrize("mode", [OFF, SESSION, TRANSACTION])
def test_superuser_works_as_the_service_role(database: Database, mode: str) -> None:
    set_up(database)
    with connect(database.superuser_dsn, role="test", autocommit=True, pooler=mode) as conn:
        for _ in range(2):
            assert conn.execute("SELECT current_user, session_user").fetchone() == (DEFAULT_SERVICE_ROLE, "postgres")
        with conn.transaction():
            assert conn.execute("SELECT current_user").fetchone() == (DEFAULT_SERVICE_ROLE,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("SELECT * FROM pg_catalog.pg_authid")
        # executors, too
        with take_over(hand_over(conn, snapshot=False), role="stage", in_snapshot=False) as other:
            assert other.execute("SELECT current_user").fetchone() == (DEFAULT_SERVICE_ROLE,)
    with connect(database.superuser_dsn, role="apply", pooler=mode, as_service=False) as conn:
        assert conn.execute("SELECT current_user").fetchone() == ("postgres",)


def test_member_works_as_the_service_role(database: Database, roles: Callable[..., str]) -> None:
    set_up(database)
    member, stranger = roles("member"), roles("stranger")
    database.superuser_sql(f"GRANT {DEFAULT_SERVICE_ROLE} TO {member}")
    with connect(as_role(database, member), role="test") as conn:
        assert conn.execute("SELECT current_user").fetchone() == (DEFAULT_SERVICE_ROLE,)
    with connect(as_role(database, stranger), role="test") as conn:
        assert conn.execute("SELECT current_user").fetchone() == (stranger,)


def former(database: Database) -> None:
    """As a superuser installed before there were service roles, with all kinds of objects."""
    with connect(database.superuser_dsn, role="install", autocommit=True, as_service=False) as conn:
        install(conn)
    database.sql("CREATE TABLE t (a int PRIMARY KEY)")
    database.superuser_sql("GRANT USAGE ON SCHEMA pgtrickle TO app")
    database.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM t')")
    database.sql("SELECT pgtrickle.create_stream_table('r', 'SELECT a FROM s', partition_by => 'HASH(a, 2)')")
    with connect(database.superuser_dsn, role="capture", autocommit=True) as conn:
        for name, key in (("t", 1), ("s", 1)):
            ((relid,),) = conn.execute("SELECT %s::regclass::oid::int8", [f"public.{name}"]).fetchall()
            ensure_capture(conn, relid, [key])
        conn.execute("SELECT pgtrickle.stream_table_to_publication('public.s')")
        conn.execute("CREATE TABLE pgtrickle_changes.stage_1 (a int)")


@pytest.mark.usefixtures("roles")
def test_installation_of_a_superuser_is_handed_over(database: Database) -> None:
    former(database)
    assert strangers(database, "postgres") == []
    with pytest.raises(ConfigError, match="nothing was changed") as refused:
        set_up(database)
    hint = refused.value.hint or ""
    assert "CREATE ROLE" in hint
    assert "GRANT app TO pgtrickle_service;" in hint
    assert "GRANT USAGE, CREATE ON SCHEMA public TO pgtrickle_service;" in hint
    assert strangers(database, "postgres") == []
    assert database.superuser_sql("SELECT 1 FROM pg_roles WHERE rolname = %s", DEFAULT_SERVICE_ROLE) == []
    database.superuser_sql(hint.split(": ", 1)[1])

    # writers go on meanwhile, and none of their changes is lost
    stop, written = threading.Event(), []

    def write() -> None:
        number = 0
        with psycopg.connect(database.dsn, autocommit=True) as conn:
            while not stop.is_set():
                number += 1
                conn.execute("INSERT INTO t VALUES (%s)", [number])
                written.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while len(written) < 20:
            stop.wait(0.01)
        found = set_up(database)
        before = len(written)
        while len(written) < before + 20:
            stop.wait(0.01)
    finally:
        stop.set()
        writer.join()
    assert (found.role, found.needed) == (DEFAULT_SERVICE_ROLE, ())
    assert strangers(database, DEFAULT_SERVICE_ROLE) == []
    ((relid,),) = database.sql("SELECT 't'::regclass::oid::int8")
    captured = database.superuser_sql(f"SELECT c1 FROM pgtrickle_changes.changes_{relid} ORDER BY c1")
    assert [n for (n,) in captured] == written
    assert database.sql("SELECT pgt_schema, pgt_name, created_by FROM pgtrickle.pgt_stream_tables ORDER BY pgt_id") == [
        ("public", "s", "app"), ("public", "r", "app"),
    ]  # fmt: skip


@pytest.mark.usefixtures("roles")
def test_hand_over_waits_for_writers_and_does_not_harm_them(database: Database) -> None:
    former(database)
    database.superuser_sql("CREATE ROLE pgtrickle_service; GRANT app TO pgtrickle_service")
    database.superuser_sql("GRANT USAGE, CREATE ON SCHEMA public TO pgtrickle_service")
    busy = database.connect(autocommit=False)
    busy.execute("INSERT INTO t VALUES (1)")
    done = threading.Thread(target=set_up, args=(database,))
    done.start()
    done.join(1.0)
    assert done.is_alive()
    busy.execute("INSERT INTO t VALUES (2)")
    busy.commit()
    done.join(120)
    assert not done.is_alive()
    assert strangers(database, DEFAULT_SERVICE_ROLE) == []


def test_ordinary_role_does_not_take_what_a_superuser_installed(database: Database) -> None:
    with connect(database.superuser_dsn, role="install", autocommit=True, as_service=False) as conn:
        install(conn)
    with (
        connect(database.dsn, role="install", pooler=TRANSACTION, as_service=False) as conn,
        pytest.raises(ConfigError, match="installed by superuser postgres"),
    ):
        install_as_service(conn)


@pytest.mark.usefixtures("roles")
def test_source_of_a_superuser_is_refused(database: Database) -> None:
    """Also when somebody has made the service role a member of the superuser."""
    set_up(database)
    database.superuser_sql("CREATE TABLE public.theirs (a int); GRANT SELECT ON public.theirs TO app")
    database.superuser_sql(f"GRANT USAGE, CREATE ON SCHEMA public TO {DEFAULT_SERVICE_ROLE}, app")
    database.superuser_sql("GRANT USAGE ON SCHEMA pgtrickle TO app")
    for grant in ("SELECT 1", f"GRANT postgres TO {DEFAULT_SERVICE_ROLE}"):
        database.superuser_sql(grant)
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
            database.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM public.theirs')")
        hint = refused.value.diag.message_hint or ""
        assert "ALTER TABLE public.theirs OWNER TO" in hint
        assert "GRANT postgres" not in hint


def test_uninstall_by_each_of_them(database: Database, roles: Callable[..., str]) -> None:
    member = roles("member", "LOGIN PASSWORD 'x' NOINHERIT")
    for dsn in (database.superuser_dsn, as_role(database, member)):
        set_up(database)
        database.superuser_sql(f"GRANT {DEFAULT_SERVICE_ROLE} TO {member}")
        with connect(dsn, role="install", pooler=TRANSACTION, as_service=False) as conn:
            uninstall(conn)
        assert database.superuser_sql("SELECT 1 FROM pg_namespace WHERE nspname ~ '^pgtrickle'") == []
