# ruff: noqa: E501 - a query is easier to read on one line
"""A source, or a column of one, that gets another name is followed, as PostgreSQL follows it for a view."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from pgtrickle.db.connect import connect
from pgtrickle.db.install import install
from pgtrickle.errors import TransientError
from pgtrickle.refresh.plan_requests import plan_of_table
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.line import Line

TABLES = """
CREATE SCHEMA other;
CREATE TABLE t (a int PRIMARY KEY, b int, c text);
CREATE TABLE u (a int, c int, d text);
CREATE TABLE other.t (a int, e int);
INSERT INTO t SELECT i, i % 5, 'c' || i % 3 FROM generate_series(1, 20) AS i;
INSERT INTO u SELECT i % 7, i, 'd' || i % 2 FROM generate_series(1, 20) AS i;
INSERT INTO other.t SELECT i % 4, i FROM generate_series(1, 9) AS i;
CREATE VIEW v AS SELECT t.a, t.b AS vb, u.c FROM t JOIN u USING (a);
"""
JOINED = "SELECT t.a, sum(t.b) AS b, max(u.c) AS c FROM t LEFT JOIN u ON u.a = t.a GROUP BY t.a"
QUERIES = {
    "joined": JOINED,
    "functional dependency": "SELECT t.a, t.b, t.c, count(u.a) AS n FROM t LEFT JOIN u ON u.a = t.a GROUP BY t.a",
    "using": "SELECT a, t.b, u.c FROM t JOIN u USING (a)",
    "natural": "SELECT * FROM (SELECT a, b FROM t) AS x NATURAL FULL JOIN (SELECT a, d FROM u) AS y",
    "itself": "SELECT x.a, y.b FROM t AS x JOIN t AS y ON x.b = y.a JOIN t ON t.a = y.a",
    "subqueries": "SELECT a, b FROM t WHERE EXISTS (SELECT FROM u WHERE u.a = t.b) AND b NOT IN (SELECT c FROM u WHERE c > 3)",
    "with": "WITH told AS (SELECT a, c FROM u), u AS (SELECT a FROM told) SELECT t.a, told.c FROM t JOIN told USING (a) WHERE t.a IN (SELECT a FROM u)",
    "recursive": "WITH RECURSIVE r AS (SELECT a, b FROM t WHERE a < 4 UNION SELECT t.a, t.b FROM t JOIN r ON t.a = r.b) SELECT a, b FROM r",
    "window": "SELECT a, b, rank() OVER (PARTITION BY b ORDER BY a) AS r FROM t",
    "distinct on": "SELECT DISTINCT ON (b) b, a FROM t ORDER BY b, a",
    "set": "SELECT a FROM t EXCEPT SELECT c FROM u UNION ALL SELECT a FROM other.t",
    "limit": "SELECT a, b FROM t ORDER BY b DESC, a LIMIT 3",
    "lateral": "SELECT t.a, l.c, g FROM t CROSS JOIN LATERAL (SELECT max(u.c) AS c FROM u WHERE u.a = t.b) AS l CROSS JOIN generate_series(1, t.b) AS g",
    "column aliases": "SELECT x.p, x.q FROM t AS x (p, q) WHERE x.p IN (SELECT y.z FROM u AS y (z))",
    "same names": "SELECT t.a, o.e FROM t JOIN other.t AS o ON o.a = t.a",
    "view": "SELECT a, sum(vb) AS s FROM v GROUP BY a",
    "view and table": "SELECT v.a, v.vb, u.d FROM v JOIN u ON u.c = v.c",
    "scalar": "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a) AS n FROM t",
    "keyword": 'SELECT a AS "select", b AS "Order" FROM t',
}
RENAMES = {
    "tables": 'ALTER TABLE t RENAME TO told; ALTER TABLE u RENAME TO "U ""2"""',
    "each other": "ALTER TABLE t RENAME TO between; ALTER TABLE u RENAME TO t; ALTER TABLE between RENAME TO u",
    "schema": "CREATE SCHEMA third; ALTER TABLE t SET SCHEMA third; ALTER TABLE u SET SCHEMA other",
    "columns": 'ALTER TABLE t RENAME b TO "select"; ALTER TABLE u RENAME c TO said; ALTER TABLE t RENAME c TO b',
    "columns each other": "ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME x TO b",
    "all": 'ALTER TABLE t RENAME TO u2; ALTER TABLE u2 RENAME a TO c2; ALTER TABLE u RENAME TO t; ALTER TABLE t RENAME a TO "A a"; ALTER VIEW v RENAME TO t2; ALTER VIEW t2 RENAME COLUMN vb TO b; ALTER SCHEMA other RENAME TO "O"',
}


# It makes up aliases, for a view once and here twice; writes out column aliases; and where two tables had the same name,
# in two schemas, both keep that as an alias.
IN_OTHER_WORDS = {"with", "set", "column aliases", "same names"}


def _one(line: Line, text: str, *params: object) -> str:
    ((found,),) = line.sql(text, *params)
    return str(found)


def _write(line: Line, turn: int) -> None:
    """To both tables, whatever they and their columns are called."""
    for name, values in (("t", f"{50 + turn}, {turn}, 'c1'"), ("u", f"{turn}, {7 + turn}, 'd1'")):
        table = _one(line, "SELECT relid::regclass FROM relids WHERE name = %s", name)
        a, b = line.sql(
            "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum IN (1, 2) ORDER BY attnum",
            table,
        )
        line.sql(f"INSERT INTO {table} VALUES ({values}); DELETE FROM {table} WHERE {a[0]} = {turn + 3}")
        line.sql(f"UPDATE {table} SET {b[0]} = {b[0]} + 1 WHERE {a[0]} = {turn + 1}")


def _check(line: Line, name: str, view: str) -> None:
    columns = _one(
        line,
        "SELECT string_agg(format('%%I', attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = %s::regclass",
        view,
    )
    both = f"(TABLE {view} EXCEPT ALL SELECT {columns} FROM {name}) UNION ALL (SELECT {columns} FROM {name} EXCEPT ALL TABLE {view})"
    assert line.sql(both) == []
    line.equal(name)


@pytest.mark.parametrize("renames", RENAMES.values(), ids=RENAMES.keys())
def test_query_is_the_one_that_postgresql_has_for_a_view(line: Line, renames: str) -> None:
    line.sql(TABLES + "CREATE TABLE relids AS SELECT n AS name, n::regclass AS relid FROM unnest('{t,u}'::text[]) AS n")
    for i, query in enumerate(QUERIES.values()):
        line.sql(f"CREATE VIEW expected_{i} AS {query}")
        line.create(f"st_{i}", query)
    modes = dict(line.sql("SELECT pgt_name, effective_refresh_mode FROM pgtrickle.pgt_stream_tables"))
    line.sql(renames)
    for turn in range(2):
        _write(line, turn)
        line.tick()
        for i, name in enumerate(QUERIES):
            its = f"st_{i}"
            action, status, reason = line.last(its)
            assert status == "COMPLETED", (name, reason)
            is_load = turn == 0 and ("RENAME a" in renames or "RENAME b" in renames)
            is_load |= turn == 0 and modes[its] == "FULL"
            assert action == modes[its] or (is_load and action in ("REINITIALIZE", "FULL")), (name, action, reason)
            _check(line, its, f"expected_{i}")
            query = _one(line, "SELECT defining_query FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", its)
            expected = _one(line, "SELECT defining_query FROM pgtrickle._describe(%s::regclass)", f"expected_{i}")
            assert query == expected or name in IN_OTHER_WORDS, name


def _status(line: Line, name: str = "st") -> tuple[str, str | None]:
    ((status, message),) = line.sql(
        "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name
    )
    return status, message


def test_renamed_while_the_control_plane_was_away(
    line: Line, make_line: Callable[..., Line], installed: Database
) -> None:
    line.sql(TABLES)
    line.create("st", JOINED)
    line.create("columns", "SELECT a, b FROM t")
    line.plane.close()
    line.sql("ALTER TABLE t RENAME TO told; INSERT INTO told VALUES (60, 1); ALTER TABLE u RENAME c TO said")
    line.sql("ALTER TABLE told RENAME a TO x; ALTER TABLE told RENAME b TO a; ALTER TABLE told RENAME x TO b")
    other = make_line(installed)
    other.tick()
    for name in ("st", "columns"):
        other.check(name, "REINITIALIZE")
    assert (60, 1) in other.rows("columns")


def test_a_file_with_the_new_name_is_the_same_definition(line: Line) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT a, sum(b) AS b FROM t GROUP BY a")
    line.sql("ALTER TABLE t RENAME TO told; ALTER TABLE told RENAME b TO e; INSERT INTO told VALUES (60, 1)")
    line.tick()
    ((query,),) = line.sql("SELECT defining_query FROM pgtrickle.pgt_stream_tables")
    assert line.sql("SELECT pgtrickle._normalised('SELECT a, sum(e) AS b FROM told GROUP BY a')") == [(query,)]


@pytest.mark.parametrize("mode", ["AUTO", "FULL", "DIFFERENTIAL", "IMMEDIATE"])
def test_every_mode_follows(line: Line, mode: str) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT a, b FROM t", mode=mode)
    line.sql("ALTER TABLE t RENAME TO told; INSERT INTO told VALUES (60, 1)")
    line.tick()
    line.check("st", "FULL" if mode == "FULL" else "DIFFERENTIAL")
    line.sql("ALTER TABLE told RENAME a TO x; ALTER TABLE told RENAME b TO a; ALTER TABLE told RENAME x TO b")
    line.sql("INSERT INTO told VALUES (61, 1)")
    line.tick()
    line.equal("st")
    assert (61, 1) in line.rows("st")


def test_sources_whose_changes_are_not_captured_are_followed(line: Line) -> None:
    line.sql(
        TABLES
        + "CREATE MATERIALIZED VIEW m AS SELECT a, b FROM t; CREATE TABLE n AS SELECT a + 100 AS b, b + 100 AS a FROM t"
    )
    line.create("st", "SELECT a, b FROM m", schedule="1s")
    rows = line.rows("st")
    line.sql("ALTER MATERIALIZED VIEW m RENAME TO m2; ALTER TABLE n RENAME TO m")
    line.sql("SELECT pgtrickle.refresh_stream_table('st')")
    line.tick()
    line.check("st", "REINITIALIZE")
    assert line.rows("st") == rows
    line.sql(
        "ALTER MATERIALIZED VIEW m2 RENAME a TO c; ALTER MATERIALIZED VIEW m2 RENAME b TO a; ALTER MATERIALIZED VIEW m2 RENAME c TO b"
    )
    line.sql("SELECT pgtrickle.refresh_stream_table('st')")
    line.tick()
    line.check("st", "REINITIALIZE")
    assert line.rows("st") == rows
    # One that was made anew is found by its name, as before.
    line.sql(
        "DROP MATERIALIZED VIEW m2 CASCADE; CREATE MATERIALIZED VIEW m2 AS SELECT 7 AS a, 8 AS b; SELECT pgtrickle.refresh_stream_table('st')"
    )
    line.tick()
    line.check("st", "FULL")
    assert line.rows("st") == [(8, 7)]


def test_rows_as_a_whole(line: Line) -> None:
    line.sql(TABLES + "CREATE FUNCTION shown(t) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ($1).c'")
    line.create("st", "SELECT a, to_jsonb(u) AS j FROM u")
    line.create("typed", "SELECT t.a, shown(t) AS s FROM t")
    line.sql("ALTER TABLE u RENAME TO u2; ALTER TABLE u2 RENAME d TO e; INSERT INTO u2 VALUES (1, 2, 'x')")
    line.sql("ALTER TABLE t RENAME TO t2; INSERT INTO t2 VALUES (90, 2, 'x')")
    line.tick()
    line.equal("st")
    assert any("e" in j for _, j in line.rows("st"))
    status, message = _status(line, "typed")
    assert status == "ERROR"
    assert message is not None
    assert "public.t is public.t2 now, and the query cannot be rewritten" in message
    line.sql("ALTER TABLE t2 RENAME TO t; SELECT pgtrickle.resume_stream_table('typed')")
    line.tick()
    line.equal("typed")


def test_a_column_that_is_dropped_as_well_is_said(line: Line) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT a, b FROM t")
    line.sql("ALTER TABLE t RENAME TO told; ALTER TABLE told DROP b CASCADE")
    line.tick(include_unchanged=True)
    status, message = _status(line)
    assert status == "ERROR"
    assert message is not None
    assert "column b of public.t (renamed to public.told) was dropped" in message


def test_the_old_text_means_the_successor_when_it_is_given_again(line: Line) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT a, b FROM t")
    line.sql("ALTER TABLE t RENAME TO told; INSERT INTO told VALUES (60, 1)")
    line.tick()
    line.check("st")
    line.sql("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2)")
    line.sql("SELECT pgtrickle.create_or_replace_stream_table('st', 'SELECT a, b FROM t')")
    line.tick()
    line.equal("st")
    assert line.rows("st") == [(1, 2)]


def test_a_table_over_stream_tables_and_a_cycle(make_line: Callable[..., Line], installed: Database) -> None:
    line = make_line(installed, Settings(allow_circular=True))
    line.sql("SELECT pgtrickle.set_option('allow_circular', 'on')")
    line.sql(TABLES)
    line.create("base", "SELECT a, b FROM t")
    line.create("above", "SELECT b, count(*) AS n FROM base GROUP BY b")
    line.create("reach", "SELECT a, b FROM t")
    line.create("hop", "SELECT r.a, t.b FROM reach AS r JOIN t ON t.a = r.b")
    line.sql("SELECT pgtrickle.alter_stream_table('reach', query => 'SELECT a, b FROM t UNION SELECT a, b FROM hop')")
    line.tick()
    line.sql("ALTER TABLE t RENAME TO told; INSERT INTO told VALUES (60, 1), (61, 60)")
    line.tick()
    line.tick()
    for name in ("base", "above", "reach", "hop"):
        assert _status(line, name) == ("ACTIVE", None)
        line.equal(name)
    line.check("above")
    assert (61, 1) in line.rows("hop")


def test_odd_tables(line: Line) -> None:
    line.sql(
        'CREATE DOMAIN short AS varchar(5) COLLATE "C"; CREATE TYPE pair AS (x int, y text);'
        'CREATE TABLE "T ""1""" (id int GENERATED ALWAYS AS IDENTITY, "select" short, p pair, arr numeric(6, 2)[], '
        'twice int GENERATED ALWAYS AS (id * 2) STORED, gone int, PRIMARY KEY (id) INCLUDE ("select")) PARTITION BY RANGE (id);'
        'CREATE TABLE part PARTITION OF "T ""1""" FOR VALUES FROM (0) TO (100);'
        'ALTER TABLE "T ""1""" DROP gone; INSERT INTO "T ""1""" ("select", p, arr) VALUES (\'a\', (1, \'b\'), \'{1.5}\'), (NULL, NULL, NULL)'
    )
    line.create("st", 'SELECT id, "select", (p).y, arr, twice FROM "T ""1"""')
    line.sql('ALTER TABLE "T ""1""" RENAME TO __pgt_shell_0; ALTER TABLE part RENAME TO "T ""1"""')
    line.tick()
    line.sql('ALTER TABLE __pgt_shell_0 RENAME TO "order"')
    line.sql("INSERT INTO \"order\" (\"select\", p, arr) VALUES ('c', (2, 'd'), '{}')")
    line.tick()
    line.check("st")
    line.sql(
        'ALTER TABLE "order" RENAME "select" TO "from"; ALTER TABLE "order" RENAME arr TO "select"; DELETE FROM "order" WHERE id = 1'
    )
    line.tick()
    line.equal("st")
    line.sql('UPDATE "order" SET "from" = \'q\' WHERE id = 2')
    line.tick()
    line.check("st")


def test_a_source_that_is_made_again_has_its_columns_under_other_numbers(line: Line) -> None:
    line.sql(TABLES)
    line.create("base", "SELECT a, b, c FROM t")
    line.sql("SELECT pgtrickle.alter_stream_table('base', query => 'SELECT c, b, a FROM t WHERE b > 0')")
    line.tick()
    line.create("above", "SELECT c, sum(a) AS s FROM base GROUP BY c")
    line.create("counted", "SELECT count(*) AS n FROM base")
    line.sql("DROP TABLE base; SELECT pgtrickle.repair_stream_table('base')")
    line.tick()
    line.tick()
    line.sql("UPDATE t SET a = a + 1000 WHERE a = 3; INSERT INTO t VALUES (70, 0, 'c0'), (71, 7, 'c9')")
    line.tick()
    for name in ("base", "above", "counted"):
        assert _status(line, name) == ("ACTIVE", None)
        line.check(name)


HELD = """
CREATE FUNCTION f(int) RETURNS int IMMUTABLE LANGUAGE sql RETURN $1;
CREATE SCHEMA lib;
CREATE TABLE lib.t (a int, b int);
CREATE DOMAIN lib.whole AS int;
CREATE TYPE lib.mood AS ENUM ('ok', 'sad');
CREATE FUNCTION lib.f(int) RETURNS int IMMUTABLE LANGUAGE sql RETURN $1 + 1;
CREATE SCHEMA other;
CREATE TABLE other.t (a int, b int);
CREATE DOMAIN other.whole AS int;
CREATE FUNCTION other.f(int) RETURNS int IMMUTABLE LANGUAGE sql RETURN $1 + 2;
CREATE TYPE pair AS (x int, y int);
CREATE TABLE held (a int PRIMARY KEY, p pair);
CREATE TABLE t (a int, b int);
INSERT INTO held SELECT i, ROW(i, i * 10)::pair FROM generate_series(1, 5) AS i;
INSERT INTO t SELECT i, i * 10 FROM generate_series(1, 5) AS i;
"""
SUCCESSOR = "ALTER TABLE t RENAME TO told; CREATE TABLE t (b int, a int); INSERT INTO t VALUES (7, 8)"
EACH_OTHER = "ALTER {0} RENAME {1} {2} TO z; ALTER {0} RENAME {1} {3} TO {2}; ALTER {0} RENAME {1} z TO {3}"
NAMED = {
    "constant": ("SELECT a, 't'::regclass::oid::int8 AS o FROM t", SUCCESSOR),
    "constant beside": ("SELECT a, 't'::regclass::oid::int8 AS o FROM held", SUCCESSOR),
    "type": ("SELECT a, (ROW(a, b)::t).b AS c FROM t", SUCCESSOR),
    "type beside": ("SELECT a, (ROW(a, a + 1)::t).b AS c FROM held", SUCCESSOR),
    "columns of a type": (
        "SELECT a, (ROW(a, b)::t).b AS c FROM t",
        EACH_OTHER.format("TABLE t", "COLUMN", "a", "b"),
    ),
    "function": (
        "SELECT a, f(b) AS b FROM t",
        "ALTER FUNCTION f RENAME TO g; CREATE FUNCTION f(int) RETURNS int IMMUTABLE LANGUAGE sql RETURN -1",
    ),
    "schema": (
        "SELECT a, lib.f(b) AS b, b::lib.whole AS c FROM lib.t",
        "ALTER SCHEMA lib RENAME TO lib2; ALTER SCHEMA other RENAME TO lib; INSERT INTO lib2.t VALUES (8, 9)",
    ),
    "attributes": ("SELECT a, (p).y FROM held", EACH_OTHER.format("TYPE pair", "ATTRIBUTE", "x", "y")),
}


@pytest.mark.parametrize(("query", "renames"), NAMED.values(), ids=NAMED)
def test_what_is_named_but_not_read_stops_the_table(line: Line, query: str, renames: str) -> None:
    """A view would go on with the same relation; the text would mean its successor."""
    line.sql(HELD)
    line.create("st", query)
    line.sql(f"{renames}; INSERT INTO held VALUES (60, (1, 2)); DELETE FROM {'told' if 'told' in renames else 't'}")
    rows = line.rows("st")
    line.tick()
    status, message = _status(line)
    assert status == "ERROR"
    assert message is not None
    assert message.endswith("now (hint: define it again with pgtrickle.alter_stream_table(name, query => ...))")
    assert line.rows("st") == rows


def test_a_type_whose_name_is_not_said_may_get_another(line: Line) -> None:
    line.sql(HELD)
    line.create("st", "SELECT a, (p).y FROM held")
    line.sql("ALTER TYPE pair RENAME TO couple; ALTER TYPE couple RENAME ATTRIBUTE x TO w")
    line.sql("INSERT INTO held VALUES (60, (1, 2))")
    line.tick()
    line.equal("st")
    assert (60, 2) in line.rows("st")


def test_what_views_name_is_followed(line: Line) -> None:
    line.sql(
        HELD + "CREATE VIEW v AS SELECT a, lib.f(a) AS f, 't'::regclass::oid::int8 AS o, (ROW(a, a)::t).b FROM held"
    )
    line.sql("CREATE VIEW expected AS SELECT a, f, o, b FROM v")
    line.create("st", "SELECT a, f, o, b FROM v")
    line.sql(SUCCESSOR + "; ALTER SCHEMA lib RENAME TO lib2; ALTER SCHEMA other RENAME TO lib")
    line.sql("INSERT INTO held VALUES (60, (1, 2)); DELETE FROM held WHERE a = 3")
    line.tick()
    line.equal("st")
    _check(line, "st", "expected")
    line.sql("ALTER FUNCTION lib2.f RENAME TO g; ALTER TABLE told RENAME b TO c; INSERT INTO held VALUES (61, (1, 2))")
    line.tick()
    line.equal("st")
    _check(line, "st", "expected")


@pytest.mark.parametrize(
    "rename", ["SCHEMA lib RENAME TO lib2", "TYPE lib.mood RENAME TO feeling", "TYPE lib.mood SET SCHEMA other"]
)
def test_types_of_columns_are_followed(line: Line, rename: str) -> None:
    line.sql(HELD + "CREATE TABLE moods (a int PRIMARY KEY, m lib.mood); INSERT INTO moods VALUES (1, 'ok')")
    line.create("st", "SELECT m, count(*) AS n FROM moods GROUP BY m")
    line.create("inside", "SELECT count(*) AS n, max(x.a) AS hi FROM moods AS x JOIN moods AS y USING (m)")
    line.sql(f"ALTER {rename}; CREATE SCHEMA IF NOT EXISTS lib; CREATE TYPE lib.mood AS ENUM ('none')")
    for a in range(2, 4):
        line.sql(f"INSERT INTO moods VALUES ({a}, 'sad')")
        line.tick()
        for name in ("st", "inside"):
            assert _status(line, name) == ("ACTIVE", None)
            line.equal(name)
    for name in ("st", "inside"):
        line.check(name)


def test_names_are_kept_from_now_on(installed: Database, line: Line, make_line: Callable[..., Line]) -> None:
    """In a catalog of before, with a source that is gone."""
    line.sql(TABLES)
    line.create("gone", "SELECT a, b FROM t")
    line.create("st", "SELECT a, c FROM u")
    line.sql("ALTER TABLE pgtrickle.pgt_dependencies DROP source_schema, DROP source_name, DROP column_names")
    line.sql("DROP TABLE pgtrickle.pgt_names; DROP TABLE t CASCADE")
    line.sql("UPDATE pgtrickle.pgt_schema_version SET version = 1")
    with connect(line.dsn, role="test") as conn:
        install(conn)
    line.sql("ALTER TABLE u RENAME TO u2; INSERT INTO u2 VALUES (101, 2)")
    line = make_line(installed)  # an upgrade ends the sessions of before
    line.tick(include_unchanged=True)
    line.check("st")
    status, message = _status(line, "gone")
    assert status == "ERROR"
    assert message is not None
    assert "relation public.t does not exist" in message.replace('"', "")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, to_jsonb(u) AS j FROM u",
        "SELECT a, tableoid::regclass::text AS r FROM u",
        "SELECT a, v::text AS r, to_jsonb(v) AS j FROM v",
    ],
)
def test_names_that_show_in_values(line: Line, query: str) -> None:
    """They change with the name, and nothing else does."""
    line.sql(TABLES)
    line.create("st", query, schedule="1s")
    for rename in ("TABLE u RENAME d TO e", "TABLE u RENAME TO u2", "VIEW v RENAME COLUMN vb TO b"):
        line.sql(f"ALTER {rename}; SELECT pgtrickle.refresh_stream_table('st')")
        line.tick()
        line.equal("st")


def test_before_the_rename_is_followed(line: Line) -> None:
    line.sql(TABLES)
    queries = {"st": "SELECT a, b FROM t", "columns": "SELECT c, d FROM u", "through": "SELECT a, c FROM v"}
    for name, query in queries.items():
        line.create(name, query)
    before = line.rows("st")
    line.sql("ALTER TABLE t RENAME TO told; CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2)")
    line.sql("ALTER TABLE u RENAME a TO z; ALTER TABLE u RENAME c TO a; ALTER TABLE u RENAME z TO c")
    assert plan_of_table(line.dsn, "st")["query"].split()[-1] == "public.told"
    for name in ("st", "columns"):
        with pytest.raises(TransientError, match="must be refreshed before verification"):
            line.equal(name)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="was renamed, which its next refresh"):
            line.sql("SELECT pgtrickle.alter_stream_table(%s, refresh_mode => 'FULL')", name)
    # The same text is another query now.
    line.sql("SELECT pgtrickle.create_or_replace_stream_table('columns', 'SELECT c, d FROM u')")
    line.tick(include_unchanged=True)
    for name in queries:
        line.equal(name)
    assert line.rows("st") == before
    assert sorted(line.rows("columns")) == sorted(line.sql("SELECT c, d FROM u"))
    typed = "SELECT original_query FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'through'"
    assert _one(line, typed) == queries["through"]  # PostgreSQL follows for the view
    line.sql("SELECT pgtrickle.create_or_replace_stream_table('st', 'SELECT a, b FROM t')")
    line.tick()
    assert line.rows("st") == [(1, 2)]


def test_the_same_text_for_a_successor(line: Line) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT a, b FROM t")
    line.sql("ALTER TABLE t RENAME TO told; CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2)")
    line.sql("SELECT pgtrickle.create_or_replace_stream_table('st', 'SELECT a, b FROM t')")
    line.tick()
    line.equal("st")
    assert line.rows("st") == [(1, 2)]


def test_types_and_keys_that_are_not_ours_to_use(line: Line, installed: Database) -> None:
    """Those of columns that the query does not name are not needed."""
    installed.superuser_sql(
        "CREATE SCHEMA closed; CREATE DOMAIN closed.word AS text; CREATE TYPE closed.mood AS ENUM ('ok');"
        "CREATE TABLE public.t_pkey (a int PRIMARY KEY, b int); CREATE TABLE public.t (a int PRIMARY KEY, b int, w closed.word, m closed.mood);"
        "INSERT INTO public.t VALUES (1, 2); INSERT INTO public.t_pkey VALUES (1, 3);"
        "ALTER TABLE public.t OWNER TO app; ALTER TABLE public.t_pkey OWNER TO app"
    )
    line.create("st", "SELECT t.a, t.b, u.b AS c FROM t JOIN t_pkey AS u ON u.a = t.a")
    line.sql(
        "ALTER TABLE t RENAME TO t2; ALTER TABLE t_pkey RENAME TO u; INSERT INTO t2 VALUES (2, 3); INSERT INTO u VALUES (2, 4)"
    )
    line.tick()
    line.check("st")
    assert line.rows("st") == [(1, 2, 3), (2, 3, 4)]


@pytest.mark.parametrize("is_repaired", [False, True])
def test_oids_of_another_database_are_not_followed(
    line: Line, make_line: Callable[..., Line], installed: Database, is_repaired: bool
) -> None:
    """As after a dump was restored, where they are given anew: sources are found by name."""
    line.sql(TABLES + "CREATE TABLE secret (a int, b int); INSERT INTO secret VALUES (6, 6)")
    line.create("st", "SELECT a, b FROM t")
    line.plane.close()
    line.sql("UPDATE pgtrickle.pgt_stream_tables SET defined_in = '1/1', frontier = NULL, plan = NULL")
    line.sql("UPDATE pgtrickle.pgt_dependencies SET source_relid = 'secret'::regclass")
    if is_repaired:
        line.sql("DROP TABLE st; SELECT pgtrickle.repair_stream_table('st')")
    else:
        line.sql("UPDATE pgtrickle.pgt_stream_tables SET pgt_relid = 'u'::regclass; INSERT INTO t VALUES (80, 1)")
    again = make_line(installed)
    for _ in range(2):
        again.tick()
    assert _status(line)[0] == "ACTIVE"
    assert "secret" not in _one(line, "SELECT defining_query FROM pgtrickle.pgt_stream_tables")
    assert sorted(again.rows("st")) == sorted(line.sql("SELECT a, b FROM t"))


def test_copied_or_upgraded_with_its_oids(line: Line) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT a, b FROM t")
    line.edit_catalog(
        "UPDATE pgtrickle.pgt_stream_tables SET defined_in = '1/1', needs_reinit = true, definition_version = 9"
    )
    line.sql("INSERT INTO t VALUES (80, 1)")
    line.tick()
    line.sql("ALTER TABLE t RENAME TO told; INSERT INTO told VALUES (81, 1)")
    line.tick()
    line.check("st")


def test_two_workers_and_many_renames(line: Line, make_line: Callable[..., Line], installed: Database) -> None:
    line.sql(TABLES)
    for i in range(4):
        line.create(f"st_{i}", f"SELECT t.a, t.b, u.d FROM t JOIN u ON u.a = t.a + {i % 2}")
    other = make_line(installed)
    failed: list[BaseException] = []
    ended = threading.Event()

    def work(its: Line) -> None:
        try:
            while not ended.is_set():
                its.tick()
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    workers = [threading.Thread(target=work, args=(its,)) for its in (line, other)]
    for worker in workers:
        worker.start()
    t, u = "t", "u"
    for n in range(20):
        installed.sql(f"ALTER TABLE {t} RENAME TO t{n}; INSERT INTO t{n} VALUES ({1000 + n}, 1, 'x')")
        t = f"t{n}"
        if n % 4 == 0:
            installed.sql(
                f"BEGIN; ALTER TABLE {t} RENAME TO z; ALTER TABLE {u} RENAME TO {t}; ALTER TABLE z RENAME TO {u}; COMMIT"
            )
            t, u = u, t
        if n % 5 == 0:
            installed.sql(
                f"ALTER TABLE {t} RENAME b TO z; ALTER TABLE {t} RENAME a TO b; ALTER TABLE {t} RENAME z TO a"
            )
        time.sleep(0.1)
    ended.set()
    for worker in workers:
        worker.join()
    assert failed == []
    for _ in range(3):
        line.tick()
    for i in range(4):
        assert _status(line, f"st_{i}") == ("ACTIVE", None)
        line.equal(f"st_{i}")
    assert line.rows("st_0") == sorted(
        line.sql(f"SELECT t.a, t.b, u.d FROM {t} AS t JOIN {u} AS u ON u.a = t.a"), key=repr
    )
