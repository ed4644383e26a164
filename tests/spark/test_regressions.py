"""Cases that once went wrong: what stands under a stream table changes its meaning, or its names are odd."""

from __future__ import annotations

import pytest

from pgtrickle.pipeline.differentiate import linear
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
    row = "row of public.t (id = '1', a = '1', b = '0')"
    assert status == [("ERROR", f"PGT200: public.st: a / b: division by zero [22012] ({row})")]
    line.check("neighbour")
    line.sql("DELETE FROM t; SELECT pgtrickle.resume_stream_table('st')")
    line.tick()
    line.check("st", "NO_DATA")  # what came and went is nothing


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
    line.check("shown", "FULL")  # equal values of n may have several texts
    for name in ("declared", "compared", "having"):
        line.check(name)
    assert line.rows("shown") == [("1.00", 2), ("2.000", 1)]


def status(line: Line, name: str) -> tuple[str, str]:
    rows = line.sql("SELECT status, coalesce(last_error_message, '') FROM pgtrickle.pgt_status() WHERE name = %s", name)
    return rows[0][0], rows[0][1]


@pytest.mark.parametrize("query", ["SELECT a, sum(b) AS b FROM t GROUP BY a", "SELECT DISTINCT a, b FROM t"])
def test_another_table_under_the_same_name_is_not_read(line: Line, query: str) -> None:
    line.sql("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 1)")
    line.create("st", query)
    line.sql(
        "BEGIN; CREATE TABLE successor (a int, b int); INSERT INTO successor VALUES (7, 7); "
        "ALTER TABLE t RENAME TO t_old; ALTER TABLE successor RENAME TO t; COMMIT"
    )
    line.sql("INSERT INTO t_old VALUES (2, 2); INSERT INTO t VALUES (9, 9)")
    line.tick()
    line.check("st")
    assert line.rows("st") == [(1, 1), (2, 2)]
    line.sql("SELECT pgtrickle.alter_stream_table('st', query => %s)", query)
    line.tick()
    line.sql("INSERT INTO t VALUES (8, 8)")
    line.tick()
    line.equal("st")
    assert line.rows("st") == [(7, 7), (8, 8), (9, 9)]


def test_a_source_that_moves_away_and_back_loses_nothing(line: Line) -> None:
    line.sql("CREATE SCHEMA elsewhere; CREATE TABLE t (a int)")
    line.create("st", "SELECT a FROM t")
    line.sql("ALTER TABLE t SET SCHEMA elsewhere; INSERT INTO elsewhere.t VALUES (1)")
    line.tick()
    line.check("st")
    assert line.rows("st") == [(1,)]
    line.sql("ALTER TABLE elsewhere.t SET SCHEMA public; INSERT INTO t VALUES (2)")
    line.tick()
    line.check("st")
    assert line.rows("st") == [(1,), (2,)]


@pytest.mark.parametrize("query", ["SELECT a, b FROM outer_view", "SELECT DISTINCT a, b FROM outer_view"])
def test_a_replaced_view_is_followed_while_it_reads_the_same_columns(line: Line, query: str) -> None:
    line.sql("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 1), (2, 2); CREATE TABLE other (a int, b int)")
    line.sql("CREATE VIEW v AS SELECT a, b FROM t; CREATE VIEW outer_view AS SELECT a, b FROM v")
    line.create("st", query)
    line.sql("CREATE OR REPLACE VIEW v AS SELECT a, b * 10 AS b FROM t WHERE a <> 2")
    line.tick(include_unchanged=True)
    line.equal("st")
    assert line.rows("st") == [(1, 10)]
    line.sql("INSERT INTO t VALUES (3, 3)")
    line.tick()
    line.equal("st")
    line.sql("CREATE OR REPLACE VIEW v AS SELECT a, b FROM other")
    line.tick(include_unchanged=True)
    state, message = status(line, "public.st")
    assert state == "ERROR"
    assert "now reads public.other" in message


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("random() < 2", "volatile"),
        ("now() > '2020-01-01'::timestamptz", "stable function pg_catalog.now()"),
        ("b > 0", "a column of public.t"),
    ],
)
def test_a_replaced_view_that_could_not_have_been_used_stops_the_stream_table(
    line: Line, condition: str, message: str
) -> None:
    line.sql("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 1); CREATE VIEW v AS SELECT a FROM t")
    line.create("st", "SELECT a FROM v")
    line.sql(f"CREATE OR REPLACE VIEW v AS SELECT a FROM t WHERE {condition}")
    line.tick(include_unchanged=True)
    state, error = status(line, "public.st")
    assert state == "ERROR"
    assert message in error


def test_row_security_that_holds_for_the_owner_stops_the_stream_table(line: Line) -> None:
    line.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    line.create("st", "SELECT a FROM t")
    line.sql("ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    line.tick(include_unchanged=True)
    state, message = status(line, "public.st")
    assert state == "ERROR"
    assert "row security of public.t is active" in message


def test_a_source_column_that_is_named_like_the_weight_means_full(line: Line) -> None:
    line.sql('CREATE TABLE t ("__pgt_w" int, a int); INSERT INTO t VALUES (1, 1)')
    line.create("st", 'SELECT "__pgt_w" AS w, a FROM t')
    line.create("unused", "SELECT a FROM t")
    line.sql("INSERT INTO t VALUES (2, 2)")
    line.tick()
    line.check("st", "FULL")
    line.check("unused")


def test_dropping_a_stream_table_takes_no_table_that_only_has_its_oid(line: Line) -> None:
    """As in a database restored from a dump, where oids are given anew."""
    line.sql("CREATE TABLE t (a int); CREATE TABLE bystander (a int)")
    for name in ("one", "two", "three"):
        line.create(name, "SELECT a FROM t")
    line.sql("UPDATE pgtrickle.pgt_stream_tables SET pgt_relid = 'bystander'::regclass WHERE pgt_name = 'one'")
    line.sql("SELECT pgtrickle.drop_stream_table('one')")
    assert line.sql("SELECT to_regclass('bystander') IS NOT NULL") == [(True,)]
    line.sql("UPDATE pgtrickle.pgt_stream_tables SET pgt_relid = 1 WHERE pgt_name = 'three'")
    line.sql("UPDATE pgtrickle.pgt_stream_tables SET pgt_relid = 'three'::regclass WHERE pgt_name = 'two'")
    line.sql("SELECT pgtrickle.drop_stream_table('two')")
    assert line.sql("SELECT to_regclass('three') IS NOT NULL") == [(True,)]


def test_table_put_under_the_name_of_a_renamed_stream_table_is_not_written_to(line: Line) -> None:
    line.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    line.create("st", "SELECT a FROM t")
    line.sql("ALTER TABLE st RENAME TO kept; CREATE TABLE st (a int, __pgt_row_id bigint); INSERT INTO t VALUES (2)")
    line.tick()
    assert line.sql("SELECT count(*) FROM st") == [(0,)]
    ((status, message),) = line.sql("SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables")
    assert status == "ERROR"
    assert "was dropped, renamed or moved" in message
    line.sql("DROP TABLE st; ALTER TABLE kept RENAME TO st; SELECT pgtrickle.resume_stream_table('st')")
    line.tick()
    line.check("st")


@pytest.mark.parametrize("mode", ["AUTO", "DIFFERENTIAL"])
def test_leaf_that_postgresql_refuses_is_found_before_the_first_refresh(
    line: Line, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    line.sql("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 1)")
    monkeypatch.setattr(linear, "W", '"__pgt_w" +')  # as if the query had been cut in the wrong place
    line.create("st", "SELECT a, sum(b) AS b FROM t GROUP BY a", mode=mode)
    ((status, effective, reason, message),) = line.sql(
        "SELECT status, effective_refresh_mode, mode_reason, last_error_message FROM pgtrickle.pgt_stream_tables"
    )
    if mode == "AUTO":
        assert (status, effective) == ("ACTIVE", "FULL")
        assert "PostgreSQL does not accept the statement that would compute its changes (SQLSTATE 42601" in reason
        line.check("st", "FULL")
    else:
        assert status == "ERROR"
        assert "SQLSTATE 42601" in message
