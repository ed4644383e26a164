"""Functions that are not meant to be called: each is called, with hostile arguments, by somebody who may not."""

from __future__ import annotations

from tests.security.arena import Arena, Trial
from tests.security.attempt import TICK, Attempt, Do, hostile, st

_VALUES = {
    "oid": ("'app.secret'::regclass::oid", "'reports.words'::regclass::oid", "NULL"),
    "regclass": ("'app.secret'::regclass", "'reports.words'::regclass"),
    "bigint": ("1", "2", "-1", "NULL"),
    "integer": ("1", "0"),
    "smallint": ("1::int2",),
    "text": ("'reports.words'", "'SELECT word FROM app.secret'", "E'x''; DROP TABLE app.secret; --'", "NULL"),
    "name": ("'reports'", "'words'", "'postgres'", "'alice'"),
    "boolean": ("true",),
    "jsonb": ("""'{"schedule": "1s", "load": "SELECT word FROM app.secret"}'""", "'[]'"),
    "interval": ("'200 ms'",),
    "pg_snapshot": ("'1:2:'",),
    "pg_lsn": ("'0/1'",),
    "xid8": ("'5'",),
    "pgtrickle.pgt_stream_tables": (
        "(SELECT ROW(s.*)::pgtrickle.pgt_stream_tables FROM pgtrickle._stream_table(1) AS s)",
        "NULL",
    ),
    '"char"': ("'r'",),
    "double precision": ("0.5",),
}
# Polymorphic types, and what a function gets instead.
_CONCRETE = {"anyarray": "text[]", "anyelement": "text"}
_NOT_CALLED = ("42601", "42883", "42804")  # a syntax error, no such function, types that do not fit


def _call_everything(arena: Arena, trial: Trial) -> None:
    """The first value of each argument, then the second, ...: NULL for what is not known above."""
    functions = arena.attack(
        trial,
        "SELECT p.oid::regproc::text, p.prokind = 'p', ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS a(t, i) ORDER BY i), "
        "p.provariadic <> 0 FROM pg_proc AS p WHERE p.pronamespace = 'pgtrickle'::regnamespace AND has_function_privilege(p.oid, 'EXECUTE') AND p.prorettype <> 'trigger'::regtype ORDER BY 1",
    )
    assert len(functions) > 60
    trial.conn.execute("SET statement_timeout = '300s'")
    arena.admin("SELECT 1")
    before = arena.admin(_OF_OTHERS)
    for name, is_procedure, types, is_variadic in functions:
        for variant in range(3):
            arguments = []
            for type_ in types:
                known = _VALUES.get(type_, ())
                value = known[min(variant, len(known) - 1)] if known else "NULL"
                arguments.append(f"{value}::{_CONCRETE.get(type_, type_)}")
            if is_variadic:
                arguments[-1] = f"VARIADIC {arguments[-1]}"
            call = f"{name}({', '.join(arguments)})"
            arena.attack(
                trial, f"CALL {call}" if is_procedure else f"SELECT left(x::text, 3000) FROM {call} AS x LIMIT 20"
            )
    after = arena.admin(_OF_OTHERS)
    for state, text, call in trial.report.errors:
        if state in _NOT_CALLED and not text.startswith("the query is not valid"):
            trial.found.append(f"nothing was called: {state} {text} -- {call}")
    if before != after:
        trial.found.append(f"others' things have changed: {before} -> {after}")


_OF_OTHERS = """
SELECT jsonb_agg(to_jsonb(s) - '{epoch,refresh_requested_at,refresh_done_at,last_refresh_at,data_timestamp,frontier,last_full_ms,last_diff_ms,updated_at,consecutive_errors,last_error_message,status,plan}'::text[] ORDER BY pgt_id)
       || (SELECT jsonb_agg(to_jsonb(g)) FROM pgtrickle.pgt_refresh_groups AS g WHERE group_name = 'hers')
       || (SELECT jsonb_agg(u.subscriber) FROM pgtrickle.pgt_subscribers AS u WHERE subscriber = 'her consumer')
       || (SELECT jsonb_agg(p.pgt_id) FROM pgtrickle.pgt_publications AS p)
       || (SELECT jsonb_agg(to_jsonb(o)) FROM pgtrickle.pgt_settings AS o)
FROM pgtrickle.pgt_stream_tables AS s WHERE pgt_schema = 'reports' AND pgt_name IN ('words', 'counted', 'failing')
"""

ATTEMPTS = (
    Attempt(
        "internals_called",
        "every function of schema pgtrickle that may be called is called",
        (st("SELECT id FROM app.open"), Do(_call_everything), TICK),
        maybe=".",  # by each function for reasons of its own; _call_everything() finds calls that are wrong
    ),
    Attempt(
        "internals_closed",
        "functions that only the control plane and other functions call",
        (
            "SELECT pgtrickle._register_as('postgres'::regrole, '{}', 'app.secret_view'::regclass, 'evil', 'st', '', '{}')",
            "SELECT pgtrickle._wake('drop', 1)",
            "SELECT pgtrickle._alert('a', 'b', 'c')",
            "SELECT pgtrickle._make_mirror('{}', '[]', '[]', 0)",
            "SELECT pgtrickle._drop_mirror(1)",
            "SELECT pgtrickle._store_dependencies(1, 0, 0, '{}')",
            "SELECT pgtrickle._authorize(1, '')",
            "SELECT pgtrickle_changes._broker_counts('{}', '{}')",
            "SELECT pgtrickle_changes._note_move('app.open'::regclass, 'a', 'b')",
        ),
        "permission denied",
    ),
    Attempt(
        "moves_noted",
        "the function that conditions of triggers call, by other names: an operator, a cast, an aggregate, a trigger",
        (
            "CREATE TABLE evil.own (id int, k int) PARTITION BY RANGE (k)",
            "CREATE TABLE evil.own_low PARTITION OF evil.own FOR VALUES FROM (0) TO (10)",
            "CREATE TABLE evil.own_high PARTITION OF evil.own FOR VALUES FROM (10) TO (20)",
            st("SELECT id, k FROM evil.own"),
            TICK,
            "INSERT INTO evil.own VALUES (1, 1)",
            "MERGE INTO evil.own AS o USING (VALUES (1)) AS s(id) ON s.id = o.id WHEN MATCHED THEN UPDATE SET k = 11",
            TICK,
            "CREATE AGGREGATE evil.agg(text, text) (SFUNC = pgtrickle_changes._note_move, STYPE = oid)",
            "CREATE TRIGGER t AFTER UPDATE ON evil.own_low FOR EACH ROW "
            "WHEN (pgtrickle_changes._note_move('app.open'::regclass, OLD.k::text, 'b')) "
            "EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            "SELECT '1'::oid::regproc, 'pgtrickle_changes._note_move'::regproc",
        ),
        "permission denied",
        trusted=True,
    ),
    Attempt(
        "probe_by_hand",
        "a probe over the secret, made by hand",
        (
            "CREATE TEMPORARY VIEW __pgt_probe AS SELECT word FROM app.secret",
            "SELECT pgtrickle._register('pg_temp.__pgt_probe'::regclass, 'evil', 'st', 'SELECT word FROM app.secret', '{}')",
            "SELECT pgtrickle._describe('pg_temp.__pgt_probe'::regclass)",
            TICK,
        ),
        "permission denied",
    ),
    Attempt(
        "probe_of_another",
        "a probe that is not the session's, or is no probe",
        (
            "SELECT pgtrickle._register('app.secret_view'::regclass, 'evil', 'st', 'SELECT 1', '{}')",
            "SELECT pgtrickle._register('reports.words'::regclass, 'evil', 'st', 'SELECT 1', '{}')",
            "CREATE TEMPORARY TABLE __pgt_probe (a int)",
            "SELECT pgtrickle._register('pg_temp.__pgt_probe'::regclass, 'evil', 'st', 'SELECT 1', '{}')",
            st("SELECT id FROM app.open"),
        ),
        "this function is internal|__pgt_probe",
    ),
    Attempt(
        "probe_with_another_text",
        "a harmless probe, registered with the text of another query, which verification would evaluate",
        (
            hostile("f"),
            "CREATE TEMPORARY VIEW __pgt_probe AS SELECT id, label FROM app.open",
            "SELECT pgtrickle._register('pg_temp.__pgt_probe'::regclass, 'evil', 'st', 'SELECT id, evil.f(label) AS label FROM app.open', '{}')",
            "SELECT pgtrickle._register('pg_temp.__pgt_probe'::regclass, 'evil', 'st2', 'SELECT id, word AS label FROM app.secret', '{}')",
            "SELECT pgtrickle._register('pg_temp.__pgt_probe'::regclass, 'evil', 'st3', 'SELECT 1 AS id, 1 AS label; GRANT SELECT ON app.secret TO mallory', '{}')",
            "DROP VIEW __pgt_probe",
            TICK,
            "SELECT pgtrickle.alter_stream_table('evil.st', refresh_mode => 'FULL')",
            "SELECT pgtrickle.repair_stream_table('evil.st2')",
            TICK,
        ),
    ),
    Attempt(
        "probe_altered_with_another_text",
        "the same when a stream table is altered",
        (
            hostile("f"),
            st("SELECT id, label FROM app.open"),
            "CREATE TEMPORARY VIEW __pgt_probe AS SELECT id, label FROM app.open",
            "SELECT pgtrickle._alter(st.pgt_id, 'pg_temp.__pgt_probe'::regclass, 'SELECT id, evil.f(label) AS label FROM app.open', '{}') FROM pgtrickle.pgt_stream_tables AS st WHERE pgt_schema = 'evil'",
            "DROP VIEW __pgt_probe",
            TICK,
        ),
    ),
    Attempt(
        "temporary_shadows",
        "temporary objects with the names of ours and of the catalog's",
        (
            "CREATE TEMPORARY TABLE pg_class AS SELECT * FROM pg_catalog.pg_class; CREATE TEMPORARY TABLE pg_roles AS SELECT * FROM pg_catalog.pg_roles; "
            "CREATE TEMPORARY TABLE pgt_stream_tables (pgt_id bigint, created_by name); INSERT INTO pgt_stream_tables VALUES (1, 'mallory')",
            "CREATE FUNCTION pg_temp._caller() RETURNS name LANGUAGE sql AS $$ SELECT 'postgres'::name $$",
            "CREATE FUNCTION pg_temp.format(text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN evil.payload('format'); END $$",
            "CREATE FUNCTION pg_temp.lower(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN evil.payload('lower'); END $$",
            "SET search_path = pg_temp, pg_catalog, evil",
            "SELECT pgtrickle.drop_stream_table('reports.words')",
            st("SELECT id, lower(label) AS l FROM app.open"),
            st("SELECT relname::text AS r FROM pg_class", "evil.st2"),
        ),
        "must be the creator|temporary|pg_temp",
    ),
    Attempt(
        "role_between",
        "SET ROLE between the probe and its registration",
        (
            "BEGIN; CREATE TEMPORARY VIEW __pgt_probe AS SELECT id, label FROM app.open; SET LOCAL ROLE alice",
            "ROLLBACK",
            "SET ROLE postgres",
            "SET SESSION AUTHORIZATION alice",
            "SELECT set_config('role', '{service}', false)",
        ),
        "permission denied|must be",
    ),
    Attempt(
        "path_of_the_caller",
        "functions and operators of the attacker in the path while definer functions run",
        (
            hostile("pg_has_role", "name, name, text", "bool", "true"),
            hostile("has_schema_privilege", "oid, oid, text", "bool", "true"),
            hostile("eq", "name, name", "bool", "true"),
            "CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = name, FUNCTION = evil.eq)",
            "CREATE OPERATOR evil.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = texteq)",
            "SET search_path = evil, pg_catalog",
            "SELECT pgtrickle.drop_stream_table('reports.words')",
            st("SELECT 1 AS a FROM app.open", "app.st"),
            "SELECT pgtrickle.create_or_replace_stream_table('reports.words', 'SELECT 1 AS a FROM app.open')",
        ),
        "must be the creator|permission denied|does not exist|cannot be created|unique|operator",
    ),
    Attempt(
        "key_by_operator",
        "operators and functions of the attacker where the proof of who calls is signed get the key",
        (
            "CREATE FUNCTION evil.steal(a bytea, b bytea) RETURNS bytea LANGUAGE plpgsql VOLATILE AS "
            "$$ BEGIN INSERT INTO evil.log VALUES ('key', current_user, session_user, encode(a, 'hex') || ' ' || encode(b, 'hex')); RETURN a; END $$",
            "CREATE OPERATOR evil.|| (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = evil.steal)",
            "CREATE FUNCTION evil.times(a numeric, b int) RETURNS numeric LANGUAGE plpgsql AS $$ BEGIN RETURN 0; END $$",
            "CREATE OPERATOR evil.* (LEFTARG = numeric, RIGHTARG = int, FUNCTION = evil.times)",
            "CREATE FUNCTION evil.sha256(bytea) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN INSERT INTO evil.log VALUES ('key', '', '', encode($1, 'hex')); RETURN $1; END $$",
            "SET search_path = evil, pg_catalog",
            "SELECT pgtrickle._me()",
            "SELECT * FROM pgtrickle._proof",
            "SELECT * FROM pgtrickle.pending_definitions()",
            "SELECT pgtrickle._signed('postgres', '\\x00')",
            "RESET search_path",
        ),
        maybe="proven|is not unique|not exist|permission denied",
        check=lambda arena, trial: trial.found.extend(
            f"it has seen the key: {row}"
            for row in arena.admin(
                f"SELECT l.loot FROM {trial.schema}.log AS l, pgtrickle_changes.caller_key AS k WHERE l.loot LIKE '%' || encode(k.key, 'hex') || '%'"
            )
        ),
    ),
    Attempt(
        "caller_forged",
        "a proof of another transaction, of another role, or none",
        (
            "SELECT * FROM pgtrickle._asked(repeat('0', 64) || 'alice')",
            "SELECT * FROM pgtrickle._asked(left(pgtrickle._me(), 64) || 'alice')",
            "SELECT * FROM pgtrickle._asked(pgtrickle._me() || 'x')",
            "SELECT * FROM pgtrickle._asked(NULL)",
            "SELECT pgtrickle._take_plan(1, true, left(pgtrickle._me(), 64) || 'postgres')",
        ),
        "not proven",
    ),
    Attempt(
        "long_path",
        "a search_path that no client survives",
        (
            "SELECT set_config('search_path', 'pg_catalog, ' || string_agg('x' || repeat('y', 50) || g, ', '), false) FROM generate_series(1, 3000) AS g",
            st("SELECT id, label FROM app.open"),
            "SELECT pgtrickle._ask_plan('SELECT id FROM app.open', repeat('evil, ', 10000) || 'evil')",
            "SELECT pgtrickle._request_definition(NULL, 'evil', 'st2', 'SELECT word FROM a.b.c', '{}', repeat('evil, ', 10000) || 'evil')",
            TICK,
        ),
        "search_path has|bytes",
        maybe="could not connect|synchronization|closed",
    ),
    Attempt(
        "odd_settings",
        "settings of the author's session that would go wherever the query goes",
        (
            "SET TimeZone = '<evil>+1:23'; SET DateStyle = 'German, DMY'; SET IntervalStyle = 'sql_standard'; SET extra_float_digits = -15; SET bytea_output = 'escape'; "
            "SET xmlbinary = 'hex'; SET array_nulls = off; SET standard_conforming_strings = off; SET backslash_quote = on; SET row_security = off; SET check_function_bodies = off",
            st("SELECT id, label, now()::text AS t FROM app.open"),
            TICK,
        ),
    ),
)
