"""Stream tables whose query calls their author's code: evaluated as the author, with the results of the author's own session,
and whatever that code tries, it gets no further than its author could.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgtrickle.runtime.job import Outcome
from tests.conftest import ROLE, Database
from tests.line import Line

_numbers = itertools.count(1)

CODE = """
CREATE FUNCTION work.grade(n int) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN RETURN CASE WHEN n % 3 = 0 THEN 'gold' WHEN n % 3 = 1 THEN 'silver' ELSE NULL END; END $$;
CREATE FUNCTION work.twice(n int) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT n * 2 $$;
CREATE FUNCTION work.longer(a text, b text) RETURNS text LANGUAGE sql IMMUTABLE AS
    $$ SELECT CASE WHEN length(b) > length(coalesce(a, '')) OR (length(b) = length(a) AND b > a) THEN b ELSE a END $$;
CREATE AGGREGATE work.longest(text) (SFUNC = work.longer, STYPE = text);
CREATE FUNCTION work.near(a int, b int) RETURNS bool LANGUAGE sql IMMUTABLE AS $$ SELECT abs(a - b) <= 1 $$;
CREATE OPERATOR work.~~~ (LEFTARG = int, RIGHTARG = int, FUNCTION = work.near);
CREATE TYPE work.pair AS (a int, b int);
CREATE FUNCTION work.added(p work.pair) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN p.a + p.b; END $$;
CREATE CAST (work.pair AS int) WITH FUNCTION work.added(work.pair);
CREATE FUNCTION work.even(n int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN n % 2 = 0; END $$;
CREATE DOMAIN work.even_number AS int CHECK (work.even(VALUE));
CREATE FUNCTION work.who() RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN current_user; END $$;
CREATE TABLE work.t (id int PRIMARY KEY, g int, name text);
CREATE TABLE work.u (id int PRIMARY KEY, t int, v int);
"""

QUERIES = {
    "rows": ("SELECT id, work.grade(g) AS grade, work.twice(g) AS n FROM work.t WHERE work.even(id)", "DIFFERENTIAL"),
    "groups": (
        "SELECT work.grade(g) AS grade, count(*) AS n, sum(work.twice(g)) AS s, work.longest(name) AS l, max(name) AS m "
        "FROM work.t GROUP BY work.grade(g) HAVING work.even(count(*)::int) OR count(*) > 3",
        "DIFFERENTIAL",
    ),
    "one_group": ("SELECT count(*) AS n, work.twice(count(*)::int) AS d, work.longest(name) AS l FROM work.t", "DIFFERENTIAL"),
    "joined": (
        "SELECT t.id, u.id AS u, work.twice(u.v) AS v FROM work.t AS t JOIN work.u AS u ON u.t OPERATOR(work.~~~) t.id",
        "DIFFERENTIAL",
    ),
    "left_joined": (
        "SELECT t.id, work.grade(u.v) AS v FROM work.t AS t LEFT JOIN work.u AS u ON u.t = t.id AND work.even(u.v)",
        "DIFFERENTIAL",
    ),
    "windows": (
        "SELECT id, rank() OVER (PARTITION BY work.grade(g) ORDER BY work.twice(id)) AS r FROM work.t",
        "DIFFERENTIAL",
    ),
    "first": ("SELECT id, work.twice(g) AS n FROM work.t ORDER BY work.twice(g) DESC, id LIMIT 3", "DIFFERENTIAL"),
    "different": ("SELECT DISTINCT work.grade(g) AS grade, ROW(g, 1)::work.pair::int AS n FROM work.t", "DIFFERENTIAL"),
    "either": (
        "SELECT id FROM work.t WHERE work.even(id) EXCEPT ALL SELECT v FROM work.u WHERE work.grade(v) IS NOT NULL",
        "DIFFERENTIAL",
    ),
    "asked": (
        "SELECT id FROM work.t WHERE EXISTS (SELECT FROM work.u WHERE u.t = t.id AND work.near(u.v, t.g))",
        "DIFFERENTIAL",
    ),
    "below": (
        "WITH RECURSIVE b AS (SELECT id, t FROM work.u WHERE work.even(id) "
        "UNION ALL SELECT u.id, b.t FROM work.u JOIN b ON u.t = b.id) SELECT id, t FROM b",
        "DIFFERENTIAL",
    ),
    "checked": ("SELECT id, (work.twice(g))::work.even_number::int AS n FROM work.t", "DIFFERENTIAL"),
    "constants": ("SELECT id, ('{2,4}'::work.even_number[])[1]::int AS n, work.twice(3) AS six FROM work.t", "DIFFERENTIAL"),
    "as_whom": ("SELECT id, current_user::text AS u, work.who() AS w, session_user::text AS s FROM work.t", "FULL"),
}

CHANGES = (
    "INSERT INTO work.t SELECT i, i, repeat('x', i) FROM generate_series(1, 8) AS i; "
    "INSERT INTO work.u SELECT i, i / 2, i * 3 FROM generate_series(1, 12) AS i",
    "UPDATE work.t SET g = g + 1 WHERE id <= 3; DELETE FROM work.u WHERE id = 4",
    "DELETE FROM work.t WHERE id IN (2, 5); INSERT INTO work.u VALUES (20, 20, 4), (21, 6, 6), (22, 3, 7)",
    "UPDATE work.t SET name = 'other' WHERE id = 8; UPDATE work.u SET t = 20 WHERE id = 3; INSERT INTO work.t VALUES (20, NULL, NULL)",
    "TRUNCATE work.u",
    "DELETE FROM work.t",
)


class Author:
    """A role with a schema of its own, whose code the service may run as it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.name = f"author_{next(_numbers)}"
        database.superuser_sql(
            f"CREATE ROLE {self.name} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA pgtrickle TO {self.name}; "
            f"GRANT {self.name} TO {ROLE}; CREATE SCHEMA work AUTHORIZATION {self.name}; GRANT CREATE, USAGE ON SCHEMA work TO {ROLE}"
        )
        dsn = database.server.dsn(database.name, user=self.name, password="x")
        self.conn: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = self.conn.execute(text, params or None)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description is not None else []

    def create(self, name: str, query: str, mode: str = "AUTO") -> None:
        self.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)", f"work.{name}", query, mode)
        self.database.superuser_sql("UPDATE pgtrickle.pgt_stream_tables SET run_as = 'author' WHERE pgt_name = %s", name)

    def close(self) -> None:
        self.conn.close()
        self.database.superuser_sql(f"DROP OWNED BY {self.name} CASCADE; DROP ROLE {self.name}")


@pytest.fixture
def author(installed: Database) -> Iterator[Author]:
    author = Author(installed)
    yield author
    author.close()


def same(author: Author, line: Line, name: str, query: str) -> None:
    """As the author's own session has it, both ways; and verify agrees."""
    columns = [d.name for d in author.conn.execute(query).description or ()]
    stored = f"SELECT {', '.join(columns)} FROM work.{name}"
    differences = author.sql(f"(TABLE s EXCEPT ALL TABLE q) UNION ALL (TABLE q EXCEPT ALL TABLE s)".join(
        (f"WITH s AS ({stored}), q AS ({query}) ", "")))
    assert differences == [], name
    line.equal(f"work.{name}")


def test_results_are_those_of_the_author(author: Author, line: Line) -> None:
    author.sql(CODE)
    for name, (query, _) in QUERIES.items():
        author.create(name, query)
    for change in ("", *CHANGES):
        if change:
            author.sql(change)
        for outcome in line.tick():
            assert outcome.error is None, (outcome.table.name, outcome.error)
        for name, (query, mode) in QUERIES.items():
            if name != "as_whom":
                same(author, line, name, query)
            expected = {"FULL", "INITIALIZE", "REINITIALIZE"} if mode == "FULL" or not change else {mode, "FULL"}
            assert line.last(f"work.{name}")[0] in expected, (name, line.last(f"work.{name}"))
        rows = author.sql("SELECT DISTINCT u, w, s FROM work.as_whom")
        assert rows in ([], [(author.name, author.name, ROLE)])
