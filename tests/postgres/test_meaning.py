"""A query means what it meant in its author's session: operators are those that PostgreSQL found there."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgtrickle.db import catalog
from pgtrickle.db.connect import connect
from pgtrickle.define.prepare import prepare
from pgtrickle.errors import SourceChangedError
from pgtrickle.model.reasons import Reason
from tests.conftest import Database

# Names in several schemas, one of which has to be quoted.
SCHEMA = """
CREATE SCHEMA ext; CREATE SCHEMA "My Data"; GRANT USAGE ON SCHEMA ext TO app; GRANT ALL ON SCHEMA "My Data" TO app;
CREATE EXTENSION citext SCHEMA ext; CREATE EXTENSION hstore SCHEMA ext; CREATE EXTENSION ltree SCHEMA ext;
CREATE DOMAIN ext.mail AS ext.citext;
"""
TYPES = {
    "ext.citext": ("A@x", "a@X", "b", None),
    "ext.mail": ("A@x", "a@X", "b", None),
    "ext.hstore": ("a=>1, b=>2", "b=>2,a=>1", "a=>1", None),
    "ext.ltree": ("a.b", "a.b", "a", None),
    "text": ("A", "a", "b", None),
    "ext.citext[]": ("{A,b}", "{a,B}", "{x}", None),
    "numrange": ("[1,2)", "[1.0,2.0)", "[3,4)", None),
    "interval": ("1 day", "24:00", "1 mon", None),
    "jsonb": ("1", "1.0", '{"a": 1}', None),
}
QUERIES = {
    "using": 'SELECT a.id, b.id AS b_id FROM a JOIN "B" b USING (v)',
    "left using": 'SELECT v, a.id, b.id AS b_id FROM a LEFT JOIN "B" b USING (v)',
    "right using": 'SELECT v, a.id, b.id AS b_id FROM a RIGHT JOIN "B" b USING (v)',
    "full using": 'SELECT v, a.id, b.id AS b_id FROM a FULL JOIN "B" b USING (v)',
    "three": 'SELECT v, a.id, b.id AS b_id, c.id AS c_id FROM a FULL JOIN "B" b USING (v) FULL JOIN a c USING (v)',
    "two columns": 'SELECT v, id FROM a JOIN "B" b USING (id, v)',
    "merged below": 'SELECT a.id FROM a FULL JOIN "B" b USING (v) '
    "WHERE EXISTS (SELECT FROM a AS c WHERE c.v = v) OR a.id IS NULL",
    "natural": 'SELECT * FROM a NATURAL JOIN "B"',
    "alias": 'SELECT j.v, a.id FROM a JOIN "B" b USING (v) AS j',
    "in": 'SELECT id FROM a WHERE v IN (SELECT v FROM "B")',
    "not in": 'SELECT id FROM a WHERE v NOT IN (SELECT v FROM "B" WHERE v IS NOT NULL)',
    "row in": 'SELECT id FROM a WHERE (id, v) IN (SELECT id, v FROM "B")',
    "row in, own first": 'SELECT id FROM a WHERE (v, id) IN (SELECT v, id FROM "B")',
    "row not in": 'SELECT id, (id, v) NOT IN (SELECT id, v FROM "B") AS n FROM a',
    "row": 'SELECT a.id, b.id AS b_id FROM a, "B" b WHERE (a.v, a.id) = (b.v, b.id) OR (a.id, a.v) <> (b.id, b.v)',
    "distinct from": "SELECT a.id, b.id AS b_id, a.v IS DISTINCT FROM b.v AS x, a.v IS NOT DISTINCT FROM b.v AS y "
    'FROM a, "B" b',
    "nullif": 'SELECT a.id, b.id AS b_id, NULLIF(a.v, b.v) AS n FROM a, "B" b',
    "nullif twice": 'SELECT a.id, b.id AS b_id, NULLIF(NULLIF(a.v, b.v), a.v) AS n FROM a, "B" b',
    "case": 'SELECT a.id, b.id AS b_id, CASE a.v WHEN b.v THEN 1 ELSE 2 END AS n FROM a, "B" b',
    "case in case": "SELECT a.id, b.id AS b_id, CASE a.v WHEN b.v THEN CASE a.id WHEN b.id THEN 0 ELSE 1 END "
    'WHEN a.v THEN 3 END AS n FROM a, "B" b',
    "list": 'SELECT id FROM a WHERE v IN (SELECT v FROM "B" WHERE id = 1) OR v = ANY (ARRAY(SELECT v FROM "B"))',
    "distinct": "SELECT DISTINCT v FROM a",
    "group": "SELECT v, count(*) AS n FROM a GROUP BY v",
    "union": 'SELECT v FROM a UNION SELECT v FROM "B"',
    "except": 'SELECT v FROM a EXCEPT SELECT v FROM "B"',
    "partition": "SELECT id, count(*) OVER (PARTITION BY v) AS n FROM a",
    "with": 'WITH x AS (SELECT v, a.id FROM a FULL JOIN "B" b USING (v)) '
    "SELECT v, x.id, c.id AS c_id FROM x FULL JOIN a c USING (v)",
    "view": "SELECT v, id FROM seen",
}

GROUPS = ("distinct", "group", "union", "except")  # tables with a state


@pytest.fixture
def author(installed: Database) -> psycopg.Connection[Any]:
    installed.superuser_sql(SCHEMA)
    connection = installed.connect()
    connection.execute('SET search_path = "My Data", ext')
    return connection


def load(installed: Database, name: str) -> tuple[list[tuple[Any, ...]] | None, Reason | None]:
    """The rows of a load as texts (None: of groups, which are loaded with their state), and why the table is FULL."""
    with connect(installed.dsn, role="test", autocommit=True) as conn:
        (table,) = [t for t in catalog.load_stream_tables(conn) if t.name == name]
        _, compiled = prepare(conn, table)
        if compiled.groups is not None:
            return None, compiled.reason
        rows = conn.execute(f"SELECT q.r::text[] FROM ({compiled.load_sql}) AS q(r)").fetchall()
        width = len(table.columns)
        return sorted((tuple(r[0][:width]) for r in rows), key=repr), compiled.reason


@pytest.mark.parametrize("type_", TYPES)
def test_loads(installed: Database, author: psycopg.Connection[Any], type_: str) -> None:
    author.execute(f'CREATE TABLE a (id int, v {type_}); CREATE TABLE "B" (id int, v {type_})')
    author.execute('CREATE VIEW seen AS SELECT v, a.id FROM a FULL JOIN "B" b USING (v)')
    for i, value in enumerate(TYPES[type_]):
        author.execute("INSERT INTO a VALUES (%s, %s)", (i, value))
        author.execute('INSERT INTO "B" VALUES (%s, %s), (1, %s)', (i, value, TYPES[type_][1 - i % 2]))
    reasons = {}
    for label, query in QUERIES.items():
        try:
            author.execute(query)
        except psycopg.errors.UndefinedFunction:
            continue  # the type has no such operator
        author.execute("SELECT pgtrickle.create_stream_table('st', %s)", (query,))
        found, reasons[label] = load(installed, "st")
        assert "operator does not exist" not in str(reasons[label])
        if found is None:
            assert label in GROUPS
        else:
            names = [c.name for c in author.execute(f"SELECT * FROM ({query}) AS q LIMIT 0").description or ()]
            casts = ", ".join(f'"{n}"::text' for n in names)
            wanted = author.execute(f"SELECT {casts} FROM ({query}) AS q").fetchall()
            if label not in GROUPS:  # one of several equal values is shown
                assert sorted(wanted, key=repr) == found, (label, type_)
            assert len(wanted) == len(found), (label, type_)
        author.execute("SELECT pgtrickle.drop_stream_table('st')")
    print(type_, {k: v for k, v in reasons.items() if v})


def test_operators_are_kept(installed: Database, author: psycopg.Connection[Any]) -> None:
    author.execute('CREATE TABLE a (id int, v citext); CREATE TABLE "B" (id int, v citext)')
    author.execute("SELECT pgtrickle.create_stream_table('st', %s)", (QUERIES["two columns"],))
    kept = "SELECT array_agg(o::regoperator::text ORDER BY o) FROM pgtrickle.pgt_stream_tables, unnest(operators) AS o"
    assert author.execute(kept).fetchone() == (["=(integer,integer)", "=(citext,citext)"],)


def test_a_text_that_cannot_be_written_out_stops_with_the_operator(
    installed: Database, author: psycopg.Connection[Any]
) -> None:
    author.execute('CREATE TABLE a (id int, v citext); CREATE TABLE "B" (id int, v citext)')
    query = 'SELECT a.id FROM a, "B" b WHERE (a.id, a.v) < (b.id, b.v)'
    author.execute("SELECT pgtrickle.create_stream_table('st', %s)", (query,))
    with pytest.raises(SourceChangedError, match=r"cannot be written with it: .*ext\.<\(ext\.citext,ext\.citext\)"):
        load(installed, "st")


def test_temporary_objects_are_found_last(installed: Database) -> None:
    with connect(installed.dsn, role="test", autocommit=True) as conn:
        conn.execute("CREATE TEMPORARY TABLE pg_class (oid int)")
        row = conn.execute("SELECT count(*) > 100 FROM pg_class").fetchone()
        assert row == (True,)


SETTINGS = {"TimeZone": "Asia/Kolkata", "DateStyle": "SQL, DMY", "IntervalStyle": "iso_8601", "extra_float_digits": "0"}


def kept_settings(conn: psycopg.Connection[Any]) -> dict[str, str]:
    row = conn.execute("SELECT session_settings FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'st'").fetchone()
    assert row is not None
    return {name: row[0][name] for name in SETTINGS}


@pytest.mark.parametrize("how", ["SET", "SET LOCAL", "ALTER ROLE", "ALTER DATABASE", "PGOPTIONS", "function"])
def test_settings_of_the_session_are_kept(installed: Database, how: str) -> None:
    installed.sql("CREATE TABLE t (at timestamptz)")
    create = "SELECT pgtrickle.create_stream_table('public.st', 'SELECT at FROM public.t')"
    sets = [f"{name} = '{value}'" for name, value in SETTINGS.items()]
    if how == "PGOPTIONS":
        options = " ".join(f"-c {n}={v.replace(' ', chr(92) + ' ')}" for n, v in SETTINGS.items())
        conn = installed.connect(options=options)
        conn.execute(create)
        assert kept_settings(conn) == SETTINGS
        return
    if how.startswith("ALTER"):
        whom = f"ROLE app IN DATABASE {installed.name}" if how == "ALTER ROLE" else f"DATABASE {installed.name}"
        for one in sets:
            installed.superuser_sql(f"ALTER {whom} SET {one}")
    conn = installed.connect()
    if how == "function":
        conn.execute(
            f"CREATE FUNCTION make() RETURNS void LANGUAGE sql {' '.join(f'SET {one}' for one in sets)} AS $${create}$$"
        )
        create = "SELECT make()"
    with conn.transaction():
        for one in sets if how.startswith("SET") else []:
            conn.execute(f"{how} {one}")
        conn.execute(create)
    assert kept_settings(conn) == SETTINGS


def test_only_known_settings_with_good_values_are_kept(installed: Database) -> None:
    conn = installed.connect()
    conn.execute("CREATE TABLE t (a int)")
    for settings in ('{"role": "postgres"}', '{"session_authorization": "postgres"}', '{"TimeZone": "Nowhere"}', "[]"):
        conn.execute("SELECT pgtrickle._probe('SELECT a FROM public.t')")
        call = (
            "SELECT pgtrickle._register('pg_temp.__pgt_probe'::regclass, 'public', 'st', 'SELECT 1', "
            "jsonb_build_object('session_settings', %s::jsonb))"
        )
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            conn.execute(call, (settings,))
    assert conn.execute("SELECT count(*) FROM pgtrickle.pgt_stream_tables").fetchone() == (0,)
    assert conn.execute("SHOW timezone").fetchone() == conn.execute("SELECT current_setting('TimeZone')").fetchone()


def test_the_same_text_under_other_settings_is_another_definition(installed: Database) -> None:
    conn = installed.connect()
    conn.execute("CREATE TABLE t (at timestamptz)")
    create = "SELECT pgtrickle.create_or_replace_stream_table('st', 'SELECT at::date AS d FROM t')"
    version = "SELECT definition_version, session_settings ->> 'TimeZone' FROM pgtrickle.pgt_stream_tables"
    conn.execute("SET timezone = 'UTC'")
    conn.execute(create)
    conn.execute(create)
    assert conn.execute(version).fetchone() == (1, "UTC")
    conn.execute("SET timezone = 'Asia/Tokyo'")
    conn.execute(create)
    assert conn.execute(version).fetchone() == (2, "Asia/Tokyo")


def test_functions_that_rely_on_a_path_are_told(installed: Database) -> None:
    conn = installed.connect()
    notices: list[Any] = []
    conn.add_notice_handler(lambda n: notices.append((n.severity, n.message_primary, n.message_hint)))
    conn.execute("CREATE TABLE t (a int); CREATE TABLE rates (x int)")
    functions = {
        "plain": "SELECT $1 + 1",
        "qualified": "SELECT max(r.x) + $1 FROM public.rates AS r",
        "relies": "SELECT max(x) + $1 FROM rates",
        "calls": "SELECT plain($1) -- rates",
        "quoted": "SELECT $1 + length('rates')",
    }
    for name, body in functions.items():
        conn.execute(f"CREATE FUNCTION {name}(int) RETURNS int LANGUAGE sql STABLE AS $f${body}$f$")
    conn.execute(
        "CREATE FUNCTION pinned(int) RETURNS int LANGUAGE sql STABLE SET search_path = public AS 'SELECT x FROM rates'"
    )
    for name in (*functions, "pinned"):
        conn.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (f"st_{name}", f"SELECT {name}(a) AS v FROM t"))
    warnings = [n for n in notices if n[0] == "WARNING"]
    assert [w[1].split()[1:4] for w in warnings] == [
        ["public.relies(integer)", "finds", "rates"],
        ["public.calls(integer)", "finds", "plain"],
    ]
    assert warnings[0][2] == "ALTER FUNCTION public.relies(integer) SET search_path = public"
