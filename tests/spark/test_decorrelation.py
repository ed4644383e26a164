# ruff: noqa: E501 - a query is easier to read on one line
"""Subqueries that each row asks with its own keys, answered for all changed keys at once: as PostgreSQL answers."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pgtrickle.pipeline.differentiate import general, states
from pgtrickle.pipeline.differentiate.decorrelate import decorrelate
from tests.line import Line
from tests.spark.test_in_subqueries import SCHEMA, follow, rows

pytestmark = pytest.mark.spark

MORE = "SELECT avg(i.qty) FROM item AS i WHERE i.ord = o.id"
QUERIES = {
    "average": f"SELECT o.id, o.price FROM ord AS o WHERE o.price > ({MORE})",
    "joined": "SELECT o.id, c.region FROM ord AS o, cust AS c WHERE o.cust = c.id AND o.price >= (SELECT count(*) FROM item AS i WHERE i.cust = c.id AND i.qty > 1)",
    "no_rows_count": "SELECT o.id FROM ord AS o WHERE 0 = (SELECT count(i.qty) FROM item AS i WHERE i.ord = o.id)",
    "no_rows_null": f"SELECT o.id FROM ord AS o WHERE ({MORE}) IS NULL",
    "two_keys": "SELECT o.id FROM ord AS o JOIN item AS j ON j.ord = o.id WHERE j.qty = (SELECT max(i.qty) FROM item AS i WHERE i.ord = o.id AND i.cust = j.cust)",
    "itself": "SELECT a.id, a.qty FROM item AS a WHERE a.qty > (SELECT 0.5 * sum(b.qty) FROM item AS b WHERE b.ord = a.ord AND b.code <> 'b')",
    "twice": f"SELECT o.id FROM ord AS o WHERE o.price > ({MORE}) AND o.price < (SELECT sum(i.qty) FROM item AS i WHERE i.ord = o.id)",
    "either": f"SELECT o.id FROM ord AS o WHERE o.price > ({MORE}) OR o.cust = 2",
    "grouped": f"SELECT o.cust, count(*) AS n, max(o.price) AS most FROM ord AS o WHERE o.price > ({MORE}) GROUP BY o.cust",
    "windowed": f"SELECT o.id, rank() OVER (PARTITION BY o.cust ORDER BY o.price) AS r FROM ord AS o WHERE o.price > ({MORE})",
    "behind_in": "SELECT c.id FROM cust AS c WHERE c.id IN (SELECT o.cust FROM ord AS o WHERE o.code IN (SELECT i.code FROM item AS i WHERE i.qty > 2) AND o.price > (SELECT sum(i.qty) FROM item AS i WHERE i.ord = o.id AND i.cust > 0))",
    "behind_exists": f"SELECT c.id, c.region FROM cust AS c WHERE EXISTS (SELECT FROM ord AS o WHERE o.cust = c.id AND o.price < ({MORE}))",
    "left_join": f"SELECT c.id, o.id AS ord FROM cust AS c LEFT JOIN ord AS o ON o.cust = c.id WHERE coalesce(o.price, 3) > coalesce(({MORE}), 1)",
    "distinct": f"SELECT DISTINCT o.cust FROM ord AS o WHERE o.price > ({MORE})",
    "from_further_out": "SELECT c.id FROM cust AS c WHERE EXISTS (SELECT FROM ord AS o WHERE o.cust = c.id AND o.price > (SELECT count(*) FROM item AS i WHERE i.cust = c.id))",
    # Not at once: other types, texts, more than a group, no equality.
    "other_types": "SELECT o.id FROM ord AS o WHERE o.price > (SELECT sum(i.qty) FROM item AS i WHERE i.cust = o.id)",
    "texts": "SELECT o.id FROM ord AS o WHERE o.price < (SELECT sum(i.qty) FROM item AS i WHERE i.code = o.code)",
    "limited": "SELECT o.id FROM ord AS o WHERE o.price < (SELECT i.qty FROM item AS i WHERE i.ord = o.id ORDER BY i.id LIMIT 1)",
    "less": "SELECT o.id FROM ord AS o WHERE o.price < (SELECT count(*) FROM item AS i WHERE i.ord < o.id)",
    # Nor what may fail, or be no row, for keys that nobody asks for.
    "divided": "SELECT o.id FROM ord AS o WHERE o.price > (SELECT 10 / sum(i.qty) FROM item AS i WHERE i.ord = o.id AND i.ord > 50)",
    "no_row": "SELECT o.id FROM ord AS o WHERE (SELECT unnest(CASE WHEN count(*) = 0 THEN ARRAY[1] ELSE ARRAY[]::int[] END) FROM item AS i WHERE i.ord = o.id) IS NOT NULL",
    "merged": "SELECT buyer, o.id FROM ord AS o(id, buyer) FULL JOIN cust AS c(buyer) USING (buyer) WHERE 1 <= (SELECT count(*) FROM item AS i WHERE i.ord = o.id AND i.cust = buyer)",
    "shown": f"SELECT o.id, ({MORE}) AS mean FROM ord AS o",
}
AT_ONCE = 9  # different subqueries; that of "merged" is two, one by either side of the FULL JOIN


@pytest.mark.parametrize("seed", range(2))
def test_what_rows_ask_for_is_answered_at_once(line: Line, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    answered = set()

    def spied(*arguments: Any) -> Any:
        found = decorrelate(*arguments)
        if found is not None:
            answered.add(arguments[2])
        return found

    monkeypatch.setattr(states, "FEWEST_ROWS", 0)
    monkeypatch.setattr(general, "decorrelate", spied)
    random = Random(seed)
    line.sql(SCHEMA)
    for table, ids in (("ord", range(9)), ("item", range(60)), ("cust", range(5))):
        line.sql(rows(random, table, ids))
    line.sql("INSERT INTO item VALUES (70, 77, 1, 'a', 0)")
    follow(line, random, QUERIES, range(1, 7))
    assert len(answered) == AT_ONCE


def test_many_rows_that_ask_do_not_each_look_through_all_changes(line: Line) -> None:
    """20,000 changes that 20,000 rows ask about: their square is minutes."""
    line.sql(
        "CREATE TABLE part (id int PRIMARY KEY, least int); CREATE TABLE sale (id int PRIMARY KEY, part int, qty int)"
    )
    line.sql("INSERT INTO part SELECT i, i % 50 FROM generate_series(1, 20000) AS i")
    line.sql("INSERT INTO sale SELECT i, i % 20000 + 1, i % 37 FROM generate_series(1, 60000) AS i")
    line.sql("CREATE INDEX ON sale (part); ANALYZE")
    query = "SELECT p.id FROM part AS p WHERE p.least > (SELECT sum(s.qty) FROM sale AS s WHERE s.part = p.id)"
    line.sql("SELECT pgtrickle.create_stream_table('scarce', %s, 'calculated', 'DIFFERENTIAL')", query)
    (loaded,) = line.tick()
    line.sql("UPDATE sale SET qty = qty + 1 WHERE id % 3 = 0; UPDATE part SET least = least + 1 WHERE id % 2 = 0")
    (refreshed,) = line.tick()
    assert (refreshed.action, refreshed.error) == ("DIFFERENTIAL", None)
    load_ms, refresh_ms = sum(loaded.timings.values()), sum(refreshed.timings.values())
    # The load evaluates the subquery once for each row, by an index. About 20 x of it; the square is more than 1,000 x.
    assert refresh_ms < 300 * load_ms
    line.equal("scarce")
