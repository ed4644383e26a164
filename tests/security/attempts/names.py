"""Names that are statements, too long, or of another alphabet; inputs that are huge."""

from __future__ import annotations

from tests.security.attempt import TICK, Attempt, st

_ODD = {
    "quotes": """x"; DROP TABLE app.secret; --'""",
    "newline": "a\nb\r\n; DROP TABLE app.secret; --",
    "percent": "%s%(id)s%%{0}{service}",
    "backslash": r"\'; DROP TABLE app.secret; --\\",
    "dollar": "$q$; DROP TABLE app.secret; $pgt",
    "long": "n" * 63,
    "unicode": "Ünï\u202eçødé \U0001f600",
    "ours": "__pgt_t",
    "json": '","type":"int); DROP TABLE app.secret; --',
}


def _ident(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _named(label: str, name: str) -> Attempt:
    """The same name for everything: a table, its columns, a type, a view, a function, the stream table, its columns."""
    q = _ident(name)
    column = q if not name.startswith("__pgt_") else '"c"'
    literal = "'" + f"evil.{q}".replace("'", "''") + "'"
    made = _ident((name + "_s")[-60:])
    stored = "'" + f"evil.{made}".replace("'", "''") + "'"
    query = f"SELECT k, {q} AS {column}, count(*) AS n FROM evil.{q} GROUP BY 1, 2".replace("'", "''")
    plain = f"SELECT k, {q} AS {column} FROM evil.{q} WHERE {q} <> 'x'".replace("'", "''")
    return Attempt(
        f"names_{label}",
        f"objects called {name!r}",
        (
            f"CREATE TABLE evil.{q} (k int PRIMARY KEY, {q} text); INSERT INTO evil.{q} VALUES (1, 'a')".replace(
                "%", "%"
            ),
            f"SELECT pgtrickle.create_stream_table({stored}, '{query}')",
            f"SELECT pgtrickle.create_stream_table('evil.plain', '{plain}')",
            TICK,
            f"INSERT INTO evil.{q} VALUES (2, 'b')",
            f"SELECT pgtrickle.create_subscriber({stored}, {literal})",
            f"SELECT pgtrickle.stream_table_to_publication({stored})",
            f"SELECT * FROM pgtrickle.read_changes({stored}, {literal})",
            f"SELECT pgtrickle.repair_stream_table({stored}), pgtrickle.export_definition({stored})",
            f"ALTER TABLE evil.{q} RENAME COLUMN k TO {_ident('k' + name[:60])}",
            TICK,
            f"SELECT pgtrickle.drop_stream_table({stored})",
        ),
        maybe=r"longer than 63|collision|is not a table name|permission denied for database|publications|already exists",
        trusted=True,
    )


ATTEMPTS = (
    *(_named(label, name) for label, name in _ODD.items()),
    Attempt(
        "names_of_types",
        "enum types and labels that are statements",
        (
            """CREATE TYPE evil."e); DROP TABLE app.secret; --" AS ENUM ('x''); DROP TABLE app.secret; --', '%s', E'\\n')""",
            st(
                """SELECT id, 'x''); DROP TABLE app.secret; --'::evil."e); DROP TABLE app.secret; --" AS e FROM app.open"""
            ),
            TICK,
        ),
        maybe=r"evil\.",
    ),
    Attempt(
        "name_of_table_is_a_list",
        "the name of a stream table that is more than a name",
        (
            st("SELECT 1 AS a", "evil.st; DROP TABLE app.secret"),
            st("SELECT 1 AS a", "a.b.c"),
            "SELECT pgtrickle.create_stream_table('evil.\"" + "x" * 5000 + "\"', 'SELECT 1 AS a')",
            "SELECT pgtrickle.create_stream_table('', 'SELECT 1 AS a'), pgtrickle.create_stream_table(NULL, NULL)",
        ),
        "is not a table name|longer than",
    ),
    Attempt(
        "query_is_more",
        "a query that is more than one, or writes",
        (
            st("SELECT 1 AS a; DROP TABLE app.secret"),
            st("SELECT 1 AS a) AS x; DROP TABLE app.secret; SELECT (1"),
            st("WITH w AS (DELETE FROM app.open RETURNING id) SELECT id FROM w"),
            st("SELECT id INTO evil.copy FROM app.open"),
            st("SELECT 1 AS a FROM app.open FOR UPDATE"),
            st("TABLE app.secret"),
            st("COPY app.secret TO PROGRAM 'id'"),
            st("EXPLAIN ANALYZE SELECT word FROM app.secret"),
            st("SHOW primary_conninfo"),
            st("SELECT 1 AS a --"),
            st("SELECT 1 AS b /*", "evil.st2"),
        ),
        ".",
    ),
    Attempt(
        "huge_query",
        "a query of a megabyte, deep, wide",
        (
            "SELECT pgtrickle.create_stream_table('evil.st', 'SELECT ' || repeat('(', 9000) || '1' || repeat(')', 9000) || ' AS a')",
            "SELECT pgtrickle.create_stream_table('evil.st2', 'SELECT ' || string_agg('1 AS a' || g, ', ') || ' FROM app.open') FROM generate_series(1, 1590) AS g",
            "SELECT pgtrickle.create_stream_table('evil.st3', 'SELECT ''' || repeat('x', 1000000) || ''' AS a')",
            "SELECT pgtrickle._ask_plan(repeat('SELECT 1 UNION ', 300) || 'SELECT 1', repeat('evil, ', 10000) || 'evil')",
            "SELECT pgtrickle._check_schedule(repeat('1s', 100000))",
            TICK,
        ),
        "search_path has",
    ),
    Attempt(
        "options_forged",
        "options that create_stream_table has not",
        (
            "CREATE TEMPORARY VIEW __pgt_probe AS SELECT id, label FROM app.open",
            "SELECT pgtrickle._register('pg_temp.__pgt_probe'::regclass, 'evil', 'st', 'SELECT id, label FROM app.open', "
            """'{"session_settings": {"session_replication_role": "replica", "role": "postgres", "search_path": "evil"}}')""",
            "SELECT pgtrickle._register('pg_temp.__pgt_probe'::regclass, 'evil', 'st', 'SELECT id, label FROM app.open', "
            """'{"run_as": "service", "status": "ACTIVE", "created_by": "postgres", "plan": {"load": "SELECT word FROM app.secret"}, """
            """"applied_from": "x''; DROP TABLE app.secret; --"}')""",
            "DROP VIEW __pgt_probe",
            TICK,
        ),
        "is not a setting that is kept with a definition",
    ),
)
