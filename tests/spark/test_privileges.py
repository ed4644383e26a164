"""Privileges that are lost after a stream table was created: it stops before anything more is read, and says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgtrickle.errors import DefinitionError
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.line import Line

SETUP = """
    CREATE TABLE t (id int PRIMARY KEY, a int, b int);
    CREATE TABLE u (id int PRIMARY KEY, x text);
    CREATE SCHEMA apart;
    CREATE TABLE apart.v (id int PRIMARY KEY);
    CREATE FUNCTION ours(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
    REVOKE EXECUTE ON FUNCTION ours(int) FROM PUBLIC;
    INSERT INTO t VALUES (1, 10, 100), (2, 20, 200);
    INSERT INTO u VALUES (1, 'one');
    INSERT INTO apart.v VALUES (1);
"""


class Author:
    def __init__(self, db: Database, conn: psycopg.Connection[Any], line: Line) -> None:
        self.db, self.conn, self.line = db, conn, line
        self.name = conn.info.user

    def create(self, query: str, name: str = "st", mode: str = "AUTO") -> None:
        self.conn.execute(
            "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)", (f"mine.{name}", query, mode)
        )
        self.line.tick()
        assert self.status(name)[:2] == ("ACTIVE", True), self.status(name)

    def status(self, name: str = "st") -> tuple[Any, ...]:
        (row,) = self.line.sql(
            "SELECT status, is_populated, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name
        )
        return row

    def rows(self, name: str = "st") -> list[tuple[Any, ...]]:
        return self.line.rows(f"mine.{name}")

    def stops(self, text: str, *, populated: bool = True) -> str:
        """After another change of t; nothing of it arrives."""
        before = self.rows() if populated else []
        self.line.sql("INSERT INTO t SELECT max(id) + 1, 77, 777 FROM t")
        self.line.tick()
        status, is_populated, message = self.status()
        assert (status, is_populated) == ("ERROR", populated)
        assert text in message
        assert "resume_stream_table('mine.st')" in message
        assert self.rows() == before
        return str(message)

    def goes_on(self) -> None:
        self.conn.execute("SELECT pgtrickle.resume_stream_table('mine.st')")
        self.line.tick()
        assert self.status()[:2] == ("ACTIVE", True), self.status()
        self.line.equal("mine.st")


@pytest.fixture
def make_author(
    installed: Database,
    make_line: Callable[..., Line],
    make_role: Callable[[Database], psycopg.Connection[Any]],
) -> Callable[..., Author]:
    def make(settings: Settings | None = None) -> Author:
        installed.sql(SETUP)
        conn = make_role(installed)
        name = conn.info.user
        installed.sql(
            f"CREATE SCHEMA mine; GRANT USAGE, CREATE ON SCHEMA mine TO {name}; GRANT SELECT ON t, u TO {name}; "
            f"GRANT USAGE ON SCHEMA apart TO {name}; GRANT SELECT ON apart.v TO {name}; "
            f"GRANT EXECUTE ON FUNCTION ours(int) TO {name}"
        )
        return Author(installed, conn, make_line(installed, settings))

    return make


QUERIES = {
    "rows": "SELECT id, a FROM t",
    "groups": "SELECT a, count(*) AS n FROM t GROUP BY a",
    "join": "SELECT t.id, u.x FROM t LEFT JOIN u USING (id)",
    "limit": "SELECT id, a FROM t ORDER BY a, id LIMIT 5",
    "full": "SELECT id, now() > '2000-01-01' AS later FROM t",
}


@pytest.mark.parametrize("kind", QUERIES)
def test_a_lost_table_stops_whatever_the_mode(make_author: Callable[..., Author], kind: str) -> None:
    author = make_author()
    author.create(QUERIES[kind])
    author.line.sql(f"REVOKE SELECT ON t FROM {author.name}")
    author.stops(f"permission denied for public.t: {author.name} has lost SELECT on it")
    with pytest.raises(DefinitionError, match="has lost SELECT"):
        verify_tables(author.line.dsn, ["mine.st"], timeout_seconds=1)
    # as long as it is lost, to resume it does not help
    author.conn.execute("SELECT pgtrickle.resume_stream_table('mine.st')")
    author.line.tick()
    assert author.status()[0] == "ERROR"
    author.line.sql(f"GRANT SELECT ON t TO {author.name}")
    author.goes_on()


def test_a_lost_column_stops_and_another_one_does_not(make_author: Callable[..., Author]) -> None:
    author = make_author()
    author.line.sql(f"REVOKE SELECT ON t FROM {author.name}; GRANT SELECT (id, a, b) ON t TO {author.name}")
    author.create("SELECT id, a FROM t")
    author.line.sql(f"REVOKE SELECT (b) ON t FROM {author.name}; INSERT INTO t VALUES (9, 9, 9)")
    author.line.tick()
    assert (9, 9) in author.rows()
    author.line.sql(f"REVOKE SELECT (a) ON t FROM {author.name}")
    author.stops("permission denied for public.t")
    author.line.sql(f"GRANT SELECT (a) ON t TO {author.name}")
    author.goes_on()


@pytest.mark.parametrize(
    ("query", "lost", "again", "text"),
    [
        (
            "SELECT t.id FROM t JOIN apart.v USING (id)",
            "REVOKE USAGE ON SCHEMA apart FROM {name}",
            "GRANT USAGE ON SCHEMA apart TO {name}",
            "permission denied for schema apart",
        ),
        (
            "SELECT ours(id) AS x FROM t",
            "REVOKE EXECUTE ON FUNCTION ours(int) FROM {name}",
            "GRANT EXECUTE ON FUNCTION ours(int) TO {name}",
            "permission denied for function public.ours(integer)",
        ),
        (
            "SELECT id FROM t",
            "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE t DISABLE ROW LEVEL SECURITY",
            "row security of public.t is active for",
        ),
    ],
    ids=["schema", "function", "row security"],
)
def test_other_privileges(make_author: Callable[..., Author], query: str, lost: str, again: str, text: str) -> None:
    author = make_author()
    author.create(query)
    author.line.sql(lost.format(name=author.name))
    author.stops(text)
    author.line.sql(again.format(name=author.name))
    author.goes_on()


def test_what_the_owner_of_a_view_may_no_longer_read(make_author: Callable[..., Author]) -> None:
    author = make_author()
    author.db.superuser_sql(
        f"CREATE ROLE holder_{author.name}; GRANT holder_{author.name} TO app; "
        f"GRANT SELECT ON public.t TO holder_{author.name}; "
        f"CREATE VIEW public.seen AS SELECT id, a FROM public.t; ALTER VIEW public.seen OWNER TO holder_{author.name}; "
        f"GRANT SELECT ON public.seen TO {author.name}; REVOKE SELECT ON public.t FROM {author.name}"
    )
    try:
        author.create("SELECT id FROM seen")
        author.line.sql(f"REVOKE SELECT ON t FROM holder_{author.name}")
        author.stops(f"permission denied for public.t: holder_{author.name} has lost SELECT on it")
        author.line.sql(f"GRANT SELECT ON t TO holder_{author.name}")
        author.goes_on()
    finally:
        author.line.sql("SELECT pgtrickle.drop_stream_table('mine.st')")
        author.db.superuser_sql(f"DROP OWNED BY holder_{author.name} CASCADE; DROP ROLE holder_{author.name}")


def test_an_author_who_is_dropped(make_author: Callable[..., Author]) -> None:
    author = make_author()
    author.create("SELECT id, a FROM t")
    author.line.sql("UPDATE pgtrickle.pgt_stream_tables SET created_by = 'gone'")
    author.stops("role gone, who created it, was dropped")
    # who alters it takes it over
    author.line.sql("SELECT pgtrickle.alter_stream_table('mine.st', 'SELECT id, a FROM public.t')")
    author.line.tick()
    assert author.line.sql("SELECT created_by::text, status FROM pgtrickle.pgt_stream_tables") == [("app", "ACTIVE")]


@pytest.mark.parametrize("kind", ["rows", "groups", "limit"])
def test_its_content_goes_where_the_setting_says_so(make_author: Callable[..., Author], kind: str) -> None:
    author = make_author(Settings(on_lost_privilege="empty"))
    author.create(QUERIES[kind])
    author.create("SELECT count(*) AS n FROM mine.st", "above")
    assert author.rows("above") == [(2,)]
    author.line.sql(f"REVOKE SELECT ON t FROM {author.name}")
    author.stops("has lost SELECT", populated=False)
    assert author.rows() == []
    author.line.tick()
    assert author.rows("above") == [(0,)]
    author.line.sql(f"GRANT SELECT ON t TO {author.name}")
    author.goes_on()
    author.line.tick()
    assert author.rows("above") == [(3,)]


def test_chains_stop_where_the_privilege_is_lost(make_author: Callable[..., Author]) -> None:
    author = make_author()
    author.create("SELECT id, a FROM t")
    author.create("SELECT a, count(*) AS n FROM mine.st GROUP BY a", "above")
    author.create("SELECT id, b FROM t", "beside")
    author.line.sql(f"REVOKE SELECT (a) ON t FROM {author.name}; REVOKE SELECT ON t FROM {author.name}")
    author.line.sql(f"GRANT SELECT (id, b) ON t TO {author.name}")
    author.stops("has lost SELECT")
    assert author.status("above")[0] == "ACTIVE"
    assert author.rows("above") == [(10, 1), (20, 1)]
    assert len(author.rows("beside")) == 3


def test_what_is_lost_at_the_origin_of_a_mirror(
    make_installed: Callable[[], Database],
    make_line: Callable[..., Line],
    make_role: Callable[[Database], psycopg.Connection[Any]],
) -> None:
    home, there = make_installed(), make_installed()
    there.sql("CREATE TABLE t (id int PRIMARY KEY, a int, b int); INSERT INTO t VALUES (1, 10, 100), (2, 20, 200)")
    conn = make_role(home)
    name = conn.info.user
    home.sql(f"CREATE SCHEMA mine; GRANT USAGE, CREATE ON SCHEMA mine TO {name}")
    there.sql(f"GRANT SELECT (id, a) ON t TO {name}")
    line = make_line(home)
    conn.execute("SELECT pgtrickle.create_stream_table('mine.st', %s)", (f"SELECT id, a FROM {there.name}.public.t",))
    for _ in range(4):
        line.tick()
    assert line.rows("mine.st") == [(1, 10), (2, 20)]
    there.sql(f"REVOKE SELECT (a) ON t FROM {name}; INSERT INTO t VALUES (3, 30, 300)")
    for _ in range(2):
        line.tick()

    def status() -> tuple[Any, ...]:
        return line.sql("SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'st'")[0]

    assert status()[0] == "ERROR"
    assert f"permission denied for {there.name}.public.t: {name} has lost SELECT on it" in status()[1]
    assert line.rows("mine.st") == [(1, 10), (2, 20)]
    conn.execute("SELECT pgtrickle.resume_stream_table('mine.st')")
    line.tick()
    assert status()[0] == "ERROR"
    assert line.rows("mine.st") == [(1, 10), (2, 20)]
    there.sql(f"GRANT SELECT (a) ON t TO {name}")
    conn.execute("SELECT pgtrickle.resume_stream_table('mine.st')")
    for _ in range(2):
        line.tick()
    assert line.rows("mine.st") == [(1, 10), (2, 20), (3, 30)]
    there.superuser_sql(f"DROP OWNED BY {name}")
