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
