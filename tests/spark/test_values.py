"""Values of types that are not PostgreSQL's own: by their output and input functions, whatever casts there are."""

from __future__ import annotations

import pytest

from tests.line import Line

# Casts that are not the inverse of one another, that fail, and that would tell of themselves.
SETUP = """
    CREATE TYPE mood AS ENUM ('low', 'mid', 'high');
    CREATE FUNCTION shown(mood) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''always the same''';
    CREATE FUNCTION read(text) RETURNS mood LANGUAGE sql IMMUTABLE AS 'SELECT ''mid''::mood';
    CREATE CAST (mood AS text) WITH FUNCTION shown(mood);
    CREATE CAST (text AS mood) WITH FUNCTION read(text);
    CREATE FUNCTION shown(mood[]) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT (1 / 0)::pg_catalog.text';
    CREATE FUNCTION reads(text) RETURNS mood[] LANGUAGE sql IMMUTABLE AS 'SELECT NULL::mood[]';
    CREATE CAST (mood[] AS text) WITH FUNCTION shown(mood[]);
    CREATE CAST (text AS mood[]) WITH FUNCTION reads(text);
    CREATE TYPE pair AS (a int, m mood);
    CREATE FUNCTION shown(pair) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''pair''';
    CREATE CAST (pair AS text) WITH FUNCTION shown(pair);
    CREATE TYPE span AS RANGE (SUBTYPE = int4);
    CREATE FUNCTION shown(span) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''span''';
    CREATE CAST (span AS text) WITH FUNCTION shown(span);
    CREATE DOMAIN feeling AS mood CHECK (VALUE <> 'mid');
    CREATE DOMAIN flag AS bool;
    CREATE DOMAIN code AS char(3);
    CREATE DOMAIN address AS inet;
    CREATE TABLE t (id int PRIMARY KEY, m mood, ms mood[], p pair, s span, f feeling, b flag, c code, i address);
    INSERT INTO t VALUES
        (1, 'low', '{low,high,NULL}', '(1,low)', '[1,3]', 'high', true, 'a', '1.2.3.4'),
        (2, 'high', '{}', '(,)', 'empty', 'low', false, '', '10.0.0.0/8'),
        (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (4, 'low', '{"low"}', '(1,low)', '[1,4)', 'high', true, 'a', '1.2.3.4');
    CREATE TABLE u (m mood, n int);
    INSERT INTO u VALUES ('low', 1), ('high', 2), ('mid', 3);
"""

QUERIES = {
    "rows": "SELECT * FROM t",
    "filtered": "SELECT id, m, p, f FROM t WHERE m = 'low' OR b",
    "join": "SELECT t.id, t.m, t.ms, u.n FROM t JOIN u ON u.m = t.m",
    "left_join": "SELECT t.id, t.p, u.m, u.n FROM t LEFT JOIN u ON u.m = t.m",
    "groups": "SELECT m, count(*) AS n, max(id) AS i FROM t GROUP BY m",
    "by_domain": "SELECT b, c, count(*) AS n FROM t GROUP BY b, c",
    "read_again": "SELECT b, max(m) AS m, (array_agg(f ORDER BY id))[1] AS f, array_agg(m ORDER BY id) AS all "
    "FROM t GROUP BY b",
    "alone": "SELECT max(m) AS m, array_agg(p ORDER BY id) AS p FROM t",
    "distinct": "SELECT DISTINCT m, f FROM t",
    "limit": "SELECT id, m, ms, c FROM t ORDER BY m, id LIMIT 3",
    "window": "SELECT id, m, row_number() OVER (PARTITION BY m ORDER BY id) AS n FROM t",
    "except": "SELECT m FROM t EXCEPT ALL SELECT m FROM u",
    "exists": "SELECT m, n FROM u WHERE NOT EXISTS (SELECT FROM t WHERE t.m = u.m)",
    "whole": "SELECT id, m, ms, p, s, b, now() > '2000-01-01' AS later FROM t",
}

CHANGES = [
    "INSERT INTO t VALUES (5, 'mid', '{mid}', '(5,mid)', '[5,6)', 'low', false, 'abc', '::1')",
    "UPDATE t SET m = 'high', ms = ms || 'mid'::mood, b = NOT b WHERE id IN (1, 3)",
    "UPDATE t SET p = ROW(7, 'high')::pair, s = '(,9]', f = 'low', c = 'b', i = '1.2.3.4/31' WHERE id = 2",
    "DELETE FROM t WHERE id = 4; DELETE FROM u WHERE m = 'high'",
    "UPDATE u SET m = 'high' WHERE n = 3; INSERT INTO u SELECT 'low', 9",
    "INSERT INTO t SELECT g, (ARRAY['low', 'mid', 'high']::mood[])[1 + g % 3], NULL, NULL, NULL, 'low', g % 2 = 0, 'x' "
    "FROM generate_series(100, 400) AS g",
    "DELETE FROM t WHERE id > 390; UPDATE t SET m = 'low' WHERE id = 200",
]


@pytest.fixture
def stored(line: Line) -> Line:
    line.sql(SETUP)
    return line


def test_values_are_as_the_query_has_them(stored: Line) -> None:
    for name, query in QUERIES.items():
        stored.create(f"st_{name}", query)
    for change in ["", *CHANGES]:
        if change:
            stored.sql(change)
        for outcome in stored.tick():
            assert outcome.error is None, outcome
        for name, query in QUERIES.items():
            have, want = stored.rows(f"st_{name}"), sorted(stored.sql(query), key=repr)
            assert have == want, (name, change)
    full = {name for name in QUERIES if stored.last(f"st_{name}")[0] == "FULL"}
    assert "rows" not in full
    assert "join" not in full
    assert "whole" in full
