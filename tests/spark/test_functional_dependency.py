# ruff: noqa: E501 - a query is easier to read on one line
"""Columns that are neither grouped nor aggregated, because a primary key in GROUP BY decides them."""

from __future__ import annotations

import random

import pytest

from tests.line import Line

TABLES = """
CREATE TABLE o (id int PRIMARY KEY, name text, price numeric, rate numeric(6, 2), score float8, at interval, doc jsonb, raw json, more int);
CREATE TABLE i (o int, "no" int, qty int, note text, PRIMARY KEY (o, "no"));
CREATE TABLE p (id int, part int, name text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (0, 1);
CREATE TABLE p2 PARTITION OF p DEFAULT;
CREATE TABLE parent (id int PRIMARY KEY, name text);
CREATE TABLE child () INHERITS (parent);
CREATE VIEW v AS SELECT o.id, o.name, sum(i.qty) AS q FROM o LEFT JOIN i ON i.o = o.id GROUP BY o.id;
INSERT INTO o SELECT n, 'n' || n % 4, n / 3.0, n, n / 7.0, make_interval(hours => n * 12), jsonb_build_object('n', n % 3), '{}', nullif(n % 5, 0) FROM generate_series(1, 12) AS n;
INSERT INTO i SELECT n % 14, n, n % 6, 'x' || n % 3 FROM generate_series(1, 40) AS n;
INSERT INTO p SELECT n, n % 3, 'p' || n % 4 FROM generate_series(1, 12) AS n;
INSERT INTO parent VALUES (1, 'a'); INSERT INTO child VALUES (1, 'b')
"""
QUERIES = {
    "inner": "SELECT o.id, o.name, o.rate, count(*) AS n, sum(i.qty) AS q FROM o JOIN i ON i.o = o.id GROUP BY o.id",
    "left": "SELECT o.id, upper(o.name) AS name, coalesce(o.more, -1) AS more, max(i.qty) AS q FROM o LEFT JOIN i ON i.o = o.id GROUP BY o.id",
    "right": "SELECT o.id, o.name, i.note, count(*) AS n FROM o RIGHT JOIN i ON i.o = o.id GROUP BY o.id, i.note",
    "full": "SELECT o.id, o.name, count(i.o) AS n FROM o FULL JOIN i ON i.o = o.id GROUP BY o.id",
    "alone": "SELECT id, name, more FROM o GROUP BY id",
    "digits": "SELECT o.id, o.price, o.score, sum(i.qty) AS q FROM o LEFT JOIN i ON i.o = o.id GROUP BY o.id",
    "interval": "SELECT o.id, o.at, o.doc, count(*) AS n FROM o JOIN i ON i.o = o.id GROUP BY o.id",
    "having": "SELECT o.id, count(*) AS n FROM o JOIN i ON i.o = o.id GROUP BY o.id HAVING o.name < 'n2' AND sum(i.qty) > o.more",
    "limit": "SELECT o.id, o.name, count(*) AS n FROM o JOIN i ON i.o = o.id GROUP BY o.id ORDER BY o.name DESC, count(*), o.id LIMIT 3",
    "window": "SELECT o.id, o.name, sum(i.qty) AS q, rank() OVER (PARTITION BY o.name ORDER BY sum(i.qty), o.id) AS r, sum(o.more) OVER (PARTITION BY o.name) AS m FROM o JOIN i ON i.o = o.id GROUP BY o.id",
    "subquery": "SELECT o.id, (SELECT count(*) FROM i WHERE i.qty = o.more) AS n FROM o GROUP BY o.id",
    "exists": "SELECT o.id, o.name FROM o GROUP BY o.id HAVING EXISTS (SELECT FROM i WHERE i.note = 'x' || o.more)",
    "below": "SELECT g.name, count(*) AS n, sum(g.q) AS q FROM (SELECT o.id, o.name, sum(i.qty) AS q FROM o JOIN i ON i.o = o.id GROUP BY o.id) AS g GROUP BY g.name",
    "joined below": "SELECT g.name, o.more, g.q FROM o JOIN (SELECT o.id, o.name, sum(i.qty) AS q FROM o JOIN i ON i.o = o.id GROUP BY o.id) AS g ON g.id = o.more",
    "with": 'WITH g AS (SELECT i.o, i."no", i.note, count(*) AS n FROM i JOIN o ON o.id = i.o GROUP BY i.o, i."no") SELECT note, sum(n) AS n FROM g GROUP BY note',
    "view": "SELECT name, sum(q) AS q FROM v GROUP BY name",
    "distinct": "SELECT DISTINCT o.name, count(*) AS n FROM o JOIN i ON i.o = o.id GROUP BY o.id",
    "united": "SELECT o.name, count(*) AS n FROM o JOIN i ON i.o = o.id GROUP BY o.id UNION ALL SELECT p.name, count(*) FROM p GROUP BY p.id, p.part",
    "partitioned": "SELECT p.id, p.part, p.name, count(i.o) AS n FROM p LEFT JOIN i ON i.o = p.id GROUP BY p.part, p.id",
    "twice": "SELECT a.id, a.name, b.name AS other, count(*) AS n FROM o AS a JOIN o AS b ON b.more = a.more GROUP BY a.id, b.id",
    "aliases": "SELECT x.k, x.l, count(*) AS n FROM o AS x (k, l) JOIN i ON i.o = x.k GROUP BY x.k",
    "filter": "SELECT o.id, o.name, count(*) FILTER (WHERE o.more > 2) AS n, percentile_disc(0.5) WITHIN GROUP (ORDER BY o.more + i.qty) AS p FROM o JOIN i ON i.o = o.id GROUP BY o.id",
    "expression": "SELECT o.id + 1 AS k, o.name || '!' AS s, o.id, count(*) AS n FROM o JOIN i ON i.o = o.id GROUP BY o.id, (o.id + 1)",
}


def _change(line: Line, rng: random.Random) -> None:
    for _ in range(6):
        n = rng.randrange(14)
        line.sql(
            rng.choice(
                [
                    f"UPDATE o SET name = 'n{rng.randrange(4)}', price = price * 1.0, at = justify_hours(at), score = -score WHERE id = {n}",
                    f"UPDATE o SET more = {rng.choice(['NULL', '1', '3'])}, doc = '{{\"n\": 9}}' WHERE id = {n}",
                    f"DELETE FROM o WHERE id = {n}",
                    f"INSERT INTO o (id, name, price, more) VALUES ({n}, 'new', 1.50, 2) ON CONFLICT DO NOTHING",
                    f'UPDATE i SET o = {n}, qty = {rng.randrange(9)} WHERE "no" = {rng.randrange(40)}',
                    f'DELETE FROM i WHERE o = {n} AND "no" % 2 = 0',
                    f"INSERT INTO i VALUES ({n}, {rng.randrange(100, 9999)}, {n}, 'x1') ON CONFLICT DO NOTHING",
                    f"UPDATE p SET name = 'p{rng.randrange(4)}', part = {rng.randrange(4)} WHERE id = {n}",
                    f"UPDATE o SET id = id + 100 WHERE id = {n}",
                ]
            )
        )


def _table(name: str) -> str:
    return f"st_{name.replace(' ', '_')}"


def _view(name: str) -> str:
    return f"view_{name.replace(' ', '_')}"


def _texts(line: Line, relation: str, view: str) -> list[tuple[str]]:
    """With every digit: the values are those of one row, so nothing is left to choose."""
    columns = (
        "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = %s::regclass"
    )
    ((names,),) = line.sql(columns, view)
    return line.sql(f"SELECT q::text FROM (SELECT {names} FROM {relation}) AS q ORDER BY 1")


@pytest.mark.parametrize("seed", range(2))
def test_columns_that_a_key_decides(line: Line, seed: int) -> None:
    line.sql(TABLES)
    for name, query in QUERIES.items():
        line.sql(f"CREATE VIEW {_view(name)} AS {query}")
        line.create(_table(name), query, mode="DIFFERENTIAL")
    rng = random.Random(seed)
    for _ in range(4):
        _change(line, rng)
        line.tick()
        for name in QUERIES:
            action, status, reason = line.last(_table(name))
            assert status == "COMPLETED", (name, reason)
            assert action in ("DIFFERENTIAL", "NO_DATA") or line.refreshes(_table(name)) == 1, (name, action, reason)
            line.equal(_table(name))
            assert _texts(line, _table(name), _view(name)) == _texts(line, _view(name), _view(name)), name


def test_what_a_key_does_not_decide_or_cannot_be_grouped_is_full(line: Line) -> None:
    line.sql(TABLES)
    line.create("inherited", "SELECT parent.id, parent.name, count(*) AS n FROM parent GROUP BY parent.id")
    line.create("raw", "SELECT o.id, o.raw, count(*) AS n FROM o JOIN i ON i.o = o.id GROUP BY o.id")
    modes = dict(
        line.sql("SELECT pgt_name, mode_reason FROM pgtrickle.pgt_stream_tables WHERE effective_refresh_mode = 'FULL'")
    )
    assert modes["inherited"] == "name outside an aggregate could not be matched with a grouping key"
    assert modes["raw"].endswith("values would have to be compared whose type has no operators in pg_catalog")
    line.sql("INSERT INTO i VALUES (1, 999, 1, 'x')")
    line.tick()
    ((name, status),) = line.sql("SELECT pgt_name, status FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'raw'")
    assert (name, status) == ("raw", "ACTIVE")
