"""Cases that once went wrong: what stands under a stream table changes its meaning, or its names are odd."""

from __future__ import annotations

from tests.line import Line


def test_a_row_on_which_the_query_fails_comes_and_goes_within_one_window(line: Line) -> None:
    line.sql("CREATE TABLE t (id int, a int, b int); INSERT INTO t VALUES (1, 1, 1)")
    line.create("st", "SELECT id, a / b AS ratio FROM t")
    line.sql("INSERT INTO t VALUES (2, 1, 0); UPDATE t SET b = 1 WHERE id = 2")
    line.tick()
    line.check("st", "FULL")


def test_resuming_works_once_the_row_on_which_the_query_fails_is_gone(line: Line) -> None:
    line.sql("CREATE TABLE t (id int, a int, b int); CREATE TABLE other (x int)")
    line.create("st", "SELECT id, a / b AS ratio FROM t")
    line.create("neighbour", "SELECT x FROM other")
    line.sql("INSERT INTO t VALUES (1, 1, 0); INSERT INTO other VALUES (1)")
    line.tick()
    status = line.sql("SELECT status, last_error_message FROM pgtrickle.pgt_status() WHERE name = 'public.st'")
    assert status == [("ERROR", "PGT401: division by zero [22012]")]
    line.check("neighbour")
    line.sql("DELETE FROM t; SELECT pgtrickle.resume_stream_table('st')")
    line.tick()
    line.check("st", "FULL")


def test_percent_signs_in_names_of_a_grouped_table(line: Line) -> None:
    line.sql('CREATE TABLE t (a int, "%" int); INSERT INTO t VALUES (1, 2)')
    line.create('"50%s"', 'SELECT a % 3 AS "%(a)s", sum("%") AS "%" FROM t GROUP BY a % 3')
    line.check("50%s", "FULL")
    line.sql("INSERT INTO t VALUES (4, 2)")
    line.tick()
    line.check("50%s")


def test_a_group_is_shown_by_the_collation_of_its_key(line: Line) -> None:
    """The test database's own collation knows that É is the upper case of é; "C" does not."""
    line.sql("CREATE TABLE t (name text COLLATE \"C\"); INSERT INTO t VALUES ('é')")
    line.create("keys", "SELECT name, upper(name) AS upper, count(*) AS n FROM t GROUP BY name")
    line.create("extremes", "SELECT upper(max(name)) AS upper FROM t")
    line.sql("INSERT INTO t VALUES ('ö')")
    line.tick()
    for name in ("keys", "extremes"):
        line.check(name)
    assert line.rows("extremes") == [("ö",)]


def test_digits_of_a_numeric_key_are_not_lost_where_they_show(line: Line) -> None:
    line.sql("CREATE TABLE t (n numeric, s numeric(8,2)); INSERT INTO t VALUES (1.00, 1)")
    line.create("shown", "SELECT n::text AS text, count(*) AS rows FROM t GROUP BY n")
    line.create("declared", "SELECT s::text AS text, count(*) AS rows FROM t GROUP BY s")
    line.create("compared", "SELECT n, count(*) AS rows FROM t GROUP BY n HAVING n > 0.5")
    line.create("having", "SELECT s, sum(n) AS n FROM t GROUP BY s HAVING sum(n)::text = '1.00'")
    for name in ("shown", "declared", "compared", "having"):
        line.check(name, "FULL")
    line.sql("INSERT INTO t VALUES (2.000, 2), (1.00, 3)")
    line.tick()
    line.check("shown", "FULL")
    for name in ("declared", "compared", "having"):
        line.check(name)
    assert line.rows("shown") == [("1.00", 2), ("2.000", 1)]
