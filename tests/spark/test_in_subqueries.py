# ruff: noqa: E501 - a query is easier to read on one line
"""Groups behind IN, computed for the keys that changes ask for: every query equals PostgreSQL's answer after each round."""

from __future__ import annotations

from random import Random

import pytest

from pgtrickle.pipeline.differentiate import states
from tests.line import Line

pytestmark = pytest.mark.spark

SCHEMA = """
CREATE TABLE ord (id bigint PRIMARY KEY, cust int, code text, price numeric(8, 2));
CREATE TABLE item (id int PRIMARY KEY, ord bigint, cust int, code text, qty numeric);
CREATE TABLE cust (id int PRIMARY KEY, region text);
CREATE INDEX ON item (ord);
CREATE INDEX ON item (cust);
CREATE INDEX ON item (code);
"""
BUSY = "SELECT ord FROM item GROUP BY ord HAVING sum(qty) > 6"
QUERIES = {
    "by_key": f"SELECT id, price FROM ord WHERE id IN ({BUSY})",
    "with_items": f"SELECT o.id, i.qty FROM ord AS o, item AS i WHERE o.id = i.ord AND o.id IN ({BUSY})",
    "by_items_key": f"SELECT o.id, i.qty FROM ord AS o JOIN item AS i ON o.id = i.ord WHERE i.ord IN ({BUSY})",
    "three": f"SELECT c.region, count(*) AS n, sum(i.qty) AS qty FROM cust AS c, ord AS o, item AS i WHERE c.id = o.cust AND o.id = i.ord AND o.id IN ({BUSY}) GROUP BY c.region",
    "other_type": "SELECT o.id, o.cust FROM ord AS o JOIN cust AS c ON c.id = o.cust WHERE o.cust IN (SELECT ord FROM item GROUP BY ord HAVING count(*) > 2)",
    "texts": "SELECT o.id, i.id AS item FROM ord AS o JOIN item AS i ON i.code = o.code WHERE o.code IN (SELECT code FROM item GROUP BY code HAVING max(qty) > 3)",
    "itself": "SELECT id, qty FROM item WHERE cust IN (SELECT cust FROM item GROUP BY cust HAVING count(*) >= 4)",
    "outer_join": f"SELECT o.id, c.region FROM ord AS o LEFT JOIN cust AS c ON c.id = o.cust WHERE o.id IN ({BUSY})",
    "filtered": "SELECT o.id FROM ord AS o WHERE o.id IN (SELECT i.ord FROM item AS i WHERE i.qty > 1 GROUP BY i.ord, i.cust HAVING count(*) > 1) AND o.price > 2",
    "joined_groups": "SELECT o.id FROM ord AS o WHERE o.cust IN (SELECT i.cust FROM item AS i JOIN cust AS c ON c.id = i.cust WHERE c.region <> 'r1' GROUP BY i.cust HAVING count(*) > 1)",
    "either": f"SELECT id FROM ord WHERE id IN ({BUSY}) OR cust = 1",
    "own_names": "SELECT id, price FROM ord WHERE id IN (SELECT ord FROM item GROUP BY ord HAVING count(id) > 3)",
    "own_names_joined": "SELECT id FROM ord WHERE id IN (SELECT i.ord FROM item AS i JOIN cust AS c ON c.id = i.cust GROUP BY i.ord HAVING count(*) > 1)",
    "an_expression": "SELECT cust, code FROM ord WHERE cust + 1 IN (SELECT ord FROM item WHERE cust > 1 GROUP BY ord HAVING count(*) > 1)",
    "a_function": "SELECT ord FROM generate_series(0, 8) AS ord WHERE ord IN (SELECT ord FROM item GROUP BY ord HAVING count(*) > 6)",
    "merged": "SELECT cust, o.id, i.id AS item FROM ord AS o FULL JOIN item AS i USING (cust) WHERE cust IN (SELECT cust FROM item GROUP BY cust HAVING count(*) > 8)",
    "merged_right": "SELECT o.price, i.id FROM ord AS o RIGHT JOIN item AS i USING (id) WHERE id IN (SELECT ord FROM item GROUP BY ord HAVING count(*) > 5)",
    "rolled_up": "SELECT id FROM ord WHERE cust IN (SELECT cust FROM item GROUP BY ROLLUP (cust) HAVING count(*) > 8)",
    "twice": f"SELECT id FROM ord WHERE id IN ({BUSY}) AND cust IN (SELECT cust FROM item GROUP BY cust HAVING count(*) >= 3)",
}


def rows(random: Random, table: str, ids: range) -> str:
    def number(most: int) -> str:
        return random.choice(["NULL", *map(str, range(most))])

    def code() -> str:
        return random.choice(["NULL", "'a'", "'b'", "'c'"])

    makers = {
        "ord": lambda i: f"({i}, {number(5)}, {code()}, {random.randint(0, 9)})",
        "item": lambda i: f"({i}, {number(9)}, {number(5)}, {code()}, {number(6)})",
        "cust": lambda i: f"({i}, 'r{random.randint(0, 2)}')",
    }
    return f"INSERT INTO {table} VALUES {', '.join(makers[table](i) for i in ids)}"


def change(random: Random, number: int) -> list[str]:
    first = 100 * number
    every = [
        rows(random, "item", range(first, first + 4)),
        rows(random, "ord", range(first, first + 2)),
        f"UPDATE item SET qty = qty + {random.randint(-2, 3)} WHERE id % 5 = {random.randint(0, 4)}",
        f"UPDATE item SET ord = nullif({random.randint(0, 8)}, 4) WHERE id % 7 = {random.randint(0, 6)}",
        f"UPDATE ord SET cust = nullif({random.randint(0, 5)}, 0), price = price + 1 WHERE id % 4 = {random.randint(0, 3)}",
        f"UPDATE cust SET region = 'r{random.randint(0, 2)}' WHERE id = {random.randint(0, 4)}",
        f"DELETE FROM item WHERE id % 6 = {random.randint(0, 5)}",
        f"DELETE FROM ord WHERE id = {random.randint(0, 8)}",
    ]
    return random.sample(every, random.randint(1, 4))


@pytest.mark.parametrize("seed", range(4))
def test_groups_behind_in_follow_their_changes(line: Line, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Asked for one by one, and by the keys of the changes."""
    if seed % 2:
        monkeypatch.setattr(states, "FEWEST_ROWS", 0)
        monkeypatch.setattr(states, "FEW_ROWS", 0)
    random = Random(seed)
    line.sql(SCHEMA)
    for table, ids in (("ord", range(9)), ("item", range(60)), ("cust", range(5))):
        line.sql(rows(random, table, ids))
    follow(line, random, QUERIES, range(1, 9))


def follow(line: Line, random: Random, queries: dict[str, str], numbers: range) -> None:
    for name, query in queries.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)
    line.tick()
    for number in numbers:
        for statement in change(random, number):
            line.sql(statement)
        outcomes = line.tick()
        assert [o.error for o in outcomes if o.error] == []
        assert {o.action for o in outcomes} <= {"DIFFERENTIAL", "NO_DATA"}
        for name in queries:
            line.equal(name)
