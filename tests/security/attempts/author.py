"""Code that runs as its author, because the service may become the author: it must not become the service."""

from __future__ import annotations

from tests.security.arena import Arena, Trial
from tests.security.attempt import TICK, As, Attempt, hostile, st

ANY_REFUSAL = r"evil|permission denied|not allowed|read-only|cannot|security|role|transaction"


def _author(name: str, tries: str, *steps: object, maybe: str | None = ANY_REFUSAL) -> Attempt:
    return Attempt(name, tries, tuple(steps), None, maybe, trusted=True)  # type: ignore[arg-type]


def _body(name: str, text: str) -> str:
    """A function that does something to its session and then what it can."""
    return (
        f"CREATE FUNCTION evil.{name}(text) RETURNS text LANGUAGE plpgsql STABLE AS $f$ BEGIN "
        f"BEGIN {text} EXCEPTION WHEN OTHERS THEN NULL; END; RETURN evil.payload('{name}'); END $f$"
    )


def _was_evaluated(arena: Arena, trial: Trial) -> None:
    """Otherwise these attempts would prove nothing: the stream table has what the function said, with the author's rights."""
    rows = arena.admin(f"SELECT DISTINCT btrim(t) FROM {trial.schema}.st")
    if rows != [(trial.role,)]:
        trial.found.append(f"it was evaluated as {rows}")


READ = st("SELECT id, evil.f(label) AS t FROM app.open")

ATTEMPTS = (
    Attempt(
        "author_function",
        "a function with the author's rights",
        (hostile("f", result="evil.payload('f')"), READ, TICK, TICK),
        maybe=ANY_REFUSAL,
        trusted=True,
        check=_was_evaluated,
    ),
    _author(
        "author_domain",
        "a domain's CHECK with the author's rights",
        hostile("chk", returns="bool", result="true"),
        "CREATE DOMAIN evil.dom AS text CHECK (evil.chk(VALUE))",
        st("SELECT id, label::evil.dom AS d FROM app.open"),
        st("SELECT id, (label::evil.dom)::text AS d FROM app.open", "evil.st2"),
        TICK,
        TICK,
    ),
    _author(
        "author_aggregate",
        "an aggregate with the author's rights",
        "CREATE FUNCTION evil.step(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM evil.payload('step'); RETURN $2; END $$",
        "CREATE AGGREGATE evil.agg(int) (SFUNC = evil.step, STYPE = int)",
        st("SELECT n, evil.agg(id) AS a FROM app.open GROUP BY n"),
        TICK,
        TICK,
    ),
    _author(
        "author_cast",
        "casts of the author's types",
        "CREATE TYPE evil.en AS ENUM ('a')",
        hostile("to_text", "evil.en"),
        "CREATE CAST (evil.en AS text) WITH FUNCTION evil.to_text(evil.en) AS IMPLICIT",
        st("SELECT id, 'a'::evil.en AS e, ('a'::evil.en)::text AS t FROM app.open"),
        TICK,
        TICK,
    ),
    _author("author_resets_role", "RESET ROLE in a function", _body("f", "RESET ROLE;"), READ, TICK, TICK),
    _author(
        "author_sets_role",
        "SET ROLE to the service in a function",
        _body("f", "PERFORM set_config('role', '{service}', false);"),
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_sets_session",
        "SET SESSION AUTHORIZATION in a function",
        _body("f", "SET SESSION AUTHORIZATION DEFAULT;"),
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_discards",
        "DISCARD ALL and RESET ALL in a function",
        _body("f", "RESET ALL; EXECUTE 'DISCARD TEMP'; EXECUTE 'DISCARD PLANS';"),
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_sets_path",
        "a function leaves a search_path behind, with operators and functions for whoever comes next",
        hostile("eq", "text, text", "bool", "true"),
        "CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq)",
        hostile("count_", ""),
        _body("f", "PERFORM set_config('search_path', 'evil, pg_catalog', false);"),
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_sets_replication",
        "a function switches triggers, timeouts and messages of its session",
        _body("f", "PERFORM set_config('session_replication_role', 'replica', false);"),
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_writes",
        "a function tries to leave read-only",
        _body(
            "f", "PERFORM set_config('transaction_read_only', 'off', false); INSERT INTO app.open VALUES (-1, 'x', 1);"
        ),
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_holds_cursor",
        "a function leaves a cursor behind that is run at commit or FETCH, by the service",
        _body("f", "EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT evil.payload(''held'')';"),
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_defers",
        "a function queues a deferred trigger, which fires at commit",
        "CREATE FUNCTION evil.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.payload('deferred'); RETURN NULL; END $$",
        "CREATE TABLE evil.queue (a int); CREATE CONSTRAINT TRIGGER d AFTER INSERT ON evil.queue DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION evil.fire()",
        "CREATE FUNCTION evil.put() RETURNS void LANGUAGE sql VOLATILE AS 'INSERT INTO evil.queue VALUES (1)'",
        _body("f", "PERFORM evil.put();"),
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_listens",
        "a function listens and notifies",
        _body("f", "EXECUTE 'LISTEN pgtrickle_wake'; PERFORM pg_notify('pgtrickle_wake', 'uninstall');"),
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_prepares",
        "a function prepares statements under names that the driver uses",
        _body(
            "f",
            "EXECUTE 'PREPARE _pg3_0 AS SELECT evil.payload(''prepared'')'; EXECUTE 'PREPARE _pg3_1 AS SELECT evil.payload(''prepared'')';",
        ),
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_reads_session",
        "a function reads whatever is in its session: temporary tables, cursors, statements, settings",
        "CREATE FUNCTION evil.f(text) RETURNS text LANGUAGE plpgsql STABLE AS $f$ DECLARE r record; found text := ''; more text; BEGIN "
        "FOR r IN SELECT c.oid::regclass AS t FROM pg_class AS c WHERE c.relnamespace = pg_my_temp_schema() AND c.relkind = 'r' LOOP "
        "BEGIN EXECUTE format('SELECT string_agg(t::text, '','') FROM %s AS t', r.t) INTO more; found := found || coalesce(more, ''); "
        "EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; "
        "SELECT found || string_agg(q::text, ',') INTO found FROM (SELECT statement FROM pg_prepared_statements UNION ALL SELECT statement FROM pg_cursors "
        "UNION ALL SELECT query FROM pg_stat_activity UNION ALL SELECT current_setting('primary_conninfo', true)) AS q; RETURN found; "
        "EXCEPTION WHEN OTHERS THEN RETURN SQLERRM; END $f$",
        st("SELECT id, evil.f(name) AS t FROM app.people"),
        st(
            "SELECT p.id, p.name, evil.f(o.label) AS t FROM app.people AS p JOIN app.open AS o ON o.id = p.id",
            "evil.st2",
        ),
        TICK,
        As(
            "team",
            "INSERT INTO app.people VALUES ({n}, 'new', 'WORD-pay-{n}'); UPDATE app.people SET pay = pay || 'x', name = name || 'y'",
        ),
        TICK,
    ),
    _author(
        "author_reads_windows",
        "the changes of columns that the author may not read",
        As("alice", "SELECT 1"),
        As("team", "GRANT SELECT ON app.people TO alice"),
        As("alice", "SELECT pgtrickle.create_stream_table('reports.pay_{n}', 'SELECT id, pay FROM app.people')"),
        "CREATE FUNCTION evil.f(text) RETURNS text LANGUAGE plpgsql STABLE AS $f$ DECLARE r record; found text := ''; more text; BEGIN "
        "FOR r IN SELECT c.oid::regclass AS t FROM pg_class AS c WHERE c.relkind IN ('r', 'v') AND (c.relnamespace = pg_my_temp_schema() "
        "OR c.relnamespace = 'pgtrickle_changes'::regnamespace) LOOP "
        "BEGIN EXECUTE format('SELECT string_agg(t::text, '','') FROM %s AS t', r.t) INTO more; found := found || coalesce(more, ''); "
        "EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; RETURN found; END $f$",
        st("SELECT id, evil.f(name) AS t FROM app.people"),
        TICK,
        As("team", "INSERT INTO app.people VALUES (1000 + {n}, 'new', 'WORD-pay-{n}')"),
        TICK,
        As("team", "REVOKE SELECT ON app.people FROM alice"),
        As("alice", "SELECT pgtrickle.drop_stream_table('reports.pay_{n}')"),
    ),
    _author(
        "author_calls_us",
        "a function calls pgtrickle from within an evaluation: who is the caller there?",
        "CREATE FUNCTION evil.f(text) RETURNS text LANGUAGE plpgsql STABLE AS $f$ DECLARE r text; found text := ''; BEGIN "
        "FOREACH r IN ARRAY ARRAY['pgtrickle.pending_definitions()', 'pgtrickle._asked()', 'pgtrickle._messages', 'pgtrickle._refresh_messages', 'pgtrickle.subscribers()', "
        "'pgtrickle._buffer_sizes()', 'pgtrickle.pgt_status()'] LOOP "
        "BEGIN EXECUTE format('SELECT $1 || string_agg(t::text, '','') FROM %s AS t', r) INTO found USING found; EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; "
        "RETURN coalesce(found, '') || coalesce(pgtrickle._caller(), ''); END $f$",
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_drops_others",
        "a function drops, alters and reads the stream tables of others from within an evaluation",
        _body("f", "PERFORM pgtrickle.drop_stream_table('reports.words', true);"),
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_function_replaced",
        "a harmless function is replaced by a hostile one",
        "CREATE FUNCTION evil.f(a text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN a; END'",
        READ,
        TICK,
        "CREATE OR REPLACE FUNCTION evil.f(a text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN evil.payload('replaced'); END $$",
        TICK,
    ),
    _author(
        "author_function_definer",
        "a function becomes SECURITY DEFINER, and SET ROLE its setting",
        hostile("f", result="evil.payload('f')"),
        "ALTER FUNCTION evil.f(text) SECURITY DEFINER",
        "ALTER FUNCTION evil.f(text) SET role = '{service}'",
        READ,
        TICK,
        TICK,
    ),
    _author(
        "author_membership_ends",
        "the service may not become the author any more",
        hostile("f", result="evil.payload('f')"),
        READ,
        TICK,
        As("admin", "REVOKE mallory FROM {service}"),
        TICK,
    ),
    _author(
        "author_calls_runner",
        "the functions that evaluate as the author are called, replaced and dropped by the author",
        hostile("f", result="evil.payload('f')"),
        READ,
        TICK,
        "CREATE FUNCTION pgtrickle_run.x() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "DO $d$ DECLARE p oid; BEGIN FOR p IN SELECT oid FROM pg_proc WHERE proowner = 'mallory'::regrole AND pronamespace <> 'evil'::regnamespace LOOP "
        "EXECUTE format('ALTER FUNCTION %s RESET ALL', p::regprocedure); EXECUTE format('ALTER FUNCTION %s SECURITY INVOKER', p::regprocedure); "
        "EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', p::regprocedure); END LOOP; END $d$",
        TICK,
        "DROP OWNED BY mallory",
        TICK,
        maybe=ANY_REFUSAL + "|does not exist|must be owner",
    ),
    _author(
        "author_runner_by_hand",
        "the author makes a function of the name that the service will call",
        As("admin", "GRANT CREATE ON DATABASE field TO mallory"),
        "CREATE SCHEMA IF NOT EXISTS pgtrickle_run",
        "DO $d$ BEGIN EXECUTE 'CREATE FUNCTION pgtrickle_run.run_' || 'mallory'::regrole::oid || '(text) RETURNS SETOF record LANGUAGE plpgsql AS ''BEGIN PERFORM evil.payload(''''runner''''); END'''; "
        "EXCEPTION WHEN OTHERS THEN NULL; END $d$",
        hostile("f", result="evil.payload('f')"),
        READ,
        TICK,
        As("admin", "REVOKE CREATE ON DATABASE field FROM mallory"),
        "DROP SCHEMA pgtrickle_run CASCADE",
        maybe=ANY_REFUSAL + "|already exists|does not exist|must be owner",
    ),
    _author(
        "author_loops",
        "an evaluation that does not end",
        "CREATE FUNCTION evil.f(text) RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN PERFORM pg_sleep(0.01); RETURN $1; END $$",
        READ,
        TICK,
    ),
)
