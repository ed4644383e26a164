# ruff: noqa: E501 - a query is easier to read on one line
"""ORDER BY ... LIMIT at the top, from changes: few spare rows, so that every edge is met; content compared each time."""

from __future__ import annotations

import random

import pytest

from pgtrickle.errors import TransientError
from tests.line import Line

TABLES = """
CREATE TABLE a (id int PRIMARY KEY, k int, v int, t text, f float8);
CREATE TABLE b (id int PRIMARY KEY, k int, v numeric(8, 2), t text);
CREATE TABLE bag (v int, t text, n numeric, iv interval);
INSERT INTO a SELECT i, nullif(i % 7, 0), nullif(i % 11, 2), chr(65 + i % 40), i % 3 - 1 FROM generate_series(1, 60) AS i;
INSERT INTO b SELECT i, nullif(i % 9, 3), i * 0.25, nullif('a' || i % 6, 'a5') FROM generate_series(1, 30) AS i;
INSERT INTO bag SELECT i % 3, 'x' || i % 2, 1.0, '1 day' FROM generate_series(1, 30) AS i;
INSERT INTO bag VALUES (1, 'x1', 1.00, '24:00'), (NULL, NULL, NULL, NULL), (NULL, NULL, NULL, NULL);
"""
DETERMINED = {
    "plain": "SELECT id, v FROM a ORDER BY v DESC NULLS LAST, id LIMIT 3 OFFSET 1",
    "nulls_first": "SELECT id, v FROM a ORDER BY v NULLS FIRST, id DESC LIMIT 4",
    "nulls_last": "SELECT id, v FROM a ORDER BY v DESC NULLS LAST, id DESC LIMIT 4",
    "hidden_order": "SELECT t FROM a ORDER BY k, id LIMIT 4",
    "expression": "SELECT id, v * 2 AS w FROM a WHERE v > 1 ORDER BY abs(v - 5) DESC, lower(t), id LIMIT 5",
    "collated": 'SELECT id, t FROM a ORDER BY t COLLATE "ucs_basic" DESC, id FETCH FIRST 4 ROWS ONLY',
    "using_": "SELECT id, t FROM a ORDER BY t USING ~>~, id LIMIT 4",
    "ties": "SELECT id, v FROM a ORDER BY v FETCH FIRST 3 ROWS WITH TIES",
    "ties_offset": "SELECT id, k, f FROM a ORDER BY f, k DESC, id OFFSET 2 FETCH FIRST 3 ROWS WITH TIES",
    "ties_bag": "SELECT v, t FROM bag ORDER BY v DESC FETCH FIRST 2 ROWS WITH TIES",
    "copies": "SELECT v, t FROM bag ORDER BY v, t LIMIT 7",
    "copies_offset": "SELECT v FROM bag ORDER BY v NULLS FIRST OFFSET 1 LIMIT 6",
    "none": "SELECT id FROM a ORDER BY id LIMIT 0",
    "none_ties": "SELECT id FROM a ORDER BY id FETCH FIRST 0 ROWS WITH TIES",
    "everything": "SELECT id FROM a ORDER BY id LIMIT ALL",
    "all_but_some": "SELECT id FROM a ORDER BY id LIMIT NULL OFFSET 50",
    "beyond_the_end": "SELECT id FROM a ORDER BY id LIMIT 5 OFFSET 100",
    "larger_than_the_table": "SELECT id, t FROM a ORDER BY id LIMIT 1000",
    "computed_number": "SELECT id FROM a ORDER BY id DESC LIMIT 2 + 3",
    "number_of_a_query": "SELECT id FROM a ORDER BY id DESC LIMIT (SELECT count(*) FROM b)",
    "joined": "SELECT a.id, b.id AS b, b.v FROM a JOIN b ON b.k = a.k ORDER BY b.v DESC, a.id, b.id LIMIT 6",
    "using_merged": "SELECT k, a.id, b.id AS b FROM a JOIN b USING (k) ORDER BY k DESC, a.id, b.id LIMIT 6",
    "left_": "SELECT a.id, b.v FROM a LEFT JOIN b ON b.k = a.k AND b.v > 2 ORDER BY b.v NULLS FIRST, a.id LIMIT 6",
    "full_": "SELECT a.id, b.id AS b FROM a FULL JOIN b ON b.k = a.k ORDER BY a.id, b.id LIMIT 6",
    "filtered": "SELECT id, t FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v > 3) ORDER BY t DESC, id LIMIT 5",
    "by_subquery": "SELECT id, (SELECT max(v) FROM b WHERE b.k = a.k) AS m FROM a ORDER BY (SELECT max(v) FROM b WHERE b.k = a.k) DESC NULLS LAST, id LIMIT 5",
    "by_average": "SELECT id FROM a ORDER BY v > (SELECT avg(v) FROM a) DESC NULLS LAST, id LIMIT 5",
    "lateral_": "SELECT a.id, l.v FROM a, LATERAL (SELECT b.v, b.id FROM b WHERE b.k = a.k ORDER BY b.v DESC, b.id LIMIT 2) AS l ORDER BY l.v, a.id, l.id LIMIT 5",
    "unnested": "SELECT id, unnest(ARRAY[v, k]) AS x FROM a ORDER BY unnest(ARRAY[v, k]) DESC, id LIMIT 5",
    "ranked": "SELECT id, k, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM a ORDER BY rank() OVER (PARTITION BY k ORDER BY v), id LIMIT 6",
    "first_of_each": "SELECT DISTINCT ON (k) k, id, v FROM a ORDER BY k DESC, v, id LIMIT 4",
    "distinct_": "SELECT DISTINCT k, v FROM a ORDER BY v DESC, k LIMIT 4",
    "union_all": "SELECT id, v FROM a UNION ALL SELECT id, k FROM b ORDER BY 2 DESC, 1 LIMIT 5",
    "union_": "SELECT k, v FROM a UNION SELECT k, id FROM b ORDER BY 1 DESC, 2 LIMIT 5",
    "except_": "SELECT k FROM a EXCEPT SELECT k FROM b ORDER BY 1 LIMIT 2",
    "nested_groups": "SELECT q.n, a.id FROM a JOIN (SELECT k, count(*) AS n FROM b GROUP BY k) AS q ON q.k = a.k ORDER BY q.n DESC, a.id LIMIT 5",
    "grouped_window": "SELECT k, sum(v) AS s, rank() OVER (ORDER BY sum(v)) AS r FROM a GROUP BY k ORDER BY 3, 1 LIMIT 3",
    "layers": "SELECT q.id * 2 AS twice, q.t FROM (SELECT id, v, t FROM a ORDER BY v DESC NULLS LAST, id LIMIT 5) AS q WHERE q.v > 3",
    "view_of_it": "SELECT w.id FROM first_of_a AS w",
    "limit_of_limit": "SELECT q.id FROM (SELECT id, v FROM a ORDER BY v, id LIMIT 8) AS q ORDER BY q.id DESC LIMIT 3",
}


FLOATS = ("-0.0", "0", "NULL", "'NaN'")


def changes(random_: random.Random) -> str:
    """Anything anywhere, so that rows come, go and move across every edge."""
    first = random_.randint(1, 70)
    return random_.choice(
        (
            f"INSERT INTO a SELECT i, i % 5, {random_.randint(-3, 15)}, chr(65 + i % 50), i % 2 FROM generate_series({first}, {first + 6}) AS i ON CONFLICT DO NOTHING",
            f"DELETE FROM a WHERE id IN (SELECT id FROM a ORDER BY v, id LIMIT {random_.randint(1, 6)})",
            f"DELETE FROM a WHERE id IN (SELECT id FROM a ORDER BY v DESC NULLS LAST, id LIMIT {random_.randint(1, 6)})",
            f"UPDATE a SET v = {random_.choice(('-v', 'v + 7', 'NULL', '3', 'id'))}, f = {random_.choice(FLOATS)} WHERE id % {random_.randint(2, 9)} = 0",
            f"UPDATE b SET v = v {random_.choice(('+ 5', '* -1', '- 0.25'))} WHERE id % {random_.randint(2, 5)} = 1; UPDATE b SET k = 4 WHERE id % 7 = {random_.randint(0, 6)}",
            f"DELETE FROM b WHERE k = {random_.randint(1, 8)}; INSERT INTO b SELECT i, i % 6, i, 'n' FROM generate_series(200, 205) AS i ON CONFLICT DO NOTHING",
            f"DELETE FROM bag WHERE v = {random_.randint(0, 2)}",
            f"DELETE FROM bag WHERE ctid IN (SELECT ctid FROM bag ORDER BY v LIMIT {random_.randint(1, 9)})",
            f"INSERT INTO bag SELECT {random_.randint(-1, 3)}, 'x1', 1.000, '1 day' FROM generate_series(1, {random_.randint(1, 12)})",
            f"UPDATE a SET id = -id, t = lower(t) WHERE id BETWEEN {first} AND {first + 9}",
        )
    )


@pytest.mark.parametrize("spare", [1, 100])
def test_first_rows_are_exact_from_changes(line: Line, monkeypatch: pytest.MonkeyPatch, spare: int) -> None:
    monkeypatch.setattr("pgtrickle.pipeline.templates.topk.SPARE_ROWS", spare)
    line.sql(TABLES)
    line.sql("CREATE VIEW first_of_a AS SELECT id, v FROM a ORDER BY v, id LIMIT 4")
    for name, query in DETERMINED.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)
    line.tick()
    for name in DETERMINED:
        line.check(name, "FULL")
    random_ = random.Random(11)
    rounds = [changes(random_) for _ in range(14 if spare == 1 else 2)]
    rounds += [
        "DELETE FROM a; DELETE FROM bag",
        "DELETE FROM b",
        TABLES.partition("INSERT")[1] + TABLES.partition("INSERT")[2],
    ]
    for change in rounds:
        line.sql(change)
        assert [o for o in line.tick() if o.error is not None] == [], change
        for name in DETERMINED:
            line.equal(name)
    rows = line.sql(
        "SELECT s.pgt_name, array_agg(DISTINCT h.action || ' ' || h.status) FROM pgtrickle.pgt_refresh_history AS h "
        "JOIN pgtrickle.pgt_stream_tables AS s USING (pgt_id) WHERE h.initiated_by <> 'INITIAL' GROUP BY 1"
    )
    assert dict(rows).keys() == DETERMINED.keys()
    for name, actions in rows:
        assert set(actions) - {"NO_DATA COMPLETED"} == {"DIFFERENTIAL COMPLETED"}, (name, actions)


def refills(line: Line, name: str) -> int:
    """How often the first rows were read from the tables again."""
    rows = line.sql(
        "SELECT count(*) FILTER (WHERE h.timings ? 'refill') FROM pgtrickle.pgt_refresh_history AS h "
        "JOIN pgtrickle.pgt_stream_tables AS s USING (pgt_id) WHERE s.pgt_name = %s",
        name,
    )
    return int(rows[0][0])


def kept(line: Line, name: str) -> tuple[int, int]:
    """Rows kept beside the table, and edges."""
    ((pgt_id,),) = line.sql("SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name)
    ((rows, edges),) = line.sql(
        f"SELECT coalesce(sum(n), 0), count(*) FILTER (WHERE n = 0) FROM pgtrickle_changes.state_{pgt_id}"
    )
    return int(rows), int(edges)


def test_tables_are_read_again_exactly_when_the_spare_rows_are_used_up(line: Line) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 1000) AS i")
    line.create("top", "SELECT id, v FROM t ORDER BY v LIMIT 10", mode="DIFFERENTIAL")
    assert kept(line, "top") == (110, 1)
    for left in (109, 60, 11, 10):
        line.sql("DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY v LIMIT %s)", kept(line, "top")[0] - left)
        line.tick()
        line.check("top")
        assert (kept(line, "top"), refills(line, "top")) == ((left, 1), 0)
    line.sql("DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY v LIMIT 1)")
    line.tick()
    line.check("top")
    assert (kept(line, "top"), refills(line, "top")) == ((110, 1), 1)
    # Those that come replace those that go, and what sorts after the edge never mattered.
    line.sql("INSERT INTO t SELECT 2000 + i, i FROM generate_series(1, 60) AS i; DELETE FROM t WHERE v > 500")
    line.tick()
    line.check("top")
    assert (kept(line, "top"), refills(line, "top")) == ((170, 1), 1)
    line.sql("UPDATE t SET v = v + 5000 WHERE v <= 60")
    line.tick()
    line.check("top")
    assert (kept(line, "top"), refills(line, "top")) == ((110, 1), 1)


def test_all_rows_are_kept_where_there_are_few_and_the_first_where_they_have_become_many(line: Line) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 30) AS i")
    line.create("top", "SELECT id, v FROM t ORDER BY v DESC LIMIT 10", mode="DIFFERENTIAL")
    steps = (
        ("DELETE FROM t WHERE v > 4", (4, 0)),
        ("DELETE FROM t", (0, 0)),
        ("INSERT INTO t SELECT i, i FROM generate_series(1, 220) AS i", (220, 0)),
        ("INSERT INTO t VALUES (0, 0)", (110, 1)),
        ("DELETE FROM t WHERE v BETWEEN 5 AND 215", (10, 0)),
        ("INSERT INTO t VALUES (-1, -1)", (11, 0)),
    )
    for change, expected in steps:
        line.sql(change)
        line.tick()
        line.check("top")
        assert kept(line, "top") == expected, change
    assert refills(line, "top") == 1  # of the 110 first rows 105 went, and those after the edge were not kept


def test_large_tie_is_not_kept_whole(line: Line) -> None:
    """No order among 5,000 rows says which are the first: the rows' text does, but not where ties are shown."""
    line.sql(
        "CREATE TABLE t (id int, v int, s text); INSERT INTO t SELECT i, 1, 'x' FROM generate_series(1, 5000) AS i"
    )
    line.create("few", "SELECT id, v FROM t ORDER BY v LIMIT 10", mode="DIFFERENTIAL")
    line.create("alike", "SELECT v, s FROM t ORDER BY v LIMIT 10", mode="DIFFERENTIAL")
    line.create("tied", "SELECT id, v FROM t ORDER BY v FETCH FIRST 10 ROWS WITH TIES", mode="DIFFERENTIAL")
    line.create("empty", "SELECT id FROM t ORDER BY v LIMIT 0", mode="DIFFERENTIAL")
    assert [kept(line, name) for name in ("few", "alike", "tied")] == [(110, 1), (5000, 1), (5000, 1)]
    assert line.rows("few") == line.sql("SELECT id, v FROM t ORDER BY v, id::text LIMIT 10")
    steps = (
        "DELETE FROM t WHERE id % 50 = 0; UPDATE t SET s = 'y' WHERE id % 3 = 0",
        "INSERT INTO t VALUES (1, 0, 'z'), (1, 0, 'z'); DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY v, id::text LIMIT 106)",
        "UPDATE t SET v = 2 WHERE id > 7; INSERT INTO t VALUES (7, 1, 'z')",
        "DELETE FROM t WHERE v < 2",
    )
    for change in steps:
        line.sql(change)
        line.tick()
        for name in ("few", "alike", "tied", "empty"):
            assert line.last(name)[:2] == ("DIFFERENTIAL", "COMPLETED")
        for name in ("few", "alike", "tied"):
            line.equal(name)
        line.equal("empty")
        ((wrong,),) = line.sql(  # ten rows of the table, none of which sorts after one that is not shown
            "SELECT count(*) FROM (SELECT id, v FROM few EXCEPT ALL SELECT id, v FROM t) AS e"
        )
        firsts = line.sql("SELECT v FROM t ORDER BY v LIMIT 10")
        assert (wrong, line.sql("SELECT v FROM few ORDER BY v")) == (0, firsts), change
    line.sql("INSERT INTO t SELECT i, 2, 'w' FROM generate_series(1, 200) AS i; DELETE FROM t WHERE id % 3 = 0")
    line.equal("few")  # around what is pending


def test_edited_first_rows_are_put_right(line: Line) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 500) AS i")
    line.create("top", "SELECT id, v FROM t ORDER BY v LIMIT 10")
    line.sql("SELECT pgtrickle.protect_stream_table('top', false)")
    line.sql("DELETE FROM top WHERE v = 3; INSERT INTO top VALUES (9, 9, 1), (7, 1, 2); INSERT INTO t VALUES (0, 0)")
    line.tick()
    line.equal("top")


def test_stream_tables_over_first_rows_move_with_them(line: Line) -> None:
    """In a chain: refilled from the transaction that also writes what the others read."""
    line.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 500) AS i")
    line.create("base", "SELECT id, v FROM t WHERE v % 2 = 0", mode="DIFFERENTIAL")
    line.create("top", "SELECT id, v FROM base ORDER BY v LIMIT 10", mode="DIFFERENTIAL")
    line.create("sum_of_top", "SELECT count(*) AS n, sum(v) AS s FROM top", mode="DIFFERENTIAL")
    line.create("second", "SELECT id FROM top ORDER BY v DESC LIMIT 1 OFFSET 1", mode="DIFFERENTIAL")
    for change in (
        "DELETE FROM t WHERE v < 50",
        "DELETE FROM t WHERE v < 350",
        "UPDATE t SET v = v - 300 WHERE id > 480",
    ):
        line.sql(change)
        line.tick()
        for name in ("base", "top", "sum_of_top", "second"):
            line.check(name)
    assert refills(line, "top") == 1
    ((cuts,),) = line.sql("SELECT count(DISTINCT frontier::text) FROM pgtrickle.pgt_stream_tables")
    assert cuts == 1


def test_kept_rows_and_visible_ones_are_committed_with_the_frontier(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 500) AS i")
    line.create("top", "SELECT id, v FROM t ORDER BY v LIMIT 10", mode="DIFFERENTIAL")

    def fails(*_: object, **__: object) -> None:
        raise TransientError("the connection was lost at the last moment")

    for change in ("DELETE FROM t WHERE v < 50", "DELETE FROM t WHERE v < 200"):  # added to; read again
        before = kept(line, "top"), line.rows("top")
        line.sql(change)
        with monkeypatch.context() as broken:
            broken.setattr("pgtrickle.refresh.wave.write_history", fails)
            assert [o.error is not None for o in line.tick()] == [True]
        assert (kept(line, "top"), line.rows("top")) == before
        line.sql("SELECT pgtrickle.refresh_stream_table('top')")
        line.tick()
        line.check("top")
    assert refills(line, "top") == 1


def test_thousands_of_first_rows_come_and_go(line: Line) -> None:
    """Too many for parameters: staged."""
    line.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 20000) AS i"
    )
    line.create("many", "SELECT id, v FROM t ORDER BY v, id LIMIT 6000", mode="DIFFERENTIAL")
    for change in (
        "UPDATE t SET v = -v WHERE id <= 7000",
        "UPDATE t SET v = 100000 WHERE id <= 7000",
        "DELETE FROM t WHERE id > 8000",
    ):
        line.sql(change)
        line.tick()
        line.check("many")
    assert refills(line, "many") == 2
