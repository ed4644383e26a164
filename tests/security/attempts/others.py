"""What belongs to others: their stream tables, feeds, publications, groups, questions, numbers, names."""

from __future__ import annotations

from tests.security.arena import Arena, Trial
from tests.security.attempt import TICK, As, Attempt, Do, hostile, st

NOT_YOURS = "must be the creator|permission denied|only |this function is internal"
MINE = st("SELECT id, label FROM app.open")


MANY = As("admin", "INSERT INTO app.secret SELECT 2000000000 + g, 'WORD-many', 77 FROM generate_series(1, 12347) AS g")
FEWER = As("admin", "DELETE FROM app.secret WHERE n = 77 AND id < 2000000000 + 11214")


def _numbers(arena: Arena, trial: Trial) -> None:
    """12,347 rows came and 11,213 went in a table that the attacker may not read: nothing that it may read has these numbers."""
    names = [
        name
        for (name,) in arena.attack(
            trial,
            "SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'pgtrickle'::regnamespace AND p.provolatile <> 'v' AND p.prokind = 'f' "
            "AND p.pronargs - p.pronargdefaults = 0 AND has_function_privilege(p.oid, 'EXECUTE')",
        )
    ]
    relations = [
        name
        for (name,) in arena.attack(
            trial,
            "SELECT format('(SELECT %s FROM %s)', string_agg(quote_ident(a.attname), ', '), c.oid::regclass) FROM pg_class AS c "
            "JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped WHERE c.relnamespace = 'pgtrickle'::regnamespace "
            "AND c.relkind IN ('r', 'v') AND has_column_privilege(c.oid, a.attnum, 'SELECT') GROUP BY c.oid",
        )
    ]
    sources = [*(f"pgtrickle.{n}()" for n in names), *relations]
    sources += [
        f"pgtrickle.{f}('reports.{t}')" for f in ("get_refresh_history", "explain_st") for t in ("words", "counted")
    ]
    for source in sources:
        rows = arena.attack(
            trial,
            f"SELECT left(v::text, 300) FROM {source} AS x, jsonb_path_query(to_jsonb(x), 'lax $.**') AS v WHERE v::text IN ('12347', '11213', '1134') "
            "OR (jsonb_typeof(v) = 'string' AND v::text ~ '[^0-9A-Za-z.:/](12347|11213|1134)[^0-9A-Za-z]')",
        )
        trial.found += [f"{source} tells the number: {text}" for (text,) in rows]


def _borrowed(arena: Arena, trial: Trial) -> None:
    """alice calls a SECURITY DEFINER function of the attacker, and an administrator analyses its table."""
    for conn, sql in (
        (arena.alice, "SELECT evil.service('a')"),
        (arena.admin_conn, "ANALYZE evil.t"),
        (arena.admin_conn, "SELECT evil.service('a')"),
    ):
        conn.execute(sql.replace("evil", trial.schema))


def _renamed(arena: Arena, trial: Trial) -> None:
    n = trial.number
    arena.admin(
        f"CREATE ROLE bob_{n} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA pgtrickle TO bob_{n}; GRANT SELECT ON app.broken TO bob_{n}; "
        f"CREATE SCHEMA bobs_{n} AUTHORIZATION bob_{n}; GRANT USAGE, CREATE ON SCHEMA bobs_{n} TO {arena.service}"
    )
    bob = arena.session(f"bob_{n}")
    bob.execute(f"SELECT pgtrickle.create_stream_table('bobs_{n}.st', 'SELECT id, word::int AS n FROM app.broken')")
    bob.execute(f"SELECT pgtrickle.create_stream_table('bobs_{n}.st2', 'SELECT id, word FROM app.broken')")
    bob.execute(f"SELECT pgtrickle.create_refresh_group('bobs_{n}', '{{bobs_{n}.st,bobs_{n}.st2}}')")
    bob.execute(f"SELECT pgtrickle.create_subscriber('bobs_{n}.st2', 'bobs')")
    bob.execute(
        f"SELECT pgtrickle.create_stream_table('bobs_{n}.far', 'SELECT word FROM nowhere.app.secret WHERE word = ''{arena.word}''')"
    )
    bob.close()


def _take_name(arena: Arena, trial: Trial) -> None:
    n = trial.number
    trial.conn.close()
    arena.admin(
        f"ALTER ROLE bob_{n} RENAME TO robert_{n}; ALTER ROLE mallory_{n} RENAME TO bob_{n}; ALTER ROLE bob_{n} PASSWORD 'x'"
    )


def _now_bob(arena: Arena, trial: Trial) -> None:
    """The role that was bob is called otherwise now, and the attacker is called bob."""
    n = trial.number
    with arena.session(f"bob_{n}") as conn:
        trial.conn = conn
        for statement in (
            f"SELECT pgtrickle.alter_stream_table('bobs_{n}.st', status => 'SUSPENDED')",
            f"SELECT pgtrickle.drop_stream_table('bobs_{n}.st2', true)",
            f"SELECT pgtrickle.drop_subscriber('bobs_{n}.st2', 'bobs')",
            f"SELECT pgtrickle.drop_refresh_group('bobs_{n}')",
            f"SELECT pgtrickle.repair_stream_table('bobs_{n}.st')",
            f"SELECT pgtrickle.stream_table_to_publication('bobs_{n}.st')",
        ):
            if arena.attack(trial, statement):
                trial.found.append(f"as the next bob it may {statement}")
        arena.attack(trial, "SELECT * FROM pgtrickle.pgt_status()")
        arena.attack(trial, "SELECT * FROM pgtrickle.pending_definitions()")
        arena.attack(trial, "SELECT * FROM pgtrickle._asked()")
        arena.attack(trial, f"SELECT * FROM pgtrickle.get_refresh_history('bobs_{n}.st')")
    arena.admin(f"ALTER ROLE bob_{n} RENAME TO mallory_{n}; ALTER ROLE mallory_{n} PASSWORD 'x'")
    if arena.admin(f"SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = 'bobs_{n}'") != [(2,)]:
        trial.found.append("bob's stream tables are gone")


def _give_name(arena: Arena, trial: Trial) -> None:
    n = trial.number
    arena.admin(
        f"ALTER ROLE bob_{n} RENAME TO robert_{n}; CREATE ROLE bob_{n} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA pgtrickle TO bob_{n}"
    )
    arena.admin(f"REASSIGN OWNED BY robert_{n} TO team; DROP OWNED BY robert_{n}; DROP ROLE robert_{n}")
    arena.admin(f"GRANT SELECT ON app.broken TO bob_{n}; INSERT INTO app.broken VALUES (3, 'WORD-x')")


def _recreated(arena: Arena, trial: Trial) -> None:
    """The author's role was dropped, and another person has got the name."""
    n = trial.number
    arena.admin(f"REVOKE SELECT ON app.broken FROM bob_{n}")
    with arena.session(f"bob_{n}") as conn:
        trial.conn = conn
        if arena.attack(trial, f"SELECT pgtrickle.drop_stream_table('bobs_{n}.st2', true)"):
            trial.found.append("the next bob may drop them")
        arena.attack(trial, "SELECT * FROM pgtrickle.pgt_status()")


def _oid_of(target: str) -> Do:
    """As after a restore: the oid that the catalog has is that of another table."""

    def restore(arena: Arena, trial: Trial) -> None:
        arena.admin(
            "UPDATE pgtrickle.pgt_stream_tables SET pgt_relid = %s::regclass WHERE pgt_schema = %s AND pgt_name = 'st'",
            target,
            trial.schema,
        )
        arena.attack(trial, "SELECT pgtrickle.create_subscriber('evil.st', 'sub')")

    return Do(restore)


AFTER_RESTORE = (
    TICK,
    "SELECT * FROM pgtrickle.read_changes('evil.st', 'sub')",
    "SELECT pgtrickle.repair_stream_table('evil.st')",
    TICK,
    "SELECT * FROM pgtrickle.read_changes('evil.st', 'sub')",
    "SELECT pgtrickle.stream_table_to_publication('evil.st')",
)

ATTEMPTS = (
    Attempt("others_drop", "drop", ("SELECT pgtrickle.drop_stream_table('reports.words', true)",), NOT_YOURS),
    Attempt(
        "others_alter",
        "alter, suspend, resume, repair, refresh",
        (
            "SELECT pgtrickle.alter_stream_table('reports.words', query => 'SELECT 1 AS id')",
            "SELECT pgtrickle.alter_stream_table('reports.words', status => 'SUSPENDED')",
            "SELECT pgtrickle.alter_stream_table('reports.words', refresh_mode => 'FULL')",
            "SELECT pgtrickle.resume_stream_table('reports.words')",
            "SELECT pgtrickle.repair_stream_table('reports.words')",
            "SELECT pgtrickle.refresh_stream_table('reports.words')",
            "CALL pgtrickle.refresh_and_wait('reports.words', '1 second')",
        ),
        NOT_YOURS,
    ),
    Attempt(
        "others_replace",
        "create or replace",
        ("SELECT pgtrickle.create_or_replace_stream_table('reports.words', 'SELECT 1 AS id')",),
        NOT_YOURS,
    ),
    Attempt(
        "others_feed",
        "subscribers of others: create, read, acknowledge, drop",
        (
            "SELECT pgtrickle.create_subscriber('reports.words', 'me')",
            "SELECT * FROM pgtrickle.read_changes('reports.words', 'her consumer')",
            "SELECT pgtrickle.acknowledge_changes('reports.words', 'her consumer', '0/1')",
            "SELECT pgtrickle.drop_subscriber('reports.words', 'her consumer')",
        ),
        NOT_YOURS,
    ),
    Attempt(
        "others_publication",
        "publications of others",
        (
            "SELECT pgtrickle.stream_table_to_publication('reports.words')",
            "SELECT pgtrickle.drop_stream_table_publication('reports.words')",
        ),
        NOT_YOURS,
    ),
    Attempt(
        "publication_of_secrets",
        "a publication of the attacker's stream table, and one of the secret",
        (
            MINE,
            TICK,
            "SELECT pgtrickle.stream_table_to_publication('evil.st')",
            "CREATE PUBLICATION p FOR TABLE app.secret",
            "ALTER PUBLICATION pgt_pub_evil_st ADD TABLE app.secret",
            "SELECT pgtrickle.drop_stream_table_publication('evil.st')",
        ),
        "permission denied|must be owner",
    ),
    Attempt(
        "others_group",
        "refresh groups of others, and groups with tables of others",
        (
            MINE,
            "SELECT pgtrickle.create_refresh_group('mine', '{evil.st,reports.words}')",
            "SELECT pgtrickle.drop_refresh_group('hers')",
            "SELECT pgtrickle._note_group_applied('hers', 'mine')",
        ),
        NOT_YOURS,
    ),
    Attempt(
        "others_plan",
        "questions and answers of others",
        (
            As(
                "alice",
                "SELECT pgtrickle._ask_plan('SELECT word FROM app.secret WHERE word = ''WORD-literal''', 'app')",
            ),
            TICK,
            "SELECT (pgtrickle._take_plan(g, true)).* FROM generate_series(1, 500) AS g",
            "SELECT * FROM pgtrickle.pgt_plans",
        ),
        "permission denied",
    ),
    Attempt(
        "others_explained",
        "what is told of others' tables",
        (
            "SELECT * FROM pgtrickle.explain_st('reports.words')",
            "SELECT * FROM pgtrickle.explain_st('reports.failing')",
            "SELECT * FROM pgtrickle.get_refresh_history('reports.failing', 1000)",
            "SELECT pgtrickle.export_definition('reports.failing')",
            "SELECT * FROM pgtrickle.refresh_timeline(1000)",
            "SELECT * FROM pgtrickle.health_check()",
            "SELECT * FROM pgtrickle.parallel_job_status(100000)",
            "SELECT * FROM pgtrickle.pending_definitions()",
            "SELECT * FROM pgtrickle._asked()",
            "SELECT last_error_message FROM pgtrickle.pgt_stream_tables",
            "SELECT error_message FROM pgtrickle.pgt_refresh_history",
            "SELECT query FROM pgtrickle.pgt_definitions",
        ),
        "permission denied",
    ),
    Attempt("others_numbers", "how many rows others have", (MANY, TICK, FEWER, TICK, Do(_numbers))),
    Attempt(
        "others_shared_source",
        "a table of others is declared to be the copy of another",
        (
            "SELECT pgtrickle.declare_shared_source('app.open', 'field.app.secret')",
            "SELECT pgtrickle.forget_shared_source('app.open')",
            "SELECT pgtrickle.detach_reader('field')",
        ),
        "must be the owner|only ",
    ),
    Attempt(
        "own_shared_source",
        "a table of the attacker is declared to be the copy of the secret",
        (
            "CREATE TABLE evil.t (id int, word text)",
            "SELECT pgtrickle.declare_shared_source('evil.t', 'field.app.secret')",
            st("SELECT id, word FROM evil.t"),
            TICK,
        ),
        trusted=True,
    ),
    Attempt(
        "by_three_part_name",
        "the secret by the name database.schema.table, which the control plane looks up",
        (
            st("SELECT word FROM field.app.secret"),
            st("SELECT word FROM postgres.pg_catalog.pg_authid", "evil.st2"),
            st('SELECT x FROM "field@127.0.0.1:1".app.secret', "evil.st3"),
            TICK,
            "SELECT * FROM pgtrickle.pending_definitions()",
            "SELECT pgtrickle.drop_stream_table('evil.st')",
        ),
        "permission denied for table secret",
        maybe="stream table .* does not exist",
    ),
    Attempt(
        "request_names_another",
        "a request to alter names the stream table of another",
        (
            "SELECT pgtrickle._request_definition(1, 'evil', 'st', 'SELECT word FROM field.app.secret', '{}', '')",
            "SELECT pgtrickle._request_definition(NULL, 'reports', 'words', 'SELECT word FROM field.app.secret', '{}', '')",
        ),
        NOT_YOURS,
    ),
    Attempt(
        "borrowed_caller",
        "a SECURITY DEFINER function of the attacker, called by others, calls pgtrickle as them",
        (
            "CREATE TABLE evil.t (a text); INSERT INTO evil.t VALUES ('a')",
            "CREATE FUNCTION evil.service(a text) RETURNS text LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $f$ DECLARE r text; found text; BEGIN "
            "FOREACH r IN ARRAY ARRAY['SELECT string_agg(c::text, '','') FROM pgtrickle.read_changes(''reports.words'', ''her consumer'') AS c', "
            "'SELECT string_agg(d::text, '','') FROM pgtrickle.pending_definitions() AS d', 'SELECT string_agg(d::text, '','') FROM pgtrickle._asked() AS d', "
            "'SELECT pgtrickle.create_subscriber(''reports.counted'', ''mallory'')::text', "
            "'SELECT pgtrickle.alter_stream_table(''reports.counted'', status => ''SUSPENDED'')::text', "
            "'SELECT pgtrickle.drop_stream_table(''reports.counted'', true)::text'] LOOP "
            "BEGIN EXECUTE r INTO found; INSERT INTO evil.log VALUES (left(r, 60), current_user, session_user, coalesce(found, '')); "
            "EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; RETURN a; END $f$",
            "CREATE INDEX ON evil.t (evil.service(a))",
            Do(_borrowed),
            Do(
                lambda arena, trial: trial.found.extend(
                    f"as {s} it did {w}: {loot[:80]}"
                    for w, _, s, loot in arena.admin(f"SELECT * FROM {trial.schema}.log")
                    if s != trial.role
                )
            ),
        ),
    ),
    Attempt(
        "role_renamed",
        "the attacker gets the name of an author",
        (Do(_renamed), TICK, Do(_take_name), TICK, Do(_now_bob)),
        NOT_YOURS,
    ),
    Attempt(
        "role_recreated",
        "an author's role is dropped and another person gets the name",
        (Do(_renamed), TICK, Do(_give_name), TICK, Do(_recreated)),
        NOT_YOURS,
    ),
    *(
        Attempt(
            f"oid_of_{label}",
            f"after a restore, the oid of a stream table is that of {target}",
            (MINE, TICK, _oid_of(target), *AFTER_RESTORE, "SELECT pgtrickle.drop_stream_table('evil.st', true)"),
            "permission denied for the change feed",
            maybe="must be the creator|was dropped, renamed or moved",
        )
        for label, target in (("a_secret", "app.secret"), ("our_catalog", "pgtrickle.pgt_stream_tables"))
    ),
    Attempt(
        "drop_owned",
        "the attacker drops all it owns and is granted",
        (MINE, TICK, "DROP OWNED BY mallory CASCADE", TICK),
    ),
    Attempt(
        "schema_dropped",
        "the schema is dropped under the stream table",
        (
            MINE,
            TICK,
            "DROP SCHEMA evil CASCADE",
            TICK,
            "SELECT pgtrickle.repair_stream_table('evil.st')",
            "SELECT pgtrickle.drop_stream_table('evil.st', true)",
        ),
        "schema .* does not exist",
    ),
    Attempt(
        "schema_usage_withdrawn",
        "the service loses its rights in the schema",
        (MINE, TICK, 'REVOKE ALL ON SCHEMA evil FROM PUBLIC; REVOKE ALL ON SCHEMA evil FROM "{service}"', TICK),
        "permission denied for schema",
    ),
    Attempt(
        "forged_wake",
        "forged notifications for the scheduler",
        (
            "NOTIFY pgtrickle_wake, 'uninstall'",
            "SELECT pg_notify('pgtrickle_wake', 'drop 1'), pg_notify('pgtrickle_wake', repeat('x', 7000)), pg_notify('pgtrickle_wake', E'alter 1; DROP TABLE app.secret\\n')",
            TICK,
        ),
    ),
    Attempt(
        "forged_scheduler",
        "a session that says that it is the scheduler",
        (
            "SET application_name = 'pgtrickle/scheduler'",
            "SELECT * FROM pgtrickle.health_check()",
            "INSERT INTO pgtrickle.pgt_leases VALUES ('scheduler', 'me', now() + '1 day')",
            "SELECT pg_try_advisory_lock(1885828963)",
        ),
        "permission denied",
        check=lambda arena, trial: trial.conn.close(),
    ),
    Attempt(
        "settings",
        "settings",
        (
            "SELECT pgtrickle.set_option('allow_circular', 'on')",
            "SELECT pgtrickle.set_option('trusted_extensions', 'tablefunc')",
            "SELECT pgtrickle._define_options('[]')",
            "UPDATE pgtrickle.pgt_settings SET value = 'x'",
        ),
        "only |permission denied",
    ),
    Attempt(
        "settings_of_role",
        "settings that PostgreSQL stores for a role",
        (
            "ALTER ROLE mallory SET pg_trickle.enabled = 'off'",
            'ALTER ROLE "{service}" SET search_path = evil',
            "ALTER DATABASE field SET search_path = evil",
            "SET session_replication_role = replica",
        ),
        "permission denied|must be|only roles|does not exist",
    ),
    Attempt(
        "catalog_written",
        "the catalog itself",
        (
            "UPDATE pgtrickle.pgt_stream_tables SET created_by = 'mallory'",
            "INSERT INTO pgtrickle.pgt_plans (query, search_path, asked_by) VALUES ('SELECT 1', '', 'postgres')",
            "DELETE FROM pgtrickle.pgt_events",
            "INSERT INTO pgtrickle.pgt_definitions SELECT * FROM pgtrickle.pgt_definitions",
            "CREATE TABLE pgtrickle.mine (a int)",
            "CREATE FUNCTION pgtrickle._caller(text) RETURNS text LANGUAGE sql AS 'SELECT $1'",
            "CREATE TRIGGER t BEFORE UPDATE ON pgtrickle.pgt_stream_tables EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            "TRUNCATE pgtrickle.pgt_subscribers",
        ),
        "permission denied",
    ),
    Attempt(
        "group_of_hostile_names",
        "names of groups and subscribers with statements in them",
        (
            MINE,
            st("SELECT id FROM app.open", "evil.st2"),
            "SELECT pgtrickle.create_refresh_group(E'x''; DROP TABLE app.secret; --\\n%s %(id)s \\\\', '{evil.st,evil.st2}')",
            "SELECT pgtrickle.create_subscriber('evil.st', E'x''; DROP TABLE app.secret; --\\n%s')",
            TICK,
            "SELECT * FROM pgtrickle.read_changes('evil.st', E'x''; DROP TABLE app.secret; --\\n%s')",
            "SELECT * FROM pgtrickle.refresh_groups()",
        ),
    ),
    Attempt(
        "index_on_source",
        "a reader of an open table slows its writers: an index, a lock",
        (
            hostile("g"),
            "CREATE INDEX ON app.open (evil.g(label))",
            "BEGIN; LOCK TABLE app.open IN ACCESS EXCLUSIVE MODE; COMMIT",
            "CREATE TRIGGER t AFTER INSERT ON app.open EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        ),
        "must be owner|permission denied",
    ),
)
