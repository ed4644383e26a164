"""Definitions over other databases: who may read is decided where the table is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from pgtrickle.db import Connection, connect
from pgtrickle.db.catalog import load_stream_tables
from pgtrickle.define.cross_database import define_pending
from pgtrickle.define.foreign_tables import serve_shared
from pgtrickle.define.prepare import prepare
from pgtrickle.errors import DefinitionError, OriginAwayError
from pgtrickle.model.catalog import Mirror
from pgtrickle.origin.sessions import OriginDatabase, OriginSessions
from pgtrickle.refresh.failures import record_failure
from tests.conftest import Database, run

Role = psycopg.Connection[Any]


class Pair:
    """A database with a secret, one that would like to read it, and a role that may do little in both."""

    def __init__(self, home: Database, other: Database, role: Role) -> None:
        self.home, self.other, self.role = home, other, role
        self.name = role.info.user
        other.sql(
            "CREATE SCHEMA vault; CREATE TABLE vault.secrets (id int PRIMARY KEY, word text, owner text);"
            "INSERT INTO vault.secrets VALUES (1, 'swordfish', 'ann')"
        )
        home.sql(f"GRANT CREATE ON SCHEMA public TO {self.name}")
        self._origins = OriginSessions()

    def grant(self, what: str) -> None:
        self.other.sql(f"GRANT {what} TO {self.name}")

    def ask(self, query: str = "SELECT id, word FROM {other}.vault.secrets", name: str = "mine") -> str | None:
        """The reason why not; None: it was accepted."""
        run(self.role, "SELECT pgtrickle.create_stream_table(%s, %s)", name, query.format(other=self.other.name))
        return self.answer(name)

    def answer(self, name: str = "mine") -> str | None:
        with connect(self.home.dsn, role="test", autocommit=True) as conn:
            define_pending(conn, self.home.dsn, self._origins)
        query = "SELECT state, error_message FROM pgtrickle.pending_definitions() WHERE name = %s"
        rows = run(self.role, query, f"public.{name.removeprefix('public.')}")
        assert not rows or rows[0][0] == "REFUSED"
        return rows[0][1] if rows else None


@pytest.fixture
def pair(make_installed: Callable[[], Database], make_role: Callable[[Database], Role]) -> Iterator[Pair]:
    home, other = make_installed(), make_installed()
    pair = Pair(home, other, make_role(home))
    yield pair
    other.superuser_sql(f"DROP OWNED BY {pair.name}")


def test_without_rights_there_nothing_is_defined_and_nothing_is_told(pair: Pair) -> None:
    for grant, reason in (
        (None, "no USAGE on schema vault"),
        ("USAGE ON SCHEMA vault", "permission denied for role"),
        ("SELECT (id) ON vault.secrets", "permission denied for column word"),
    ):
        if grant is not None:
            pair.grant(grant)
        message = pair.ask()
        assert message is not None
        assert reason in message
        assert "swordfish" not in message
    assert run(pair.role, "SELECT to_regclass('public.mine')") == [(None,)]
    assert pair.home.sql("SELECT count(*) FROM pgtrickle.pgt_mirrors") == [(0,)]
    assert pair.ask("SELECT id FROM {other}.vault.secrets") is None


def test_row_security_there_counts(pair: Pair) -> None:
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    pair.other.sql("ALTER TABLE vault.secrets ENABLE ROW LEVEL SECURITY")
    message = pair.ask()
    assert message is not None
    assert "row security is active" in message


def test_a_database_that_the_role_may_not_connect_to(pair: Pair) -> None:
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    pair.other.sql(f'REVOKE CONNECT ON DATABASE "{pair.other.name}" FROM PUBLIC')
    message = pair.ask()
    assert message is not None
    assert "may not connect" in message


def test_what_is_here_is_checked_here(pair: Pair) -> None:
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    pair.home.sql("CREATE TABLE local_secrets (id int, word text)")
    for query in (
        "SELECT s.id, l.word FROM {other}.vault.secrets AS s JOIN local_secrets AS l ON l.id = s.id",
        "SELECT s.id FROM {other}.vault.secrets AS s WHERE s.id IN (SELECT id FROM pgtrickle_changes.mirror_1)",
        "SELECT s.id FROM {other}.vault.secrets AS s JOIN pgtrickle.pgt_readers AS r ON r.mirror_id = s.id",
    ):
        message = pair.ask(query)
        assert message is not None, query
        assert "permission denied" in message or "does not exist" in message, message
    assert pair.ask(name="fine") is None
    ((mirror,),) = pair.home.sql("SELECT pgt_id FROM pgtrickle.pgt_mirrors")
    query = f"SELECT s.id FROM {{other}}.vault.secrets AS s JOIN pgtrickle_changes.mirror_{mirror} AS m ON m.id = s.id"
    message = pair.ask(query)
    # The mirror of what it may read anyway, by its inner name: no more than it could read.
    assert message is None or "permission denied" in message


def test_the_creator_reads_the_result_and_nobody_else_does(pair: Pair, make_role: Callable[[Database], Role]) -> None:
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    assert pair.ask() is None
    assert run(pair.role, "SELECT count(*) FROM mine") == [(0,)]
    (mirror,) = pair.home.sql("SELECT format('pgtrickle_changes.mirror_%s', pgt_id) FROM pgtrickle.pgt_mirrors")[0]
    stranger = make_role(pair.home)
    for role, relation in ((stranger, "mine"), (stranger, mirror), (pair.role, mirror)):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(role, f"SELECT * FROM {relation}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(stranger, "SELECT query FROM pgtrickle.pgt_definitions")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(stranger, "SELECT * FROM pgtrickle.pgt_readers")


def test_requests_of_others_are_not_seen_nor_taken(pair: Pair, make_role: Callable[[Database], Role]) -> None:
    assert pair.ask() is not None  # refused, and stays to be seen
    stranger = make_role(pair.home)
    assert run(stranger, "SELECT * FROM pgtrickle.pending_definitions()") == []
    assert len(run(pair.role, "SELECT * FROM pgtrickle.pending_definitions()")) == 1
    with pytest.raises(psycopg.errors.UndefinedTable):
        run(stranger, "SELECT pgtrickle.drop_stream_table('public.mine')")
    query = f"SELECT * FROM {pair.other.name}.vault.secrets"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(stranger, "SELECT pgtrickle.create_stream_table('public.mine', %s)", query)
    run(pair.role, "SELECT pgtrickle.drop_stream_table('public.mine')")
    assert run(pair.role, "SELECT * FROM pgtrickle.pending_definitions()") == []


def test_nobody_makes_mirrors_or_registers_by_hand(pair: Pair) -> None:
    for call in (
        "SELECT pgtrickle._make_mirror('{}', '[]', '[]', NULL)",
        "SELECT pgtrickle._drop_mirror(1)",
        "SELECT pgtrickle._register_as(0, '{}', 0, 'public', 'x', 'q', '{}')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(pair.role, call)


def test_declaring_needs_the_table(pair: Pair) -> None:
    pair.home.sql("CREATE TABLE copied (id int)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(pair.role, "SELECT pgtrickle.declare_shared_source('copied', 'a.b.c')")
    with pytest.raises(psycopg.errors.InvalidName):
        pair.home.sql("SELECT pgtrickle.declare_shared_source('copied', 'a.b')")
    with pytest.raises(psycopg.errors.UndefinedObject):
        pair.home.sql("SELECT pgtrickle.declare_shared_source('copied')")
    assert pair.home.sql("SELECT pgtrickle.declare_shared_source('copied', 'a.b.\"C d\"')") == [('a.b."C d"',)]
    pair.home.sql("SELECT pgtrickle.forget_shared_source('copied')")
    assert pair.home.sql("SELECT count(*) FROM pgtrickle.pgt_shared_sources") == [(0,)]


@pytest.mark.parametrize(
    ("conninfo", "origin"),
    [
        ("host=db.example port=5433 dbname=shop user=r password=x", "shop@db.example:5433"),
        ("dbname = 'my \\\\ sh\\'op'  host='/tmp'", "my \\ sh'op@/tmp:5432"),
        ("password='host=evil dbname=evil' dbname=shop", "shop"),
        ("dbname=a dbname=b hostaddr=10.0.0.1", "b@10.0.0.1:5432"),
        ("host=a,b dbname=shop", None),
        ("host=a user=shop", None),
        ("postgresql://r@db.example/shop", None),
    ],
)
def test_a_subscription_says_where_a_table_comes_from(installed: Database, conninfo: str, origin: str | None) -> None:
    """With its server: another server may have a database of that name."""
    assert installed.sql("SELECT pgtrickle._publisher(%s)", conninfo) == [(origin,)]


def test_who_declares_has_to_be_allowed_to_read_there(pair: Pair) -> None:
    """Otherwise a table's owner would have others, who may read more, store rows where the owner may see them."""
    pair.home.sql("CREATE TABLE copied (id int, word text)")
    pair.home.superuser_sql(f"ALTER TABLE copied OWNER TO {pair.name}; GRANT {pair.name} TO app")
    run(pair.role, "SELECT pgtrickle.declare_shared_source('copied', %s)", f"{pair.other.name}.vault.secrets")
    pair.home.sql("SELECT pgtrickle.create_stream_table('told', 'SELECT word FROM copied')")

    def serve() -> int:
        with connect(pair.home.dsn, role="test", autocommit=True) as conn:
            return serve_shared(conn, pair.home.dsn, OriginSessions())

    pair.grant("USAGE ON SCHEMA vault")
    assert serve() == 0
    pair.grant("SELECT (id) ON vault.secrets")
    assert serve() == 0
    pair.grant("SELECT (word) ON vault.secrets")
    assert serve() == 1


def test_who_may_not_read_a_stream_table_learns_no_numbers_of_rows(
    pair: Pair, make_role: Callable[[Database], Role]
) -> None:
    """Neither of what it reads elsewhere nor of local tables."""
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    assert pair.ask() is None
    pair.home.sql(
        "INSERT INTO pgtrickle.pgt_refresh_history "
        "(pgt_id, action, status, rows_inserted, rows_deleted, delta_row_count) "
        "SELECT pgt_id, 'FULL', 'COMPLETED', 4711, 4711, 4711 FROM pgtrickle.pgt_stream_tables"
    )
    stranger = make_role(pair.home)
    functions = (
        "refresh_timeline()",
        "st_refresh_stats()",
        "pg_stat_stream_tables",
        "refresh_efficiency()",
        "get_refresh_history('public.mine')",
        "health_check()",
        "health_summary()",
        "change_buffer_sizes()",
        "broker_status()",
        "check_cdc_health()",
        "explain_st('public.mine')",
        "stream_tables_info",
        "recommend_refresh_mode()",
    )
    for function in functions:
        assert "4711" not in str(run(stranger, f"SELECT * FROM pgtrickle.{function}")), function
    assert "4711" in str(run(pair.role, "SELECT * FROM pgtrickle.get_refresh_history('public.mine')"))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(stranger, "SELECT rows_inserted FROM pgtrickle.pgt_refresh_history")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, word FROM {other}.vault.secrets; CREATE TABLE public.broken_in ()",
        "SELECT id, word FROM {other}.vault.secrets; COMMIT; CREATE TABLE public.broken_in ()",
        "SELECT 1 AS id FROM {other}.vault.secrets) ; CREATE TABLE public.broken_in (); (SELECT 2",
    ],
)
def test_request_is_one_statement_and_no_more(pair: Pair, query: str) -> None:
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    try:
        reason = pair.ask(query)
    except psycopg.errors.SyntaxError as error:
        reason = str(error)
    assert reason is not None
    assert pair.home.sql("SELECT to_regclass('public.broken_in')") == [(None,)]


def test_request_with_percent_signs_is_read_as_it_is_written(pair: Pair) -> None:
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    assert (
        pair.ask("SELECT id %% 2 AS odd, id FROM {other}.vault.secrets WHERE word LIKE '%s%%'".replace("%%", "%"))
        is None
    )
    ((text,),) = pair.home.sql("SELECT defining_query FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'mine'")
    assert "% 2" in text
    assert "'%s%'" in text


def test_search_path_of_a_request_reaches_no_statement_but_its_own(pair: Pair) -> None:
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    pair.home.superuser_sql(f"CREATE SCHEMA trap AUTHORIZATION {pair.name}; GRANT USAGE ON SCHEMA trap TO PUBLIC")
    run(pair.role, "CREATE TABLE trap.caught (who text); GRANT INSERT ON trap.caught TO PUBLIC")
    body = "LANGUAGE plpgsql VOLATILE AS $$ BEGIN INSERT INTO trap.caught VALUES (current_user); RETURN $1; END $$"
    for call in ("upper(text) RETURNS text", "btrim(text, text) RETURNS text", "unnest(smallint[]) RETURNS smallint[]"):
        run(pair.role, f"CREATE FUNCTION trap.{call} {body}")
    run(
        pair.role,
        "CREATE FUNCTION trap.step(smallint[], smallint) RETURNS smallint[] LANGUAGE plpgsql VOLATILE AS "
        "$$ BEGIN INSERT INTO trap.caught VALUES (current_user); RETURN $1 || $2; END $$;"
        "CREATE AGGREGATE trap.array_agg(smallint) (SFUNC = trap.step, STYPE = smallint[], INITCOND = '{}')",
    )
    run(pair.role, "SET search_path = trap, pg_catalog, public")
    assert pair.ask("SELECT id, word FROM {other}.vault.secrets", "public.mine") is None
    assert pair.home.superuser_sql("SELECT who FROM trap.caught") == []
    run(pair.role, "RESET search_path")


def test_user_mapping_has_to_prove_who_it_names(pair: Pair) -> None:
    pair.home.superuser_sql(
        "CREATE EXTENSION IF NOT EXISTS postgres_fdw;"
        "CREATE SERVER there FOREIGN DATA WRAPPER postgres_fdw "
        f"OPTIONS (host 'localhost', port '{pair.home.server.port}', dbname '{pair.other.name}');"
        f"GRANT USAGE ON FOREIGN SERVER there TO {pair.name}"
    )
    run(pair.role, f"CREATE USER MAPPING FOR {pair.name} SERVER there OPTIONS (user '{pair.name}', password 'x')")
    run(
        pair.role,
        "CREATE FOREIGN TABLE public.theirs (id int, word text) SERVER there "
        "OPTIONS (schema_name 'vault', table_name 'secrets')",
    )
    pair.home.superuser_sql(f"GRANT SELECT ON public.theirs TO app; GRANT {pair.name} TO app")
    run(pair.role, "SELECT pgtrickle.create_stream_table('mine', 'SELECT id, word FROM public.theirs')")

    def reason() -> str | None:
        """None: it is read from its origin's changes."""
        with connect(pair.home.superuser_dsn, role="test", autocommit=True, as_service=False) as conn:
            serve_shared(conn, pair.home.superuser_dsn, OriginSessions())
        ((mode, why),) = pair.home.sql(
            "SELECT effective_refresh_mode, mode_reason FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'mine'"
        )
        return why if mode == "FULL" else None

    assert "no USAGE on schema vault" in (reason() or "")
    mapping = f"ALTER USER MAPPING FOR {pair.name} SERVER there OPTIONS"
    run(pair.role, f"{mapping} (SET user 'app')")  # who may read it
    assert "has no valid password for role app" in (reason() or "")
    run(pair.role, f"{mapping} (DROP password)")
    assert "has no valid password for role app" in (reason() or "")
    run(pair.role, f"{mapping} (ADD password 'app')")
    assert reason() is None


def test_a_request_that_replaces_one_under_way_is_not_lost(pair: Pair) -> None:
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    ask = "SELECT pgtrickle.create_stream_table('mine', %s)"
    run(pair.role, ask, f"SELECT id FROM {pair.other.name}.vault.secrets")

    class Slow(OriginSessions):
        @contextmanager
        def visit(self, own: str, name: str) -> Iterator[tuple[Connection, OriginDatabase]]:
            run(pair.role, ask, f"SELECT word FROM {pair.other.name}.vault.secrets")
            with super().visit(own, name) as found:
                yield found

    with connect(pair.home.dsn, role="test", autocommit=True) as conn:
        assert define_pending(conn, pair.home.dsn, Slow()) == 0
    ((_, _, query, _, _, state, error),) = run(pair.role, "SELECT * FROM pgtrickle.pending_definitions()")
    assert ("SELECT word" in query, state, error) == (True, "WAITING", None)
    assert pair.answer() is None
    columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'mine'::regclass AND attnum = 1"
    assert pair.home.sql(columns) == [("word",)]


def test_alerts_tell_no_rows_to_who_listens(pair: Pair, make_role: Callable[[Database], Role]) -> None:
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    stranger = make_role(pair.home)
    run(stranger, "LISTEN pg_trickle_alert")
    assert pair.ask("SELECT id FROM {other}.vault.secrets WHERE id = 'swordfish'", name="other") is not None
    assert pair.ask() is None
    error = DefinitionError('invalid input syntax for type integer: "swordfish"')
    with connect(pair.home.dsn, role="test", autocommit=True) as conn:
        table = load_stream_tables(conn)[-1]
        record_failure(conn, table, error, action="FULL", started_at=datetime.now(UTC), max_consecutive=3)
    payloads = [n.payload for n in stranger.notifies(timeout=120, stop_after=2)]
    assert [json.loads(p)["event"] for p in payloads] == ["definition_refused", "refresh_failed"]
    assert "swordfish" not in "".join(payloads)
    status = "SELECT last_error_message FROM pgtrickle.pgt_status() WHERE name = 'public.mine'"
    assert "swordfish" in str(run(pair.role, status))
    assert "swordfish" not in str(run(stranger, status))


def test_a_foreign_table_is_not_read_as_somebody_who_may_more(pair: Pair) -> None:
    """Who may read it here may not, as the user of the mapping, read it there; the control plane's user may."""
    pair.home.superuser_sql(
        "CREATE EXTENSION postgres_fdw; CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw "
        f"OPTIONS (host 'localhost', port '{pair.other.server.port}', dbname '{pair.other.name}');"
        "CREATE USER MAPPING FOR app SERVER far OPTIONS (user 'app', password 'app');"
        f"CREATE USER MAPPING FOR {pair.name} SERVER far OPTIONS (user '{pair.name}', password 'x');"
        "GRANT USAGE ON FOREIGN SERVER far TO app"
    )
    pair.home.sql(
        "CREATE FOREIGN TABLE secrets (id int, word text) SERVER far OPTIONS (schema_name 'vault');"
        f"GRANT SELECT ON secrets TO {pair.name}"
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(pair.role, "SELECT * FROM secrets")
    run(pair.role, "SELECT pgtrickle.create_stream_table('mine', 'SELECT id, word FROM secrets')")
    with connect(pair.home.dsn, role="test", autocommit=True) as conn:
        (table,) = load_stream_tables(conn)
        with pytest.raises(DefinitionError, match=f"mapped for app, not as that for {pair.name}"):
            prepare(conn, table)
        pair.home.superuser_sql(f"ALTER USER MAPPING FOR {pair.name} SERVER far OPTIONS (SET user 'app')")
        with pytest.raises(DefinitionError):  # app may not know whom another role is mapped to
            prepare(conn, table)
        pair.home.superuser_sql(
            f"DROP USER MAPPING FOR {pair.name} SERVER far; DROP USER MAPPING FOR app SERVER far;"
            "CREATE USER MAPPING FOR PUBLIC SERVER far OPTIONS (user 'app', password 'app')"
        )
        prepare(conn, table)


def test_who_resumes_a_stream_table_resumes_its_mirrors(pair: Pair) -> None:
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    assert pair.ask() is None
    statuses = "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables ORDER BY pgt_id"
    for call in ("resume_stream_table", "repair_stream_table"):
        pair.home.sql("UPDATE pgtrickle.pgt_stream_tables SET status = 'ERROR', last_error_message = 'it broke'")
        run(pair.role, f"SELECT pgtrickle.{call}('public.mine')")
        assert pair.home.sql(statuses) == [("INITIALIZING", None)] * 2


def test_a_server_that_is_not_of_this_fleet_is_waited_for(pair: Pair) -> None:
    """Somebody may have started it without that server: its mirrors must not stop for good."""
    mirror = Mirror("1/1", "elsewhere:5432", "shop", "public", "t", 1, (1,), None)
    with pytest.raises(OriginAwayError, match="elsewhere:5432"), OriginSessions().session(pair.home.dsn, mirror):
        pass


def test_who_may_not_look_learns_not_what_is_there(pair: Pair) -> None:
    for query in ("SELECT id FROM {other}.vault.secrets", "SELECT id FROM {other}.vault.nothing"):
        assert "no USAGE on schema vault" in (pair.ask(query) or "")
    assert "no USAGE on schema nowhere" in (pair.ask("SELECT id FROM {other}.nowhere.nothing") or "")
    pair.grant("USAGE ON SCHEMA vault")
    assert "does not exist" in (pair.ask("SELECT id FROM {other}.vault.nothing") or "")


def test_a_request_of_a_role_that_is_gone_is_in_nobodys_way(pair: Pair) -> None:
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    run(pair.role, "SELECT pgtrickle.create_stream_table('mine', %s)", f"SELECT 1 FROM {pair.other.name}.vault.secrets")
    pair.home.sql("UPDATE pgtrickle.pgt_definitions SET created_by = 'gone'")
    assert pair.ask() is None


def test_a_request_to_alter_takes_no_other_name(pair: Pair) -> None:
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    assert pair.ask() is None
    ask = "SELECT pgtrickle._request_definition(%s, 'private', 'plans', %s, '{}', '')"
    ((mine,),) = pair.home.sql("SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'mine'")
    run(pair.role, ask, mine, f"SELECT id FROM {pair.other.name}.vault.secrets")
    assert pair.home.sql("SELECT pgt_schema, pgt_name FROM pgtrickle.pgt_definitions") == [("public", "mine")]


def test_names_here_are_looked_up_as_whoever_asks_would(pair: Pair) -> None:
    """In the session that defines, "$user" is another schema."""
    for schema in (pair.name, "public"):
        pair.home.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}; CREATE TABLE {schema}.people (id int PRIMARY KEY)")
        pair.home.sql(f"GRANT USAGE ON SCHEMA {schema} TO {pair.name}")
        pair.home.sql(f"GRANT SELECT ON {schema}.people TO {pair.name}")
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    query = "SELECT p.id FROM people AS p JOIN {other}.vault.secrets AS s ON s.id = p.id"
    assert pair.ask(query, "public.mine") is None
    read = "SELECT source_table FROM pgtrickle.list_sources('public.mine') WHERE source_type = 'TABLE'"
    assert pair.home.sql(read) == [(f"{pair.name}.people",)]


@pytest.mark.parametrize(
    "constant",
    ["'{{x}}'::trap.dom[]", "$a${{x}}$a$::trap.dom[]", "'(x)'::trap.row", "trap.row '(x)'", "trap.f('{{x}}')"],
)
def test_constants_of_a_request_run_no_code_of_its_author(pair: Pair, constant: str) -> None:
    """To parse a constant of an array or a composite type runs the checks of the domains in it."""
    pair.grant("USAGE ON SCHEMA vault")
    pair.grant("SELECT ON vault.secrets")
    pair.home.superuser_sql(f"CREATE SCHEMA trap AUTHORIZATION {pair.name}; GRANT USAGE ON SCHEMA trap TO PUBLIC")
    run(
        pair.role,
        "CREATE FUNCTION trap.chk(text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS "
        f"$$ BEGIN IF current_user <> '{pair.name}' THEN RAISE EXCEPTION 'ran as %', current_user; END IF; "
        "RETURN true; END $$;"
        "CREATE DOMAIN trap.dom AS text CHECK (trap.chk(VALUE)); CREATE TYPE trap.row AS (d trap.dom);"
        "CREATE FUNCTION trap.f(trap.dom[]) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'",
    )
    reason = pair.ask(f"SELECT id, {constant} IS NULL AS b FROM {{other}}.vault.secrets")
    assert reason is not None
    assert "ran as" not in reason
    assert "trap." in reason or "syntax error" in reason
