# ruff: noqa: E501 - a query is easier to read on one line
"""Virtual generated columns (PostgreSQL 18's default): computed from the captured columns."""

from __future__ import annotations

from random import Random

import pytest

from tests.line import Line

TABLES = """
CREATE TABLE t (
    id int PRIMARY KEY, price numeric, qty int, name text, "Odd name" text, day timestamp,
    total numeric(8,2) GENERATED ALWAYS AS (price * qty),
    half int GENERATED ALWAYS AS (price / 2),
    label text GENERATED ALWAYS AS (name || '-' || "Odd name"),
    "Is ""big"" x" bool GENERATED ALWAYS AS (qty > 3 OR qty IS NULL),
    hour timestamp GENERATED ALWAYS AS (date_trunc('hour', day)),
    "from" int GENERATED ALWAYS AS (CASE WHEN qty > 0 THEN 100 / qty END),
    stored int GENERATED ALWAYS AS (qty + 1) STORED
);
CREATE TABLE u (a int, double int GENERATED ALWAYS AS (a * 2));
CREATE TABLE parts (a int, b int, c int GENERATED ALWAYS AS (a + b)) PARTITION BY LIST (a);
CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1, 2);
CREATE TABLE part_n PARTITION OF parts DEFAULT;
CREATE VIEW v AS SELECT id, total, label FROM t WHERE "Is ""big"" x";
"""
QUERIES = {
    "plain": "SELECT * FROM t",
    "one": "SELECT total, half FROM t",
    "filtered": "SELECT id FROM t WHERE total > 10",
    "alias": "SELECT x.f, x.c FROM t AS x (a, b, c, d, e, day, f)",
    "totals": 'SELECT label, sum(total) AS s, max("from") AS m, count(*) AS n FROM t GROUP BY label',
    "by_hour": 'SELECT hour, "Is ""big"" x" AS big, count(half) AS n FROM t GROUP BY ROLLUP (1, 2)',
    "joined": "SELECT t.id, u.double FROM t JOIN u ON u.double = t.half",
    "outer_join": "SELECT u.a, t.total, t.label FROM u LEFT JOIN t ON t.stored = u.double",
    "full_join": "SELECT t.total, u.double FROM t FULL JOIN u ON u.double = t.half",
    "merged": "SELECT id, double FROM (SELECT id, half AS double FROM t) q LEFT JOIN u USING (double)",
    "natural": "SELECT * FROM u NATURAL JOIN (SELECT half AS double, id FROM t) q",
    "self": "SELECT x.id, y.total FROM t x JOIN t y ON y.half = x.qty",
    "windowed": "SELECT id, row_number() OVER (PARTITION BY half ORDER BY total, id) AS n FROM t",
    "top": "SELECT id, total FROM t ORDER BY total DESC NULLS LAST, id LIMIT 3",
    "distinct_labels": "SELECT DISTINCT label FROM t",
    "exists": "SELECT a FROM u WHERE EXISTS (SELECT FROM t WHERE t.half = u.double)",
    "in_list": "SELECT id FROM t WHERE half NOT IN (SELECT double FROM u WHERE double IS NOT NULL)",
    "scalar": "SELECT a, (SELECT max(total) FROM t WHERE half < double) AS most FROM u",
    "sets": "SELECT half FROM t EXCEPT SELECT double FROM u",
    "of_view": "SELECT label, count(*) AS n FROM v GROUP BY label",
    "of_parts": "SELECT a, sum(c) AS s FROM parts GROUP BY a",
    "of_part": "SELECT a, c FROM part_1",
    "cte": "WITH w AS (SELECT half, total FROM t) SELECT w.half, x.total FROM w JOIN w x ON x.half = w.half + 1",
}


def changes(random: Random) -> str:
    def value(*of: object) -> str:
        return str(random.choice(of))

    def one() -> str:
        id_ = random.randint(1, 12)
        price, qty = value("NULL", 0, 1.005, 2.5, 3, 10.10), value("NULL", 0, 1, 2, 4, 7)
        name, odd = value("NULL", "'a'", "'b'"), value("NULL", "'x'", "''")
        return value(
            f"INSERT INTO t VALUES ({id_}, {price}, {qty}, {name}, {odd}, '2024-01-01 10:{id_ * 5 % 60}:00') ON CONFLICT DO NOTHING",
            f"INSERT INTO t VALUES ({id_}, {price}, {qty}, {name}, {odd}, NULL) ON CONFLICT DO NOTHING",
            f"UPDATE t SET qty = {qty}, price = {price} WHERE id % 3 = {id_ % 3}",
            f'UPDATE t SET name = {name}, "Odd name" = {odd} WHERE id = {id_}',
            f"DELETE FROM t WHERE id = {id_}",
            f"INSERT INTO u VALUES ({qty})",
            f"UPDATE u SET a = {qty} WHERE a = {id_ % 4}",
            f"DELETE FROM u WHERE a = {id_ % 5}",
            f"INSERT INTO parts VALUES ({id_ % 4}, {qty})",
            f"UPDATE parts SET a = {id_ % 3}, b = {qty} WHERE a = {id_ % 4}",
        )

    return "; ".join(one() for _ in range(random.randint(2, 8)))


@pytest.fixture
def computed(sparkless: Line) -> Line:
    sparkless.sql(TABLES)
    return sparkless


def test_virtual_columns_are_maintained_from_changes(computed: Line) -> None:
    line, random = computed, Random(5)
    for _ in range(4):
        line.sql(changes(random))
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", f"s_{name}", query)
    line.tick()
    seen: dict[str, set[str]] = {name: set() for name in QUERIES}
    for number in range(8):
        change = "DELETE FROM t; DELETE FROM u; DELETE FROM parts" if number == 6 else changes(random)
        line.sql(change)
        line.tick()
        for name in QUERIES:
            action, status, why = line.last(f"s_{name}")
            assert status == "COMPLETED", (name, change, why)
            assert action in ("DIFFERENTIAL", "NO_DATA"), (name, change, action, why)
            line.equal(f"s_{name}")
            seen[name].add(action)
    assert {name for name, actions in seen.items() if "DIFFERENTIAL" not in actions} == set()


def test_change_of_the_expression_is_followed(computed: Line) -> None:
    line = computed
    line.sql("INSERT INTO u VALUES (1), (2)")
    line.create("s", "SELECT a, double FROM u")
    line.create("other", "SELECT a FROM u")
    line.sql("ALTER TABLE u ALTER COLUMN double SET EXPRESSION AS (a * 3)")
    line.tick()
    assert line.rows("s") == [(1, 3), (2, 6)]
    line.sql("INSERT INTO u VALUES (3)")
    line.tick()
    line.check("s")
    line.check("other")
    line.sql(
        "ALTER TABLE u RENAME COLUMN a TO b; ALTER TABLE u RENAME COLUMN double TO triple; UPDATE u SET b = 7 WHERE b = 1"
    )
    line.tick()
    line.equal("s")
    line.sql("INSERT INTO u VALUES (9)")
    line.tick()
    line.check("s")


def test_error_of_an_expression_is_not_an_error_of_the_writer(computed: Line) -> None:
    line = computed
    line.sql("CREATE TABLE f (a int, b int GENERATED ALWAYS AS (10 / a)); INSERT INTO f VALUES (1)")
    line.create("s", "SELECT a, b FROM f")
    line.sql("INSERT INTO f VALUES (0)")
    line.tick()
    assert line.last("s")[1] == "FAILED"
    line.sql("UPDATE f SET a = 5 WHERE a = 0")
    line.sql("SELECT pgtrickle.refresh_stream_table('s')")
    line.tick()
    line.equal("s")
    line.sql("INSERT INTO f VALUES (2)")
    line.tick()
    line.check("s")


@pytest.mark.parametrize(
    "column",
    [
        "c varchar(3) GENERATED ALWAYS AS (a)",
        """c text COLLATE "C" GENERATED ALWAYS AS (a)""",
        'c text GENERATED ALWAYS AS (a COLLATE "C")',
    ],
)
def test_what_a_cast_does_not_say_is_full(computed: Line, column: str) -> None:
    line = computed
    line.sql(f"CREATE TABLE w (a text, {column}); INSERT INTO w VALUES ('x')")
    line.create("s", "SELECT c FROM w")
    assert line.sql("SELECT effective_refresh_mode, mode_reason_code FROM pgtrickle.pgt_stream_tables") == [
        ("FULL", "virtual_column")
    ]
    line.create("r", "SELECT a FROM w")
    line.sql("INSERT INTO w VALUES ('yy')")
    line.tick()
    line.check("s", "FULL")
    line.check("r")
