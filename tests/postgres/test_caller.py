"""Who calls a function of pgtrickle is who PostgreSQL would ask for privileges, whatever the session says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.conftest import Database, run

Roles = Callable[[Database], psycopg.Connection[Any]]

# Whoever calls it by mistake: it runs as the one who wrote it, and must not act for the one who calls.
DEPUTY = """
    CREATE SCHEMA IF NOT EXISTS bait AUTHORIZATION {owner};
    CREATE FUNCTION bait.{name}() RETURNS {returns} LANGUAGE plpgsql SECURITY DEFINER AS $f$ BEGIN {body} END $f$;
    ALTER FUNCTION bait.{name}() OWNER TO {owner};
    GRANT USAGE ON SCHEMA bait TO PUBLIC;
"""


def deputy(database: Database, owner: str, body: str, returns: str = "void") -> str:
    (number,) = database.superuser_sql("SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace('bait')")[0]
    name = f"f{number}"
    database.superuser_sql(DEPUTY.format(owner=owner, name=name, body=body, returns=returns))
    return f"SELECT bait.{name}()"


@pytest.fixture
def victim(installed: Database) -> Database:
    installed.sql("CREATE TABLE t (a int); SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM t')")
    installed.sql("SELECT pgtrickle.create_stream_table('r', 'SELECT a FROM t')")
    return installed


@pytest.mark.parametrize(
    "call",
    [
        "PERFORM pgtrickle.drop_stream_table('public.s');",
        "PERFORM pgtrickle._drop(pgtrickle._find('public.s'), true);",
        "PERFORM pgtrickle.alter_stream_table('public.s', schedule => '1h');",
        "PERFORM pgtrickle.refresh_stream_table('public.s');",
        "PERFORM pgtrickle.repair_stream_table('public.s');",
        "PERFORM pgtrickle.stream_table_to_publication('public.s');",
        "PERFORM pgtrickle.create_subscriber('public.s', 'x');",
        "PERFORM pgtrickle.create_refresh_group('g', ARRAY['public.s', 'public.r']);",
        "PERFORM pgtrickle._note_applied(pgtrickle._find('public.s'), 'mine', '{}');",
        "PERFORM pgtrickle.declare_shared_source('public.t', 'a.b.c');",
        "PERFORM pgtrickle.forget_shared_source('public.t');",
        "PERFORM pgtrickle.set_option('enabled', 'off');",
    ],
)
def test_function_of_another_does_not_act_for_who_calls_it(victim: Database, make_role: Roles, call: str) -> None:
    evil = make_role(victim)
    trap = deputy(victim, evil.info.user, call)
    for called in (victim.sql, victim.superuser_sql):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            called(trap)
    assert victim.sql("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(2,)]


def test_requests_of_a_function_are_of_who_wrote_it(victim: Database, make_role: Roles) -> None:
    evil = make_role(victim)
    user = evil.info.user
    victim.superuser_sql(f"CREATE SCHEMA mine AUTHORIZATION {user}; CREATE SCHEMA ours AUTHORIZATION app")
    victim.superuser_sql("GRANT ALL ON SCHEMA mine TO app")
    define = "PERFORM pgtrickle.create_stream_table('{}.x', 'SELECT a FROM elsewhere.public.t');"
    victim.sql(deputy(victim, user, define.format("mine")))
    assert victim.sql("SELECT created_by FROM pgtrickle.pgt_definitions") == [(user,)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        victim.sql(deputy(victim, user, define.format("ours")))
    # what others asked for is not shown to it either
    victim.sql("SELECT pgtrickle.create_stream_table('ours.y', 'SELECT a FROM elsewhere.public.t')")
    body = "RETURN (SELECT pg_catalog.count(*) FROM pgtrickle.pending_definitions());"
    assert victim.sql(deputy(victim, user, body, "bigint")) == [(1,)]
    body = "RETURN (SELECT pg_catalog.count(*) FROM pgtrickle._asked());"
    assert victim.sql(deputy(victim, user, body, "bigint")) == [(1,)]
    assert victim.sql("SELECT count(*) FROM pgtrickle.pending_definitions()") == [(2,)]


def test_counts_are_not_shown_to_a_function_of_another(victim: Database, make_role: Roles) -> None:
    evil = make_role(victim)
    for text in (
        "SELECT pg_catalog.max(row_count) FROM pgtrickle.change_buffer_sizes()",
        "SELECT pg_catalog.count(*) FROM pgtrickle._subscriber_lags()",
    ):
        trap = deputy(victim, evil.info.user, f"RETURN ({text});", "bigint")
        assert victim.sql(trap) in ([(None,)], [(0,)])
        assert victim.superuser_sql(trap) in ([(None,)], [(0,)])


def test_proofs_cannot_be_made_or_kept(victim: Database, make_role: Roles) -> None:
    evil = make_role(victim)
    ((proof,),) = victim.sql("SELECT pgtrickle._me()")
    assert proof.endswith("app")
    ((own,),) = run(evil, "SELECT pgtrickle._me()")
    for forged in (proof, own[:64] + "app", "app", "", None, own):  # the last one is of another transaction
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not proven"):
            evil.execute("SELECT pgtrickle._drop(pgtrickle._find('public.s'), true, %s)", [forged])
    for closed in (
        "SELECT * FROM pgtrickle_changes.caller_key",
        "SELECT pgtrickle._caller('app')",
        "SELECT pgtrickle._signed('app', key) FROM pgtrickle_changes.caller_key",
        "UPDATE pgtrickle._proof SET proof = 'x'",
    ):
        with pytest.raises(psycopg.Error):
            evil.execute(closed)
    # what is in the session does not matter
    for setting in ("SET search_path = pg_temp", "SET application_name = 'app'"):
        evil.execute(setting)
    evil.execute("CREATE TEMP TABLE _proof (proof text)")
    evil.execute("CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1'")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be the creator"):
        evil.execute("SELECT pgtrickle._drop(1, true)")


def test_role_that_was_set_counts(victim: Database, make_role: Roles) -> None:
    """As everywhere in PostgreSQL."""
    member = make_role(victim)
    victim.superuser_sql(f"CREATE ROLE team_x; GRANT team_x TO {member.info.user}, app WITH ADMIN OPTION")
    victim.superuser_sql("GRANT USAGE ON SCHEMA pgtrickle TO team_x; GRANT CREATE ON SCHEMA public TO team_x")
    victim.sql("GRANT SELECT ON t TO team_x")
    try:
        member.execute("SET ROLE team_x")
        member.execute("SELECT pgtrickle.create_stream_table('public.teams', 'SELECT a FROM public.t')")
        assert victim.sql("SELECT created_by FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'teams'") == [
            ("team_x",)
        ]
        member.execute("RESET ROLE")
        member.execute("SELECT pgtrickle.alter_stream_table('public.teams', schedule => '5m')")
        member.execute("SELECT pgtrickle.drop_stream_table('public.teams')")
    finally:
        victim.superuser_sql("DROP OWNED BY team_x; DROP ROLE team_x")
