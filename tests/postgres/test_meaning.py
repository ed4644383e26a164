"""A query means what it meant in its author's session: operators are those that PostgreSQL found there."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgtrickle.db import catalog
from pgtrickle.db.connect import connect
from pgtrickle.runtime.prepare import prepare
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
    "distinct from": 'SELECT a.id, b.id AS b_id, a.v IS DISTINCT FROM b.v AS x, a.v IS NOT DISTINCT FROM b.v AS y FROM a, "B" b',
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
    "with": 'WITH x AS (SELECT v, a.id FROM a FULL JOIN "B" b USING (v)) SELECT v, x.id, c.id AS c_id FROM x FULL JOIN a c USING (v)',
    "view": "SELECT v, id FROM seen",
}


@pytest.fixture
def author(installed: Database) -> psycopg.Connection[Any]:
    installed.superuser_sql(SCHEMA)
    connection = installed.connect()
    connection.execute('SET search_path = "My Data", ext')
    return connection


def load(installed: Database, name: str) -> tuple[list[tuple[Any, ...]], str | None]:
    """The rows of a load as texts, and why the table is FULL."""
    with connect(installed.dsn, role="test", autocommit=True) as conn:
        (table,) = [t for t in catalog.load_stream_tables(conn) if t.name == name]
        _, compiled = prepare(conn, table)
        if compiled.groups is not None:
            return [], compiled.reason
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
            wanted = author.execute(query).fetchall()
        except psycopg.errors.UndefinedFunction:
            continue  # the type has no such operator
        author.execute("SELECT pgtrickle.create_stream_table('st', %s)", (query,))
        found, reasons[label] = load(installed, "st")
        assert reasons[label] is None or "operator does not exist" not in reasons[label]
        if found:
            names = [c.name for c in author.execute(f"SELECT * FROM ({query}) AS q LIMIT 0").description or ()]
            casts = ", ".join(f'"{n}"::text' for n in names)
            del wanted
            wanted = author.execute(f"SELECT {casts} FROM ({query}) AS q").fetchall()
            if label not in ("distinct", "group", "union", "except"):
                assert sorted(wanted, key=repr) == found, (label, type_)
            assert len(wanted) == len(found), (label, type_)
        author.execute("SELECT pgtrickle.drop_stream_table('st')")
    print(type_, {k: v for k, v in reasons.items() if v})
