"""What a role with USAGE on schema pgtrickle alone can learn: definitions and states, and no row of anybody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgtrickle.capture.install import ensure_capture
from pgtrickle.db.connect import connect
from tests.conftest import Database, run

Roles = Callable[[Database], psycopg.Connection[Any]]
SECRET = "s3cr3t"


@pytest.fixture
def busy(installed: Database) -> Database:
    """Rows with a secret in everything that holds rows or quotes them."""
    installed.sql("CREATE SCHEMA app; CREATE TABLE app.t (a text)")
    installed.sql("SELECT pgtrickle.create_stream_table('app.s', 'SELECT a FROM app.t')")
    ((relid,),) = installed.sql("SELECT 'app.t'::regclass::oid::int8")
    with connect(installed.dsn, role="capture", autocommit=True) as conn:
        ensure_capture(conn, relid, [1])
        conn.execute("INSERT INTO app.t VALUES (%s)", [SECRET])
        conn.execute("INSERT INTO app.s VALUES (%s, 1)", [SECRET])
        for name in ("stage_1", "state_1_0", "mirror_9"):
            conn.execute(f"CREATE TABLE pgtrickle_changes.{name} AS SELECT a FROM app.t")
        message = f'invalid input syntax for type integer: "{SECRET}"'
        conn.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET last_error_message = %s, reinit_reason = %s", [message] * 2
        )
        conn.execute(
            "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, action, status, reason, error_message, engine, "
            "engine_reason_code, engine_reason_params) SELECT pgt_id, 'FULL', 'FAILED', %s, %s, 'postgres', "
            "'engine_value', jsonb_build_object('error', %s::text) FROM pgtrickle.pgt_stream_tables",
            [message] * 3,
        )
        conn.execute(
            "INSERT INTO pgtrickle.pgt_replicas (source_relid, origin, generation, location, columns_used, snapshot, "
            "row_count, last_error) VALUES (%s, pgtrickle._origin(), 'g', %s, '{1}', pg_current_snapshot(), 4711, %s)",
            [relid, f"/{SECRET}", message],
        )
        conn.execute(
            "INSERT INTO pgtrickle.pgt_scheduler_jobs (unit_key, unit_kind, members, detail, finished_at) "
            "SELECT 'u', 'singleton', ARRAY[pgt_id], %s, now() FROM pgtrickle.pgt_stream_tables",
            [message],
        )
        conn.execute(
            "INSERT INTO pgtrickle.pgt_definitions "
            "(pgt_schema, pgt_name, query, options, search_path, created_by, error_message) "
            "VALUES ('app', 'x', %s, '{}', '', 'app', %s)",
            [f"SELECT '{SECRET}'", message],
        )
        conn.execute(
            "INSERT INTO pgtrickle.pgt_plans (query, search_path, asked_by, plan, error_message) "
            "VALUES (%s, '', 'app', %s, %s)",
            [message] * 3,
        )
        conn.execute("SELECT pgtrickle.create_subscriber('app.s', %s)", [SECRET])
    return installed


def test_no_function_or_view_shows_a_value(busy: Database, make_role: Roles) -> None:
    """All of them, whatever their arguments are for."""
    stranger = make_role(busy)
    asked = 0
    calls = run(
        stranger,
        """
        SELECT format('SELECT to_jsonb(x)::text FROM %s(%s) AS x', p.oid::regproc, (
                   SELECT string_agg(CASE t::regtype::text WHEN 'bigint' THEN '1::bigint' WHEN 'integer' THEN '1'
                                                           WHEN 'boolean' THEN 'true' WHEN 'text' THEN '''app.s'''
                                                           WHEN 'oid' THEN '''app.s''::regclass::oid'
                                                           ELSE format('NULL::%s', t::regtype) END, ', ' ORDER BY i)
                   FROM unnest(p.proargtypes) WITH ORDINALITY AS a(t, i)
                   WHERE i <= p.pronargs - p.pronargdefaults))
        FROM pg_proc AS p
        WHERE p.pronamespace IN ('pgtrickle'::regnamespace, 'pgtrickle_changes'::regnamespace) AND p.prokind = 'f'
          AND p.prorettype NOT IN ('void'::regtype, 'trigger'::regtype)
        UNION ALL
        SELECT format('SELECT to_jsonb(%I)::text FROM %s', a.attname, c.oid::regclass)
        FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace IN ('pgtrickle'::regnamespace, 'pgtrickle_changes'::regnamespace)
          AND c.relkind IN ('r', 'v')
        """,
    )
    for (call,) in calls:
        said = ""
        with stranger.transaction(force_rollback=True):
            try:
                said = "".join(text or "" for (text,) in run(stranger, call))
                asked += 1
            except psycopg.Error as error:
                said = str(error)
        assert SECRET not in said, call
    assert asked > 150


REPLICAS = "SELECT source_table, row_count, last_error, location FROM pgtrickle.replicas()"
ENGINE_REASONS = (
    "SELECT engine_reason FROM pgtrickle.pgt_status()",
    "SELECT engine_reason FROM pgtrickle.get_refresh_history('app.s')",
    "SELECT substr(value, 11) FROM pgtrickle.explain_st('app.s') WHERE property = 'last engine'",  # after the engine
)


def test_replicas_and_reasons_of_an_engine_are_for_those_who_may_read(busy: Database, make_role: Roles) -> None:
    stranger = make_role(busy)
    assert run(stranger, REPLICAS) == []
    for asked in ENGINE_REASONS:
        assert [value or None for (value,) in run(stranger, asked)] == [None], asked
        assert SECRET in busy.sql(asked)[0][0], asked
    # One of several columns is not the table.
    busy.sql(f"ALTER TABLE app.t ADD COLUMN b int; GRANT SELECT (b) ON app.t TO {stranger.info.user}")
    assert run(stranger, REPLICAS) == []
    busy.sql(f"GRANT SELECT ON app.t TO {stranger.info.user}")
    ((source, rows, error, location),) = run(stranger, REPLICAS)
    assert (source, rows, location) == ("app.t", 4711, None)
    assert SECRET in error  # rows that this role may read
    # Of some of the rows, neither their number nor values of others.
    busy.sql("ALTER TABLE app.t ENABLE ROW LEVEL SECURITY; CREATE POLICY mine ON app.t USING (a = 'mine')")
    assert run(stranger, REPLICAS) == []
    busy.sql("ALTER TABLE app.t DISABLE ROW LEVEL SECURITY")
    assert len(run(stranger, REPLICAS)) == 1


def test_query_over_a_table_that_the_caller_may_not_read_is_refused_as_postgresql_refuses_it(
    busy: Database, make_role: Roles
) -> None:
    stranger = make_role(busy)
    busy.sql(f"GRANT USAGE ON SCHEMA app TO {stranger.info.user}")
    for call in (
        "SELECT * FROM pgtrickle.validate_query('SELECT a FROM app.t')",
        "CALL pgtrickle.explain_query('SELECT a FROM app.t')",
        "SELECT pgtrickle.create_stream_table('x', 'SELECT a FROM app.t', engine => 'spark')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
            stranger.execute(call)
        assert str(refused.value).splitlines()[0] == "permission denied for table t"
        assert not any(word in str(refused.value) for word in (SECRET, "4711", "replica"))


def test_owner_sees_what_strangers_do_not(busy: Database) -> None:
    (row,) = busy.sql("SELECT last_error_message FROM pgtrickle.stream_tables_info")
    assert SECRET in row[0]
    (row,) = busy.sql("SELECT subscriber FROM pgtrickle.subscribers()")
    assert row == (SECRET,)


@pytest.mark.parametrize("name", ["stage_1", "state_1_0", "mirror_9", "caller_key", "changes_{}"])
def test_private_tables_are_closed(busy: Database, make_role: Roles, name: str) -> None:
    stranger = make_role(busy)
    ((relid,),) = busy.sql("SELECT 'app.t'::regclass::oid::int8")
    table = f"pgtrickle_changes.{name.format(relid)}"
    for text in (
        f"SELECT * FROM {table}",
        f"COPY {table} TO STDOUT",
        f"DELETE FROM {table}",
        f"CREATE TABLE x (LIKE {table})",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            stranger.execute(text)


def test_alerts_name_no_value(busy: Database, make_role: Roles) -> None:
    """Everybody may listen."""
    stranger = make_role(busy)
    for channel in ("pg_trickle_alert", "pgtrickle_wake", "pgtrickle_changed"):
        stranger.execute(f"LISTEN {channel}")
    busy.sql("SELECT pgtrickle.resume_stream_table('app.s'); SELECT pgtrickle.repair_stream_table('app.s')")
    busy.sql("SELECT pgtrickle.drop_stream_table('app.x')")
    heard = [note.payload for note in stranger.notifies(timeout=0.5)]
    assert heard
    assert not any(SECRET in payload for payload in heard)
