"""Stream tables whose query calls their author's code: evaluated as the author, with the results of the author's own
session, and whatever that code tries, it gets no further than its author could."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgtrickle.maintain.verify import verify_tables
from pgtrickle.refresh.job import Outcome
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
        "SELECT work.grade(g) AS grade, count(*) AS n, sum(work.twice(g)) AS s, work.longest(name) AS l "
        "FROM work.t GROUP BY work.grade(g) HAVING work.even(count(*)::int) OR count(*) > 3",
        "DIFFERENTIAL",
    ),
    "one_group": (
        "SELECT count(*) AS n, work.twice(count(*)::int) AS d, work.longest(name) AS l FROM work.t",
        "DIFFERENTIAL",
    ),
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
    "as_whom": ("SELECT id, current_user::text AS u, work.who() AS w, session_user::text AS s FROM work.t", "FULL"),
}

CHANGES = (
    "INSERT INTO work.t SELECT i, i, repeat('x', i) FROM generate_series(1, 8) AS i; "
    "INSERT INTO work.u SELECT i, i / 2, i * 3 FROM generate_series(1, 12) AS i",
    "UPDATE work.t SET g = g + 1 WHERE id <= 3; DELETE FROM work.u WHERE id = 4",
    "DELETE FROM work.t WHERE id IN (2, 5); INSERT INTO work.u VALUES (20, 19, 4), (21, 6, 6), (22, 3, 7)",
    "UPDATE work.t SET name = 'other' WHERE id = 8; UPDATE work.u SET t = 20 WHERE id = 3; "
    "INSERT INTO work.t VALUES (20, NULL, NULL)",
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
            f"GRANT {self.name} TO {ROLE}; CREATE SCHEMA work AUTHORIZATION {self.name}; "
            f"GRANT CREATE, USAGE ON SCHEMA work TO {ROLE}"
        )
        self.dsn = database.server.dsn(database.name, user=self.name, password="x")
        self.conn: psycopg.Connection[Any] = psycopg.connect(self.dsn, autocommit=True)

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = self.conn.execute(text, params or None)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description is not None else []

    def create(self, name: str, query: str, mode: str = "AUTO") -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:  # of its own: its code may change settings
            conn.execute(
                "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)", (f"work.{name}", query, mode)
            )
        found = self.sql("SELECT run_as FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name)
        assert found == [("author",)], name

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
    both = f"WITH s AS (SELECT {', '.join(columns)} FROM work.{name}), q AS ({query}) "
    assert author.sql(f"{both} (TABLE s EXCEPT ALL TABLE q) UNION ALL (TABLE q EXCEPT ALL TABLE s)") == [], name
    line.equal(f"work.{name}")


def fine(outcomes: list[Outcome]) -> list[Outcome]:
    for outcome in outcomes:
        assert outcome.error is None, (outcome.table.name, outcome.error)
    return outcomes


def test_results_are_those_of_the_author(author: Author, line: Line) -> None:
    author.sql(CODE)
    for name, (query, _) in QUERIES.items():
        author.create(name, query)
    actions: dict[str, set[str]] = {name: set() for name in QUERIES}
    for change in ("", *CHANGES):
        if change:
            author.sql(change)
        for outcome in fine(line.tick()):
            actions[outcome.table.name].add(outcome.action)
        for name, (query, _) in QUERIES.items():
            if name != "as_whom":
                same(author, line, name, query)
        rows = author.sql("SELECT DISTINCT u, w, s FROM work.as_whom")
        assert rows in ([], [(author.name, author.name, ROLE)])
    for name, (_, mode) in QUERIES.items():
        assert mode in actions[name], (name, actions[name])
    modes = author.sql("SELECT pgt_name, effective_refresh_mode, mode_reason FROM pgtrickle.pgt_stream_tables")
    assert {name: mode for name, mode, _ in modes} == {name: mode for name, (_, mode) in QUERIES.items()}, modes


def test_pending_changes_are_looked_around(author: Author, line: Line) -> None:
    """verify evaluates as the author, too, and reads the sources as they were."""
    author.sql(CODE)
    author.sql(CHANGES[0])
    author.create("who", "SELECT id, work.who() AS w FROM work.t")
    author.create("rows", "SELECT id, work.twice(g) AS n FROM work.t")
    author.create("joined", "SELECT t.id, u.v FROM work.t LEFT JOIN work.u ON u.t = t.id AND work.even(u.v)")
    fine(line.tick())
    author.sql(CHANGES[1])
    for name in ("rows", "joined"):
        (result,) = verify_tables(line.dsn, [f"work.{name}"], timeout_seconds=1)
        assert (result.ok, result.how) == (True, "around"), result
    fine(line.tick())
    (result,) = verify_tables(line.dsn, ["work.who"], timeout_seconds=1)
    assert result.ok, result
    assert author.sql("SELECT DISTINCT w FROM work.who") == [(author.name,)]
    # What somebody wrote to the stream table is found.
    line.sql("DELETE FROM work.rows WHERE id = 1")
    (result,) = verify_tables(line.dsn, ["work.rows"], timeout_seconds=1)
    assert (result.ok, result.missing, result.extra) == (False, 1, 0)


def test_many_changes_and_large_loads(author: Author, line: Line) -> None:
    """By COPY, in batches."""
    author.sql(CODE)
    query = "SELECT id, work.grade(g) AS grade FROM work.t"
    author.create("rows", query)
    grouped = "SELECT work.grade(g) AS grade, count(*) AS n FROM work.t GROUP BY work.grade(g)"
    author.create("groups", grouped, "DIFFERENTIAL")
    fine(line.tick())
    for change in ("INSERT INTO work.t SELECT i, i FROM generate_series(1, 12000) AS i", "UPDATE work.t SET g = g + 1"):
        author.sql(change)
        fine(line.tick())
        same(author, line, "rows", query)
        same(author, line, "groups", grouped)
    assert line.last("work.groups")[:2] == ("DIFFERENTIAL", "COMPLETED")
    line.edit_catalog(
        "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, refresh_requested_at = clock_timestamp()"
    )
    fine(line.tick())
    same(author, line, "rows", query)


def test_chains(author: Author, line: Line) -> None:
    """The first of a chain moves with it; one below moves after it, and what reads that."""
    author.sql(CODE)
    author.create("base", "SELECT id, g, work.twice(g) AS n FROM work.t")
    line.sql("SELECT pgtrickle.create_stream_table('work.middle', 'SELECT g, sum(n) AS n FROM work.base GROUP BY g')")
    line.sql(f"GRANT SELECT ON work.middle TO {author.name}")
    author.create("top", "SELECT g, work.grade(n::int) AS n FROM work.middle")
    line.sql("SELECT pgtrickle.create_stream_table('work.last', 'SELECT n, count(*) AS c FROM work.top GROUP BY n')")
    queries = {
        "base": "SELECT id, g, work.twice(g) AS n FROM work.t",
        "middle": "SELECT g, sum(work.twice(g)) AS n FROM work.t GROUP BY g",
        "top": "SELECT g, work.grade(sum(work.twice(g))::int) AS n FROM work.t GROUP BY g",
        "last": "SELECT work.grade(s::int) AS n, count(*) AS c "
        "FROM (SELECT sum(work.twice(g)) AS s FROM work.t GROUP BY g) AS q GROUP BY 1",
    }
    author.sql(f"GRANT SELECT ON work.t TO {ROLE}")
    line.sql(f"GRANT SELECT ON work.last TO {author.name}")
    for _ in range(2):
        fine(line.tick())
    for change in CHANGES[:4]:
        author.sql(change)
        moved = [o.table.name for o in fine(line.tick()) if o.action == "DIFFERENTIAL"]
        assert moved.index("base") < moved.index("middle") < moved.index("top")
        for name, query in queries.items():
            same(author, line, name, query)


def test_what_the_author_raises_is_told(author: Author, line: Line) -> None:
    author.sql(CODE)
    author.sql(
        "CREATE FUNCTION work.fussy(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS "
        "$$ BEGIN IF n > 10 THEN RAISE EXCEPTION 'too large for %', current_user; END IF; RETURN n; END $$"
    )
    author.create("rows", "SELECT id, work.fussy(g) AS n FROM work.t")
    fine(line.tick())
    author.sql("INSERT INTO work.t VALUES (1, 11)")
    (outcome,) = line.tick()
    assert outcome.error is not None
    message = f"too large for {author.name}"
    assert message in outcome.error.message
    ((told,),) = author.sql("SELECT last_error_message FROM pgtrickle.pgt_status() WHERE name = 'work.rows'")
    assert message in told
    author.sql("UPDATE work.t SET g = 1; SELECT pgtrickle.resume_stream_table('work.rows')")
    fine(line.tick())
    assert author.sql("SELECT id, n FROM work.rows") == [(1, 1)]


def test_without_the_membership_it_stops(author: Author, line: Line) -> None:
    author.sql(CODE)
    author.create("rows", "SELECT id, work.twice(g) AS n FROM work.t")
    fine(line.tick())
    author.database.superuser_sql(f"REVOKE {author.name} FROM {ROLE}")
    author.sql("INSERT INTO work.t VALUES (1, 1)")
    (outcome,) = line.tick()
    assert outcome.error is not None
    assert f"permission denied to set role {author.name}" in outcome.error.message
    assert author.sql("SELECT * FROM work.rows") == []


def test_columns_of_others_are_not_shown(author: Author, line: Line) -> None:
    """A buffer has what other readers want, and keys: the author sees of it what the author may read."""
    name = author.name
    author.sql(CODE)
    line.sql(
        "CREATE SCHEMA shared; CREATE TABLE shared.staff (secret int PRIMARY KEY, a int, salary int); "
        f"GRANT USAGE ON SCHEMA shared TO {name}; GRANT SELECT (a) ON shared.staff TO {name}; "
        "INSERT INTO shared.staff VALUES (1, 1, 100), (2, 2, 200); "
        "SELECT pgtrickle.create_stream_table('shared.all', 'SELECT secret, a, salary FROM shared.staff')"
    )
    author.sql(
        "CREATE FUNCTION work.peeks(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ DECLARE found text; BEGIN "
        "SELECT string_agg(a.attname, ',' ORDER BY a.attname) INTO found "
        "FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid WHERE c.relname ~ '^__pgt_changes_' "
        "AND c.relnamespace = pg_my_temp_schema() AND a.attnum > 0; "
        "IF found <> 'action,c2,xid' THEN RAISE EXCEPTION 'found %', found; END IF; RETURN n; END $$"
    )
    author.create("seen", "SELECT a, work.peeks(a) AS n FROM shared.staff", "DIFFERENTIAL")
    author.create("back", "SELECT s.a, u.v FROM work.u LEFT JOIN shared.staff AS s ON s.a = work.twice(u.v)")
    fine(line.tick())
    line.sql("INSERT INTO shared.staff VALUES (3, 3, 300); UPDATE shared.staff SET a = 4 WHERE a = 1")
    author.sql("INSERT INTO work.u VALUES (1, 1, 2)")
    fine(line.tick())
    assert sorted(author.sql("SELECT a, n FROM work.seen")) == [(2, 2), (3, 3), (4, 4)]
    assert author.sql("SELECT a, v FROM work.back") == [(4, 2)]
    assert line.last("work.back")[:2] == ("DIFFERENTIAL", "COMPLETED")


HOSTILE = (
    "RESET ROLE",
    f"SET ROLE {ROLE}",
    "SET SESSION AUTHORIZATION DEFAULT",
    "SELECT set_config('role', 'none', false)",
    "SET search_path = work, public",
    "SET standard_conforming_strings = off",
    "SET datestyle = german",
    "SET default_transaction_read_only = on",
    "SET transaction_read_only = off",
    "PREPARE pgtrickle_1 AS SELECT work.noted()",
    "PREPARE _pg3_1 AS SELECT work.noted()",
    "DECLARE c CURSOR WITH HOLD FOR SELECT work.noted()",
    "LISTEN pgtrickle_wake",
    "NOTIFY pgtrickle_wake",
    "SELECT pg_advisory_lock(42)",
    "CREATE TEMPORARY TABLE pg_class (a int)",
    "CREATE TABLE work.loot AS SELECT * FROM hidden.secret",
    "SELECT * FROM hidden.secret",
    "UPDATE pgtrickle.pgt_stream_tables SET run_as = 'service'",
    "GRANT SELECT ON hidden.secret TO PUBLIC",
    "INSERT INTO work.noted_by VALUES (current_user)",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ '^pgtrickle/'",
)


def test_hostile_code_gets_nowhere(author: Author, line: Line) -> None:
    author.sql(CODE)
    line.sql("CREATE SCHEMA hidden; CREATE TABLE hidden.secret (s text); INSERT INTO hidden.secret VALUES ('x')")
    author.sql(
        """
        CREATE TABLE work.noted_by (who text);
        GRANT ALL ON work.noted_by TO PUBLIC;
        CREATE FUNCTION work.noted() RETURNS int LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO work.noted_by VALUES (current_user); RETURN 1; END $$;
        CREATE FUNCTION work.attempt(command text) RETURNS text LANGUAGE plpgsql AS
            $$ BEGIN EXECUTE command; RETURN current_user; EXCEPTION WHEN OTHERS THEN RETURN current_user; END $$;
        CREATE FUNCTION work.lies(command text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
            $$ BEGIN RETURN work.attempt(command); END $$;
        CREATE FUNCTION work.checks(v text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS
            $$ BEGIN PERFORM work.attempt(v); RETURN true; END $$;
        CREATE DOMAIN work.checked AS text CHECK (work.checks(VALUE));
        CREATE TABLE work.attempts (id int PRIMARY KEY, command text);
        """
    )
    sessions = [line.plane.worker.reader, line.plane.worker.writer, line.plane.control]
    looks = (
        "SELECT name, setting FROM pg_settings WHERE source = 'session' ORDER BY 1",
        "SELECT name FROM pg_prepared_statements WHERE statement ~ 'noted'",
        "SELECT pg_listening_channels()",
        "SELECT relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()",
        "SELECT current_user, session_user, current_setting('transaction_read_only')",
    )
    author.create("before", "SELECT work.lies('SELECT 1') AS r FROM work.attempts")
    fine(line.tick())  # what sessions set for themselves they have set by now
    before = [[conn.execute(look, prepare=False).fetchall() for look in looks] for conn in sessions]
    constants = ", ".join(
        f"work.lies('{command.replace(chr(39), chr(39) * 2)}') AS c{i}" for i, command in enumerate(HOSTILE)
    )
    queries = {
        "by_change": "SELECT id, work.lies(command) AS r FROM work.attempts",
        "by_group": "SELECT work.lies(command) AS r, count(*) AS n FROM work.attempts GROUP BY work.lies(command)",
        "by_check": "SELECT id, command::work.checked::text AS r FROM work.attempts",
        "by_constant": f"SELECT id, {constants} FROM work.attempts",
    }
    for name, query in queries.items():
        author.create(name, query)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):  # to analyse it runs code already
        author.create("analysed", "SELECT cardinality('{RESET ROLE}'::work.checked[]) AS n")
    noted = author.sql("SELECT * FROM work.noted_by")  # by sessions of the author's own, when the tables were created
    assert set(noted) <= {(author.name,)}
    for _ in range(2):
        fine(line.tick())
        for i, command in enumerate(HOSTILE):
            author.sql(
                "INSERT INTO work.attempts VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET command = 'SELECT 1'",
                i,
                command,
            )
    fine(line.tick())
    for result in verify_tables(line.dsn, [f"work.{name}" for name in queries], timeout_seconds=1):
        assert result.ok, result
    for name in ("by_change", "by_group"):
        assert author.sql(f"SELECT DISTINCT r FROM work.{name}") == [(author.name,)]
    rows = author.sql("SELECT to_jsonb(b) - '{id,__pgt_row_id}'::text[] FROM work.by_constant AS b")
    assert {value for (row,) in rows for value in row.values()} == {author.name}
    for number, conn in enumerate(sessions):
        for look, found in zip(looks, before[number], strict=True):
            now = conn.execute(look, prepare=False).fetchall()
            assert (set(now) - set(found), set(found) - set(now)) == (set(), set()), (number, look)
    assert author.sql("SELECT * FROM work.noted_by") == noted
    assert author.sql("SELECT to_regclass('work.loot')") == [(None,)]
    assert author.database.superuser_sql("SELECT has_table_privilege(%s, 'hidden.secret', 'SELECT')", author.name) == [
        (False,)
    ]
    assert author.database.superuser_sql("SELECT objid FROM pg_locks WHERE locktype = 'advisory'") == []
    assert author.database.superuser_sql("SELECT DISTINCT run_as FROM pgtrickle.pgt_stream_tables") == [("author",)]
