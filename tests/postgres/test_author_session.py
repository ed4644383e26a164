"""The session in which an author's code runs: what that code cannot do there, and that nothing of it is left. On
PostgreSQL 18, and on what Debian has where it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.db.author import AuthorSession, Copy, as_author
from pgtrickle.db.connect import SESSION, TRANSACTION, Connection, connect, translated
from pgtrickle.db.handover import Handover, hand_over
from pgtrickle.errors import ConfigError, DefinitionError, InvariantError
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import ROLE, ROLE_PASSWORD, Database, create_database, drop_database, prepare_server

MALLORY = "mallory"

CODE = """
CREATE TABLE evil.t (a int);
CREATE SEQUENCE evil.s;
CREATE TABLE evil.log (who text);
GRANT ALL ON evil.log TO PUBLIC;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
CREATE FUNCTION evil.who() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN current_user; END $$;
CREATE FUNCTION evil.noted() RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO evil.log VALUES (current_user); RETURN current_user; END $$;
CREATE FUNCTION evil.fires() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO evil.log VALUES (current_user); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON evil.t DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION evil.fires();
CREATE FUNCTION evil.attempt(command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command;
    RETURN 'done as ' || current_user;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' as ' || current_user;
END
$$;
CREATE FUNCTION evil.checked(v text) RETURNS bool LANGUAGE plpgsql AS
    $$ BEGIN RAISE NOTICE 'checked by %', current_user; RETURN true; END $$;
CREATE DOMAIN evil.dom AS text CHECK (evil.checked(VALUE));
CREATE TYPE evil.holder AS (d evil.dom);
"""

# What PostgreSQL itself refuses.
REFUSED = {
    "RESET ROLE": "42501",
    "SET ROLE app": "42501",
    "SET ROLE NONE": "42501",
    "SET LOCAL ROLE app": "42501",
    "SET SESSION AUTHORIZATION app": "42501",
    "SET SESSION AUTHORIZATION DEFAULT": "42501",
    "RESET SESSION AUTHORIZATION": "42501",
    "SELECT set_config('role', 'app', false)": "42501",
    "SELECT set_config('role', 'none', true)": "42501",
    "SELECT set_config('session_authorization', 'app', false)": "42501",
    "SET session_replication_role = replica": "42501",
    "COMMIT": "0A000",
    "DO $d$ BEGIN COMMIT; END $d$": "2D000",
    "DISCARD ALL": "25001",
    "SET TRANSACTION READ WRITE": "25001",
    "SELECT set_config('transaction_read_only', 'off', true)": "25001",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED": "25001",
    "INSERT INTO evil.t VALUES (1)": "25006",
    "SELECT nextval('evil.s')": "25006",
    "CREATE TEMPORARY TABLE pg_class (a int)": "25006",
    "CREATE TABLE evil.loot (a text)": "25006",
    "CREATE OR REPLACE FUNCTION pg_temp.__pgt_run(author text, first text[], query text) RETURNS SETOF record "
    "LANGUAGE sql AS 'SELECT 1'": "25006",
    "GRANT mallory TO PUBLIC": "25006",
    "DROP OWNED BY mallory": "25006",
    "ALTER ROLE mallory SUPERUSER": "25006",
    "DROP TABLE pg_temp.shown": "25006",
    "INSERT INTO pg_temp.shown VALUES (1, 'x')": "42501",
    "DELETE FROM pg_temp.shown": "42501",
    "SELECT * FROM hidden.secret": "42501",
    "LOCK TABLE hidden.secret": "42501",
    "COPY evil.t TO PROGRAM 'id'": "42501",
    "COPY evil.t TO STDOUT": "0A000",
    "SELECT pg_read_file('/etc/passwd')": "42501",
    "SELECT lo_import('/etc/passwd')": "42501",
    "LOAD 'plpgsql'": "42501",
    "SELECT pg_terminate_backend(pg_backend_pid())": "42501",
    "SELECT pg_terminate_backend({other})": "42501",
    "SELECT pg_cancel_backend({other})": "42501",
    "SELECT pg_export_snapshot()": "25001",
}
# What it allows, in a session that ends with it.
HARMLESS = (
    "SET search_path = evil",
    "SELECT set_config('search_path', 'evil', false)",
    "SET statement_timeout = 1",
    "SET client_encoding = 'SJIS'",
    "SET standard_conforming_strings = off",
    "SET row_security = off",
    "SET check_function_bodies = off",
    "SET default_transaction_read_only = on",
    "SET plan_cache_mode = force_custom_plan",
    "RESET ALL",
    "DISCARD TEMP",
    "DISCARD PLANS",
    "PREPARE _pg3_0 AS SELECT evil.noted()",
    "PREPARE pgtrickle_1 AS SELECT evil.noted()",
    "DECLARE c CURSOR FOR SELECT evil.noted()",
    "DECLARE c CURSOR WITH HOLD FOR SELECT evil.noted()",
    "LISTEN pgtrickle_wake",
    "NOTIFY pgtrickle_wake",
    "SELECT pg_notify('pgtrickle_wake', 'x')",
    "SELECT pg_advisory_lock(42)",
    "SET CONSTRAINTS ALL IMMEDIATE",
    "SELECT setseed(0.5)",
)


def homes() -> list[Path | None]:
    return [None, *sorted(p.parents[1] for p in Path("/usr/lib/postgresql").glob("*/bin/initdb"))]


@pytest.fixture(scope="module")
def start_server() -> Iterator[Callable[[Path], EmbeddedPostgres]]:
    """Starts each version once, however the tests of the module are shuffled."""
    with ExitStack() as running:

        @cache
        def start(home: Path) -> EmbeddedPostgres:
            server = running.enter_context(EmbeddedPostgres.create(durable=False, home=home))
            prepare_server(server)
            return server

        yield start


@pytest.fixture(params=homes(), ids=lambda home: "embedded" if home is None else home.name)
def server(
    request: pytest.FixtureRequest, start_server: Callable[[Path], EmbeddedPostgres], pg_server: EmbeddedPostgres
) -> EmbeddedPostgres:
    return pg_server if request.param is None else start_server(request.param)


@pytest.fixture
def prey(server: EmbeddedPostgres) -> Iterator[Database]:
    """A database with something to take, and a role that may not."""
    database = create_database(server, "prey")
    database.superuser_sql(
        f"CREATE ROLE {MALLORY} LOGIN PASSWORD 'x'; GRANT {MALLORY} TO {ROLE}; "
        f"CREATE SCHEMA evil AUTHORIZATION {MALLORY}"
    )
    database.sql("CREATE SCHEMA hidden; CREATE TABLE hidden.secret (s text); INSERT INTO hidden.secret VALUES ('x')")
    with psycopg.connect(server.dsn("prey", user=MALLORY, password="x"), autocommit=True) as conn:
        conn.execute(CODE)
    yield database
    database.close()
    drop_database(server, "prey")
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute(f"DROP ROLE {MALLORY}")


@pytest.fixture
def service(prey: Database) -> Iterator[Connection]:
    conn = connect(prey.dsn, role="test", autocommit=True)
    yield conn
    conn.close()


SHOWN = Copy("shown", "SELECT 1 AS a, 'b'::text AS b")


def attempt(place: Handover, command: str) -> str:
    query = "SELECT evil.attempt($command$" + command + "$command$)"
    with as_author(place, MALLORY, copies=[SHOWN]) as session:
        ((result,),) = session.rows(query, ["text"])
    return str(result)


def test_what_is_refused(prey: Database, service: Connection) -> None:
    other = prey.connect()
    place = hand_over(service, snapshot=False)
    for command, state in REFUSED.items():
        found = attempt(place, command.replace("{other}", str(other.info.backend_pid)))
        assert found == f"{state} as {MALLORY}", command
    assert other.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("pooler", ["off", SESSION, TRANSACTION])
def test_what_is_allowed_leaves_nothing(prey: Database, pooler: str) -> None:
    watch = prey.connect()
    watch.execute("LISTEN pgtrickle_wake")
    with connect(prey.dsn, role="test", autocommit=True, pooler=pooler) as service:
        place = hand_over(service, snapshot=False)
        for command in HARMLESS:
            assert attempt(place, command) == f"done as {MALLORY}", command
    assert prey.sql("SELECT * FROM evil.log") == []
    assert prey.superuser_sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'pgtrickle/author'") == []
    assert prey.superuser_sql("SELECT objid FROM pg_locks WHERE locktype = 'advisory'") == []
    assert list(watch.notifies(timeout=0.2)) == []
    assert prey.superuser_sql("SELECT proname FROM pg_proc WHERE proname ~ '^__pgt_'") == []


def test_nothing_is_committed(prey: Database, service: Connection) -> None:
    """Deferred triggers and cursors WITH HOLD run at a commit, then as the service."""
    commands = ["INSERT INTO evil.t VALUES (1)", "DECLARE c CURSOR WITH HOLD FOR SELECT evil.noted()"]
    with as_author(hand_over(service, snapshot=False), MALLORY, may_write=True) as session:
        assert session.rows("SELECT evil.who()", ["text"], first=commands) == [(MALLORY,)]
    assert prey.sql("SELECT * FROM evil.log") == []
    assert prey.sql("SELECT * FROM evil.t") == []


def test_it_is_used_once(service: Connection) -> None:
    with as_author(hand_over(service, snapshot=False), MALLORY) as session:
        session.rows("SELECT 1", ["int4"])
        with pytest.raises(InvariantError, match="cannot be reused"):
            session.rows("SELECT 1", ["int4"])


def test_it_sees_what_the_snapshot_sees(prey: Database, service: Connection) -> None:
    with service.transaction():
        service.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        service.execute("SELECT 1")
        place = hand_over(service)
        prey.superuser_sql("SET ROLE mallory; INSERT INTO evil.t VALUES (1)")
        for read in (_rows, _batches):
            with as_author(place, MALLORY) as session:
                assert read(session, "SELECT count(*)::text FROM evil.t") == ["0"]
    with as_author(hand_over(service, snapshot=False), MALLORY) as session:
        assert _rows(session, "SELECT count(*)::text FROM evil.t") == ["1"]


def _rows(session: AuthorSession, query: str) -> list[Any]:
    return [value for (value,) in session.rows(query, ["text"])]


def _batches(session: AuthorSession, query: str) -> list[Any]:
    import pyarrow as pa

    return [v for table in session.batches(query, ["text"], [pa.string()]) for v in table.column(0).to_pylist()]


@pytest.mark.parametrize("read", [_rows, _batches])
def test_rows_are_computed_as_the_author(service: Connection, read: Callable[[AuthorSession, str], list[Any]]) -> None:
    """The last of many as well: nothing is left to be computed when the function has ended."""
    query = "SELECT evil.who() || 'é''\\' || i FROM generate_series(1, 20000) AS i"
    with as_author(hand_over(service, snapshot=False), MALLORY) as session:
        found = read(session, query)
    assert found == [f"{MALLORY}é'\\{i}" for i in range(1, 20001)]


def test_analysing_runs_code_too(prey: Database, service: Connection) -> None:
    """Constants of arrays and composites are checked against the domains in them when a query is analysed."""
    told: list[str] = []
    service.add_notice_handler(lambda d: told.append(d.message_primary or ""))
    service.execute("CREATE TEMPORARY VIEW v AS SELECT '{x}'::evil.dom[], '(x)'::evil.holder")
    assert set(told) == {f"checked by {ROLE}"}  # which is why queries of others are not analysed as the service
    place = hand_over(service, snapshot=False)
    prey.superuser_sql(
        "CREATE OR REPLACE FUNCTION evil.checked(v text) RETURNS bool LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'checked by %', current_user; END $$"
    )
    for query in ("SELECT '{x}'::evil.dom[]", "SELECT '(x)'::evil.holder"):
        for look in (
            AuthorSession.describe,
            lambda s, q: s.look_at(q, "v"),
            lambda s, q: s.rows(f"EXPLAIN {q}", ["text"]),
        ):
            with pytest.raises(DefinitionError, match=f"checked by {MALLORY}"), translated():  # noqa: SIM117
                with as_author(place, MALLORY, may_write=True) as session:
                    look(session, query)


def test_types_are_told(service: Connection) -> None:
    query = "SELECT 1, 2, 'x'::varchar(5), 1.5::numeric(6, 2) AS n, 'a' COLLATE \"C\" AS n, '{x}'::evil.dom[] AS d"
    with as_author(hand_over(service, snapshot=False), MALLORY, may_write=True) as session:
        found = session.describe(query)
    assert [(t, m) for t, m, _ in found[:5]] == [(23, -1), (23, -1), (1043, 9), (1700, 393222), (25, -1)]
    assert [c for *_, c in found[:5]] == [0, 0, 100, 0, 950]
    assert len(found) == 6


def test_after_a_look_names_mean_what_they_did(prey: Database, service: Connection) -> None:
    """While the view is made the author may also write: nothing of that is found by the name of a catalog."""
    prey.superuser_sql(
        """SET ROLE mallory;
        CREATE OR REPLACE FUNCTION evil.checked(v text) RETURNS bool LANGUAGE plpgsql AS $$
        BEGIN
            CREATE TEMPORARY TABLE IF NOT EXISTS pg_attribute (attrelid oid, attnum int, attname text);
            CREATE TEMPORARY VIEW pg_class AS SELECT evil.noted() AS relname;
            PERFORM set_config('search_path', 'pg_temp, evil', false);
            PERFORM set_config('standard_conforming_strings', 'off', false);
            RETURN true;
        END $$"""
    )
    with as_author(hand_over(service, snapshot=False), MALLORY, may_write=True) as session:
        conn = session.look_at("SELECT '{x}'::evil.dom[] AS found", "looked")
        names = conn.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'pg_temp.looked'::regclass").fetchall()
        assert names == [("found",)]
        assert conn.execute("SELECT relname FROM pg_class WHERE relname = 'looked'").fetchall() == [("looked",)]
        assert conn.execute("SELECT current_user, current_setting('standard_conforming_strings')").fetchall() == [
            (ROLE, "on")
        ]


def test_without_the_membership_it_is_said(prey: Database, service: Connection) -> None:
    prey.superuser_sql(f"REVOKE {MALLORY} FROM {ROLE}")
    with pytest.raises(ConfigError) as caught, as_author(hand_over(service, snapshot=False), MALLORY):
        pass
    assert f"{ROLE} may not SET ROLE to {MALLORY}" in caught.value.message
    assert caught.value.hint == f'GRANT "{MALLORY}" TO "{ROLE}"'


def test_names_with_quotes(prey: Database, server: EmbeddedPostgres) -> None:
    name = "o'dd \"role\\"
    quoted = '"' + name.replace('"', '""') + '"'
    prey.superuser_sql(f"CREATE ROLE {quoted}; GRANT {quoted} TO {ROLE}")
    try:
        with connect(prey.dsn, role="test", autocommit=True) as service:
            place = hand_over(service, snapshot=False)
            for read in (_rows, _batches):
                with as_author(place, name, copies=[SHOWN]) as session:
                    assert read(session, "SELECT current_user::text || b FROM pg_temp.shown") == [f"{name}b"]
    finally:
        prey.superuser_sql(f"DROP ROLE {quoted}")


def test_default_privileges_do_not_matter(prey: Database, server: EmbeddedPostgres, service: Connection) -> None:
    prey.superuser_sql(f"ALTER DEFAULT PRIVILEGES FOR ROLE {MALLORY} REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    with psycopg.connect(server.dsn("prey", user=ROLE, password=ROLE_PASSWORD)) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)
    with as_author(hand_over(service, snapshot=False), MALLORY) as session:
        assert _rows(session, "SELECT evil.who()") == [MALLORY]
