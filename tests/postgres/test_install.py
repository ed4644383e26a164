"""Installing and removing, as a role that owns its database and nothing more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from pgtrickle.capture.install import ensure_capture
from pgtrickle.db import SCHEMA_VERSION, connect, install, installed_version, translate, uninstall
from pgtrickle.errors import (
    ConfigError,
    DefinitionError,
    InexactValueError,
    PgtrickleError,
    SourceChangedError,
    TransientError,
)
from tests.conftest import Database

LEFTOVERS = """
    SELECT 'relation ' || n.nspname || '.' || c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid =
        c.relnamespace WHERE c.oid >= 16384
    UNION ALL SELECT 'function ' || oid::regprocedure FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT 'schema ' || nspname FROM pg_namespace WHERE oid >= 16384 AND nspname !~ '^pg_(toast_)?temp_'
    UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 'type ' || typname FROM pg_type WHERE oid >= 16384
"""


def test_install_is_idempotent_and_versioned(database: Database) -> None:
    with connect(database.dsn, role="test") as conn:
        assert installed_version(conn) is None
        install(conn)
        install(conn)
        assert installed_version(conn) == SCHEMA_VERSION
    assert database.sql("SELECT count(*) FROM pgtrickle.pgt_schema_version") == [(1,)]
    assert database.sql("SELECT pgtrickle.version() <> ''") == [(True,)]


def test_install_keeps_catalog_rows(installed: Database) -> None:
    installed.sql("CREATE TABLE t (a int); SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM t')")
    with connect(installed.dsn, role="test") as conn:
        install(conn)
    assert installed.sql("SELECT name FROM pgtrickle.pgt_status()") == [("public.s",)]


def test_install_brings_subscribers_to_a_database_of_before(installed: Database) -> None:
    installed.sql(
        "UPDATE pgtrickle.pgt_schema_version SET version = 1; "
        "DROP TABLE pgtrickle.pgt_subscribers, pgtrickle.pgt_publications CASCADE; "
        "DROP FUNCTION pgtrickle._buffer_sizes(text); "
        "CREATE FUNCTION pgtrickle._buffer_sizes() RETURNS TABLE (source_relid oid) LANGUAGE sql AS 'SELECT 0::oid'"
    )
    with connect(installed.dsn, role="test", autocommit=True) as conn:
        install(conn)
    assert installed.sql("SELECT * FROM pgtrickle.change_buffer_sizes()") == []
    assert installed.sql("SELECT * FROM pgtrickle.subscribers()") == []


def test_install_survives_a_second_installer_at_the_same_time(database: Database) -> None:
    def run(_: int) -> None:
        with connect(database.dsn, role="test") as conn:
            install(conn)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert database.sql("SELECT count(*) FROM pgtrickle.pgt_schema_version") == [(1,)]


def test_install_refuses_a_newer_catalog(installed: Database) -> None:
    installed.sql("INSERT INTO pgtrickle.pgt_schema_version (version, package_version) VALUES (999, 'later')")
    with connect(installed.dsn, role="test") as conn, pytest.raises(ConfigError, match="999"):
        install(conn)


def test_every_object_has_a_comment(installed: Database) -> None:
    silent = installed.sql(
        """
        SELECT p.oid::regprocedure::text FROM pg_proc AS p
        WHERE p.pronamespace = 'pgtrickle'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL
        UNION ALL
        SELECT c.oid::regclass::text FROM pg_class AS c
        WHERE c.relnamespace = 'pgtrickle'::regnamespace AND c.relkind IN ('r', 'v') AND obj_description(c.oid,
            'pg_class') IS NULL
        """
    )
    assert silent == []


def test_security_definer_functions_pin_search_path(installed: Database) -> None:
    """All but capture functions, which qualify every name and operator (test_capture_writes tries a hostile path)."""
    loose = installed.sql(
        """
        SELECT oid::regprocedure::text FROM pg_proc
        WHERE prosecdef AND pronamespace IN ('pgtrickle'::regnamespace, 'pgtrickle_changes'::regnamespace)
          AND NOT coalesce(proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)
        """
    )
    assert loose == []


@pytest.mark.parametrize("drop_tables", [False, True])
def test_uninstall_leaves_nothing_else_behind(database: Database, drop_tables: bool) -> None:
    database.sql("CREATE TABLE t (a int)")
    before = set(database.sql(LEFTOVERS))
    with connect(database.dsn, role="test", autocommit=True) as conn:
        install(conn)
        conn.execute("SELECT pgtrickle.create_stream_table('public.s', 'SELECT a FROM public.t')")
        conn.execute("INSERT INTO public.s VALUES (7, 1)")
        (relid,) = conn.execute("SELECT 'public.t'::regclass::oid::int8").fetchone() or (0,)
        ensure_capture(conn, relid, [1])
        uninstall(conn, drop_tables=drop_tables)
        assert installed_version(conn) is None
        uninstall(conn)
    left = set(database.sql(LEFTOVERS)) - before
    if drop_tables:
        assert left == set()
    else:
        assert left == {("relation public.s",), ("type s",), ("type _s",)}
        assert database.sql("SELECT * FROM s") == [(7,)]
    database.sql("INSERT INTO t VALUES (1)")


def test_sessions_pin_their_settings(installed: Database) -> None:
    installed.superuser_sql(
        f"ALTER DATABASE {installed.name} SET datestyle = 'German'; ALTER DATABASE {installed.name} "
        f"SET statement_timeout = '1s'"
    )
    with connect(installed.dsn, role="test") as conn:
        found = conn.execute(
            "SELECT current_setting('datestyle'), current_setting('statement_timeout'), "
            "current_setting('search_path'), "
            "current_setting('application_name'), current_setting('intervalstyle'), "
            "current_setting('extra_float_digits')"
        ).fetchone()
    assert found == ("ISO, MDY", "0", "pg_catalog, pg_temp", "pgtrickle/test", "postgres", "1")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 1/0", DefinitionError),
        ("SELECT * FROM nowhere", SourceChangedError),
        ("SELECT nothing FROM pg_class", SourceChangedError),
        ("SELEC", DefinitionError),
        ("SELECT 2147483647::int4 + 1", InexactValueError),
        ("SELECT '294277-01-01'::timestamp", InexactValueError),
        ("SELECT * FROM pg_authid", ConfigError),
        ("SELECT pg_terminate_backend(pg_backend_pid())", TransientError),
        ("SET LOCAL statement_timeout = 1; SELECT pg_sleep(1)", TransientError),
    ],
)
def test_driver_errors_say_who_has_to_act(installed: Database, query: str, expected: type[PgtrickleError]) -> None:
    import psycopg

    with pytest.raises(psycopg.Error) as caught:
        installed.sql(query)
    error = translate(caught.value)
    assert type(error) is expected
    assert "\n" not in error.one_line()


def test_connect_to_nothing_is_transient() -> None:
    with pytest.raises(TransientError):
        connect("host=127.0.0.1 port=1 dbname=x", role="test")
