"""Output columns as PostgreSQL names them, and the star of a stream table, which has hidden columns."""

from __future__ import annotations

import psycopg
import pytest

from tests.line import Line

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, k int, v int);
INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 12) AS i
"""
QUERIES = {
    "plain": "SELECT * FROM base;",
    "first_": "SELECT * FROM base ORDER BY id DESC LIMIT 4 -- the last ones",
    "joined": "SELECT b.*, t.v AS more FROM base AS b LEFT JOIN t ON t.id = b.k",
    "nested": "SELECT * FROM (SELECT * FROM groups_) AS g WHERE n > 1",
    "unnamed": "SELECT id, v + 1 FROM t",
    "unnamed_group": "SELECT sum(v) * 2 FROM t",
}


def test_they_are_maintained_from_changes(line: Line) -> None:
    line.sql(TABLES)
    line.create("base", "SELECT id, k FROM t WHERE v > 2")
    line.create("groups_", "SELECT k, count(*) AS n FROM t GROUP BY k")
    for name, query in QUERIES.items():
        line.create(name, query, mode="DIFFERENTIAL")
    assert line.sql(
        "SELECT output_columns -> 1 ->> 'name' FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'unnamed'"
    ) == [("?column?",)]
    line.sql(
        "INSERT INTO t VALUES (20, 1, 9), (21, 2, 1); UPDATE t SET v = 100 WHERE id IN (1, 5); "
        "DELETE FROM t WHERE id = 12"
    )
    line.tick()
    line.tick()
    for name in QUERIES:
        line.check(name)


@pytest.mark.parametrize("query", ["SELECT id, __pgt_row_id FROM base", "SELECT DISTINCT * FROM base"])
def test_hidden_columns_that_count_are_refused(line: Line, query: str) -> None:
    line.sql(TABLES)
    line.create("base", "SELECT id, k FROM t")
    with pytest.raises(psycopg.errors.ReservedName, match="a column named __pgt_row_id"):
        line.create("st", query)
