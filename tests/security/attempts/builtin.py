"""Built-in functions and views that take SQL, a relation, a file, a setting, a large object, or depend on who asks."""

from __future__ import annotations

from tests.security.attempt import TICK, Attempt, st

# Name, what it would tell, query, and by which words it is refused: any other error would say nothing about it.
_QUERIES = (
    (
        "crosstab",
        "SQL as an argument",
        "SELECT * FROM public.crosstab('SELECT id, id, word FROM app.secret') AS c(id int, a text, b text)",
        r"function public\.crosstab\(text\) belongs to",
    ),
    (
        "crosstab_n",
        "SQL as an argument",
        "SELECT * FROM public.crosstab2('SELECT word, word, word FROM app.secret')",
        r"function public\.crosstab2\(text\) belongs to",
    ),
    (
        "connectby",
        "a relation as an argument",
        "SELECT * FROM public.connectby('app.secret', 'word', 'word', 'x', 0) AS c(a text, b text, level int)",
        r"function public\.connectby\(.*\) belongs to",
    ),
    (
        "table_to_xml",
        "a relation as an argument",
        "SELECT table_to_xml('app.secret'::regclass, true, false, '')::text AS x",
        r"function pg_catalog\.table_to_xml\(",
    ),
    (
        "table_to_xml_late",
        "a relation that is computed",
        "SELECT table_to_xml(('app.' || 'secret')::regclass, true, false, '')::text AS x",
        r"function pg_catalog\.regclass\(",
    ),
    (
        "query_to_xml",
        "SQL as an argument",
        "SELECT query_to_xml('SELECT * FROM app.secret', true, false, '')::text AS x",
        r"calls the volatile function pg_catalog\.query_to_xml\(",
    ),
    (
        "query_to_xml_rows",
        "SQL made of rows",
        "SELECT id, query_to_xml('SELECT * FROM app.secret WHERE id > ' || (id * 0), true, false, '')::text AS x FROM app.open",
        r"calls the volatile function pg_catalog\.query_to_xml\(",
    ),
    (
        "schema_to_xml",
        "a schema as an argument",
        "SELECT schema_to_xml('app', true, false, '')::text AS x",
        r"function pg_catalog\.schema_to_xml\(",
    ),
    (
        "database_to_xml",
        "the whole database",
        "SELECT database_to_xml(true, false, '')::text AS x",
        r"function pg_catalog\.database_to_xml\(",
    ),
    (
        "query_to_xml_and_schema",
        "SQL as an argument",
        "SELECT query_to_xml_and_xmlschema('SELECT * FROM app.secret', true, false, '')::text AS x",
        r"calls the volatile function pg_catalog\.query_to_xml_and_xmlschema\(",
    ),
    (
        "cursor_to_xml",
        "a cursor of the session",
        "SELECT cursor_to_xml('c', 10, true, false, '')::text AS x",
        r"calls the volatile function pg_catalog\.cursor_to_xml\(",
    ),
    (
        "ts_stat",
        "SQL as an argument",
        "SELECT word FROM ts_stat('SELECT array_to_tsvector(ARRAY[word]) FROM app.secret') AS t",
        r"calls the volatile function pg_catalog\.ts_stat\(",
    ),
    (
        "ts_rewrite",
        "SQL as an argument",
        "SELECT ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, plainto_tsquery(word) FROM app.secret')::text AS x",
        r"calls the volatile function pg_catalog\.ts_rewrite\(",
    ),
    (
        "read_file",
        "a file of the server",
        "SELECT pg_read_file('canary.txt') AS x",
        "permission denied for function pg_read_file",
    ),
    (
        "read_binary_file",
        "a file of the server",
        "SELECT convert_from(pg_read_binary_file('canary.txt'), 'UTF8') AS x",
        "permission denied for function pg_read_binary_file",
    ),
    (
        "large_object",
        "a large object",
        "SELECT convert_from(lo_get(4711), 'UTF8') AS x",
        r"calls the volatile function pg_catalog\.lo_get\(",
    ),
    (
        "setting",
        "a setting for superusers",
        "SELECT current_setting('primary_conninfo') AS x",
        r"function pg_catalog\.current_setting\(",
    ),
    (
        "settings_view",
        "settings for superusers",
        "SELECT name, setting FROM pg_settings",
        r"system catalog pg_catalog\.pg_settings",
    ),
    (
        "file_settings",
        "the configuration file",
        "SELECT name, setting FROM pg_file_settings",
        "permission denied for view pg_file_settings",
    ),
    (
        "statistics",
        "the most common values of a column",
        "SELECT most_common_vals::text AS v, histogram_bounds::text AS b FROM pg_stats WHERE schemaname = 'app'",
        r"system catalog pg_catalog\.pg_",
    ),
    ("activity", "what others run", "SELECT pid, query FROM pg_stat_activity", r"system catalog pg_catalog\.pg_"),
    (
        "activity_function",
        "what others run",
        "SELECT pg_stat_get_backend_activity(g) AS q FROM generate_series(1, 50) AS g",
        r"function pg_catalog\.pg_stat_get_backend_activity\(",
    ),
    (
        "mappings",
        "passwords of user mappings",
        "SELECT umoptions::text AS o FROM pg_user_mappings",
        r"system catalog pg_catalog\.pg_",
    ),
    (
        "mapping_options",
        "passwords of user mappings",
        "SELECT option_value FROM information_schema.user_mapping_options",
        r"system catalog information_schema\._pg_",
    ),
    (
        "shadow",
        "password hashes",
        "SELECT rolname, rolpassword FROM pg_authid",
        "permission denied for table pg_authid",
    ),
    ("shadow_view", "password hashes", "SELECT usename, passwd FROM pg_shadow", "permission denied for view pg_shadow"),
    (
        "large_objects_table",
        "large objects",
        "SELECT encode(data, 'escape') AS x FROM pg_largeobject",
        "permission denied for table pg_largeobject",
    ),
    (
        "statistic_table",
        "values of columns",
        "SELECT stavalues1::text AS v FROM pg_statistic",
        "permission denied for table pg_statistic",
    ),
    (
        "information_schema",
        "what is there, as the service sees it",
        "SELECT table_name, privilege_type FROM information_schema.table_privileges",
        r"system catalog information_schema\.table_privileges",
    ),
    (
        "view_definitions",
        "definitions of others' views and functions",
        "SELECT view_definition FROM information_schema.views",
        r"system catalog information_schema\.views",
    ),
    (
        "row_security",
        "row security as the service",
        "SELECT id, word FROM app.guarded",
        r"row security of app\.guarded is active",
    ),
    ("sequence", "how many there were", "SELECT last_value FROM app.orders", "permission denied for sequence orders"),
    (
        "dblink",
        "SQL at a connection of the service",
        "SELECT * FROM public.dblink('dbname=field', 'SELECT word FROM app.secret') AS d(word text)",
        r"calls the volatile function public\.dblink\(",
    ),
)

ATTEMPTS = (
    *(
        Attempt(f"builtin_{name}", f"{what}: {query}"[:100], (st(query), TICK), refused)
        for name, what, query, refused in _QUERIES
    ),
    Attempt(
        "builtin_who_am_i",
        "current_user and the like would be the service's",
        (
            st(
                "SELECT id, current_user AS u, session_user AS s, has_table_privilege('app.secret', 'SELECT') AS may FROM app.open"
            ),
            st("SELECT id, pg_has_role('team', 'USAGE') AS may FROM app.open", "evil.st2"),
            TICK,
        ),
        r"CURRENT_USER or the like|function pg_catalog\.pg_has_role",
        check=lambda arena, trial: trial.found.extend(
            f"evaluated as another: {row}"
            for table in ("st", "st2")
            if arena.admin("SELECT to_regclass(%s)", f"{trial.schema}.{table}")[0][0]
            for row in arena.admin(f"SELECT * FROM {trial.schema}.{table} AS t WHERE t::text ~ '{arena.service}|,t,'")
        ),
    ),
    Attempt(
        "builtin_set_config",
        "a query that changes the session of whoever evaluates it",
        (st("SELECT id, set_config('role', 'postgres', false) AS x FROM app.open"), TICK),
        "volatile|set_config",
    ),
    Attempt(
        "builtin_set_config_disguised",
        "the same, as the function of an operator that claims nothing",
        (
            "CREATE FUNCTION evil.set(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT set_config($1, $2, false) $$",
            "CREATE OPERATOR evil.<~ (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.set)",
            st("SELECT id, 'search_path' OPERATOR(evil.<~) 'evil' AS x FROM app.open"),
            TICK,
        ),
        r"evil\.",
    ),
    Attempt(
        "builtin_declared_anew",
        "a built-in that reads files, under a name and volatility of the attacker's",
        (
            "CREATE FUNCTION evil.f(text) RETURNS text LANGUAGE internal IMMUTABLE AS 'pg_read_file_all'",
            "CREATE FUNCTION evil.g(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT pg_read_file($1)'",
            st("SELECT id, evil.g('canary.txt') AS x FROM app.open"),
            TICK,
        ),
        r"permission denied for (language internal|function)|evil\.g",
    ),
)
